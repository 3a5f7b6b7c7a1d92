"""Where sampling ends: after the one call that may be made, and where a limit falls; what the context then holds."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from respserver.engines.sim import Script, call, step
from tests.support.live import Frame, calls_of, text_of, tool
from tests.support.talk import Talk, services

TOOLS = [tool("get_abc")]
TWO_CALLS = [call("get_abc", x="1"), call("get_abc", x="2")]


async def ask(nursery: trio.Nursery, *answers: Any, **fields: Any) -> tuple[Talk, Frame]:
    talk = Talk(nursery, services(Script.of(*answers)))
    frame = await talk.turn(tools=TOOLS, input="go", **fields)
    response: Frame = frame["response"]
    return talk, response


@pytest.mark.parametrize("pace", [None, 50.0, 200.0, 1000.0])
async def test_a_single_call_is_a_single_call_at_any_pace(
    nursery: trio.Nursery, autojump_clock: Any, pace: float | None
) -> None:
    _, response = await ask(nursery, step(*TWO_CALLS, tps=pace), parallel_tool_calls=False)
    assert [made["arguments"] for made in calls_of(response)] == ['{"x":"1"}']
    assert response["status"] == "completed"


@pytest.mark.slow
@pytest.mark.parametrize("length", range(40, 64))
async def test_a_single_call_is_a_single_call_wherever_its_end_falls_in_a_batch(
    nursery: trio.Nursery, length: int
) -> None:
    first = call("get_abc", arguments=" x" * length)
    _, response = await ask(nursery, [first, call("get_abc", x="2")], parallel_tool_calls=False)
    assert len(response["output"]) == 1


@pytest.mark.parametrize("pace", [None, 100.0])
@pytest.mark.parametrize("limit", range(16, 30))
async def test_a_limit_leaves_only_what_the_client_has_seen_in_the_context(
    nursery: trio.Nursery, autojump_clock: Any, limit: int, pace: float | None
) -> None:
    said = step("a b c d e f g h i j k l", call("get_abc", x="1"), tps=pace)
    talk, cut = await ask(nursery, said, "next", max_output_tokens=limit, store=False)
    assert cut["usage"]["output_tokens"] == limit
    shown = [{key: value for key, value in item.items() if key not in ("id", "status")} for item in cut["output"]]
    shown = [item for item in shown if item["type"] == "message"]  # half a call is not sent back
    if len(shown) < len(cut["output"]):
        return
    fresh = Talk(nursery, talk.services, beside=talk)
    full = await fresh.turn(
        tools=TOOLS, input=[{"role": "user", "content": "go"}, *shown, {"role": "user", "content": "on"}]
    )
    chained = await talk.turn(tools=TOOLS, input="on", previous_response_id=cut["id"])
    for answer in (chained, full):
        assert text_of(answer["response"]) == "next"
    assert chained["response"]["usage"]["input_tokens"] == full["response"]["usage"]["input_tokens"]
