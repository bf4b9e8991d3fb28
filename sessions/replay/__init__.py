"""Replay of a recording: the same messages through the same channel interface as a live session."""

from __future__ import annotations

from sessions.replay.alignment import Anchor, anchors
from sessions.replay.channel import ReplayChannel
from sessions.replay.following import FollowingPlayer
from sessions.replay.player import MAX_SPEED, MIN_SPEED, Player

__all__ = ["MAX_SPEED", "MIN_SPEED", "Anchor", "FollowingPlayer", "Player", "ReplayChannel", "anchors"]
