"""F14: calls and outputs must pair up, over WebSocket and HTTP alike, before any model work."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.engines.sim import Script, call, custom
from tests.support.live import Wire, ask, calls_of, output, text_of, tool, user
from tests.support.spy import Spy

TOOLS = [tool("first"), tool("second")]
TWO_CALLS = Script.of([call("first"), call("second")], "thanks")


@pytest.mark.parametrize("transport", ["websocket", "sse", "json"])
@pytest.mark.parametrize("case", ["one output and a line", "a line alone", "both", "an output of no call"])
async def test_f14_calls_and_outputs_must_pair_up(serve: Any, connect: Any, transport: str, case: str) -> None:
    spy = Spy(TWO_CALLS)
    server = await serve(engine=spy)
    wire: Wire = await connect(server)
    parent = await wire.completed(input="go", tools=TOOLS)
    one, two = calls_of(parent)
    fields: dict[str, Any] = {"tools": TOOLS, "previous_response_id": parent["id"]}
    if case == "an output of no call":
        fields = {"input": [output({"type": "function_call", "call_id": "call_none"})]}
        missing = "call_none"
    elif case == "both":
        fields["input"] = [output(two, "aborted"), output(one, "ok"), user("go on")]
        missing = ""
    else:
        answers = [output(one)] if case == "one output and a line" else []
        fields["input"] = [*answers, user("stop")]
        missing = two["call_id"] if answers else one["call_id"]
    runs = len(spy.contexts)
    answer = await ask(server, wire, transport, **fields)
    if case == "both":
        assert text_of(answer["response"]) == "thanks"
        assert spy.contexts[-1].endswith("tool first: ok\ntool second: aborted\nuser: go on")
        return
    assert answer["status"] == 400
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["param"] == "input"
    assert missing in answer["error"]["message"]
    assert answer["error"]["code"] in {"no_tool_output_found", "no_tool_call_found"}
    assert len(spy.contexts) == runs


async def test_a_custom_call_takes_only_a_custom_output(serve: Any, connect: Any) -> None:
    tools = [{"type": "custom", "name": "exec"}]
    wire: Wire = await connect(await serve(Script.of([custom("exec", "ls -l")], "done")))
    parent = await wire.completed(input="go", tools=tools)
    (made,) = calls_of(parent)
    assert (made["type"], made["input"]) == ("custom_tool_call", "ls -l")
    wrong = {"type": "function_call_output", "call_id": made["call_id"], "output": "x"}
    error = await wire.refused(previous_response_id=parent["id"], input=[wrong])
    assert "No tool call found for function call output" in error["error"]["message"]
    final = await wire.completed(previous_response_id=parent["id"], input=[output(made, "total 0")], tools=tools)
    assert text_of(final) == "done"


async def test_a_parents_call_sent_again_without_id_beside_its_output_is_not_a_second_one(
    serve: Any, connect: Any
) -> None:
    spy = Spy(Script.of(call("first"), "thanks"))
    wire: Wire = await connect(await serve(engine=spy))
    parent = await wire.completed(input="go", tools=TOOLS)
    (made,) = calls_of(parent)
    again = {key: made[key] for key in ("type", "call_id", "name", "arguments")}
    await wire.completed(previous_response_id=parent["id"], input=[again, output(made)], tools=TOOLS)
    assert spy.contexts[-1].count("call first") == 1
