"""A fork while its source goes on, where no number of tokens shows it: the fork's model gets the past as it was, and
nothing of what the source does meanwhile."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import Literal

import pytest
import trio
import trio.testing

from respserver.engines.sim import Script, step
from respserver.schema.items import InputItem
from respserver.turn.safety import Screening, Verdict
from tests.support.live import Frame
from tests.support.talk import Talk, services, spy_of

WORDS = "aa bb cc dd ee ff gg hh ii jj kk ll mm nn oo pp"


class SlowFor:
    """Takes its time over what holds a text."""

    name = "slow"
    when: Literal["before", "beside"] = "before"
    reads: Literal["new", "context"] = "new"

    def __init__(self, text: bytes, seconds: float) -> None:
        self._text = text
        self._seconds = seconds

    async def screen(self, items: Items[InputItem], verdict: Verdict) -> Verdict:
        if any(self._text in bytes(item.raw) for item in items):
            await trio.sleep(self._seconds)
        return Verdict()

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("parent", [{"generate": False}, {"max_output_tokens": 16}], ids=["warm-up", "cut"])
@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5, 3.5])
async def test_a_fork_never_sees_what_its_source_says_without_new_input(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, parent: Frame, seconds: float
) -> None:
    """The source's first tokens are its frame's, which no client is shown: nothing counts them but the engine."""
    parts = services(Script.of(step(WORDS, tps=1.0), "left", on_end="repeat"))
    parts.screening = Screening([SlowFor(b"left", seconds)])
    talk = Talk(nursery, parts)
    response = (await talk.turn(input="one", store=False, **parent))["response"]
    talk.create(stream_id="fork", input="left", previous_response_id=response["id"], store=False)
    talk.create(input=[], previous_response_id=response["id"], store=False)
    await trio.sleep(100)
    history = [{"role": "user", "content": "one"}, *response["output"], {"role": "user", "content": "left"}]
    talk.create(stream_id="whole", input=history, store=False)
    await trio.sleep(100)
    forked, whole = [ids for ids, words in zip(spy_of(parts).context_ids, spy_of(parts).contexts, strict=True)
                     if "user: left" in words]  # fmt: skip
    assert forked == whole
