"""What counts as a refused turn, in the ledger and in the metrics: every refused create, over each transport alike, and
no other message."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from respserver.config import Mode
from respserver.engines.sim import Script, call, delay
from respserver.errors import ShuttingDown
from respserver.schema.codec import read_object
from respserver.transport.http import HttpTurns
from respserver.turn.services import Services
from respserver.turn.stopwatch import Stopwatch
from tests.support.live import Wire, calls_of, http, output, tool
from tests.support.talk import Talk, services, settled

TOOLS = [tool("first")]
REFUSED_CREATES = {
    "unreadable model": ({"model": 5, "input": "hi"}, "", "invalid_type", "model"),
    "missing field": ({"model": "sim"}, "sim", "missing_required_parameter", "input"),
    "endless name": ({"model": "m" * 99}, "m" * 64, "missing_required_parameter", "input"),
    "fault deep inside": (
        {"model": "sim", "input": [{"role": "user", "content": 5}]}, "sim", "invalid_type", "input[0].content"
    ),
    "unsupported field": ({"model": "sim", "input": "hi", "background": True}, "sim", "unsupported_parameter",
                          "background"),
    "unknown parent": ({"model": "sim", "input": "hi", "previous_response_id": "resp_no"}, "sim",
                       "previous_response_not_found", "previous_response_id"),
}  # fmt: skip
"""Fields of a create, the model that its row names, the code, and where the log line says that the fault is."""
NO_CREATES = {
    "broken JSON": "{broken",
    "no object": "[]",
    "nothing": "",
}


def rows(parts: Services) -> list[tuple[str, str | None, str]]:
    """Status, code and model of each turn so far."""
    return [(row.status, row.error_code, row.model) for row in parts.post.tally.latest]


@pytest.mark.parametrize("transport", ["websocket", "json", "sse"])
@pytest.mark.parametrize("case", sorted(REFUSED_CREATES))
async def test_a_refused_create_is_one_row_and_one_refusal_over_each_transport(
    serve: Any, connect: Any, case: str, transport: str
) -> None:
    fields, model, code, param = REFUSED_CREATES[case]
    server = await serve()
    if transport == "websocket":
        wire: Wire = await connect(server)
        await wire.send({"type": "response.create", **fields})
        error = (await wire.frames())[-1]["error"]
    else:
        async with http(server) as client:
            answer = await client.post("/responses", json={**fields, "stream": transport == "sse"})
        error = answer.json()["error"]
    (row,) = server.turns()
    assert (row.status, row.error_code, row.model, row.param) == ("refused", code, model, param)
    assert (error["code"], error["param"]) == (code, param)
    assert (server.metrics.refused, server.metrics.turns, server.usage().failed) == (1, 0, 1)


@pytest.mark.parametrize("transport", ["websocket", "json"])
@pytest.mark.parametrize("text", NO_CREATES.values(), ids=NO_CREATES)
async def test_text_that_is_no_json_object_counts_as_nothing(
    serve: Any, connect: Any, text: str, transport: str
) -> None:
    server = await serve()
    if transport == "websocket":
        wire: Wire = await connect(server)
        await wire.send(text)
        error = (await wire.frames())[-1]["error"]
    else:
        async with http(server) as client:
            error = (await client.post("/responses", content=text)).json()["error"]
    assert error["code"] == "invalid_json"
    assert (server.turns(), server.metrics.refused) == ([], 0)


@pytest.mark.parametrize("mode", list(Mode))
async def test_events_of_other_types_and_appends_count_as_nothing(serve: Any, connect: Any, mode: Mode) -> None:
    server = await serve(mode=mode)
    wire: Wire = await connect(server)
    for frame in ({"type": "zzz"}, {}, {"type": "response.append", "input": [output({"type": "", "call_id": "c"})]}):
        await wire.send(frame)
        assert (await wire.frames())[-1]["type"] == "error"
    assert (server.turns(), server.metrics.refused) == ([], 0)


@pytest.mark.parametrize("limits", [{"queued_creates": 1}, {"queued_bytes": 400}], ids=["number", "bytes"])
async def test_a_create_that_finds_the_queue_full_is_counted_with_its_model(
    nursery: trio.Nursery, limits: dict[str, int], autojump_clock: Any
) -> None:
    parts = services(Script.of([delay(1), "fine"], on_end="repeat"), **limits)
    talk = Talk(nursery, parts)
    for name in ("runs", "waits", "too many"):
        talk.create(input=name + "." * 100, model=name)
        await settled()
    assert rows(parts) == [("refused", "queue_full", "too many")]
    assert parts.metrics.refused == 1
    for _ in range(2):
        while (await talk.socket.hear())["type"] != "response.completed":
            pass
    assert [row[0] for row in rows(parts)] == ["refused", "completed", "completed"]


async def test_a_create_that_goes_on_from_a_suspended_response_is_counted(nursery: trio.Nursery) -> None:
    parts = services(Script.of(call("first"), "fine"), mode=Mode.PROTOTYPE)
    talk = Talk(nursery, parts)
    done = await talk.turn(input="go", tools=TOOLS)
    error = await talk.turn(input=[output(calls_of(done["response"])[0])])
    assert error["error"]["code"] == "response_suspended"
    assert rows(parts) == [("refused", "response_suspended", "sim")]
    assert parts.metrics.refused == 1


async def test_creates_that_a_shutdown_refuses_are_counted_over_each_transport(
    nursery: trio.Nursery, autojump_clock: Any
) -> None:
    parts = services(Script.of([delay(5), "in time"], on_end="repeat"), grace_seconds=10.0)
    talk = Talk(nursery, parts)
    for name in ("runs", "waits"):
        talk.create(input=name)
        await settled()
    talk.stop.set()
    await settled()
    talk.create(input="too late", previous_response_id="resp_before")
    turns = HttpTurns(parts, nursery)
    await turns.shut_down(ShuttingDown(), grace=0.0)
    body = read_object(json.dumps({"model": "sim", "input": "too late"}))
    with pytest.raises(ShuttingDown):
        await turns.run(body, tenant="t", request_id="req_1", watch=Stopwatch(parts.clock))
    await talk.over.wait()
    refused = ("refused", "server_shutting_down")
    assert sorted(row[:2] for row in rows(parts)) == [("completed", None), *[refused] * 3]
    assert parts.metrics.refused == 3
    assert "resp_before" in {row.previous_response_id for row in parts.post.tally.latest}
