"""Recordings for other tools and for people: traces, tables, reports."""
