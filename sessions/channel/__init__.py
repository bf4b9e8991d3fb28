"""Channels: one interface that carries messages between processes, whatever carries the bytes."""
