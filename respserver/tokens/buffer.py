"""The token ids of a context, growing at the end only, and how far the engine has come with them.

A buffer has one owner (design.md section 6): a continuation on the same lane takes it, a fork copies it, a failed
continuation drops it. Nothing here is shared or locked.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Never


class TokenBuffer:
    """Append-only token ids. ``seen`` of them, from the start, are known to the engine's open sequence."""

    __slots__ = ("_ids", "seen")

    def __init__(self) -> None:
        self._ids: array[int] = array("I")
        self.seen = 0

    @classmethod
    def frombytes(cls, *chunks: bytes) -> TokenBuffer:
        """A buffer of stored ids, all unseen. Each chunk is what ``tobytes`` gave. Raises ``ValueError`` for a chunk
        that is cut."""
        buffer = cls()
        for chunk in chunks:
            buffer._ids.frombytes(chunk)
        if sys.byteorder == "big":
            buffer._ids.byteswap()
        return buffer

    def __len__(self) -> int:
        return len(self._ids)

    def extend(self, ids: Iterable[int]) -> None:
        """Append ids that the engine has not had."""
        self._ids.extend(ids)

    def extend_sampled(self, ids: Iterable[int]) -> None:
        """Append ids that the engine made itself. Raises ``ValueError`` while older ids are unseen: an engine cannot
        have sampled behind ids it does not know."""
        if self.seen != len(self._ids):
            raise ValueError(f"{len(self._ids) - self.seen} ids before the sampled ones were never handed over")
        self._ids.extend(ids)
        self.seen = len(self._ids)

    def unseen(self) -> array[int]:
        """Hand over the ids that the engine has not had; they count as seen from now on."""
        fresh = self._ids[self.seen :]
        self.seen = len(self._ids)
        return fresh

    def rewind(self) -> None:
        """Count every id as unseen: the engine starts a new sequence."""
        self.seen = 0

    def fork(self) -> TokenBuffer:
        """A copy for another owner, all unseen."""
        copy = TokenBuffer()
        copy._ids = self._ids[:]
        return copy

    @property
    def last(self) -> int | None:
        """The last id, or None if there is none."""
        return self._ids[-1] if self._ids else None

    def since(self, start: int) -> array[int]:
        """A copy of the ids from index ``start`` on."""
        return self._ids[start:]

    def tobytes(self, start: int = 0) -> bytes:
        """The ids from index ``start`` on as little-endian uint32, for a store."""
        ids = self._ids[start:]
        if sys.byteorder == "big":
            ids.byteswap()
        return ids.tobytes()

    def retire(self) -> None:
        """Give up the ids: from now on any use but ``seen`` raises ``RuntimeError``. For tests that prove that nobody
        touches a buffer."""
        del self._ids

    if not TYPE_CHECKING:  # pragma: no branch - type checkers must go on refusing unknown names

        def __getattr__(self, name: str) -> Never:
            # Reached only when the normal look-up failed, so that live buffers pay nothing for the guard.
            if name == "_ids":
                raise RuntimeError("this buffer was retired")
            raise AttributeError(name)
