"""Log probabilities as the wire has them (protocol.md section 3.2): with bytes in final parts, without in events."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class TopLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """One of the most likely tokens at a place."""

    token: str
    bytes: list[int] | UnsetType = UNSET
    logprob: float

    @property
    def in_stream(self) -> TopLogprob:
        """The same as events show it."""
        return TopLogprob(token=self.token, logprob=self.logprob)


class Logprob(msgspec.Struct, frozen=True, kw_only=True):
    """A token of a text, how likely it was, and what was likely in its place.

    A token may hold part of a character only; ``token`` has U+FFFD in its place then, and ``bytes`` says what it is.
    """

    token: str
    bytes: list[int] | UnsetType = UNSET
    logprob: float
    top_logprobs: list[TopLogprob] = []

    @property
    def in_stream(self) -> Logprob:
        """The same as events show it."""
        return Logprob(
            token=self.token, logprob=self.logprob, top_logprobs=[top.in_stream for top in self.top_logprobs]
        )
