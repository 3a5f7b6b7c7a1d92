"""Counting a client's frames as they come in, so that no flood of tiny ones holds up everybody else.

The library works off all frames of one read before it lets another task run, and keeps every fragment of a message that
is not complete: a megabyte may be 175,000 empty fragments. So it is handed few frames at a time, and a message has a
greatest number of fragments. Bytes only: no sockets, and what breaks the protocol is left for the library to refuse.
"""

from __future__ import annotations

FRAMES_AT_ONCE = 16
"""Some 2 ms of the library's work. Whole messages never come in such numbers: each is given to the session alone."""
MAX_FRAGMENTS = 1 << 14
"""Of one message: 16 MiB in the smallest packets that networks carry would be 12,000."""

_LENGTH_BYTES = {126: 2, 127: 8}


class FrameMeter:
    """Follows one direction of a connection from its first frame on. ``fragments`` counts those of the open message."""

    def __init__(self) -> None:
        self.fragments = 0
        self._head = bytearray()
        self._payload_left = 0

    def portion(self, data: bytes, start: int) -> int:
        """Where the next few frames of ``data`` end that begin at ``start``, or are cut off by its end."""
        for _ in range(FRAMES_AT_ONCE):
            start = self._pass_frame(data, start)
            if start == len(data):
                break
        return start

    def _pass_frame(self, data: bytes, start: int) -> int:
        """The end of the frame that is open at ``start``, or of ``data`` (RFC 6455 section 5.2)."""
        while not self._payload_left:
            if start == len(data):
                return start
            self._head.append(data[start])
            start += 1
            if self._ends_head():
                break
        step = min(self._payload_left, len(data) - start)
        self._payload_left -= step
        return start + step

    def _ends_head(self) -> bool:
        head = self._head
        if len(head) < 2:
            return False
        masked, size = head[1] & 0x80, head[1] & 0x7F
        more = _LENGTH_BYTES.get(size, 0)
        if len(head) < 2 + more + (4 if masked else 0):
            return False
        self._payload_left = int.from_bytes(head[2 : 2 + more], "big") if more else size
        is_final, is_control = head[0] & 0x80, head[0] & 0x08
        if not is_control:
            self.fragments = 0 if is_final else self.fragments + 1
        head.clear()
        return True
