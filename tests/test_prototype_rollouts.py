"""Prototype mode over real sockets: long rollouts, appends in every shape, refusals that change nothing, deadlines."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from respserver.client import Client
from respserver.config import Mode
from respserver.engines.sim import Script, call, custom, delay, reasoning, step
from tests.support.live import Frame, Wire, calls_of, output, text_of, tool, user
from tests.support.spy import Spy
from tests.support.talk import Talk, services, settled

TOOLS = [tool("first"), tool("second")]
PAIR = Script.of([call("first"), call("second")], "thanks")


async def paused(serve: Any, connect: Any, script: Script = PAIR, **options: Any) -> tuple[Wire, Frame]:
    """A wire whose rollout stands at its first pause, and the ``response.done``."""
    wire: Wire = await connect(await serve(script, mode=Mode.PROTOTYPE, **options))
    line = {**user("go"), "id": "msg_of_the_user"}
    done = (await wire.turn(input=[line], tools=TOOLS))[-1]
    assert done["type"] == "response.done"
    return wire, done


@pytest.mark.slow
async def test_a_rollout_of_twenty_calls_repeats_no_earlier_work(serve: Any) -> None:
    """One response, one number run, one terminal; each item is rendered once and given to the engine once."""
    spy = Spy(Script.of(*[call("first", n=number) for number in range(20)], "all done"))
    server = await serve(engine=spy, mode=Mode.PROTOTYPE)
    events: list[Any] = []

    async def first(arguments: dict[str, Any]) -> str:
        return f"result {arguments['n']}"

    tools = {"first": first}
    async with Client(server.base_url).rollout("go", model="sim", tools=tools, tool_definitions=TOOLS) as rollout:
        events = [event async for event in rollout]
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(len(numbers)))
    ids = {event.response.id for event in events if hasattr(event, "response")}
    assert len(ids) == 1
    kinds = [type(event).__name__ for event in events]
    assert (kinds.count("ResponseCreated"), kinds.count("ResponseDone"), kinds.count("ResponseCompleted")) == (1, 20, 1)
    response = events[-1].response
    assert [item.id for item in response.output] == [
        event.item.id for event in events if type(event).__name__ == "OutputItemDone"
    ]
    assert len(response.output) == 21
    assert server.metrics.items_rendered == 21  # the user's line and twenty outputs, each once
    assert server.metrics.heads_rendered == 1
    assert server.metrics.sequences_opened == 1
    assert server.metrics.pauses == 20
    assert len(spy.given) == 22  # the head, the line, twenty outputs
    assert server.metrics.tokens_extended == sum(len(ids) for ids in spy.given[1:])
    assert spy.contexts[-1].count("tool first: result") == 20


@pytest.mark.parametrize("order", ["together", "call order", "other order"])
async def test_parallel_calls_are_answered_in_one_frame_or_several(serve: Any, connect: Any, order: str) -> None:
    spy = Spy(PAIR)
    wire: Wire = await connect(await serve(engine=spy, mode=Mode.PROTOTYPE))
    done = (await wire.turn(input="go", tools=TOOLS))[-1]
    one, two = calls_of(done["response"])
    frames = {
        "together": [[output(two, "b"), output(one, "a")]],
        "call order": [[output(one, "a")], [output(two, "b")]],
        "other order": [[output(two, "b")], [output(one, "a")]],
    }[order]
    for items in frames:
        assert len(spy.contexts) == 1
        await wire.append(items)
    assert text_of((await wire.frames())[-1]["response"]) == "thanks"
    assert spy.contexts[-1].endswith("tool first: a\ntool second: b")


async def test_user_lines_may_follow_the_last_output(serve: Any, connect: Any) -> None:
    spy = Spy(PAIR)
    wire: Wire = await connect(await serve(engine=spy, mode=Mode.PROTOTYPE))
    done = (await wire.turn(input="go", tools=TOOLS))[-1]
    one, two = calls_of(done["response"])
    await wire.append([output(one), output(two), user("and hurry")], response_id=done["response"]["id"])
    assert (await wire.frames())[-1]["type"] == "response.completed"
    assert spy.contexts[-1].endswith("tool second: ok\nuser: and hurry")


async def test_custom_calls_and_reasoning_pause_alike_and_their_echo_is_not_counted_twice(
    serve: Any, connect: Any
) -> None:
    script = Script.of([reasoning("hm"), "let me look", custom("exec", "ls"), call("first")], "thanks")
    spy = Spy(script)
    wire: Wire = await connect(await serve(engine=spy, mode=Mode.PROTOTYPE))
    tools = [*TOOLS, {"type": "custom", "name": "exec"}]
    done = (await wire.turn(input="go", tools=tools, reasoning={"summary": "auto"}))[-1]
    items = done["response"]["output"]
    custom_call, function_call = calls_of(done["response"])
    assert done["required_input"] == [
        {"type": "custom_tool_call_output", "call_id": custom_call["call_id"]},
        {"type": "function_call_output", "call_id": function_call["call_id"], "name": "first"},
    ]
    echo = [{key: value for key, value in item.items() if key not in ("id", "status")} for item in items]
    await wire.append([*echo, output(custom_call, "files"), output(function_call)])
    final = (await wire.frames())[-1]
    assert [item["type"] for item in final["response"]["output"]] == [*[item["type"] for item in items], "message"]
    assert spy.contexts[-1].count("let me look") == 1
    assert spy.contexts[-1].count("custom exec: ls") == 1


REFUSED: dict[str, tuple[Any, str, str | None]] = {
    "unknown call": (lambda one, two: [output({**one, "call_id": "call_x"})], "invalid_append", "input[0].call_id"),
    "same call twice": (lambda one, two: [output(one), output(one)], "invalid_append", "input[1].call_id"),
    "one good, one bad": (
        lambda one, two: [output(one), output({**one, "call_id": "call_x"})],
        "invalid_append",
        "input[1].call_id",
    ),
    "wrong kind": (
        lambda one, two: [{"type": "custom_tool_call_output", "call_id": one["call_id"], "output": "x"}],
        "invalid_append",
        "input[0].call_id",
    ),
    "a line too early": (lambda one, two: [output(one), user("hi")], "invalid_append", "input[1]"),
    "only a line": (lambda one, two: [user("hi")], "invalid_append", "input"),
    "another item": (
        lambda one, two: [{"type": "compaction", "id": "x"}, output(one)],
        "invalid_append",
        "input[0]",
    ),
    "an id of the context": (
        lambda one, two: [{**output(one), "id": "msg_of_the_user"}],
        "duplicate_item_id",
        "input[0].id",
    ),
    "nothing": (lambda one, two: [], "invalid_append", "input"),
    "no list": (lambda one, two: 42, "invalid_type", "input"),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
async def test_a_refused_append_is_one_error_frame_and_leaves_the_pause_as_it_was(
    serve: Any, connect: Any, case: str
) -> None:
    wire, done = await paused(serve, connect)
    one, two = calls_of(done["response"])
    make, code, param = REFUSED[case]
    await wire.append(make(one, two))
    error = await wire.frame()
    assert (error["type"], error["status"], error["error"]["code"], error["error"]["param"]) == (
        "error",
        400,
        code,
        param,
    )
    await wire.append([output(one), output(two)])
    frames = await wire.frames()
    assert frames[0]["sequence_number"] == done["sequence_number"] + 1
    assert frames[-1]["type"] == "response.completed"


async def test_an_append_without_a_pause_or_for_another_response_is_refused(serve: Any, connect: Any) -> None:
    wire, done = await paused(serve, connect)
    one, two = calls_of(done["response"])
    await wire.append([output(one), output(two)], response_id="resp_other")
    assert (await wire.frame())["error"]["code"] == "response_not_suspended"
    await wire.append([output(one), output(two)])
    await wire.frames()
    await wire.append([output(one)], response_id=done["response"]["id"])
    late = await wire.frame()
    assert (late["error"]["code"], late["error"]["param"]) == ("response_not_suspended", "response_id")


async def test_an_append_while_the_model_is_sampling_is_refused_and_the_turn_goes_on(serve: Any, connect: Any) -> None:
    script = Script.of([delay(0.1), call("first")], "thanks")
    wire: Wire = await connect(await serve(script, mode=Mode.PROTOTYPE))
    await wire.create(input="go", tools=TOOLS)
    await wire.append([output({"type": "function_call", "call_id": "call_x"})])
    frames = []
    while not frames or frames[-1]["type"] != "response.done":
        frames.append(await wire.frame())
    (error,) = [frame for frame in frames if frame["type"] == "error"]
    assert error["error"]["code"] == "response_not_suspended"


async def test_a_create_behind_a_suspended_rollout_waits_for_its_end(serve: Any, connect: Any) -> None:
    wire, done = await paused(serve, connect)
    one, two = calls_of(done["response"])
    await wire.create(input="something else")
    await wire.append([output(one), output(two)])
    first = await wire.frames()
    assert first[-1]["response"]["id"] == done["response"]["id"]
    second = await wire.frames()
    assert second[0]["type"] == "response.created"
    assert second[0]["sequence_number"] == 0


@pytest.mark.parametrize("how", ["by its parent", "by its outputs"])
async def test_a_shipped_mode_continuation_of_a_suspended_rollout_is_told_to_append(
    serve: Any, connect: Any, how: str
) -> None:
    wire, done = await paused(serve, connect)
    one, two = calls_of(done["response"])
    fields = {"input": [output(one), output(two)]}
    if how == "by its parent":
        fields = {"previous_response_id": done["response"]["id"], "input": "go on"}
    await wire.create(**fields)
    error = await wire.frame()
    assert (error["status"], error["error"]["code"]) == (409, "response_suspended")
    assert "response.append" in error["error"]["message"]
    await wire.append([output(one), output(two)])
    assert (await wire.frames())[-1]["type"] == "response.completed"


async def test_a_finished_rollout_is_continued_as_in_shipped_mode(serve: Any, connect: Any) -> None:
    spy = Spy(Script.of(call("first"), "thanks", "bye"))
    wire: Wire = await connect(await serve(engine=spy, mode=Mode.PROTOTYPE))
    done = (await wire.turn(input="go", tools=TOOLS, store=False))[-1]
    await wire.append([output(calls_of(done["response"])[0], "it")])
    await wire.frames()
    final = await wire.completed(previous_response_id=done["response"]["id"], input="more", tools=TOOLS, store=False)
    assert text_of(final) == "bye"
    assert spy.contexts[-1].endswith("tool first: it\nassistant: thanks\nuser: more")


async def test_the_clients_silence_ends_the_rollout(serve: Any, connect: Any, mock_clock: Any) -> None:
    wire, done = await paused(serve, connect, limits={"tool_seconds": 600.0, "ping_seconds": 0.0})
    mock_clock.jump(601)
    frames = await wire.frames()
    assert [frame["type"] for frame in frames] == ["response.failed"]
    assert frames[0]["response"]["error"]["code"] == "tool_timeout"
    assert frames[0]["sequence_number"] == done["sequence_number"] + 1
    one, two = calls_of(done["response"])
    await wire.append([output(one), output(two)])
    assert (await wire.frame())["error"]["code"] == "response_not_suspended"
    last = (await wire.turn(input="go", tools=TOOLS))[-1]
    assert last["type"] == "response.done"


async def test_outputs_that_come_in_the_moment_of_the_deadline_are_taken_or_refused_and_never_both(
    nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    parts = services(Script.of(call("first"), "thanks", on_end="repeat"), mode=Mode.PROTOTYPE, tool_seconds=1.0)
    talk = Talk(nursery, parts)
    for _ in range(16):  # which task runs first is Trio's to choose
        done = await talk.turn(input="go", tools=TOOLS)
        await settled()
        mock_clock.jump(1)
        talk.socket.say({"type": "response.append", "input": [output(calls_of(done["response"])[0])]})
        last = (await talk.socket.hear_step())[-1]["type"]
        await settled()
        assert (last, talk.socket.unheard) in {("response.completed", 0), ("response.failed", 1)}
        if talk.socket.unheard:
            assert (await talk.socket.hear())["error"]["code"] == "response_not_suspended"
    assert (parts.suspensions.count, parts.slots.active) == (0, 0)


async def test_a_disconnect_frees_a_suspended_rollout(serve: Any, connect: Any) -> None:
    spy = Spy(PAIR)
    wire: Wire = await connect(await serve(engine=spy, mode=Mode.PROTOTYPE))
    await wire.turn(input="go", tools=TOOLS)
    assert (spy.closed, spy.sequences_open) == (0, 1)
    await wire.socket.aclose()
    with trio.fail_after(5):
        while spy.sequences_open:
            await trio.sleep(0.001)


async def test_a_token_limit_bounds_the_whole_rollout(serve: Any, connect: Any) -> None:
    script = Script.of(call("first"), step("a long text " * 50))
    wire: Wire = await connect(await serve(script, mode=Mode.PROTOTYPE))
    done = (await wire.turn(input="go", tools=TOOLS, max_output_tokens=40))[-1]
    await wire.append([output(calls_of(done["response"])[0])])
    final = (await wire.frames())[-1]
    assert final["type"] == "response.incomplete"
    assert final["response"]["usage"]["output_tokens"] == 40
    assert final["response"]["output"][0]["status"] == "completed"
    assert final["response"]["output"][-1]["status"] == "incomplete"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "first"}], ids=str)
async def test_a_call_that_is_demanded_is_demanded_once(serve: Any, connect: Any, choice: Any) -> None:
    """No append could end a rollout that had to call for ever."""
    wire: Wire = await connect(await serve(mode=Mode.PROTOTYPE))
    done = (await wire.turn(input="go", tools=TOOLS, tool_choice=choice))[-1]
    (made,) = calls_of(done["response"])
    await wire.append([output(made)])
    assert (await wire.frames())[-1]["type"] == "response.completed"
