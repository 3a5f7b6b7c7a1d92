"""F01 to F05: what a chain is, where it lives, and what becomes of an id that cannot be resolved. F30: its bounds."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.engines.base import Engine
from respserver.engines.sim import Script, call
from tests.field_cases.test_disconnect import until
from tests.support.live import Frame, Wire, calls_of, http, output, post, text_of, tool, user
from tests.support.spy import Spy

ECHO = Script.of("first", "second", "third", "fourth", on_end="repeat")


def assert_not_found(error: Frame, response_id: str) -> None:
    assert error["status"] == 400
    assert error["error"]["type"] == "invalid_request_error"
    assert error["error"]["code"] == "previous_response_not_found"
    assert error["error"]["param"] == "previous_response_id"
    assert response_id in error["error"]["message"]


async def test_f01_a_new_socket_does_not_know_the_old_sockets_unstored_ids(serve: Any, connect: Any) -> None:
    server = await serve(ECHO)
    first: Wire = await connect(server)
    response = await first.completed(store=False, input="tide at pier 4?")
    await first.socket.aclose()
    second: Wire = await connect(server)
    error = await second.refused(store=False, previous_response_id=response["id"], input="and tomorrow?")
    assert_not_found(error, response["id"])
    history = [user("tide at pier 4?"), {"role": "assistant", "content": "first"}, user("and tomorrow?")]
    assert text_of(await second.completed(store=False, input=history)) == "second"


async def test_f02_a_refused_continuation_drops_its_parent(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(ECHO))
    parent = await wire.completed(store=False, input="hi")
    orphan = {"type": "function_call_output", "call_id": "call_zz", "output": "x"}
    refused = await wire.refused(store=False, previous_response_id=parent["id"], input=[orphan])
    assert (refused["status"], refused["error"]["code"]) == (400, "no_tool_call_found")
    assert_not_found(await wire.refused(store=False, previous_response_id=parent["id"], input="again"), parent["id"])
    assert text_of(await wire.completed(store=False, input="start over")) == "first"


async def test_f02_a_validation_error_drops_the_parent_too(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(ECHO))
    parent = await wire.completed(store=False, input="hi")
    await wire.refused(store=False, previous_response_id=parent["id"], input="x", temperature=9)
    assert_not_found(await wire.refused(store=False, previous_response_id=parent["id"], input="again"), parent["id"])


async def test_f02_a_stored_parent_can_still_be_continued_from_the_store(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(ECHO))
    parent = await wire.completed(input="hi")
    await wire.refused(previous_response_id=parent["id"], input=[output({"type": "", "call_id": "call_zz"})])
    assert text_of(await wire.completed(previous_response_id=parent["id"], input="again")) == "second"


@pytest.mark.parametrize("warm_up", [False, True])
async def test_f03_store_false_lives_in_its_sockets_memory_only(serve: Any, connect: Any, warm_up: bool) -> None:
    spy = Spy()
    server = await serve(engine=spy)
    first: Wire = await connect(server)
    extra = {"generate": False} if warm_up else {}
    parent = await first.completed(store=False, input="code word: cobalt", **extra)
    second: Wire = await connect(server)
    assert_not_found(await second.refused(previous_response_id=parent["id"], input="code word?"), parent["id"])
    answer = await post(server, previous_response_id=parent["id"], input="code word?")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "previous_response_not_found"
    async with http(server) as client:
        assert (await client.get(f"/responses/{parent['id']}")).status_code == 404
    await first.completed(store=False, previous_response_id=parent["id"], input="code word?")
    assert "code word: cobalt" in spy.contexts[-1]
    assert "code word?" in spy.contexts[-1]


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_f04_what_a_continuation_carries(serve: Any, connect: Any, transport: str) -> None:
    spy = Spy(Script.of(call("lookup_tide", pier=4), "low at six", "bye"))
    server = await serve(engine=spy)
    wire: Wire = await connect(server)

    async def turn(**fields: Any) -> Frame:
        if transport == "websocket":
            return await wire.completed(**fields)
        answer = await post(server, **fields)
        assert answer.status_code == 200, answer.text
        response: Frame = answer.json()
        return response

    one = await turn(instructions="I1", tools=[tool("lookup_tide")], input="tide at pier 4?")
    (made,) = calls_of(one)
    two = await turn(previous_response_id=one["id"], instructions="I2", input=[output(made, "06:00")])
    three = await turn(previous_response_id=two["id"], input="thanks")
    first, second, third = spy.contexts
    body = "user: tide at pier 4?"
    assert first == f"system: I1\ntools: lookup_tide\n{body}"
    assert second == f'system: I2\n{body}\ncall lookup_tide: {{"pier":4}}\ntool lookup_tide: 06:00'
    assert third == second.removeprefix("system: I2\n") + "\nassistant: low at six\nuser: thanks"
    assert [turn_["previous_response_id"] for turn_ in (one, two, three)] == [None, one["id"], two["id"]]
    assert (two["instructions"], three["instructions"], two["tools"]) == ("I2", None, [])


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
async def test_f05_an_unknown_id_is_refused_over_http(serve: Any, stream: bool) -> None:
    server = await serve(ECHO)
    unstored = (await post(server, store=False, input="hi")).json()["id"]
    for response_id in ("resp_nope", unstored):
        answer = await post(server, previous_response_id=response_id, input="go on", stream=stream)
        assert_not_found({"status": answer.status_code, **answer.json()}, response_id)


@pytest.mark.parametrize("store", [False, True])
async def test_f05_only_the_latest_unstored_id_of_a_lane_is_known(serve: Any, connect: Any, store: bool) -> None:
    wire: Wire = await connect(await serve(ECHO))
    first = await wire.completed(store=store, input="one")
    await wire.completed(store=store, previous_response_id=first["id"], input="two")
    if store:
        assert text_of(await wire.completed(previous_response_id=first["id"], input="three")) == "second"
    else:
        assert_not_found(await wire.refused(previous_response_id=first["id"], input="three"), first["id"])


@pytest.mark.parametrize("bound", [{"store_responses": 2}, {"store_bytes": 60_000}], ids=["count", "bytes"])
async def test_f30_what_a_full_store_has_forgotten_is_not_found(
    serve: Any, connect: Any, bound: dict[str, int]
) -> None:
    server = await serve(ECHO, limits={"kept_contexts": 0, **bound})
    wire: Wire = await connect(server)
    oldest, _, newest = [(await wire.completed(input="harbour " * 1000))["id"] for _ in range(3)]
    elsewhere: Wire = await connect(server)
    async with http(server) as client:
        assert [(await client.get(f"/responses/{one}")).status_code for one in (oldest, newest)] == [404, 200]
    assert_not_found(await elsewhere.refused(previous_response_id=oldest, input="go on"), oldest)
    assert text_of(await elsewhere.completed(previous_response_id=newest, input="go on")) == "second"


async def test_f30_what_a_connection_holds_goes_with_it(serve: Any, connect: Any) -> None:
    spy = Spy()
    server = await serve(engine=spy, limits={"kept_contexts": 0})
    for _ in range(20):
        wire: Wire = await connect(server)
        await wire.completed(input="hi", store=False)
        await wire.socket.aclose()
    await until(lambda: spy.closed == 20)


def test_the_spy_is_an_engine() -> None:
    engine: Engine = Spy()
    assert engine.name == "sim"
