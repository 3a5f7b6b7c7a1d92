"""What the ledger says of a turn that broke off: it has cost what the model had sampled until then."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from respserver.config import Mode
from respserver.engines.sim import Script, call, delay, fault, step
from respserver.ledger.base import TurnRecord
from tests.support.live import calls_of, output, tool
from tests.support.talk import Talk, services, settled

TOOLS = [tool("first")]
BREAKS_OFF = step("word " * 40, fault=fault("broke"), fault_after_tokens=12)


def latest(talk: Talk) -> TurnRecord:
    record: TurnRecord = talk.services.post.tally.latest[-1]
    return record


async def test_a_turn_whose_model_fails_has_cost_what_was_sampled_until_then(nursery: trio.Nursery) -> None:
    talk = Talk(nursery, services(Script.of(BREAKS_OFF)))
    failed = await talk.turn(input="hi")
    assert failed["type"] == "response.failed"
    row = latest(talk)
    assert (row.status, row.usage.output_tokens) == ("failed", 12)
    assert row.usage.output_tokens == talk.services.metrics.tokens_sampled
    assert row.usage.total_tokens == row.usage.input_tokens + 12 > 12


async def test_a_rollout_that_breaks_off_after_a_pause_has_cost_both_parts(nursery: trio.Nursery) -> None:
    talk = Talk(nursery, services(Script.of(call("first"), BREAKS_OFF), mode=Mode.PROTOTYPE))
    done = await talk.turn(input="go", tools=TOOLS)
    before = done["response"]["usage"]["output_tokens"]
    talk.socket.say({"type": "response.append", "input": [output(calls_of(done["response"])[0])]})
    assert (await talk.socket.hear_step())[-1]["type"] == "response.failed"
    row = latest(talk)
    assert (row.status, row.pauses, row.usage.output_tokens) == ("failed", 1, before + 12)
    assert row.usage.output_tokens == talk.services.metrics.tokens_sampled


@pytest.mark.parametrize("deltas", [0, 1, 3])
async def test_a_turn_that_its_client_leaves_has_cost_what_was_sampled_until_then(
    nursery: trio.Nursery, deltas: int, autojump_clock: Any
) -> None:
    """The model speaks a word and falls silent, again and again; the client leaves in a silence."""
    words = [piece for number in range(5) for piece in (f"word{number} ", delay(10))]
    talk = Talk(nursery, services(Script.of([delay(10), *words])))
    talk.create(input="hi")
    heard = 0
    while heard < deltas:
        heard += (await talk.socket.hear())["type"] == "response.output_text.delta"
    await settled()
    talk.socket.leave()
    await talk.over.wait()
    row = latest(talk)
    assert (row.status, row.usage.output_tokens) == ("cancelled", talk.services.metrics.tokens_sampled)
    assert (row.usage.output_tokens > 0) == (deltas > 0)
    assert row.usage.input_tokens > 0
