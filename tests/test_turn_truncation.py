"""``truncation``: what of a long chain the model sees, on every road, and that the chain itself stays whole."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import trio.testing

from respserver.config import Mode, RouteConfig
from respserver.engines.sim import Script, call, fault, step
from tests.support.live import Frame, Wire, calls_of, http, output, post, stream, text_of, tool, user
from tests.support.spy import Spy

WINDOW = 80
ROUTES = (RouteConfig(pattern="sim", context_window=WINDOW), RouteConfig(pattern="*"))
"""``sim`` has a small window, every other model none."""
ANSWER = "an answer of a few words"
TOOLS = [tool("look")]
EXCEEDED = "context_length_exceeded"


def talker(*steps: Any) -> Spy:
    return Spy(Script.of(*(steps or (ANSWER,)), on_end="repeat"))


def question(number: int) -> str:
    return f"question {number} of some words"


async def ask(wire: Wire, number: int, parent: str | None = None, **fields: Any) -> Frame:
    return await wire.completed(
        input=question(number),
        previous_response_id=parent,
        **{"truncation": "auto", "instructions": "Be good", **fields},
    )


async def chain(wire: Wire, turns: int, **fields: Any) -> list[Frame]:
    """Some turns of one chain."""
    responses: list[Frame] = []
    for number in range(turns):
        responses.append(await ask(wire, number, responses[-1]["id"] if responses else None, **fields))
    return responses


def lines(spy: Spy) -> list[str]:
    return spy.contexts[-1].split("\n")


async def test_the_oldest_items_are_left_out_of_what_the_model_sees(serve: Any, connect: Any) -> None:
    spy = talker()
    responses = await chain(await connect(await serve(engine=spy, routes=ROUTES)), 8)
    assert lines(spy)[0] == "system: Be good"
    assert lines(spy)[-1] == f"user: {question(7)}"
    seen = lines(spy)[1:]
    expected = [line for number in range(8) for line in (f"user: {question(number)}", f"assistant: {ANSWER}")][:-1]
    assert seen == expected[-len(seen) :]
    assert 1 < len(seen) < len(expected)
    for response in responses:
        usage = response["usage"]
        assert usage["input_tokens"] + usage["output_tokens"] <= WINDOW
        assert response["truncation"] == "auto"


async def test_usage_tells_what_the_model_really_saw(serve: Any, connect: Any) -> None:
    spy = talker()
    last = (await chain(await connect(await serve(engine=spy, routes=ROUTES)), 8))[-1]
    given = spy.given[-2:]  # the head and the view, to a run of their own
    assert last["usage"]["input_tokens"] == sum(map(len, given))
    assert last["usage"]["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0} | {
        key: value
        for key, value in last["usage"]["input_tokens_details"].items()
        if key not in ("cached_tokens", "cache_write_tokens")
    }


async def test_a_chain_that_fits_is_not_touched(serve: Any, connect: Any) -> None:
    spy, plain = talker(), talker()
    cut = await chain(await connect(await serve(engine=spy, routes=ROUTES)), 2)
    whole = await chain(await connect(await serve(engine=plain)), 2, truncation="disabled")
    assert spy.contexts == plain.contexts
    assert [one["usage"] for one in cut] == [one["usage"] for one in whole]
    assert cut[1]["usage"]["input_tokens_details"]["cached_tokens"] > 0


async def test_every_road_to_the_same_history_shows_the_model_the_same(serve: Any, connect: Any) -> None:
    spy = talker()
    server = await serve(engine=spy, routes=ROUTES, limits={"kept_contexts": 0})
    wire: Wire = await connect(server)
    responses = await chain(wire, 7)
    parent = responses[-1]["id"]
    other: Wire = await connect(server)
    fields = {"truncation": "auto", "instructions": "Be good"}
    history = [item for number, one in enumerate(responses) for item in (user(question(number)), *one["output"])]
    asked = user(question(7))
    await ask(wire, 7, parent)
    chained = spy.contexts[-1]
    usages = []
    for fields_of_road in (
        {"previous_response_id": parent, "input": [asked]},
        {"input": [*history, asked], "store": False},
    ):
        usages.append((await other.completed(**fields, **fields_of_road))["usage"]["input_tokens"])
        assert spy.contexts[-1] == chained
        answer = await post(server, **fields, **fields_of_road)
        assert answer.status_code == 200
        usages.append(answer.json()["usage"]["input_tokens"])
        assert spy.contexts[-1] == chained
        usages.append((await stream(server, **fields, **fields_of_road))[-1]["response"]["usage"]["input_tokens"])
        assert spy.contexts[-1] == chained
    assert len(set(usages)) == 1


@pytest.mark.parametrize("road", ["chained", "stored"])
async def test_the_kept_chain_stays_whole(serve: Any, connect: Any, road: str) -> None:
    """A model with more room sees all of it, cut turns and their answers included."""
    spy = talker()
    server = await serve(engine=spy, routes=ROUTES)
    wire: Wire = await connect(server)
    parent = (await chain(wire, 7))[-1]["id"]
    if road == "stored":
        await wire.socket.aclose()
        wire = await connect(server)
    await ask(wire, 7, parent, model="large", truncation="disabled")
    expected = [line for number in range(8) for line in (f"user: {question(number)}", f"assistant: {ANSWER}")][:-1]
    assert lines(spy)[1:] == expected


async def test_a_fork_of_a_cut_chain_is_cut_like_the_chain(serve: Any, connect: Any) -> None:
    """On two other lanes of the socket that alone knows it, whose own lane then goes on."""
    spy = talker()
    wire: Wire = await connect(await serve(engine=spy, routes=ROUTES))
    parent = (await chain(wire, 7, store=False))[-1]["id"]
    await ask(Wire(wire.socket, "large"), 7, parent, store=False, model="large")
    assert len(lines(spy)) == 1 + 2 * 7 + 1
    for lane in ("first", "second"):
        await ask(Wire(wire.socket, lane), 7, parent, store=False)
    await ask(wire, 7, parent, store=False)
    assert spy.contexts[-1] == spy.contexts[-2] == spy.contexts[-3]
    assert len(lines(spy)) < 1 + 2 * 7 + 1


async def test_a_turn_that_forbids_it_fails_on_the_chain_that_others_cut(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(engine=talker(), routes=ROUTES))
    responses = await chain(wire, 7)
    last = (await wire.turn(input="and now?", previous_response_id=responses[-1]["id"]))[-1]
    assert last["response"]["error"]["code"] == EXCEEDED
    again = await ask(wire, 8, responses[-1]["id"])  # it is stored: the failure left it as it was
    assert text_of(again) == ANSWER


@pytest.mark.parametrize("truncation", ["disabled", None, "auto"])
async def test_what_must_be_seen_and_does_not_fit_is_refused_on_every_road(
    serve: Any, connect: Any, truncation: str | None
) -> None:
    """Without cutting anything that is too long; with it a newest message that is too long by itself."""
    server = await serve(engine=talker(), routes=ROUTES)
    fields = {"input": [user("short"), user("word " * 100)], "truncation": truncation}
    wire: Wire = await connect(server)
    frames = await wire.turn(**fields)
    assert [frame["type"] for frame in frames] == ["response.created", "response.in_progress", "response.failed"]
    assert frames[-1]["response"]["error"]["code"] == EXCEEDED
    answer = await post(server, **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, EXCEEDED, "input")
    *_, told, failed = await stream(server, **fields)
    assert (told["type"], told["code"], told["param"]) == ("error", EXCEEDED, "input")
    assert failed["response"]["error"]["code"] == EXCEEDED


async def test_a_head_that_does_not_fit_is_refused(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(engine=talker(), routes=ROUTES))
    last = (await wire.turn(input="hi", truncation="auto", instructions="word " * 100))[-1]
    assert last["response"]["error"]["code"] == EXCEEDED


@pytest.mark.parametrize(
    ("window", "limit", "reserved"), [(WINDOW, None, WINDOW // 4), (WINDOW, 1000, WINDOW // 4), (5 * WINDOW, 16, 16)]
)
async def test_a_cut_leaves_room_for_the_answer(
    serve: Any, connect: Any, window: int, limit: int | None, reserved: int
) -> None:
    spy = talker()
    wire: Wire = await connect(await serve(engine=spy, routes=(RouteConfig(pattern="*", context_window=window),)))
    history = [user(f"w{number}") for number in range(200)]
    response = await wire.completed(input=history, truncation="auto", max_output_tokens=limit)
    left = window - response["usage"]["input_tokens"]
    message = response["usage"]["input_tokens"] // len(lines(spy))
    assert reserved <= left <= reserved + message + 1


async def test_a_context_that_just_fits_is_taken_and_leaves_no_room_for_an_answer(serve: Any, connect: Any) -> None:
    measured: Wire = await connect(await serve(engine=talker()))
    size = (await measured.completed(input=question(1)))["usage"]["input_tokens"]
    wire: Wire = await connect(await serve(engine=talker(), routes=(RouteConfig(pattern="*", context_window=size),)))
    last = (await wire.turn(input=question(1)))[-1]["response"]
    assert (last["status"], last["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (last["output"], last["usage"]["total_tokens"]) == ([], size)
    last = (await wire.turn(input=question(1) + " more"))[-1]["response"]
    assert last["error"]["code"] == EXCEEDED


@pytest.mark.parametrize("before", [0, 1])
async def test_the_newest_message_may_take_the_room_of_the_answer(serve: Any, connect: Any, before: int) -> None:
    spy = talker("word " * 100)
    wire: Wire = await connect(await serve(engine=spy, routes=ROUTES))
    last = (await wire.turn(input=[*[user("old")] * before, user("word " * 60)], truncation="auto"))[-1]
    assert len(lines(spy)) == 1
    assert last["type"] == "response.incomplete"
    assert last["response"]["usage"]["total_tokens"] == WINDOW


async def test_a_long_tool_loop_keeps_its_question_and_no_half_of_a_call(serve: Any, connect: Any) -> None:
    spy = Spy(Script.of(call("look", n=1), on_end="repeat"))
    wire: Wire = await connect(await serve(engine=spy, routes=ROUTES))
    fields = {"truncation": "auto"}
    response = await wire.completed(input="the question", **fields)
    for number in range(8):
        (made,) = calls_of(response)
        response = await wire.completed(
            input=[output(made, f"result {number}")], previous_response_id=response["id"], **fields
        )
    seen = lines(spy)
    assert seen[0] == "user: the question"
    assert len(seen) < 17
    assert seen[1:] == [
        line
        for number in range(8 - len(seen[1:]) // 2, 8)
        for line in ('call look: {"n":1}', f"tool look: result {number}")
    ]


async def test_a_rollout_that_outgrows_its_window_is_cut_again_at_each_resumption(serve: Any, connect: Any) -> None:
    spy = Spy(Script.of(call("look", n=1), on_end="repeat"))
    wire: Wire = await connect(await serve(engine=spy, mode=Mode.PROTOTYPE, routes=ROUTES))
    await wire.create(input="the question", truncation="auto")
    seen = [0]
    for number in range(1, 10):
        done = (await wire.frames())[-1]
        assert done["type"] == "response.done"
        (made,) = calls_of(done["response"])
        seen.append(done["response"]["usage"]["input_tokens"])
        await wire.append([output(made, f"result {number}")])
    assert (await wire.frames())[-1]["type"] == "response.done"
    await trio.testing.wait_all_tasks_blocked()
    assert spy.sequences_open == 0  # nothing of a view is kept while it stands suspended
    assert all(now - before <= WINDOW for before, now in pairwise(seen))
    steps = (len(lines(spy)) - 1) // 2
    assert 1 <= steps < 9
    assert lines(spy) == [
        "user: the question",
        *(line for n in range(10 - steps, 10) for line in ('call look: {"n":1}', f"tool look: result {n}")),
    ]


async def test_a_warm_up_is_cut_as_a_turn_is(serve: Any, connect: Any) -> None:
    spy = talker()
    wire: Wire = await connect(await serve(engine=spy, routes=ROUTES))
    parent = (await chain(wire, 7))[-1]["id"]
    warm = await wire.completed(
        previous_response_id=parent, input=question(7), generate=False, truncation="auto", instructions="Be good"
    )
    assert warm["usage"]["input_tokens"] <= WINDOW
    await trio.testing.wait_all_tasks_blocked()
    assert spy.sequences_open == 0
    response = await wire.completed(previous_response_id=warm["id"], truncation="auto", instructions="Be good")
    assert lines(spy)[-1] == f"user: {question(7)}"
    assert response["usage"]["input_tokens"] == warm["usage"]["input_tokens"]


@pytest.mark.parametrize("end", ["completed", "failed", "incomplete"])
async def test_the_run_of_a_cut_view_is_closed_however_its_turn_ends(serve: Any, connect: Any, end: str) -> None:
    last: Any = {"failed": step("half", fault=fault("broke")), "incomplete": "word " * 100}.get(end, "fine")
    spy = talker(last)
    server = await serve(engine=spy, routes=ROUTES)
    wire: Wire = await connect(server)
    frames = await wire.turn(input=[user(f"w{number}") for number in range(40)], truncation="auto")
    assert frames[-1]["type"] == f"response.{end}"
    await trio.testing.wait_all_tasks_blocked()
    assert spy.sequences_open == 0


async def test_the_run_of_a_cut_view_is_closed_when_the_client_leaves(serve: Any, connect: Any) -> None:
    spy = talker(step("slow words", tps=1.0))
    wire: Wire = await connect(await serve(engine=spy, routes=ROUTES))
    await wire.create(input=[user(f"w{number}") for number in range(40)], truncation="auto")
    while (await wire.frame())["type"] != "response.in_progress":
        pass
    await wire.socket.aclose()
    with trio.fail_after(5):
        while spy.sequences_open:
            await trio.testing.wait_all_tasks_blocked(0.01)


async def test_a_cut_turn_is_got_and_deleted_like_any_other(serve: Any, connect: Any) -> None:
    server = await serve(engine=talker(), routes=ROUTES)
    last = (await chain(await connect(server), 7))[-1]
    async with http(server) as client:
        assert (await client.get(f"/responses/{last['id']}")).json() == last
        assert (await client.delete(f"/responses/{last['id']}")).status_code == 200
