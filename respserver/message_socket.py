"""What a session talks to: a socket of whole text messages, whichever library carries it.

Only the interface lives here; ``transport/`` has the implementations. A session depends on nothing else of a transport.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class SocketClosed(Exception):
    """The socket is closed: by the peer, by us, or because the peer is gone.

    ``code`` is the close code, or None if the connection ended without a close frame; ``reason`` is its text.
    """

    def __init__(self, code: int | None = None, reason: str = "") -> None:
        self.code = code
        self.reason = reason
        shown = "without a close frame" if code is None else f"with code {code}"
        super().__init__(f"socket closed {shown}{f': {reason}' if reason else ''}")


class Socket(Protocol):
    """One WebSocket connection after its handshake. One task receives; any task may send."""

    async def receive(self) -> str:
        """The next text message. Raises ``SocketClosed`` once no more can come, however the connection ended."""
        ...

    def send_many(self, messages: Sequence[bytes]) -> None:
        """Send text messages (UTF-8) that are due together, in one write; never waits and never cuts a message.

        Raises ``SocketClosed`` if nothing may follow any more.
        """
        ...

    async def drain(self) -> None:
        """Wait while too much is pending for a slow reader. Raises ``SocketClosed``."""
        ...

    async def close(self, code: int, reason: str = "") -> None:
        """Close with a close code, within a deadline of a few seconds. Never raises; a second call does nothing."""
        ...
