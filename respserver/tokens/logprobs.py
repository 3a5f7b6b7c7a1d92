"""Parsing with log probabilities: which tokens made which delta.

Only turns that asked for them pass here, one token at a time; all others feed the parser itself and pay nothing. Only
a message's text has log probabilities on the wire. The tokens of a character that is split belong to the delta that
shows it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from respserver.schema.logprobs import Logprob, TopLogprob
from respserver.tokens.parse import Delta, OutputParser, ScoredText, TextDelta
from respserver.tokens.special import SPECIAL_COUNT

LOWEST = -9999.0
"""What stands for no probability at all, or next to none: JSON has no infinity."""


class TokenLogprob(msgspec.Struct, frozen=True):
    """What an engine says of one token that it sampled: its log probability, and the most likely ids there with
    theirs, the likeliest first."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class ScoredParser:
    """Feeds ``parser`` and hands its deltas on; those of a message's text with the log probabilities of their tokens,
    and ``most`` alternatives each."""

    def __init__(self, parser: OutputParser, token_bytes: Sequence[bytes], most: int) -> None:
        self._parser = parser
        self._token_bytes = token_bytes
        self._most = most
        self._waiting: list[Logprob] = []
        """Those of tokens that no delta has shown yet."""

    def feed(self, ids: Sequence[int], scores: Sequence[TokenLogprob]) -> list[Delta]:
        """The deltas that the next ids make. There is a score for each id."""
        deltas: list[Delta] = []
        for token, score in zip(ids, scores, strict=True):
            fresh = self._parser.feed((token,))
            if self._parser.in_message_text and SPECIAL_COUNT <= token < len(self._token_bytes):
                self._waiting.append(self._logprob(token, score))
            deltas += self._scored(fresh)
        return deltas

    def finish(self) -> list[Delta]:
        """Close what is open as incomplete."""
        return self._scored(self._parser.finish())

    def _scored(self, deltas: list[Delta]) -> list[Delta]:
        scored: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, TextDelta) and self._waiting:
                delta = ScoredText(delta.text, tuple(self._waiting))
                self._waiting.clear()
            scored.append(delta)
        return scored

    def _logprob(self, token: int, score: TokenLogprob) -> Logprob:
        data = self._bytes_of(token)
        return Logprob(
            token=_text(data),
            bytes=list(data),
            logprob=_finite(score.logprob),
            top_logprobs=[self._top(*pair) for pair in score.top[: self._most]],
        )

    def _top(self, token: int, logprob: float) -> TopLogprob:
        data = self._bytes_of(token)
        return TopLogprob(token=_text(data), bytes=list(data), logprob=_finite(logprob))

    def _bytes_of(self, token: int) -> bytes:
        """What a token says; nothing for marks and ids that the vocabulary does not have."""
        return self._token_bytes[token] if token < len(self._token_bytes) else b""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _finite(logprob: float) -> float:
    """Within what JSON can say; what is no number is no probability."""
    return max(LOWEST, min(0.0, logprob)) if logprob == logprob else LOWEST
