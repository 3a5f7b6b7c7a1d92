"""F39, F40: warm-up, and the two modes kept apart."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.config import Mode
from respserver.engines.sim import Script, call
from tests.support.live import Wire, calls_of, output, text_of, tool
from tests.support.sdk import check_event
from tests.support.spy import Spy

TOOLS = [tool("lookup_tide")]


@pytest.mark.parametrize("mode", list(Mode))
async def test_f39_a_warm_up_prepares_without_model_work(serve: Any, connect: Any, mode: Mode) -> None:
    spy = Spy(Script.of("ready"))
    wire: Wire = await connect(await serve(engine=spy, mode=mode))
    line = {"role": "developer", "content": "be brief"}
    frames = await wire.turn(generate=False, instructions="I", tools=TOOLS, input=[line], store=False)
    assert [frame["type"] for frame in frames] == ["response.created", "response.completed"]
    for frame in frames:
        check_event(frame)
    warm = frames[-1]["response"]
    assert warm["output"] == []
    assert warm["usage"]["output_tokens"] == 0
    assert warm["usage"]["input_tokens"] > 0
    assert spy.contexts == []
    response = await wire.completed(previous_response_id=warm["id"], instructions="I", tools=TOOLS, input="go")
    assert text_of(response) == "ready"
    assert spy.contexts == ["system: I\ntools: lookup_tide\ndeveloper: be brief\nuser: go"]
    assert response["usage"]["input_tokens_details"]["cached_tokens"] == warm["usage"]["input_tokens"]
    assert len(spy.given) == 3  # the head, the warmed line, the new line: nothing twice


async def test_f39_a_warm_up_can_be_continued_with_no_input_at_all(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve())
    warm = await wire.completed(generate=False, input="what now?")
    assert text_of(await wire.completed(previous_response_id=warm["id"])) == "You said: what now?"
    empty = await wire.completed(generate=False, input=[])
    assert text_of(await wire.completed(previous_response_id=empty["id"], input="hi")) == "You said: hi"
    error = await wire.refused(input=[])
    assert (error["error"]["code"], error["error"]["param"]) == ("missing_required_parameter", "input")


async def test_f40_shipped_mode_refuses_append_at_any_time(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(Script.of(call("lookup_tide"), "low")))
    await wire.append([output({"type": "function_call", "call_id": "c1"})])
    first = await wire.frame()
    assert (first["type"], first["status"], first["error"]["param"]) == ("error", 400, "type")
    assert "previous_response_id" in first["error"]["message"]
    parent = await wire.completed(input="go", tools=TOOLS)
    (made,) = calls_of(parent)
    await wire.append([output(made)])
    assert (await wire.frame())["type"] == "error"
    assert text_of(await wire.completed(previous_response_id=parent["id"], input=[output(made)])) == "low"


async def test_f40_loop_mode_is_one_response_for_the_whole_rollout(serve: Any, connect: Any) -> None:
    spy = Spy(Script.of(call("lookup_tide", pier=4), "low at six"))
    wire: Wire = await connect(await serve(engine=spy, mode=Mode.PROTOTYPE))
    before = await wire.turn(input="tide?", tools=TOOLS)
    done = before[-1]
    assert done["type"] == "response.done"
    (made,) = calls_of(done["response"])
    assert done["required_input"] == [
        {"type": "function_call_output", "call_id": made["call_id"], "name": "lookup_tide"}
    ]
    assert done["response"]["status"] == "in_progress"
    runs, given = len(spy.contexts), len(spy.given)
    await wire.append([output(made, "06:00")])
    after = await wire.frames()
    for frame in (*before, *after):
        check_event(frame)
    final = after[-1]
    assert final["type"] == "response.completed"
    frames = before + after
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    assert {frame["response"]["id"] for frame in frames if "response" in frame} == {final["response"]["id"]}
    added = [frame for frame in frames if frame["type"] == "response.output_item.added"]
    assert [frame["output_index"] for frame in added] == [0, 1]
    assert [item["type"] for item in final["response"]["output"]] == ["function_call", "message"]
    assert [frame["type"] for frame in frames].count("response.created") == 1
    assert (len(spy.contexts), len(spy.given)) == (runs + 1, given + 1)
    assert spy.contexts[-1].endswith('user: tide?\ncall lookup_tide: {"pier":4}\ntool lookup_tide: 06:00')


async def test_f40_usage_of_a_rollout_is_the_sum_of_the_same_turns_in_shipped_mode(serve: Any, connect: Any) -> None:
    script = Script.of(call("lookup_tide", pier=4), call("lookup_tide", pier=5), "low at six")
    shipped: Wire = await connect(await serve(script))
    usages = []
    response = await shipped.completed(input="tide?", tools=TOOLS)
    while calls := calls_of(response):
        usages.append(response["usage"])
        response = await shipped.completed(
            previous_response_id=response["id"], input=[output(calls[0], "06:00")], tools=TOOLS
        )
    usages.append(response["usage"])
    prototype: Wire = await connect(await serve(script, mode=Mode.PROTOTYPE))
    last = (await prototype.turn(input="tide?", tools=TOOLS))[-1]
    while last["type"] == "response.done":
        await prototype.append([output(calls_of(last["response"])[0], "06:00")])
        last = (await prototype.frames())[-1]
    total = last["response"]["usage"]
    for key in ("input_tokens", "output_tokens", "total_tokens"):
        assert total[key] == sum(usage[key] for usage in usages)
    for key in ("cached_tokens", "cache_write_tokens"):
        assert total["input_tokens_details"][key] == sum(usage["input_tokens_details"][key] for usage in usages)
