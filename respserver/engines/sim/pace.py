"""When tokens are due: an absolute schedule, so that a late sleep is made up for and never adds up.

Arithmetic alone: waiting is ``engine.py``'s. Times are seconds on the caller's clock.
"""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from respserver import mistakes
from respserver.errors import ConfigError

TICK = 0.002
"""Least time between two batches of a paced run: faster tokens leave together, so that 4,000 tokens/s cost 500 passes
through the scheduler and not 4,000."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_ROUNDING = 1e-9

Amount = Annotated[float, Meta(ge=0, le=sys.float_info.max, extra={"words": "a finite number of at least 0"})]
"""A speed or a time: no schedule can be kept with others."""
Share = Annotated[float, Meta(ge=0, le=1)]


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a model speaks."""

    tps: float = 0.0
    """Tokens per second; 0 is all at once."""
    ttft: float = 0.0
    """Seconds before the first token."""
    jitter: float = 0.0
    """Share of a token's time by which it may be late, 0 to 1."""

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` naming the field."""
        check_value("tps", self.tps, Amount)
        check_value("ttft", self.ttft, Amount)
        check_value("jitter", self.jitter, Share)


# Any: an annotation
def check_value(name: str, value: object, kind: Any) -> None:
    """Raise ``ConfigError`` unless ``value``, which ``name`` stands for, is what a file could say in its place."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(name, mistakes.refusal(kind, value)) from error


class Schedule:
    """The due times of one run's tokens. ``seed`` varies the jitter from run to run, and always in the same way."""

    def __init__(self, pace: Pace, start: float, seed: int) -> None:
        self._tps = pace.tps
        self._jitter = pace.jitter
        self._seed = seed
        self._first = start + pace.ttft

    def shift(self, seconds: float) -> None:
        """Make everything that is to come later by so many seconds."""
        self._first += seconds

    def due(self, position: int) -> float:
        """When the token at ``position`` is due; the one behind the last stands for the end."""
        if not self._tps:
            return self._first
        return self._first + (position + self._lateness(position)) / self._tps

    def due_count(self, now: float, end: int) -> int:
        """How many of the first ``end`` tokens are due at ``now``, once the first is. For paced schedules only."""
        steps = min((now - self._first + _ROUNDING) * self._tps, end)
        # A token is late by less than one step, so all before the last full step are due; that one is looked at.
        last = int(steps)
        return min(end, last + (last + self._lateness(last) <= steps))

    def _lateness(self, position: int) -> float:
        """0 to ``jitter``, spread evenly: multiples of the golden ratio fall everywhere between 0 and 1."""
        return self._jitter * math.modf((position + self._seed) * _GOLDEN)[0] if self._jitter else 0.0
