"""Pairing beyond functions: calls that a client carries out in other ways, and outputs that may come late."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.errors import InvalidField, NoToolCall, NoToolOutput
from respserver.protocol.chain import Context, left_open, name_outputs, pair
from respserver.schema.items import OUTPUT_KIND_OF_CALL, CallOutputItem
from respserver.state import OpenCall
from tests.support.pure import call, context, custom_call, items, output, user

WORDS = {
    "shell_call": "shell call",
    "local_shell_call": "local shell call",
    "apply_patch_call": "apply patch call",
    "computer_call": "computer call",
    "tool_search_call": "tool search call",
    "mcp_approval_request": "MCP approval request",
}


def called(kind: str, call_id: str, **fields: Any) -> dict[str, Any]:
    if kind == "mcp_approval_request":
        return {"type": kind, "id": call_id, "name": "n", **fields}
    return {"type": kind, "call_id": call_id, "execution": "client", **fields}


def answered(kind: str, call_id: str) -> dict[str, Any]:
    field = "approval_request_id" if kind == "mcp_approval_request" else "call_id"
    shot = {"type": "computer_screenshot", "file_id": "f"}
    return {"type": OUTPUT_KIND_OF_CALL[kind], field: call_id, "execution": "client", "output": shot, "approve": True}


def later(entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "async": True}


def after(known: Context, *entries: Any) -> dict[str, OpenCall]:
    """What is left open behind these items, which must pair up."""
    return left_open(known, pair(known, items(*entries)))


@pytest.mark.parametrize(("kind", "words"), WORDS.items(), ids=WORDS)
class TestOtherKinds:
    def test_a_call_and_its_output_find_each_other(self, kind: str, words: str) -> None:
        assert after(context(), user(), called(kind, "c1"), answered(kind, "c1"), user()) == {}

    def test_a_call_without_its_output_is_named_in_the_words_of_the_api(self, kind: str, words: str) -> None:
        with pytest.raises(NoToolOutput) as caught:
            pair(context(), items(called(kind, "c1"), user()))
        assert caught.value.message == f"No tool output found for {words} c1."

    def test_an_output_without_its_call_is_named_too(self, kind: str, words: str) -> None:
        with pytest.raises(NoToolCall) as caught:
            pair(context(), items(answered(kind, "c1")))
        assert caught.value.message == f"No tool call found for {words} output with call_id c1."

    def test_a_call_is_answered_once_by_its_own_kind(self, kind: str, words: str) -> None:
        with pytest.raises(NoToolCall):
            pair(context(), items(called(kind, "c1"), answered(kind, "c1"), answered(kind, "c1")))
        with pytest.raises(NoToolCall):
            pair(context(), items(called("shell_call", "c1"), answered("apply_patch_call", "c1")))

    def test_a_call_stands_once_in_a_context(self, kind: str, words: str) -> None:
        with pytest.raises(InvalidField):
            pair(context(call_ids_before=["c1"]), items(called(kind, "c1"), answered(kind, "c1")))


def test_codex_answers_a_local_shell_call_like_a_function() -> None:
    (_, answer) = pair(context(), items(called("local_shell_call", "c1"), output("c1")))
    assert isinstance(answer, CallOutputItem)
    assert answer.name == "local_shell"
    again = name_outputs(items(called("local_shell_call", "c1"), output("c1")))[1]
    assert isinstance(again, CallOutputItem)
    assert again.name == "local_shell"


def test_what_the_service_carries_out_may_have_its_output_beside_it_or_not() -> None:
    hosted = called("shell_call", "c1", environment={"type": "container_reference"})
    assert after(context(), hosted, answered("shell_call", "c1")) == {}
    assert after(context(), hosted) == {"c1": OpenCall("c1", "shell_call", "shell", owed=False)}
    searched = called("tool_search_call", "c1", execution="server")
    found = {"type": "tool_search_output", "call_id": "c1", "execution": "server", "tools": []}
    assert "c1" in after(context(), searched, found)  # nothing is paired, and nothing owed


def test_calls_without_an_id_that_could_be_named_owe_nothing() -> None:
    assert after(context(), {"type": "local_shell_call", "call_id": None}, {"type": "mcp_approval_request"}) == {}


class TestAsync:
    """protocol.md section 5.5."""

    @pytest.mark.parametrize("entry", [later(call("c1")), later(custom_call("c1"))])
    def test_a_missing_output_is_no_error(self, entry: dict[str, Any]) -> None:
        (left,) = after(context(), entry, user()).values()
        assert (left.call_id, left.owed) == ("c1", False)

    def test_the_output_may_come_in_any_later_turn_once(self) -> None:
        known = context()
        known.open_calls["c1"] = OpenCall("c1", "function_call", "look", owed=False)
        assert list(after(known, user())) == ["c1"]
        assert after(known, user(), output("c1")) == {}
        with pytest.raises(NoToolCall):
            pair(known, items(output("c1"), output("c1")))

    def test_the_output_may_stand_beside_its_call(self) -> None:
        assert after(context(), later(call("c1")), output("c1")) == {}

    def test_a_call_that_was_cut_never_gets_one(self) -> None:
        with pytest.raises(NoToolCall):
            pair(context(), items(later(call("c1", status="incomplete")), output("c1")))

    def test_others_are_owed_all_the_same(self) -> None:
        known = context("c2")
        known.open_calls["c1"] = OpenCall("c1", "function_call", "look", owed=False)
        with pytest.raises(NoToolOutput) as caught:
            pair(known, items(output("c1")))
        assert "c2" in caught.value.message
