"""F20: what the server does not know gets one error frame each, and the turn that runs is none the wiser."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from trio_websocket import ConnectionClosed

from respserver.config import Mode
from respserver.engines.sim import Script, call
from tests.support.live import PATIENCE, TERMINALS, Frame, Wire, calls_of, output, text_of, tool
from tests.support.sdk import check_frame
from tests.support.spy import Spy

CALM = "The tide does not mind."
TOOLS = [tool("lookup_tide")]


def event(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields})


STRANGE: list[tuple[str, str | None]] = [
    (event("zzz.unknown"), "type"),
    ("{}", "type"),
    ('{"type":7}', "type"),
    ('{"type":null,"input":"hi"}', "type"),
    ("[1]", None),
    ('"response.create"', None),
    ("not JSON", None),
    ('{"type":"response.create",', None),
    ("", None),
    (event("response.inject", input=[]), "type"),
    (event("response.cancel"), "type"),
    (event("session.update", session={}), "type"),
    (event("response.created", response={}), "type"),
]
"""Messages, and the ``param`` of their errors. The known ones among them are not built, or are the server's to send."""
STEER = (event("response.steer", previous_response_id="resp_1", input="faster"), "type")


def strange_to(mode: Mode) -> list[tuple[str, str | None]]:
    """What this mode does not know: a turn is steered in shipped mode alone."""
    return STRANGE if mode is Mode.SHIPPED else [*STRANGE, STEER]


async def errors_and_turn(wire: Wire) -> tuple[list[Frame], list[Frame]]:
    """The frames until the turn's end: the error frames, and the turn's own."""
    frames = [await wire.frame()]
    while frames[-1]["type"] not in TERMINALS:
        frames.append(await wire.frame())
    errors = [frame for frame in frames if frame["type"] == "error"]
    return errors, [frame for frame in frames if frame["type"] != "error"]


@pytest.mark.parametrize("mode", list(Mode))
async def test_f20_unknown_events_get_one_error_each_and_leave_the_running_turn_alone(
    serve: Any, connect: Any, mode: Mode
) -> None:
    spy = Spy(Script.of(CALM, on_end="repeat"))
    spy.gate = trio.Event()
    wire: Wire = await connect(await serve(engine=spy, mode=mode))
    await wire.create(input="go")
    begun = [await wire.frame(), await wire.frame()]
    for message, param in strange_to(mode):
        await wire.send(message)
        error = await wire.frame()  # at once, while the model is still silent
        check_frame(error)
        assert (error["type"], error["status"]) == ("error", 400), message
        assert error["error"]["param"] == param, message
        assert error["error"]["type"] == "invalid_request_error"
        assert error["error"]["message"]
    spy.gate.set()
    errors, own = await errors_and_turn(wire)
    own = begun + own
    assert errors == []
    assert [frame["sequence_number"] for frame in own] == list(range(len(own)))
    assert text_of(own[-1]["response"]) == CALM
    assert text_of(await wire.completed(input="next")) == CALM


@pytest.mark.parametrize("mode", list(Mode))
async def test_f20_unknown_events_in_the_middle_of_a_stream_are_all_answered(
    serve: Any, connect: Any, mode: Mode
) -> None:
    long = "word " * 200
    wire: Wire = await connect(await serve(Script.of(long), mode=mode, tps=2000.0))
    await wire.create(input="go")
    for message, _ in strange_to(mode):
        await wire.send(message)
    errors, own = await errors_and_turn(wire)
    assert [error["error"]["param"] for error in errors] == [param for _, param in strange_to(mode)]
    assert [frame["sequence_number"] for frame in own] == list(range(len(own)))
    assert text_of(own[-1]["response"]) == long
    assert "".join(frame["delta"] for frame in own if frame["type"] == "response.output_text.delta") == long


@pytest.mark.parametrize(
    ("mode", "code", "param"),
    [(Mode.SHIPPED, "unknown_event_type", "type"), (Mode.PROTOTYPE, "response_not_suspended", "response_id")],
)
async def test_f20_an_append_that_nobody_waits_for_is_refused_while_a_turn_runs(
    serve: Any, connect: Any, mode: Mode, code: str, param: str
) -> None:
    spy = Spy(Script.of(CALM))
    spy.gate = trio.Event()
    wire: Wire = await connect(await serve(engine=spy, mode=mode))
    await wire.create(input="go")
    created = await wire.frame()
    await wire.frame()
    await wire.append([output({"type": "function_call", "call_id": "c1"})], response_id=created["response"]["id"])
    error = await wire.frame()
    assert (error["type"], error["error"]["code"], error["error"]["param"]) == ("error", code, param)
    spy.gate.set()
    assert text_of((await wire.frames())[-1]["response"]) == CALM


async def test_f20_unknown_events_leave_a_suspended_turn_suspended(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(Script.of(call("lookup_tide"), CALM), mode=Mode.PROTOTYPE))
    done = (await wire.turn(input="go", tools=TOOLS))[-1]
    assert done["type"] == "response.done"
    for message, param in strange_to(Mode.PROTOTYPE):
        await wire.send(message)
        error = await wire.frame()
        assert (error["type"], error["error"]["param"]) == ("error", param), message
    await wire.append([output(calls_of(done["response"])[0])])
    frames = await wire.frames()
    assert frames[0]["sequence_number"] == done["sequence_number"] + 1
    assert text_of(frames[-1]["response"]) == CALM


@pytest.mark.parametrize("mode", list(Mode))
async def test_f20_a_binary_frame_closes_with_1003_and_stops_the_turn(serve: Any, connect: Any, mode: Mode) -> None:
    spy = Spy(Script.of(CALM))
    spy.gate = trio.Event()
    server = await serve(engine=spy, mode=mode)
    other: Wire = await connect(server)
    wire: Wire = await connect(server)
    await wire.create(input="go")
    assert (await wire.frame())["type"] == "response.created"
    assert (await wire.frame())["type"] == "response.in_progress"
    await wire.socket.send_message(json.dumps({"type": "response.create"}).encode())
    with trio.fail_after(PATIENCE), pytest.raises(ConnectionClosed) as caught:
        await wire.socket.get_message()
    assert caught.value.reason.code == 1003
    with trio.fail_after(PATIENCE):
        while not spy.closed:
            await trio.sleep(0.001)
    spy.gate.set()
    assert text_of(await other.completed(input="still here")) == CALM
    assert spy.contexts == ["user: still here"]
