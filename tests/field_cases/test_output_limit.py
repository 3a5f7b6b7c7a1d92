"""F16: the output limit falls inside an item, of any kind, at any token: the item is the last, and nothing is owed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from respserver.config import Mode
from respserver.engines.sim import Script, call, custom, reasoning, refusal, text
from tests.support.live import Frame, Wire, calls_of, http, post, stream, text_of, tool, user
from tests.support.talk import Talk, services, spy_of

LONG = "a long harbour text with words enough for every token of the limit to fall somewhere inside of it"
TOOLS = [tool("lookup_tide"), {"type": "custom", "name": "patch"}]
BEFORE = "one two three four five six seven eight nine"
"""A whole message in front, so that the least limit there is falls at the next item's first tokens."""
FIRST_LIMIT = 16


async def response_of(server: Any, connect: Any, transport: str, **fields: Any) -> tuple[Frame, list[Frame]]:
    """The terminal Response, and the events before it if the transport has any."""
    if transport == "json":
        answer = await post(server, **fields)
        assert answer.status_code == 200, answer.text
        response: Frame = answer.json()
        return response, []
    wire: Wire = await connect(server)
    frames = await (stream(server, **fields) if transport == "sse" else wire.turn(**fields))
    assert frames[-1]["type"] == "response.incomplete"
    return frames[-1]["response"], frames[:-1]


@pytest.mark.parametrize("transport", ["websocket", "sse", "json"])
async def test_f16_the_output_limit_falls_inside_a_call(serve: Any, connect: Any, transport: str) -> None:
    server = await serve(Script.of(call("lookup_tide", places=LONG), "And on.", on_end="repeat"))
    response, events = await response_of(
        server, connect, transport, input="go", tools=TOOLS, max_output_tokens=FIRST_LIMIT
    )
    assert (response["status"], response["completed_at"]) == ("incomplete", None)
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["usage"]["output_tokens"] == FIRST_LIMIT
    (made,) = response["output"]
    assert made["status"] == "incomplete"
    with pytest.raises(json.JSONDecodeError):
        json.loads(made["arguments"])
    for event in events:
        item = event.get("item", {})
        if item.get("id") == made["id"]:
            assert item["status"] != "completed"
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == [made] * bool(events)
    async with http(server) as client:
        assert (await client.get(f"/responses/{response['id']}")).json() == response
    again: Wire = await connect(server)
    chained = await again.completed(input="go on", tools=TOOLS, previous_response_id=response["id"])
    resent = await again.completed(input=[user("go"), *response["output"], user("go on")], tools=TOOLS)
    assert text_of(chained) == text_of(resent) == "And on."


CUT = {
    "text": [text(LONG)],
    "second part": [text("a", LONG)],
    "refusal": [refusal(LONG)],
    "reasoning": [reasoning("hm", LONG)],
    "arguments": [call("lookup_tide", places=LONG)],
    "name": [call("fs_" * 30 + "lookup", x=1)],
    "no arguments": [call("lookup_tide"), call("lookup_tide"), call("lookup_tide")],
    "input": [custom("patch", LONG)],
    "several": [text("a b"), call("lookup_tide", x=1), custom("patch", "a"), reasoning("hm"), text("c")],
}  # fmt: skip


def check_cut(response: Frame, limit: int) -> None:
    """What a limit leaves: whole items, then perhaps one that broke off."""
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["usage"]["output_tokens"] == limit
    assert [item["status"] for item in response["output"][:-1]] == ["completed"] * (len(response["output"]) - 1)


def owed(response: Frame) -> list[Frame]:
    """Outputs for the calls that are whole."""
    return [
        {"type": f"{made['type']}_output", "call_id": made["call_id"], "output": "ok"}
        for made in calls_of(response)
        if made["status"] == "completed"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("shown", [True, False], ids=["summary", "bare"])
@pytest.mark.parametrize("kind", list(CUT))
async def test_f16_a_limit_at_any_token_of_any_item(nursery: Any, kind: str, shown: bool) -> None:
    """Until the limit is no longer reached: only calls that are whole are owed, and both ways of going on are open."""
    asked: Frame = {"tools": TOOLS, "reasoning": {"summary": "auto"} if shown else None, "store": False}
    parts = services(Script.of([text(BEFORE), *CUT[kind]], "next", on_end="repeat"))
    first = None
    statuses = set()
    for limit in range(FIRST_LIMIT, 400):
        talk = Talk(nursery, parts, beside=first)
        first = first or talk
        response = (await talk.turn(input="go", max_output_tokens=limit, **asked))["response"]
        if response["status"] == "completed":
            break
        check_cut(response, limit)
        statuses.add(response["output"][-1]["status"])
        going_on = [*owed(response), user("on")]
        chained = await talk.turn(input=going_on, previous_response_id=response["id"], **asked)
        assert chained["type"] == "response.completed", chained
        resent = await talk.turn(input=[user("go"), *response["output"], *going_on], **asked)
        assert resent["type"] == "response.completed", resent
        contexts = spy_of(parts).context_ids
        assert contexts[-1] == contexts[-2]
    assert limit > FIRST_LIMIT + 2
    assert response["usage"]["output_tokens"] == limit  # a response that just fits its limit is whole
    assert "incomplete" in statuses or kind == "name"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["arguments", "input", "no arguments", "several"])
async def test_f16_a_cut_rollout_does_not_pause_for_its_whole_calls(serve: Any, connect: Any, kind: str) -> None:
    """Prototype mode: the limit bounds the rollout, so that nothing could come behind an output."""
    wire: Wire = await connect(await serve(Script.of([text(BEFORE), *CUT[kind]], on_end="repeat"), mode=Mode.PROTOTYPE))
    for limit in range(FIRST_LIMIT, 24):
        last = (await wire.turn(input="go", tools=TOOLS, max_output_tokens=limit))[-1]
        assert last["type"] == "response.incomplete", last
        check_cut(last["response"], limit)
