"""Pairing calls and outputs (F06, F14), and what a fork takes with it."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.errors import InvalidField, InvalidRequest, NoToolCall, NoToolOutput
from respserver.protocol.chain import Context, Past, name_outputs, pair
from respserver.schema.items import CallOutputItem, FunctionCallItem, InputItem, MessageItem
from respserver.schema.tools import ToolDef
from respserver.state import OpenCall, StoredItem
from tests.support.pure import assistant, call, context, custom_call, custom_output, items, output, user


def paired(known: Context, *entries: Any) -> list[InputItem]:
    return pair(known, items(*entries))


def names(kept: list[InputItem]) -> list[str]:
    """Items in short: a call id for calls and outputs, the role for messages."""
    return [
        f"out {item.call_id}"
        if isinstance(item, CallOutputItem)
        else f"call {item.call_id}"
        if isinstance(item, FunctionCallItem)
        else item.role
        if isinstance(item, MessageItem)
        else "other"
        for item in kept
    ]


class TestCallsAndOutputs:
    """F14: every call finds its output, every output its call."""

    @pytest.mark.parametrize(
        ("entries", "missing"),
        [
            ([output("c1"), user("stop")], "c2"),
            ([user("stop")], "c1"),
            ([], "c1"),
            ([output("c2")], "c1"),
        ],
        ids=["a: one of two", "b: a line alone", "nothing", "the later one"],
    )
    def test_a_call_that_is_left_without_output_is_named(self, entries: list[Any], missing: str) -> None:
        with pytest.raises(NoToolOutput) as caught:
            paired(context("c1", "c2"), *entries)
        assert caught.value.message == f"No tool output found for function call {missing}."
        assert (caught.value.status, caught.value.param) == (400, "input")

    def test_c_all_outputs_and_a_line_go_on(self) -> None:
        kept = paired(context("c1", "c2"), output("c1"), output("c2", "aborted"), user("go on"))
        assert names(kept) == ["out c1", "out c2", "user"]

    @pytest.mark.parametrize("known", [context(), context("c1")], ids=["fresh chain", "open call"])
    def test_d_an_output_of_no_call_is_named(self, known: Context) -> None:
        with pytest.raises(NoToolCall) as caught:
            paired(known, output("call_none"))
        assert caught.value.message == "No tool call found for function call output with call_id call_none."
        assert caught.value.param == "input"

    def test_a_call_is_answered_once(self) -> None:
        with pytest.raises(NoToolCall, match="c1"):
            paired(context("c1"), output("c1"), output("c1"))

    def test_an_output_of_the_other_kind_is_none(self) -> None:
        with pytest.raises(NoToolCall) as caught:
            paired(context("c1"), custom_output("c1"))
        assert caught.value.message == "No tool call found for custom tool call output with call_id c1."
        with pytest.raises(NoToolOutput) as missing:
            paired(context(), custom_call("c2"))
        assert missing.value.message == "No tool output found for custom tool call c2."

    def test_an_output_stands_behind_its_call(self) -> None:
        with pytest.raises(NoToolCall):
            paired(context(), output("c1"), call("c1"))

    def test_the_whole_history_in_one_request_pairs_up(self) -> None:
        kept = paired(context(), user(), call("c1"), output("c1"), custom_call("c2"), custom_output("c2"), user())
        assert names(kept) == ["user", "call c1", "out c1", "call c2", "out c2", "user"]

    def test_nobody_owes_the_output_of_a_call_that_was_cut(self) -> None:
        assert names(paired(context(), call("c1", status="incomplete"), user())) == ["call c1", "user"]
        with pytest.raises(NoToolCall):
            paired(context(), call("c1", status="incomplete"), output("c1"))

    def test_outputs_learn_the_name_of_their_tool(self) -> None:
        kept = paired(context("c1"), output("c1"), call("c2", "ls", namespace="fs"), output("c2"))
        assert [item.name for item in kept if isinstance(item, CallOutputItem)] == ["tool_of_c1", "fs.ls"]

    def test_kinds_that_pass_through_are_not_paired(self) -> None:
        kept = paired(context(), {"type": "zzz_call", "call_id": "c9"}, {"type": "compaction", "id": "x"})
        assert names(kept) == ["other", "other"]


class TestOrder:
    def test_outputs_that_stand_together_come_in_call_order(self) -> None:
        kept = paired(context("c1", "c2", "c3"), output("c3"), output("c1"), output("c2"), user())
        assert names(kept) == ["out c1", "out c2", "out c3", "user"]

    def test_calls_of_the_parent_come_before_those_of_the_request(self) -> None:
        kept = paired(context("c9"), call("c1"), call("c0"), output("c0"), output("c9"), output("c1"))
        assert names(kept) == ["call c1", "call c0", "out c9", "out c1", "out c0"]

    def test_an_item_between_outputs_keeps_its_place(self) -> None:
        kept = paired(context("c1", "c2"), output("c2"), user(), output("c1"))
        assert names(kept) == ["out c2", "user", "out c1"]


class TestResentItems:
    """F06: history is never counted twice, but a parent's call beside its output is no second one."""

    def test_a_parents_call_without_id_is_the_parents(self) -> None:
        kept = paired(context("c1", "c2"), call("c1"), call("c2"), output("c1"), output("c2"))
        assert names(kept) == ["out c1", "out c2"]

    def test_it_stays_the_parents_behind_its_output_too(self) -> None:
        assert names(paired(context("c1"), output("c1"), call("c1"))) == ["out c1"]

    def test_it_still_owes_its_output(self) -> None:
        with pytest.raises(NoToolOutput):
            paired(context("c1"), call("c1"))

    def test_with_the_parents_item_id_it_is_a_repetition(self) -> None:
        error = refused(context("c1", item_ids=["fc_1"]), call("c1", id="fc_1"), output("c1"))
        assert (error.code, error.param) == ("duplicate_item_id", "input[0].id")
        assert "fc_1" in error.message

    def test_with_another_item_id_it_is_a_second_call_of_that_name(self) -> None:
        error = refused(context("c1"), user(), call("c1", id="fc_9"), output("c1"))
        assert (error.code, error.param) == ("invalid_value", "input[1].call_id")

    def test_a_call_that_was_answered_long_ago_is_not_made_again(self) -> None:
        assert refused(context(call_ids_before=["c0"]), call("c0"), output("c0")).param == "input[0].call_id"

    def test_two_calls_of_one_request_have_two_call_ids(self) -> None:
        error = refused(context(), call("c1"), output("c1"), custom_call("c1"))
        assert error.param == "input[2].call_id"
        assert "'c1' was called before" in error.message

    def test_an_item_id_of_the_past_is_named(self) -> None:
        error = refused(context(item_ids=["msg_1"]), user(), assistant("hi", id="msg_1"))
        assert (error.status, error.code, error.param) == (400, "duplicate_item_id", "input[1].id")
        assert error.message == "Invalid 'input[1].id': duplicate item found with id 'msg_1'."

    def test_an_item_id_twice_in_one_request_is_named_at_its_second_place(self) -> None:
        assert refused(context(), user(id="msg_1"), user(id="msg_1")).param == "input[1].id"

    def test_the_same_words_without_ids_are_two_items(self) -> None:
        assert names(paired(context(), user("a"), user("a"))) == ["user", "user"]


def refused(known: Context, *entries: Any) -> InvalidRequest:
    with pytest.raises(InvalidField) as caught:
        paired(known, *entries)
    return caught.value


def test_a_refusal_leaves_the_known_past_as_it_was() -> None:
    known = context("c1", "c2", item_ids=["msg_1"])
    with pytest.raises(NoToolOutput):
        paired(known, output("c1"), user(id="msg_2"))
    assert (list(known.open_calls), known.item_ids, known.call_ids) == (["c1", "c2"], {"msg_1"}, {"c1", "c2"})


def test_pairing_only_reads_the_known_past() -> None:
    known = context("c1")
    paired(known, output("c1"), call("c2"), output("c2"), user(id="msg_1"))
    assert (list(known.open_calls), known.item_ids, known.call_ids) == (["c1"], set(), {"c1"})


def test_a_fork_shares_the_past_and_nothing_that_grows() -> None:
    known = context("c1", item_ids=["msg_1"])
    known.past = Past([StoredItem("input", b"{}")])
    known.added_tools["look"] = ToolDef(type="function", name="look")
    known.buffer.extend([1, 2, 3])
    known.sequence, known.head_key = object(), b"head"
    fork = known.fork()
    assert fork.past is known.past
    assert (fork.open_calls, fork.item_ids, fork.call_ids) == (known.open_calls, known.item_ids, known.call_ids)
    assert (fork.fingerprint, fork.added_tools) == (known.fingerprint, known.added_tools)
    assert (fork.sequence, fork.head_key, len(fork.buffer), fork.buffer.seen) == (None, b"", 3, 0)
    fork.open_calls["c2"] = OpenCall("c2", "function_call", "look")
    fork.item_ids.add("msg_2")
    fork.call_ids.add("c2")
    fork.added_tools.clear()
    fork.buffer.extend([4])
    assert (list(known.open_calls), known.item_ids, known.call_ids) == (["c1"], {"msg_1"}, {"c1"})
    assert (list(known.added_tools), len(known.buffer)) == (["look"], 3)


def test_contexts_do_not_share_their_empty_beginnings() -> None:
    one, two = Context(buffer=context().buffer, fingerprint=""), Context(buffer=context().buffer, fingerprint="")
    one.open_calls["c1"] = OpenCall("c1", "function_call", "look")
    one.item_ids.add("msg_1")
    assert (two.open_calls, two.item_ids) == ({}, set())


def test_outputs_of_a_past_that_is_rendered_again_get_their_names_back() -> None:
    named = name_outputs(items(call("c1", "ls", namespace="fs"), output("c1"), user(), output("c9"), custom_call("c2")))
    assert [item.name for item in named if isinstance(item, CallOutputItem)] == ["fs.ls", ""]
    assert names(named) == ["call c1", "out c1", "user", "out c9", "call c2"]
