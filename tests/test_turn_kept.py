"""Kept contexts: who may take them, what bounds them, and that a turn that goes on from one costs no history."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from respserver.config import Config, Limits
from respserver.embed import make_server, running_server
from respserver.engines.sim import Script, call
from respserver.protocol.chain import Context, Latest, Past
from respserver.schema.codec import read_object
from respserver.server import Address
from respserver.state import StoredItem
from respserver.tokens.buffer import TokenBuffer
from respserver.transport.http import HttpTurns
from respserver.turn.kept import KeptContexts
from respserver.turn.stopwatch import Stopwatch
from tests.support.live import calls_of, http, output, post, text_of, tool
from tests.support.spy import Spy
from tests.support.talk import Talk, services

STORY = Script.of(call("first"), "one", "two", "three", on_end="repeat")


def latest(name: str, *, stored: bool = True, text: bytes = b"") -> Latest:
    past = Past.after(None, [StoredItem("input", text)])
    return Latest(response_id=name, context=Context(buffer=TokenBuffer(), fingerprint="", past=past), stored=stored)


def test_the_first_that_goes_on_takes_it_and_nobody_else() -> None:
    given_up: list[Context] = []
    kept = KeptContexts(2, 1 << 20, given_up.append)
    given = latest("a")
    kept.keep("me", given)
    assert ("me", "a") in kept
    assert kept.take(("you", "a")) is None
    assert kept.take(("me", "a")) is given.context
    assert kept.take(("me", "a")) is None
    assert (len(kept), kept.bytes, given_up) == (0, 0, [])


def test_the_longest_unused_makes_room() -> None:
    given_up: list[Context] = []
    kept = KeptContexts(2, 1 << 20, given_up.append)
    given = [latest(name) for name in "abc"]
    for each in given:
        kept.keep("me", each)
    assert [("me", name) in kept for name in "abc"] == [False, True, True]
    assert [id(context) for context in given_up] == [id(given[0].context)]
    kept.clear()
    assert [id(context) for context in given_up] == [id(each.context) for each in given]
    assert (len(kept), kept.bytes) == (0, 0)


def test_bytes_bound_it_too_and_what_never_fits_goes_alone() -> None:
    given_up: list[Context] = []
    kept = KeptContexts(10, 10_000, given_up.append)
    small, large, huge = latest("small"), latest("large", text=b"x" * 7_000), latest("huge", text=b"x" * 10_000)
    kept.keep("me", small)
    kept.keep("me", huge)
    assert ("me", "small") in kept
    assert ("me", "huge") not in kept
    kept.keep("me", large)
    assert [key in kept for key in (("me", "small"), ("me", "large"))] == [False, True]
    assert 7_000 < kept.bytes <= 10_000
    assert [id(context) for context in given_up] == [id(huge.context), id(small.context)]


@pytest.mark.parametrize(("contexts", "size", "stored"), [(0, 1 << 20, True), (2, 0, True), (2, 1 << 20, False)])
def test_nothing_is_kept_that_is_not_stored_or_if_it_is_switched_off(contexts: int, size: int, stored: bool) -> None:
    given_up: list[Context] = []
    kept = KeptContexts(contexts, size, given_up.append)
    kept.keep("me", latest("a", stored=stored))
    assert (len(kept), len(given_up)) == (0, 1)


async def test_a_chained_request_gives_the_engine_what_is_new_and_says_so(serve: Any) -> None:
    server = await serve(STORY)
    first = (await post(server, input="x" * 3000, tools=[tool("first")])).json()
    before = server.metrics.tokens_extended
    answer = output(calls_of(first)[0])
    second = (await post(server, input=[answer], previous_response_id=first["id"], tools=[tool("first")])).json()
    assert text_of(second) == "one"
    assert server.metrics.tokens_extended - before < 40
    assert (server.metrics.contexts_reused, server.metrics.chains_hydrated) == (1, 0)
    details = second["usage"]["input_tokens_details"]
    assert details["cached_tokens"] + details["cache_write_tokens"] == second["usage"]["input_tokens"]
    assert details["cached_tokens"] > first["usage"]["input_tokens"]


@pytest.mark.parametrize(("store", "contexts"), [(True, 9), (False, 9), (True, 0)])
async def test_only_what_somebody_can_go_on_from_counts_as_written(serve: Any, store: bool, contexts: int) -> None:
    server = await serve(Script.of("one"), limits={"kept_contexts": contexts})
    usage = (await post(server, input="hi", store=store)).json()["usage"]
    written = usage["input_tokens_details"]["cache_write_tokens"]
    assert written == (usage["input_tokens"] if store and contexts else 0)


async def test_a_second_continuation_of_the_same_response_is_hydrated_and_sees_the_same(serve: Any) -> None:
    server = await serve(Script.of("zero", "one", "two", on_end="repeat"))
    parent = (await post(server, input="go")).json()["id"]
    texts = [text_of((await post(server, input="on", previous_response_id=parent)).json()) for _ in range(3)]
    assert texts == ["one"] * 3
    assert (server.metrics.contexts_reused, server.metrics.chains_hydrated) == (1, 2)


async def test_a_new_socket_goes_on_where_a_closed_one_ended() -> None:
    parts = services(Script.of("zero", "one"))
    async with trio.open_nursery() as nursery:
        old = Talk(nursery, parts)
        parent = (await old.turn(input="go"))["response"]["id"]
        old.socket.leave()
        await old.over.wait()
        answer = await Talk(nursery, parts, beside=old).turn(input="on", previous_response_id=parent)
        assert text_of(answer["response"]) == "one"
        assert (parts.metrics.contexts_reused, parts.metrics.chains_hydrated) == (1, 0)
        nursery.cancel_scope.cancel()


async def test_a_deleted_response_is_not_kept(serve: Any) -> None:
    spy = Spy(Script.of("zero", "one"))
    server = await serve(engine=spy)
    parent = (await post(server, input="go")).json()["id"]
    assert spy.sequences_open == 1
    async with http(server) as client:
        await client.delete(f"/responses/{parent}")
    assert spy.sequences_open == 0
    refused = await post(server, input="on", previous_response_id=parent)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "previous_response_not_found")


async def test_what_the_store_has_given_up_cannot_be_continued_from_here(serve: Any) -> None:
    spy = Spy(Script.of("zero", "one"))
    server = await serve(engine=spy, limits={"store_responses": 1})
    parent = (await post(server, input="go")).json()["id"]
    await post(server, input="another, for which the store has to make room")
    refused = await post(server, input="on", previous_response_id=parent)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "previous_response_not_found")
    assert spy.sequences_open == 1


async def test_a_refused_continuation_leaves_a_stored_parent_to_be_continued(serve: Any) -> None:
    spy = Spy(Script.of("zero", "one"))
    server = await serve(engine=spy)
    parent = (await post(server, input="go")).json()["id"]
    lost = {"type": "function_call_output", "call_id": "call_none", "output": "x"}
    assert (await post(server, input=[lost], previous_response_id=parent)).status_code == 400
    assert spy.sequences_open == 0
    assert text_of((await post(server, input="on", previous_response_id=parent)).json()) == "one"


class SlowToClose(Spy):
    """Every run takes two seconds to close."""

    async def open(self) -> Any:
        sequence = await super().open()
        close = sequence.aclose

        async def aclose() -> None:
            await trio.sleep(2.0)
            await close()

        sequence.aclose = aclose
        return sequence


@pytest.mark.parametrize("store", [False, True])
async def test_no_answer_waits_for_an_engine_that_closes_a_run(
    nursery: trio.Nursery, autojump_clock: Any, store: bool
) -> None:
    engine = SlowToClose(Script.of("fine", on_end="repeat"))
    made = make_server(Config(port=0, limits=Limits(kept_contexts=1)), engine=engine)
    nursery.start_soon(made.services.post.run)
    turns = HttpTurns(made.services, nursery)
    began = trio.current_time()
    body = json.dumps({"model": "sim", "input": "go", "store": store}).encode()
    for _ in range(3):
        await turns.run(read_object(body), tenant="", request_id="req_1", watch=Stopwatch(trio.current_time))
    assert trio.current_time() == began
    await trio.sleep(2.1)
    assert engine.sequences_open == len(made.services.kept) == int(store)


async def test_the_server_closes_what_it_kept() -> None:
    spy = Spy(Script.of("zero"))
    made = make_server(Config(port=0, limits=Limits(grace_seconds=0)), engine=spy)
    ready: list[Address] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.serve, ready.append)
        while not ready:
            await trio.testing.wait_all_tasks_blocked()
        await post(running_server(made, ready[0]), input="go")
        assert (len(made.services.kept), spy.sequences_open) == (1, 1)
        made.stop.set()
    assert (len(made.services.kept), spy.sequences_open) == (0, 0)
