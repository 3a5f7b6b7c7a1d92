"""A classifier that only takes time, so that a measurement can show what screening costs and what hides it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import trio

from respserver.config import LatencyClassifierConfig
from respserver.schema.items import InputItem
from respserver.turn.safety.base import PASS, Verdict


class LatencyClassifier:
    """Passes everything after ``config.seconds``."""

    reads: Literal["new", "context"] = "new"

    def __init__(self, config: LatencyClassifierConfig) -> None:
        self.name = config.name or "latency"
        self.when: Literal["before", "beside"] = config.when
        self._seconds = config.seconds

    async def screen(self, items: Sequence[InputItem], verdict: Verdict) -> Verdict:  # noqa: ARG002 - an interface's
        """Pass, later."""
        await trio.sleep(self._seconds)
        return PASS

    async def aclose(self) -> None:
        """Nothing is held."""
