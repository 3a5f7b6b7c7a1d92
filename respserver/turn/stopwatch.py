"""Where a turn's time goes: every moment from its frame's last byte on belongs to exactly one stage.

A stage begins where the one before ends, so nothing is counted twice or not at all, however a turn ends: what it was
doing when it broke off has had the time. What the stages mean stands in ``ledger/base.py``. The clock is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from respserver.ledger.base import Timings

Stage = Literal[
    "receive",
    "validate",
    "queue",
    "bind",
    "screen",
    "render",
    "extend",
    "sample",
    "hosted",
    "emit",
    "write",
    "save",
    "suspended",
    "post",
]
STAGES: tuple[Stage, ...] = get_args(Stage)
SHORTEST = 0.0000005
"""Seconds that are a microsecond when rounded: no stage was passed in less."""
_NOTHING: dict[Stage, float] = dict.fromkeys(STAGES, 0.0)


class Stopwatch:
    """One turn's, or for the moment one message's; it stands in ``receive`` at first. ``clock`` gives seconds."""

    __slots__ = ("_clock", "_first_token", "_since", "_spans", "_stage", "started")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.started = clock()
        self._clock = clock
        self._stage: Stage = "receive"
        self._since = self.started
        self._spans = _NOTHING.copy()
        self._first_token: float | None = None

    def begin(self, stage: Stage) -> None:
        """What comes now belongs to ``stage``. A stage that comes again adds up."""
        now = self._clock()
        self._spans[self._stage] += now - self._since
        self._since = now
        self._stage = stage

    def mark_first_token(self) -> None:
        """The first event of the model's output is about to be written; later calls change nothing."""
        if self._first_token is None:
            self._first_token = self._clock() - self.started

    def go_on(self, message: Stopwatch) -> None:
        """The stage ended when ``message`` came; what was done about the message since then is this turn's too."""
        self._spans[self._stage] += message.started - self._since
        for stage, span in message._spans.items():
            self._spans[stage] += span
        self._stage, self._since = message._stage, message._since

    def read(self) -> Timings:
        """What has been measured so far, the running stage included."""
        now = self._clock()
        spans = self._spans.copy()
        spans[self._stage] += now - self._since
        first = None if self._first_token is None else _milliseconds(self._first_token)
        total = _milliseconds(now - self.started - spans["post"])
        passed = {stage: int(span * 1_000_000 + 0.5) / 1000 for stage, span in spans.items() if span >= SHORTEST}
        return Timings(**passed, first_token=first, total=total)


def _milliseconds(seconds: float) -> float:
    """To the microsecond: more digits would only tell of the clock. (``round`` takes five times as long.)"""
    return int(seconds * 1_000_000 + 0.5) / 1000
