"""From deltas to events: the exact orders of protocol.md section 3.3, kind by kind and end by end."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from respserver.config import Mode
from respserver.errors import ContextLengthExceeded, ModelFault
from respserver.protocol.commands import Create
from respserver.protocol.emitter import Emitter
from respserver.protocol.lane import Lane
from respserver.schema.codec import encode
from respserver.schema.events import Event
from respserver.schema.tools import ToolDef
from respserver.tokens.parse import Delta, ItemBegan, ItemEnded, PartBegan, PartEnded, TextDelta
from tests.support.pure import NOW, USAGE, Json, calling, emitter, feed, message, read, reasoning, response, sent, types_of


def shown(events: list[Event]) -> list[Json]:
    """Events as a client sees them."""
    lane = Lane(Mode.PROTOTYPE)
    lane.begin(Create(request=read()))
    return sent(lane, events)


def snapshot(events: list[Event]) -> Json:
    """The Response of the last event."""
    decoded: Json = shown(events)[-1]["response"]
    return decoded


MESSAGE_EVENTS = [
    "output_item.added",
    "content_part.added",
    "output_text.delta",
    "output_text.delta",
    "output_text.done",
    "content_part.done",
    "output_item.done",
]
ORDERS: dict[str, tuple[list[Delta], dict[str, Any], list[str]]] = {
    "message": (message("two words"), {}, MESSAGE_EVENTS),
    "message in two parts": (
        message("one", "two"),
        {},
        [
            "output_item.added",
            *["content_part.added", "output_text.delta", "output_text.done", "content_part.done"] * 2,
            "output_item.done",
        ],
    ),
    "message with an empty part": (
        message(""),
        {},
        ["output_item.added", "content_part.added", "output_text.done", "content_part.done", "output_item.done"],
    ),
    "message without parts": (message(), {}, ["output_item.added", "output_item.done"]),
    "refusal": (
        message(refusal="no"),
        {},
        [
            "output_item.added",
            "content_part.added",
            "refusal.delta",
            "refusal.done",
            "content_part.done",
            "output_item.done",
        ],
    ),
    "reasoning, not shown": (reasoning("hm", "so"), {}, ["output_item.added", "output_item.done"]),
    "reasoning, shown": (
        reasoning("hm", "so"),
        {"show_summary": True},
        [
            "output_item.added",
            *[
                "reasoning_summary_part.added",
                "reasoning_summary_text.delta",
                "reasoning_summary_text.done",
                "reasoning_summary_part.done",
            ]
            * 2,
            "output_item.done",
        ],
    ),
    "reasoning without thoughts": (reasoning(), {"show_summary": True}, ["output_item.added", "output_item.done"]),
    "function call": (
        calling("look", '{"a"', ":1}"),
        {},
        [
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
        ],
    ),
    "function call without arguments": (
        calling("look"),
        {},
        [
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
        ],
    ),
    "function call, cut before its arguments": (
        calling("look", complete=False),
        {},
        ["output_item.added", "function_call_arguments.done", "output_item.done"],
    ),
    "custom call": (
        calling("exec", "ls", custom=True),
        {},
        [
            "output_item.added",
            "custom_tool_call_input.delta",
            "custom_tool_call_input.done",
            "output_item.done",
        ],
    ),
    "custom call without input": (
        calling("exec", custom=True),
        {},
        ["output_item.added", "custom_tool_call_input.done", "output_item.done"],
    ),
}


@pytest.mark.parametrize(("deltas", "options", "order"), ORDERS.values(), ids=ORDERS)
def test_each_kind_of_item_has_its_order_of_events(deltas: list[Delta], options: Any, order: list[str]) -> None:
    assert types_of(feed(emitter(**options), deltas)) == order


def test_a_message_grows_from_an_empty_item_to_the_whole_text() -> None:
    added, part, first, second, text, part_done, done = shown(feed(emitter(), message("two words")))
    empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    whole = {**empty, "text": "two words"}
    assert added["item"] == {"type": "message", "id": "msg_1", "status": "in_progress", "role": "assistant", "content": []}
    assert (part["part"], part["content_index"], part["item_id"]) == (empty, 0, "msg_1")
    assert [first["delta"], second["delta"], text["text"]] == ["two ", "words", "two words"]
    assert (first["logprobs"], text["logprobs"]) == ([], [])
    assert part_done["part"] == whole
    assert done["item"] == {**added["item"], "status": "completed", "content": [whole]}


def test_parts_are_numbered_and_keep_their_kind() -> None:
    frames = shown(feed(emitter(), message("a", refusal="b")))
    numbered = [(frame["type"], frame["content_index"]) for frame in frames if "content_index" in frame]
    assert {index for kind, index in numbered if "output_text" in kind} == {0}
    assert {index for kind, index in numbered if "refusal" in kind} == {1}
    assert frames[-1]["item"]["content"][1] == {"type": "refusal", "refusal": "b"}
    assert next(frame for frame in frames if frame["type"] == "response.refusal.done")["refusal"] == "b"


def test_summary_parts_are_numbered_and_collected() -> None:
    frames = shown(feed(emitter(show_summary=True), reasoning("hm", "so")))
    assert [frame["summary_index"] for frame in frames[1:-1]] == [0] * 4 + [1] * 4
    assert [frame["text"] for frame in frames if "text" in frame] == ["hm", "so"]
    assert (frames[0]["item"]["summary"], frames[0]["item"]["content"]) == ([], [])
    assert [part["text"] for part in frames[-1]["item"]["summary"]] == ["hm", "so"]


def test_thoughts_that_are_not_shown_are_nowhere() -> None:
    emit = emitter()
    feed(emit, reasoning("secret"))
    assert b"secret" not in encode(emit.output[0])


def test_a_call_without_arguments_ends_as_an_empty_object_in_a_delta_too() -> None:
    added, delta, done, closed = shown(feed(emitter(), calling("look")))
    assert (added["item"]["arguments"], delta["delta"], done["arguments"], closed["item"]["arguments"]) == (
        "", "{}", "{}", "{}",
    )  # fmt: skip


def test_item_ids_tell_the_kind_and_differ_from_call_ids() -> None:
    emit = emitter()
    feed(emit, reasoning(), message(), calling("look"), calling("exec", custom=True))
    assert emit.item_ids == ["rs_1", "msg_2", "fc_3", "ctc_5"]
    assert emit.call_ids == ["call_4", "call_6"]


def test_items_are_numbered_in_the_order_in_which_they_begin() -> None:
    events = shown(feed(emitter(), message("a"), calling("look"), message("b")))
    assert [event["output_index"] for event in events] == [0] * 6 + [1] * 4 + [2] * 6


class TestNames:
    OFFERED = {
        "fs.ls": ToolDef(type="function", name="ls", namespace="fs"),
        "fs.run": ToolDef(type="custom", name="run", namespace="fs"),
        "look": ToolDef(type="function", name="look"),
        "a.b": ToolDef(type="function", name="a.b"),
    }

    @pytest.mark.parametrize(
        ("sampled", "custom", "name", "namespace"),
        [
            ("fs.ls", False, "ls", "fs"),
            ("fs.run", True, "run", "fs"),
            ("look", False, "look", None),
            ("a.b", False, "a.b", None),
            ("never.offered", False, "never.offered", None),
        ],
    )
    def test_a_namespace_is_split_off_where_the_offer_has_one(
        self, sampled: str, custom: bool, name: str, namespace: str | None
    ) -> None:
        emit = emitter(offered=self.OFFERED)
        *_, closed = shown(feed(emit, calling(sampled, custom=custom)))
        assert (closed["item"]["name"], closed["item"].get("namespace")) == (name, namespace)
        (call,) = emit.open_calls.values()
        assert call.name == sampled


class TestObfuscation:
    @pytest.mark.parametrize(
        ("delta", "pad"), [("The", 13), (" temperature", 4), ('{"', 14), ("x" * 16, 16), ("é" * 15, 1), ("y" * 17, 15)]
    )
    def test_delta_and_padding_fill_a_multiple_of_sixteen(self, delta: str, pad: int) -> None:
        emit = emitter(padding=lambda length: "~" * length)
        events = shown(feed(emit, [ItemBegan("message"), PartBegan("text"), TextDelta(delta)]))
        assert events[-1]["obfuscation"] == "~" * pad

    def test_every_delta_is_padded_and_nothing_else(self) -> None:
        emit = emitter(padding=lambda length: "~" * length, show_summary=True)
        frames = shown(
            feed(emit, reasoning("a"), message("b", refusal="c"), calling("look"), calling("exec", "d", custom=True))
        )
        assert {frame["type"] for frame in frames if "obfuscation" in frame} == {
            frame["type"] for frame in frames if frame["type"].endswith(".delta")
        }
        assert len([frame for frame in frames if "obfuscation" in frame]) == 5

    def test_without_it_deltas_carry_none(self) -> None:
        assert not [frame for frame in shown(feed(emitter(), message("a b"))) if "obfuscation" in frame]


OPEN: dict[str, tuple[list[Delta], list[str]]] = {
    "nothing": ([], []),
    "a finished item": (message("a"), []),
    "a message": ([ItemBegan("message")], ["output_item.done"]),
    "text": (message("a")[:-2], ["output_text.done", "content_part.done", "output_item.done"]),
    "a refusal": (message(refusal="a")[:-2], ["refusal.done", "content_part.done", "output_item.done"]),
    "arguments": (calling("look", "{")[:-1], ["function_call_arguments.done", "output_item.done"]),
    "no arguments yet": (calling("look")[:-1], ["function_call_arguments.done", "output_item.done"]),
    "input": (calling("exec", "l", custom=True)[:-1], ["custom_tool_call_input.done", "output_item.done"]),
    "a thought": (
        reasoning("hm")[:-2],
        ["reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"],
    ),
}


class TestEnds:
    def test_a_turn_begins_with_the_same_empty_snapshot_twice(self) -> None:
        created, in_progress = shown(emitter().begin())
        assert (created["type"], in_progress["type"]) == ("response.created", "response.in_progress")
        assert created["response"] == in_progress["response"]
        begun = created["response"]
        assert (begun["status"], begun["output"], begun["usage"]) == ("in_progress", [], None)
        assert (begun["service_tier"], begun["completed_at"], begun["created_at"]) == ("auto", None, NOW)

    def test_a_warm_up_is_created_and_completed(self) -> None:
        emit = emitter()
        events = [*emit.created(), *emit.complete(USAGE, NOW + 1)]
        assert types_of(events) == ["created", "completed"]
        assert snapshot(events)["output"] == []

    def test_a_whole_response_shows_its_items_usage_time_and_tier(self) -> None:
        emit = emitter()
        items = [frame["item"] for frame in shown(feed(emit, message("a"), calling("look"))) if "item" in frame][1::2]
        done = snapshot(emit.complete(USAGE, NOW + 5))
        assert (done["status"], done["completed_at"], done["service_tier"]) == ("completed", NOW + 5, "default")
        assert done["output"] == items
        assert done["usage"] == json.loads(encode(USAGE))
        assert (done["error"], done["incomplete_details"]) == (None, None)

    def test_a_tier_that_was_asked_for_stays(self) -> None:
        emit = emitter(response=response(service_tier="priority"))
        assert snapshot(emit.complete(USAGE, NOW))["service_tier"] == "priority"

    @pytest.mark.parametrize(("deltas", "closing"), OPEN.values(), ids=OPEN)
    def test_a_limit_closes_what_is_open_as_incomplete(self, deltas: list[Delta], closing: list[str]) -> None:
        emit = emitter(show_summary=True)
        feed(emit, deltas)
        events = emit.cut("max_output_tokens", USAGE)
        assert types_of(events) == [*closing, "incomplete"]
        cut = snapshot(events)
        assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert (cut["completed_at"], cut["error"], cut["service_tier"]) == (None, None, "default")
        assert cut["usage"]["total_tokens"] == 7
        self.check_last(cut, closing)

    @pytest.mark.parametrize(("deltas", "closing"), OPEN.values(), ids=OPEN)
    def test_a_failure_closes_what_is_open_as_incomplete(self, deltas: list[Delta], closing: list[str]) -> None:
        emit = emitter(show_summary=True)
        feed(emit, deltas)
        events = emit.fail(ModelFault("It fell over.", "rate_limit_exceeded"))
        assert types_of(events) == [*closing, "failed"]
        failed = snapshot(events)
        assert (failed["status"], failed["usage"], failed["completed_at"]) == ("failed", None, None)
        assert failed["error"] == {"code": "rate_limit_exceeded", "message": "It fell over."}
        assert failed["incomplete_details"] is None
        self.check_last(failed, closing)

    def check_last(self, terminal: Json, closing: list[str]) -> None:
        statuses = [item["status"] for item in terminal["output"]]
        assert statuses == ([] if not statuses else ["incomplete" if closing else "completed"])

    def test_a_call_that_was_cut_is_open_for_nobody(self) -> None:
        emit = emitter()
        feed(emit, calling("look", "{", complete=False))
        assert (emit.open_calls, emit.call_ids) == ({}, ["call_2"])
        feed(emit, calling("look", "{")[:-1])
        terminal = snapshot(emit.cut("max_output_tokens", USAGE))
        assert [item["arguments"] for item in terminal["output"]] == ["{", "{"]
        assert (emit.open_calls, emit.call_ids) == ({}, ["call_2", "call_4"])

    def test_the_emitter_remembers_its_last_snapshot(self) -> None:
        emit = emitter()
        (event,) = emit.fail(ContextLengthExceeded())
        assert emit.response is event.response  # type: ignore[attr-defined]  # a terminal
        assert emit.response.status == "failed"

    def test_deltas_outside_any_item_make_no_events(self) -> None:
        emit = emitter()
        for delta in (TextDelta("x"), PartBegan("text"), PartEnded(), ItemEnded(True)):
            assert emit.feed(delta) == []
        assert emit.output == []


class TestPause:
    def paused(self) -> Emitter:
        emit = emitter()
        feed(emit, message("I look."), calling("look", "{}"), calling("exec", "ls", custom=True))
        return emit

    def test_it_asks_for_an_output_of_each_open_call(self) -> None:
        emit = self.paused()
        (frame,) = shown([emit.pause(USAGE)])
        assert frame["type"] == "response.done"
        assert frame["required_input"] == [
            {"type": "function_call_output", "call_id": "call_3", "name": "look"},
            {"type": "custom_tool_call_output", "call_id": "call_5"},
        ]
        assert list(emit.open_calls) == ["call_3", "call_5"]
        assert [call.kind for call in emit.open_calls.values()] == ["function_call", "custom_tool_call"]

    def test_it_shows_the_items_since_the_last_pause_and_the_usage_so_far(self) -> None:
        emit = self.paused()
        (first,) = shown([emit.pause(USAGE)])
        assert [item["type"] for item in first["response"]["output"]] == [
            "message", "function_call", "custom_tool_call",
        ]  # fmt: skip
        assert (first["response"]["status"], first["response"]["usage"]["total_tokens"]) == ("in_progress", 7)
        emit.resume()
        assert (emit.open_calls, emit.since_pause) == ({}, [])
        feed(emit, calling("look"))
        (second,) = shown([emit.pause(USAGE)])
        assert [item["output_index"] for item in shown(feed(copy.copy(emit), message("x")))] == [4] * 6
        assert [item["call_id"] for item in second["response"]["output"]] == ["call_7"]

    def test_the_terminal_alone_shows_the_whole_rollout(self) -> None:
        emit = self.paused()
        emit.pause(USAGE)
        emit.resume()
        feed(emit, message("Done."))
        assert len(snapshot(emit.complete(USAGE, NOW))["output"]) == 4

    def test_a_snapshot_does_not_grow_after_it_was_taken(self) -> None:
        emit = self.paused()
        done = emit.pause(USAGE)
        emit.resume()
        feed(emit, message("Done."))
        assert len(done.response.output) == 3
        assert emit.response.output == []
