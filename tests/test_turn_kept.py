"""Kept contexts: who may take them, what bounds them, and that a turn that goes on from one costs no history."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from respserver.config import Config, Limits
from respserver.embed import make_server
from respserver.engines.sim import Script, call
from respserver.protocol.chain import Context, Latest, Past
from respserver.state import StoredItem
from respserver.tokens.buffer import TokenBuffer
from respserver.turn.kept import KeptContexts
from tests.support.live import calls_of, http, output, post, text_of, tool
from tests.support.spy import Spy
from tests.support.talk import Talk, services

STORY = Script.of(call("first"), "one", "two", "three", on_end="repeat")


class Run:
    """An engine's run that can only be closed."""

    closed = False

    async def aclose(self) -> None:
        self.closed = True


def latest(name: str, *, stored: bool = True, text: bytes = b"") -> Latest:
    past = Past.after(None, [StoredItem("input", text)])
    return Latest(
        response_id=name,
        context=Context(buffer=TokenBuffer(), fingerprint="", past=past, sequence=Run()),
        stored=stored,
    )


def is_closed(given: Latest, run: Any) -> bool:
    return given.context.sequence is None and run.closed


async def test_the_first_that_goes_on_takes_it_and_nobody_else() -> None:
    kept = KeptContexts(2, 1 << 20, 1.0)
    given = latest("a")
    await kept.keep("me", given)
    assert ("me", "a") in kept
    assert kept.take(("you", "a")) is None
    assert kept.take(("me", "a")) is given.context
    assert kept.take(("me", "a")) is None
    assert (len(kept), kept.bytes) == (0, 0)
    assert given.context.sequence is not None


async def test_the_longest_unused_is_closed_to_make_room() -> None:
    kept = KeptContexts(2, 1 << 20, 1.0)
    given = [latest(name) for name in "abc"]
    runs = [each.context.sequence for each in given]
    for each in given:
        await kept.keep("me", each)
    assert [("me", name) in kept for name in "abc"] == [False, True, True]
    assert [is_closed(each, run) for each, run in zip(given, runs, strict=True)] == [True, False, False]
    await kept.aclose()
    assert all(is_closed(each, run) for each, run in zip(given, runs, strict=True))
    assert (len(kept), kept.bytes) == (0, 0)


async def test_bytes_bound_it_too_and_what_never_fits_is_closed_alone() -> None:
    kept = KeptContexts(10, 10_000, 1.0)
    small, large, huge = latest("small"), latest("large", text=b"x" * 7_000), latest("huge", text=b"x" * 10_000)
    await kept.keep("me", small)
    await kept.keep("me", huge)
    assert ("me", "small") in kept
    assert ("me", "huge") not in kept
    await kept.keep("me", large)
    assert [key in kept for key in (("me", "small"), ("me", "large"))] == [False, True]
    assert 7_000 < kept.bytes <= 10_000


@pytest.mark.parametrize("limits", [(0, 1 << 20), (2, 0), (2, 1 << 20)])
async def test_nothing_is_kept_that_is_not_stored_or_if_it_is_switched_off(limits: tuple[int, int]) -> None:
    kept = KeptContexts(*limits, 1.0)
    given = latest("a", stored=limits == (0, 1 << 20) or limits == (2, 0))
    run = given.context.sequence
    await kept.keep("me", given)
    assert len(kept) == 0
    assert is_closed(given, run)


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


async def test_the_server_closes_what_it_kept() -> None:
    spy = Spy(Script.of("zero"))
    made = make_server(Config(port=0, limits=Limits(grace_seconds=0)), engine=spy)
    async with trio.open_nursery() as nursery:
        ready = trio.Event()
        nursery.start_soon(made.serve, lambda _: ready.set())
        await ready.wait()
        kept = latest("a")
        run = kept.context.sequence
        await made.services.kept.keep("me", kept)
        made.stop.set()
    assert is_closed(kept, run)
