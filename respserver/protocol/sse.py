"""Server-sent events: how one event of a response looks on an HTTP stream (protocol.md section 7, F21)."""

from __future__ import annotations

DONE = b"data: [DONE]\n\n"
"""Ends every stream. The real service leaves it out, the written specification demands it, clients take both."""
KEEP_ALIVE = b": keep-alive\n\n"
"""A comment line: harmless to every parser, unlike an event without data."""


def frame(event_type: str, data: bytes) -> bytes:
    """One event. Our JSON holds no raw line breaks, echoes included, so that one ``data`` line is enough."""
    return b"event: %s\ndata: %s\n\n" % (event_type.encode(), data)
