"""Laws: nothing that a client sends breaks a connection, and what it is sent adds up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respserver.config import Mode
from respserver.errors import ServerError
from respserver.protocol.chain import Pause
from respserver.protocol.commands import Append, Create, ResumeTurn
from respserver.protocol.lane import Lane
from respserver.protocol.open_item import ReasoningShown
from respserver.protocol.states import LaneState
from respserver.schema.events import Event
from respserver.schema.request import AppendRequest
from respserver.services import bundled_template
from respserver.tokens.parse import Delta, OutputParser
from respserver.tokens.special import SPECIAL_COUNT
from respserver.turn.response import new_response
from tests.support.live import off_lane
from tests.support.pure import (
    NOW,
    USAGE,
    Ids,
    Json,
    append,
    assistant,
    call,
    calling,
    create,
    custom_call,
    custom_output,
    emitter,
    items,
    message,
    output,
    read,
    reasoning,
    user,
)
from tests.support.replay import TERMINALS, Replay
from tests.support.sdk import check_event
from tests.support.shell import Shell

# What clients send: ids are drawn from the first that a Shell gives out, so that frames often fit what is going on.

call_ids = st.sampled_from([f"call_{number}" for number in range(1, 12)] + [""])
response_ids = st.sampled_from([f"resp_{number}" for number in range(1, 10)] + [""])
entries = st.one_of(
    st.builds(output, call_ids),
    st.builds(custom_output, call_ids),
    st.builds(call, call_ids),
    st.builds(custom_call, call_ids),
    st.sampled_from([user(), assistant("Done."), user(id="msg_1"), {"type": "reasoning"}, {"type": "zzz", "id": "z"}]),
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
create_fields = st.fixed_dictionaries(
    {},
    optional={
        "input": st.just("hi") | st.lists(entries, max_size=3),
        "previous_response_id": response_ids,
        "tools": st.just([{"type": "function", "name": "look"}]),
        "tool_choice": st.sampled_from(["auto", "none", {"type": "function", "name": "look"}]),
        "stream": st.booleans(),
        "store": st.booleans(),
        "temperature": st.floats(0, 2),
        "text": st.just({"format": {"type": "json_object"}}),
        "client_metadata": st.just({}),
    },
)
append_fields = st.fixed_dictionaries({"input": st.lists(entries, max_size=3)}, optional={"response_id": response_ids})
lanes = st.sampled_from([{}, {}, {"stream_id": "one"}, {"stream_id": "two"}])
creates = st.builds(lambda fields, lane: json.loads(create(**fields, **lane)), create_fields, lanes)
appends = st.builds(
    lambda fields, lane: json.loads(append(*fields.pop("input"), **fields, **lane)), append_fields, lanes
)
frames = creates | appends | st.just({"type": "response.processed"})
FIELDS = [*json.loads(create()), "tools", "tool_choice", "stream_id", "text", "reasoning", "metadata", "prompt", "zzz"]
mutated = st.builds(lambda frame, name, value: {**frame, name: value}, frames, st.sampled_from(FIELDS), json_values)
texts = st.one_of(
    frames.map(json.dumps),
    mutated.map(json.dumps),
    json_values.map(json.dumps),
    st.builds(
        lambda text, at, junk: text[:at] + junk + text[at:],
        frames.map(json.dumps),
        st.integers(0, 80),
        st.text(max_size=2),
    ),
    st.builds(lambda text, at: text[:at], frames.map(json.dumps), st.integers(0, 80)),
    st.text(max_size=8),
)
fitting = st.sampled_from(
    [
        create(),
        create(stream_id="one"),
        create(stream_id="two", previous_response_id="resp_1"),
        append(output("call_3"), custom_output("call_5"), stream_id="one"),
        append(output("call_3"), custom_output("call_5")),
        append(call("call_3"), output("call_3")),
        append(custom_output("call_5"), user()),
        create(previous_response_id="resp_1", input=[custom_output("call_5"), output("call_3")]),
    ]
)
steps = st.lists(
    st.tuples(st.just("message"), fitting | texts, st.just(0))
    | st.tuples(st.just("step"), st.sampled_from(["complete", "call", "fail"]), st.integers(0, 2)),
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.sampled_from(Mode), st.booleans(), steps)
def test_nothing_that_a_client_sends_breaks_a_connection_and_each_message_has_one_answer(
    mode: Mode, strict: bool, moves: list[tuple[str, str, int]]
) -> None:
    shell = Shell(mode, strict=strict)
    for kind, value, pick in moves:
        if kind == "message":
            shell.message(value)
        else:
            shell.step(value, pick)
        assert shell.connection.waiting <= 2
    shell.drain()
    assert shell.answers == sum(kind == "message" for kind, _, _ in moves)
    assert shell.connection.idle
    assert all(lane.state is LaneState.IDLE for lane in shell.connection.lanes)
    for frame in shell.frames:
        check_frame(frame)
    check_lanes(shell.frames)


def check_lanes(frames: list[Json]) -> None:
    """The events of each lane by themselves are whole turns."""
    by_lane: dict[str | None, list[Json]] = {}
    for frame in frames:
        by_lane.setdefault(frame.get("stream_id"), []).append(frame)
    for of_lane in by_lane.values():
        check_turns(of_lane)


def check_frame(frame: Json) -> None:
    """An event of a turn, or an error that tells everything."""
    if frame["type"] != "error":
        check_event(off_lane(frame, frame.get("stream_id")))
        return
    assert 400 <= frame["status"] < 500
    assert set(frame["error"]) >= {"type", "code", "message", "param"}
    assert frame["error"]["code"]
    assert frame["error"]["message"]


def check_turns(frames: list[Json]) -> None:
    """F09: between errors, whole turns one after the other, each of which adds up."""
    replay = Replay()
    for frame in frames:
        if frame["type"] == "error":
            continue
        if replay.is_over:
            replay = Replay()
        replay.feed(frame)
    assert replay.is_over or replay.response is None


def test_the_shell_reaches_every_kind_of_answer() -> None:
    """The law above is worth something only if its frames get through to a resumed rollout and a chained turn."""
    shell = Shell(Mode.PROTOTYPE)
    for text in (create(), create(), create(), create()):
        shell.message(text)
    shell.step("start")
    shell.step("call")
    shell.message(append(call("call_3"), output("call_3")))
    shell.message(create(previous_response_id="resp_1"))
    shell.message(append(custom_output("call_5"), user()))
    shell.step("complete")
    shell.drain()
    errors = [frame["error"]["code"] for frame in shell.frames if frame["type"] == "error"]
    assert errors == ["queue_full", "response_suspended"]
    assert [frame["type"] for frame in shell.frames if frame["type"] in {*TERMINALS, "response.done"}] == [
        "response.done",
        *["response.completed"] * 3,
    ]
    laned = Shell(Mode.PROTOTYPE)
    for number in (0, 1):
        laned.message(create(stream_id="one"))
        laned.step("start", number)
        laned.message(create())
    laned.step("call")
    laned.message(append(custom_output("call_5"), output("call_3"), stream_id="one"))
    assert laned.answers == 1
    laned.drain()
    assert [frame.get("stream_id") for frame in laned.frames if frame["type"] in TERMINALS] == [
        "one",
        "one",
        None,
        None,
    ]
    shipped = Shell(Mode.SHIPPED)
    shipped.message(create())
    shipped.step("start")
    shipped.step("call")
    shipped.message(create(previous_response_id="resp_1", input=[custom_output("call_5"), output("call_3")]))
    shipped.step("start")
    assert shipped.frames[-1]["type"] == "response.in_progress"


# What turns are made of.

words = st.text(max_size=6)
groups: st.SearchStrategy[list[Delta]] = st.one_of(
    st.builds(message, words, words, refusal=st.none() | words, complete=st.booleans()),
    st.builds(message),
    st.builds(reasoning, words, words, complete=st.booleans()),
    st.builds(calling, st.sampled_from(["look", "fs.ls"]), st.sampled_from(["{}", '{"a":1}']), complete=st.booleans()),
    st.builds(calling, st.just("exec"), words.filter(bool), custom=st.just(True), complete=st.booleans()),
    st.builds(calling, st.just("look")),
)
ENDS = ["complete", "cut", "fail"]
TOOLS = [
    {"type": "namespace", "name": "fs", "description": "Files.", "tools": [{"type": "function", "name": "ls"}]},
    {"type": "function", "name": "look", "parameters": {"type": "object"}},
    {"type": "custom", "name": "exec"},
]
REQUEST = read(
    tools=TOOLS,
    tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]},
    text={"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
    reasoning={"effort": "xhigh", "summary": "auto", "context": "all_turns", "mode": "pro"},
    metadata={"a": "b"},
    max_output_tokens=99,
    max_tool_calls=3,
    prompt_cache_retention="24h",
    service_tier="flex",
    truncation="auto",
    instructions="Be brief.",
    previous_response_id="resp_0",
    safety_identifier="s",
    prompt_cache_key="k",
)


def play(rollout: list[list[Delta]], end: str, *, shown: bool, padded: bool) -> list[Json]:
    """A turn's frames: after each stretch of deltas but the last a pause, if calls are open. The last may be cut."""
    lane = Lane(Mode.PROTOTYPE)
    lane.begin(Create(request=REQUEST))
    emit = emitter(
        response=new_response(REQUEST, "resp_1", NOW),
        new_id=Ids(),
        offered=REQUEST.tools.by_name,
        reasoning=ReasoningShown(summary=shown, seal=lambda parts: "|".join(["sealed", *parts])),
        padding=(lambda length: "~" * length) if padded else None,
    )
    frames: list[Json] = []

    def send(events: list[Event]) -> None:
        frames.extend(json.loads(lane.send_event(event)) for event in events)

    send(emit.begin())
    for number, stretch in enumerate(rollout):
        if number and emit.open_calls:
            lane.pause = Pause(response_id="resp_1", open_calls=emit.open_calls, emitted=emit.since_pause)
            send([emit.pause(USAGE)])
            owed = [
                custom_output(c.call_id) if "custom" in c.kind else output(c.call_id) for c in emit.open_calls.values()
            ]
            resumed = lane.begin(Append(request=AppendRequest(items=items(*owed))))
            assert isinstance(resumed, ResumeTurn)
            emit.resume()
        for delta in stretch:
            send(emit.feed(delta))
    send(
        emit.complete(USAGE, NOW)
        if end == "complete"
        else emit.cut("max_output_tokens", USAGE)
        if end == "cut"
        else emit.fail(ServerError())
    )
    return frames


def check_turn(frames: list[Json]) -> Replay:
    replay = Replay()
    for frame in frames:
        check_event(frame)
        replay.feed(frame)
    assert replay.is_over
    return replay


stretches = st.lists(groups, max_size=3).map(lambda found: [delta for group in found for delta in group])


@pytest.mark.slow
@given(st.lists(stretches, min_size=1, max_size=3), st.sampled_from(ENDS), st.booleans(), st.booleans())
def test_a_turns_events_replay_to_its_final_response_and_suit_the_official_types(
    rollout: list[list[Delta]], end: str, shown: bool, padded: bool
) -> None:
    check_turn(play(rollout, end, shown=shown, padded=padded))


@pytest.mark.slow
@given(groups, st.data(), st.sampled_from(["cut", "fail"]), st.booleans())
def test_a_turn_that_is_cut_anywhere_inside_an_item_replays_too(
    group: list[Delta], data: st.DataObject, end: str, shown: bool
) -> None:
    stop = data.draw(st.integers(1, len(group)))
    replay = check_turn(play([group[:stop]], end, shown=shown, padded=False))
    if stop < len(group):
        assert replay.items[-1]["status"] == "incomplete"


TEMPLATE = bundled_template()
token_ids = st.lists(st.integers(0, SPECIAL_COUNT) | st.integers(0, len(TEMPLATE.token_bytes)), max_size=24)


@pytest.mark.slow
@given(token_ids, st.booleans())
def test_whatever_a_model_samples_replays(ids: list[int], shown: bool) -> None:
    deltas = OutputParser(TEMPLATE.token_bytes).feed(ids)
    check_turn(play([deltas], "cut", shown=shown, padded=False))


def repeats(kind: str) -> bool:
    """Whether an event only says again what those before it have said."""
    return kind == "response.in_progress" or (kind.endswith(".done") and kind != "response.output_item.done")


def test_a_replay_notices_each_event_that_is_lost() -> None:
    items_of_each_kind = [*reasoning("hm"), *message("a b", refusal="c"), *calling("look", "{", "}")]
    frames = play([items_of_each_kind], "complete", shown=True, padded=False)
    telling = [number for number, frame in enumerate(frames[:-1]) if not repeats(frame["type"])]
    assert len(telling) > 12
    for lost in telling:
        left = frames[:lost] + frames[lost + 1 :]
        with pytest.raises((AssertionError, LookupError)):
            check_turn([{**frame, "sequence_number": number} for number, frame in enumerate(left)])
