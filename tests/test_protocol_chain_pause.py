"""A suspended rollout and what it takes: all outputs of an append or none (design.md section 7)."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.errors import InvalidAppend, InvalidField, InvalidRequest
from respserver.protocol.chain import Pause, is_echo
from respserver.schema.items import (
    CallOutputItem,
    CustomToolCall,
    FunctionCall,
    InputItem,
    MessageItem,
    OutputItem,
    OutputMessage,
    OutputText,
    Reasoning,
    RefusalPart,
    SummaryText,
)
from tests.support.pure import assistant, call, custom_call, custom_output, items, open_calls, output, user

THOUGHT = Reasoning(id="rs_1", status="completed", summary=[SummaryText(text="hm")])
SAID = OutputMessage(id="msg_1", status="completed", content=[OutputText(text="I look. "), RefusalPart(refusal="No.")])
LOOK = FunctionCall(id="fc_1", status="completed", call_id="c1", name="look", arguments="{}")
EXEC = CustomToolCall(id="ctc_1", status="completed", call_id="c3", name="exec", input="ls")

SAID_AGAIN = {
    "role": "assistant",
    "content": [{"type": "output_text", "text": "I look. "}, {"type": "refusal", "refusal": "No."}],
}
THOUGHT_AGAIN = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"}


def pause(*emitted: OutputItem) -> Pause:
    """Two function calls and a custom one wait."""
    calls = open_calls("c1", "c2") | open_calls("c3", kind="custom_tool_call")
    return Pause(response_id="resp_1", open_calls=calls, emitted=list(emitted))


ALL = (output("c1"), output("c2"), custom_output("c3"))


def take(waiting: Pause, *entries: Any) -> list[str] | None:
    """What an append gives back, in short."""
    taken = waiting.take(items(*entries))
    return None if taken is None else [in_short(item) for item in taken]


def in_short(item: InputItem) -> str:
    if isinstance(item, MessageItem):
        return str(item.parts[0].text)
    assert isinstance(item, CallOutputItem)
    return item.call_id


class TestOutputs:
    def test_all_together_resume_the_loop_in_call_order(self) -> None:
        assert take(pause(), custom_output("c3"), output("c1"), output("c2")) == ["c1", "c2", "c3"]

    def test_some_wait_for_the_rest(self) -> None:
        waiting = pause()
        assert waiting.missing == ["c1", "c2", "c3"]
        assert take(waiting, output("c2")) is None
        assert waiting.missing == ["c1", "c3"]
        assert take(waiting, custom_output("c3")) is None
        assert take(waiting, output("c1")) == ["c1", "c2", "c3"]
        assert waiting.missing == []

    def test_they_learn_the_name_of_their_tool(self) -> None:
        taken = pause().take(items(*ALL))
        assert taken is not None
        assert [item.name for item in taken if isinstance(item, CallOutputItem)] == [
            "tool_of_c1",
            "tool_of_c2",
            "tool_of_c3",
        ]

    def test_user_messages_may_follow_in_the_frame_that_completes_the_set(self) -> None:
        waiting = pause()
        assert take(waiting, output("c1"), output("c2")) is None
        assert take(waiting, custom_output("c3"), user("and"), user("then")) == ["c1", "c2", "c3", "and", "then"]

    def test_pauses_do_not_share_their_answers(self) -> None:
        one, two = pause(), pause()
        take(one, output("c1"))
        assert two.answered == {}


BEFORE = "expected outputs of pending calls, then user messages."
REFUSED: dict[str, tuple[list[Any], str, str]] = {
    "nothing": ([], "input", "expected the output of at least one pending call."),
    "a message alone": ([user()], "input", "expected the output of at least one pending call."),
    "unknown call": ([output("c9")], "input[0].call_id", "no pending call 'c9' takes a function_call_output."),
    "wrong kind": ([output("c3")], "input[0].call_id", "no pending call 'c3' takes a function_call_output."),
    "other wrong kind": (
        [custom_output("c2")],
        "input[0].call_id",
        "no pending call 'c2' takes a custom_tool_call_output.",
    ),
    "answered before": ([output("c1")], "input[0].call_id", "call 'c1' was answered before."),
    "twice in one frame": ([output("c2"), output("c2")], "input[1].call_id", "call 'c2' was answered before."),
    "good, then unknown": ([output("c2"), output("c9")], "input[1].call_id", "no pending call 'c9'"),
    "early message": (
        [output("c2"), user(), user()],
        "input[1]",
        "user messages may only come with the last pending output; still missing: c3.",
    ),
    "message before outputs": ([user(), output("c2"), custom_output("c3")], "input[1]", BEFORE),
    "message between outputs": ([output("c2"), user(), custom_output("c3")], "input[2]", BEFORE),
    "system message": ([output("c2"), custom_output("c3"), user() | {"role": "system"}], "input[2]", BEFORE),
    "strange assistant message": ([assistant("never said"), output("c2")], "input[0]", BEFORE),
    "strange call": ([call("c9"), output("c2")], "input[0]", BEFORE),
    "reasoning": ([output("c2"), {"type": "reasoning"}], "input[1]", BEFORE),
    "unknown kind": ([{"type": "zzz"}, output("c2")], "input[0]", BEFORE),
    "tools": ([{"type": "additional_tools", "tools": []}], "input[0]", BEFORE),
}


@pytest.mark.parametrize(("entries", "param", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_refused_append_names_the_item_and_takes_nothing(entries: list[Any], param: str, problem: str) -> None:
    waiting = pause()
    take(waiting, output("c1", "first"))
    before = dict(waiting.answered)
    with pytest.raises(InvalidAppend) as caught:
        waiting.take(items(*entries))
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "invalid_append", param)
    assert problem in caught.value.message
    assert waiting.answered == before
    assert take(waiting, output("c2"), custom_output("c3")) == ["c1", "c2", "c3"]


def test_an_item_id_twice_is_named_and_nothing_is_taken() -> None:
    waiting = pause()
    with pytest.raises(InvalidField) as caught:
        waiting.take(items(output("c1", id="fco_1"), output("c2", id="fco_1")))
    assert (caught.value.code, caught.value.param) == ("duplicate_item_id", "input[1].id")
    assert waiting.answered == {}


class TestEcho:
    """Codex to 0.99 sends the server's own items back first, without ids."""

    ECHO = (THOUGHT_AGAIN, SAID_AGAIN, call("c1"), custom_call("c3"))
    ECHO_WITH_IDS = (
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"role": "assistant", "id": "msg_1", "content": "something else"},
        call("c1", id="fc_1"),
        custom_call("c3", id="ctc_1"),
    )

    @pytest.mark.parametrize("echo", [ECHO, ECHO_WITH_IDS], ids=["without ids", "with ids"])
    def test_it_is_not_added_twice(self, echo: tuple[Any, ...]) -> None:
        assert take(pause(THOUGHT, SAID, LOOK, EXEC), *echo, *ALL, user("and")) == ["c1", "c2", "c3", "and"]

    def test_a_part_of_it_in_any_order_is_known_too(self) -> None:
        assert take(pause(THOUGHT, SAID, LOOK, EXEC), custom_call("c3"), SAID_AGAIN, *ALL) == ["c1", "c2", "c3"]

    def test_each_frame_may_begin_with_it(self) -> None:
        waiting = pause(LOOK)
        assert take(waiting, call("c1"), output("c1")) is None
        assert take(waiting, call("c1"), output("c2"), custom_output("c3")) == ["c1", "c2", "c3"]

    def test_alone_it_answers_nothing(self) -> None:
        with pytest.raises(InvalidAppend) as caught:
            take(pause(LOOK), call("c1"))
        assert caught.value.param == "input"

    @pytest.mark.parametrize(
        ("entries", "param"),
        [
            ([call("c1"), call("c1"), *ALL], "input[1]"),
            ([output("c1"), call("c1"), output("c2"), custom_output("c3")], "input[1]"),
            ([call("c1"), output("c1"), output("c9")], "input[2].call_id"),
        ],
        ids=["an item twice", "behind an output", "then a fault"],
    )
    def test_places_count_from_the_frames_start(self, entries: list[Any], param: str) -> None:
        waiting = pause(LOOK)
        with pytest.raises(InvalidRequest) as caught:
            waiting.take(items(*entries))
        assert caught.value.param == param
        assert waiting.answered == {}


@pytest.mark.parametrize(
    ("emitted", "entry", "same"),
    [
        (SAID, SAID_AGAIN, True),
        (SAID, {**SAID_AGAIN, "role": "user"}, False),
        (SAID, {"role": "assistant", "content": "I look. "}, False),
        (
            SAID,
            {"role": "assistant", "content": [{"type": "output_text", "text": ""}, {"type": "refusal", "refusal": ""}]},
            False,
        ),
        (SAID, {"role": "assistant", "content": "other", "id": "msg_1"}, True),
        (SAID, {"role": "user", "content": "other", "id": "msg_1"}, False),
        (SAID, THOUGHT_AGAIN, False),
        (SAID, call("c1"), False),
        (LOOK, call("c1", "renamed", arguments="[]"), True),
        (LOOK, call("c2"), False),
        (EXEC, custom_call("c3"), True),
        (LOOK, SAID_AGAIN, False),
        (LOOK, output("c1"), False),
        (THOUGHT, THOUGHT_AGAIN, True),
        (THOUGHT, {"type": "reasoning", "summary": []}, False),
        (THOUGHT, {"type": "reasoning", "summary": [], "id": "rs_1"}, True),
        (THOUGHT, SAID_AGAIN, False),
    ],
)
def test_an_echo_is_the_same_by_id_by_call_id_or_by_kind_and_content(
    emitted: OutputItem, entry: Any, same: bool
) -> None:
    (item,) = items(entry)
    assert is_echo(emitted, item) is same
