"""From deltas to events: the exact orders of protocol.md section 3.3, kind by kind and end by end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.protocol.open_item import ReasoningShown
from respserver.schema.codec import encode
from respserver.schema.logprobs import Logprob
from respserver.schema.tools import ToolDef
from respserver.tokens.parse import Delta, ItemBegan, ItemEnded, PartBegan, PartEnded, ScoredText, TextDelta
from tests.support.pure import SUMMARY, USAGE, calling, emitter, feed, message, reasoning, shown, types_of

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
        {"reasoning": SUMMARY},
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
    "reasoning, its text shown": (
        reasoning("hm", "so"),
        {"reasoning": ReasoningShown(text=True)},
        [
            "output_item.added",
            *["content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done"] * 2,
            "output_item.done",
        ],
    ),
    "reasoning, shown in both ways": (
        reasoning("hm"),
        {"reasoning": ReasoningShown(text=True, summary=True)},
        [
            "output_item.added",
            "content_part.added",
            "reasoning_summary_part.added",
            "reasoning_text.delta",
            "reasoning_summary_text.delta",
            "reasoning_text.done",
            "content_part.done",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
        ],
    ),
    "reasoning without thoughts": (reasoning(), {"reasoning": SUMMARY}, ["output_item.added", "output_item.done"]),
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
    "function call with stray part marks": (
        [ItemBegan("function_call", "look"), PartBegan("text"), TextDelta("{}"), PartEnded(), ItemEnded(True)],
        {},
        [
            "output_item.added",
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
    assert added["item"] == {
        "type": "message",
        "id": "msg_1",
        "status": "in_progress",
        "role": "assistant",
        "content": [],
    }
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
    frames = shown(feed(emitter(reasoning=SUMMARY), reasoning("hm", "so")))
    assert [frame["summary_index"] for frame in frames[1:-1]] == [0] * 4 + [1] * 4
    assert [frame["text"] for frame in frames if "text" in frame] == ["hm", "so"]
    assert (frames[0]["item"]["summary"], frames[0]["item"]["content"]) == ([], [])
    assert [part["text"] for part in frames[-1]["item"]["summary"]] == ["hm", "so"]


def test_text_parts_of_reasoning_are_numbered_and_collected() -> None:
    frames = shown(feed(emitter(reasoning=ReasoningShown(text=True)), reasoning("hm", "so")))
    assert [frame["content_index"] for frame in frames[1:-1]] == [0] * 4 + [1] * 4
    assert [frame["text"] for frame in frames if "text" in frame] == ["hm", "so"]
    assert frames[1]["part"] == {"type": "reasoning_text", "text": ""}
    assert frames[4]["part"] == {"type": "reasoning_text", "text": "hm"}
    assert (frames[0]["item"]["summary"], frames[0]["item"]["content"]) == ([], [])
    assert frames[-1]["item"]["content"] == [{"type": "reasoning_text", "text": text} for text in ("hm", "so")]


@pytest.mark.parametrize("complete", [True, False])
def test_what_was_thought_is_sealed_whether_shown_or_not(complete: bool) -> None:
    for summary in (True, False):
        emit = emitter(reasoning=ReasoningShown(summary=summary, seal="|".join))
        added, *_, done = shown(feed(emit, reasoning("hm", "", "so", complete=complete)))
        assert "encrypted_content" not in added["item"]
        assert done["item"]["encrypted_content"] == "hm||so"


def test_a_part_that_was_cut_is_sealed_too() -> None:
    emit = emitter(reasoning=ReasoningShown(seal="|".join))
    feed(emit, [ItemBegan("reasoning"), PartBegan("thought"), TextDelta("hm")])
    (done, _) = shown(emit.cut("max_output_tokens", USAGE))
    assert done["item"]["encrypted_content"] == "hm"


@pytest.mark.parametrize("custom", [False, True])
def test_a_call_of_an_async_tool_says_so_and_is_owed_nothing(custom: bool) -> None:
    emit = emitter(offered={"look": ToolDef(type="custom" if custom else "function", name="look", is_async=True)})
    frames = shown(feed(emit, calling("look", "x", custom=custom), calling("other", "x", custom=custom)))
    assert [frame["item"].get("async") for frame in frames if "item" in frame] == [True, True, None, None]
    (later,), (owed,) = emit.async_calls.values(), emit.open_calls.values()
    assert (later.name, later.owed, owed.name, owed.owed) == ("look", False, "other", True)
    emit.resume()
    assert (list(emit.async_calls), emit.open_calls) == ([later.call_id], {})


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


OFFERED = {
    "fs.ls": ToolDef(type="function", name="ls", namespace="fs"),
    "fs.run": ToolDef(type="custom", name="run", namespace="fs"),
    "look": ToolDef(type="function", name="look"),
    "a.b": ToolDef(type="function", name="a.b"),
}


class TestNames:
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
        emit = emitter(offered=OFFERED)
        *_, closed = shown(feed(emit, calling(sampled, custom=custom)))
        assert (closed["item"]["name"], closed["item"].get("namespace")) == (name, namespace)
        (call,) = emit.open_calls.values()
        assert call.name == sampled


class TestLogprobs:
    def test_a_kind_that_has_none_shows_the_text_alone(self) -> None:
        scored = ScoredText("{}", (Logprob(token="{}", bytes=[123, 125], logprob=-1.0),))
        *_, delta, done, item = shown(feed(emitter(), [ItemBegan("function_call", "look"), scored, ItemEnded(True)]))
        assert (delta["delta"], done["arguments"], item["item"]["arguments"]) == ("{}", "{}", "{}")
        assert not [key for key in (*delta, *done, *item["item"]) if "logprobs" in key]


class TestObfuscation:
    @pytest.mark.parametrize(
        ("delta", "pad"), [("The", 13), (" temperature", 4), ('{"', 14), ("x" * 16, 16), ("é" * 15, 1), ("y" * 17, 15)]
    )
    def test_delta_and_padding_fill_a_multiple_of_sixteen(self, delta: str, pad: int) -> None:
        emit = emitter(padding=lambda length: "~" * length)
        events = shown(feed(emit, [ItemBegan("message"), PartBegan("text"), TextDelta(delta)]))
        assert events[-1]["obfuscation"] == "~" * pad

    @given(st.text(min_size=1, max_size=70), st.sampled_from(["message", "function_call", "custom_tool_call"]))
    def test_any_delta_is_padded_to_the_next_multiple(self, delta: str, kind: Any) -> None:
        emit = emitter(padding=lambda length: "~" * length)
        *_, event = shown(feed(emit, [ItemBegan(kind, "look"), PartBegan("text"), TextDelta(delta)]))
        padding = len(event["obfuscation"])
        assert 1 <= padding <= 16
        assert (len(event["delta"]) + padding) % 16 == 0

    def test_every_delta_is_padded_and_nothing_else(self) -> None:
        emit = emitter(padding=lambda length: "~" * length, reasoning=ReasoningShown(summary=True, text=True))
        frames = shown(
            feed(emit, reasoning("a"), message("b", refusal="c"), calling("look"), calling("exec", "d", custom=True))
        )
        assert {frame["type"] for frame in frames if "obfuscation" in frame} == {
            frame["type"] for frame in frames if frame["type"].endswith(".delta")
        }
        assert len([frame for frame in frames if "obfuscation" in frame]) == 6

    def test_without_it_deltas_carry_none(self) -> None:
        assert not [frame for frame in shown(feed(emitter(), message("a b"))) if "obfuscation" in frame]
