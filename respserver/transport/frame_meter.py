"""Counting a client's frames as they come in, so that no flood holds up everybody else or fills the memory.

The libraries work off all frames of one read before they let another task run, and keep every fragment of a message
that is not complete: a megabyte may be 175,000 empty fragments. One of them counts characters instead of bytes, the
other reads on after a message that is over its limit. So they are handed few frames at a time, and the size of a
message and the number of its fragments are limited here, for both roads to a WebSocket. Bytes only: no sockets, and
what breaks the protocol is left for the libraries to refuse.
"""

from __future__ import annotations

FRAMES_AT_ONCE = 16
"""Some 2 ms of the library's work. Whole messages never come in such numbers: each is given to the session alone."""
MAX_FRAGMENTS = 1 << 14
"""Of one message: 16 MiB in the smallest packets that networks carry would be 12,000."""

TOO_MANY_FRAGMENTS = f"a message may have {MAX_FRAGMENTS} fragments"

_LENGTH_BYTES = {126: 2, 127: 8}


def too_big(limit: int) -> str:
    """The close reason of a message over its limit in bytes."""
    return f"Exceeded maximum message size: {limit} bytes"


class FrameMeter:
    """Follows one direction of a connection from its first frame on.

    ``message_bytes`` is the greatest size of a message. ``fragments`` counts those of the open message, and ``excess``
    says over which limit a message was; it is empty as long as none was. A frame counts with the size that its head
    announces, so that nothing of what is too much needs to be read.
    """

    def __init__(self, message_bytes: int) -> None:
        self.fragments = 0
        self.excess = ""
        self._message_bytes = message_bytes
        self._announced = 0
        self._head = bytearray()
        self._payload_left = 0

    def portion(self, data: bytes, start: int) -> int:
        """Where the next few frames of ``data`` end that begin at ``start``, or are cut off by its end."""
        for _ in range(FRAMES_AT_ONCE):
            start = self._pass_frame(data, start)
            if start == len(data):
                break
        return start

    def follow(self, data: bytes) -> None:
        """Count all frames of ``data``, which is handed on in one piece."""
        start = 0
        while start < len(data):
            start = self.portion(data, start)

    def _pass_frame(self, data: bytes, start: int) -> int:
        """The end of the frame that is open at ``start``, or of ``data`` (RFC 6455 section 5.2)."""
        if not self._payload_left:
            start = self._pass_head(data, start)
        step = min(self._payload_left, len(data) - start)
        self._payload_left -= step
        return start + step

    def _pass_head(self, data: bytes, start: int) -> int:
        """The end of the head that is open at ``start``, or of ``data``."""
        head = self._head
        while (missing := _head_size(head) - len(head)) and start < len(data):
            head += data[start : start + missing]
            start = min(start + missing, len(data))
        if not missing:
            self._read_head()
        return start

    def _read_head(self) -> None:
        head = self._head
        size = head[1] & 0x7F
        more = _LENGTH_BYTES.get(size, 0)
        self._payload_left = int.from_bytes(head[2 : 2 + more], "big") if more else size
        if not head[0] & 0x08:  # a control frame is no part of a message
            self._count_fragment(is_final=bool(head[0] & 0x80))
        head.clear()

    def _count_fragment(self, *, is_final: bool) -> None:
        self.fragments += 1
        self._announced += self._payload_left
        if self._announced > self._message_bytes:
            self.excess = too_big(self._message_bytes)
        elif self.fragments > MAX_FRAGMENTS:
            self.excess = TOO_MANY_FRAGMENTS
        if is_final:
            self.fragments = self._announced = 0


def _head_size(head: bytearray) -> int:
    """Bytes of a head, which its first two tell; until they are there, two."""
    if len(head) < 2:
        return 2
    return 2 + _LENGTH_BYTES.get(head[1] & 0x7F, 0) + (4 if head[1] & 0x80 else 0)
