"""How turns begin, pause and end: complete, cut by a limit, failed, warmed up."""

from __future__ import annotations

import json

import pytest

from respserver.errors import ContextLengthExceeded, ModelFault
from respserver.protocol.emitter import Emitter
from respserver.schema.codec import encode
from respserver.schema.events import Event
from respserver.tokens.parse import Delta, ItemBegan, ItemEnded, PartBegan, PartEnded, TextDelta
from tests.support.pure import (
    NOW,
    SUMMARY,
    USAGE,
    Json,
    calling,
    emitter,
    feed,
    message,
    reasoning,
    response,
    shown,
    types_of,
)


def snapshot(events: list[Event]) -> Json:
    """The Response of the last event."""
    decoded: Json = shown(events)[-1]["response"]
    return decoded


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
        emit = emitter(reasoning=SUMMARY)
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
        emit = emitter(reasoning=SUMMARY)
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
        assert [item["output_index"] for item in shown(feed(emit, message("x")))] == [4] * 6
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
