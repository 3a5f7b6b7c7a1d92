"""Reading input: every kind of item, lenient where real clients are loose, exact about what is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from respserver.errors import InvalidField, InvalidJson, InvalidRequest
from respserver.schema.input import MAX_ID, read_input, user_message
from respserver.schema.items import (
    AdditionalToolsItem,
    CallOutputItem,
    CompactionItem,
    FunctionCallItem,
    InputItem,
    InputPart,
    ItemReference,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
)
from tests.support.pure import assistant, call, custom_call, custom_output, items, output, user


def one(entry: Any) -> InputItem:
    (item,) = items(entry)
    return item


def raw_of(entry: Any) -> bytes:
    return json.dumps(entry).encode()


def test_a_string_is_one_user_message() -> None:
    (item,) = read_input(b'"hello \\u00e9"')
    assert item == user_message("hello é")
    assert isinstance(item, MessageItem)
    assert (item.role, item.parts) == ("user", [InputPart(type="input_text", text="hello é")])
    assert json.loads(item.raw) == {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "hello é"}],
    }


def test_an_empty_string_is_a_message_without_words() -> None:
    assert read_input(b'""') == [user_message("")]


def test_an_empty_array_has_no_items() -> None:
    assert read_input(b"[]") == []


@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer"])
def test_a_missing_type_means_message(role: str) -> None:
    item = one({"role": role, "content": "hi"})
    assert isinstance(item, MessageItem)
    assert (item.role, item.parts, item.id) == (role, [InputPart(type="input_text", text="hi")], None)


def test_a_message_keeps_its_parts_whatever_their_kind() -> None:
    parts = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "file_id": "file_1", "detail": "low"},
        {"type": "refusal", "refusal": "no"},
        {"type": "new", "any": "thing"},
    ]
    item = one({"type": "message", "role": "assistant", "content": parts, "id": "msg_1", "phase": "commentary"})
    assert isinstance(item, MessageItem)
    assert item.id == "msg_1"
    assert item.parts == [
        InputPart(type="input_text", text="look"),
        InputPart(type="input_image", pads=85),
        InputPart(type="refusal", refusal="no"),
        InputPart(type="new"),
    ]


def test_a_function_call_is_read_whole() -> None:
    item = one(call("call_1", "ls", id="fc_1", namespace="fs", arguments='{"a":1}', status="completed"))
    assert isinstance(item, FunctionCallItem)
    assert (item.kind, item.call_id, item.name, item.namespace) == ("function_call", "call_1", "ls", "fs")
    assert (item.arguments, item.id, item.complete) == ('{"a":1}', "fc_1", True)


def test_a_custom_call_has_its_input_as_text() -> None:
    item = one(custom_call("call_1", "exec", id="ctc_1"))
    assert isinstance(item, FunctionCallItem)
    assert (item.kind, item.arguments, item.id, item.complete) == ("custom_tool_call", "ls", "ctc_1", True)


@pytest.mark.parametrize("entry", [call("c", status="incomplete"), custom_call("c", status="incomplete")])
def test_a_call_that_a_limit_cut_is_known_as_such(entry: Any) -> None:
    item = one(entry)
    assert isinstance(item, FunctionCallItem)
    assert not item.complete


@pytest.mark.parametrize(
    ("entry", "kind"),
    [(output("c1", "x"), "function_call_output"), (custom_output("c1", "x"), "custom_tool_call_output")],
)
def test_an_output_is_text(entry: Any, kind: str) -> None:
    item = one({**entry, "id": "fco_1", "status": "completed"})
    assert isinstance(item, CallOutputItem)
    assert (item.kind, item.call_id, item.id, item.name) == (kind, "c1", "fco_1", "")
    assert item.parts == [InputPart(type="input_text", text="x")]


def test_an_output_may_have_parts_and_may_be_empty() -> None:
    item = one(
        {**output("c1"), "output": [{"type": "input_text", "text": "a"}, {"type": "input_file", "file_id": "f"}]}
    )
    assert isinstance(item, CallOutputItem)
    assert [part.text for part in item.parts] == ["a", None]
    empty = one(output("c1", ""))
    assert isinstance(empty, CallOutputItem)
    assert empty.parts == [InputPart(type="input_text", text="")]


def test_reasoning_is_read_with_summary_content_and_secret() -> None:
    item = one(
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "a"}],
            "content": [{"type": "reasoning_text", "text": "b"}],
            "encrypted_content": "x",
        }
    )
    assert isinstance(item, ReasoningItem)
    assert (item.summary, item.content, item.encrypted_content, item.id) == (["a"], ["b"], "x", "rs_1")


@pytest.mark.parametrize(
    ("fields", "has_summary"),
    [({}, False), ({"summary": None}, False), ({"summary": [], "content": None, "encrypted_content": None}, True)],
    ids=str,
)
def test_reasoning_without_anything_is_taken(fields: dict[str, Any], has_summary: bool) -> None:
    item = one({"type": "reasoning", **fields})
    assert isinstance(item, ReasoningItem)
    assert (item.summary, item.content, item.encrypted_content, item.id) == ([], [], None, None)
    assert item.has_summary == has_summary


def test_what_the_model_is_shown_of_reasoning_is_what_was_sealed_then_its_text_then_its_summary() -> None:
    item = ReasoningItem(raw=b"", summary=["a"], content=["b"], sealed=["c", "d"])
    assert item.thoughts == ["c", "d"]
    item.sealed = None
    assert item.thoughts == ["b"]
    item.content = []
    assert item.thoughts == ["a"]


def test_a_call_says_whether_its_output_may_come_later() -> None:
    for entry in (call("c1"), custom_call("c2")):
        for given, is_async in ((..., False), (None, False), (False, False), (True, True)):
            item = one(entry if given is ... else {**entry, "async": given})
            assert isinstance(item, FunctionCallItem)
            assert item.is_async is is_async


@pytest.mark.parametrize("fields", [{}, {"encrypted_content": None}, {"encrypted_content": "x", "created_by": "me"}])
def test_a_compaction_is_read_but_not_opened(fields: dict[str, Any]) -> None:
    item = one({"type": "compaction", "id": "cmp_1", **fields})
    assert isinstance(item, CompactionItem)
    assert (item.id, item.encrypted_content, item.items) == ("cmp_1", fields.get("encrypted_content"), [])


@pytest.mark.parametrize("entry", [{"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}], ids=str)
def test_a_reference_is_an_id_and_may_leave_out_its_type(entry: Any) -> None:
    assert one(entry) == ItemReference(raw=raw_of(entry), id="msg_1")


def test_additional_tools_stay_raw() -> None:
    item = one({"type": "additional_tools", "id": "at_1", "role": "developer", "tools": [{"type": "zzz"}]})
    assert isinstance(item, AdditionalToolsItem)
    assert (bytes(item.tools), item.id) == (b'[{"type": "zzz"}]', "at_1")


@pytest.mark.parametrize("kind", ["zzz_call", "web_search_call", ""])
def test_a_kind_that_nobody_knows_passes_through(kind: str) -> None:
    entry = {"type": kind, "id": "zz_1", "call_id": "c9", "anything": [1, {"b": None}]}
    item = one(entry)
    assert item == OpaqueItem(raw=raw_of(entry), kind=kind, id="zz_1", call_id="c9")


ENTRIES = [
    user("hi"),
    assistant("hello", id="msg_1"),
    call("c1"),
    custom_call("c2"),
    output("c1"),
    custom_output("c2"),
    {"type": "reasoning", "summary": []},
    {"type": "additional_tools", "tools": []},
    {"type": "zzz", "b": 1},
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.get("type", "message"))
def test_what_a_client_sent_stays_byte_for_byte_beside_the_typed_view(entry: Any) -> None:
    text = json.dumps({**entry, "extra": 1.50}, indent=1, ensure_ascii=False).encode()
    (item,) = read_input(b"[\n " + text + b" ]")
    assert item.raw == text


def test_raw_items_do_not_keep_the_frame_alive() -> None:
    (item,) = read_input(Raw(raw_of([user()])))
    assert type(item.raw) is bytes


F, M = "invalid_type", "missing_required_parameter"


@pytest.mark.parametrize(
    ("entry", "code", "param"),
    [
        (5, F, "input[1]"),
        (None, F, "input[1]"),
        ("hi", F, "input[1]"),
        ([user()], F, "input[1]"),
        ({"type": 5}, F, "input[1].type"),
        ({"type": "zzz", "id": 5}, F, "input[1].id"),
        ({"type": "zzz", "call_id": []}, F, "input[1].call_id"),
        ({}, M, "input[1].role"),
        ({"role": "robot", "content": "x"}, "invalid_value", "input[1].role"),
        ({"role": "user"}, M, "input[1].content"),
        ({"role": "user", "content": None}, F, "input[1].content"),
        ({"role": "user", "content": ["x"]}, F, "input[1].content[0]"),
        ({"role": "user", "content": [{"text": "x"}]}, M, "input[1].content[0].type"),
        ({"role": "user", "content": [{"type": "input_text", "text": 5}]}, F, "input[1].content[0].text"),
        ({"type": "function_call", "name": "n", "arguments": ""}, M, "input[1].call_id"),
        ({"type": "function_call", "call_id": "c", "arguments": ""}, M, "input[1].name"),
        ({"type": "function_call", "call_id": "c", "name": "n"}, M, "input[1].arguments"),
        (call("c", arguments={}), F, "input[1].arguments"),
        (call(""), "empty_string", "input[1].call_id"),
        (call("c", ""), "empty_string", "input[1].name"),
        (call("c", namespace=5), F, "input[1].namespace"),
        (call("c", status=5), F, "input[1].status"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "n"}, M, "input[1].input"),
        (custom_call(""), "empty_string", "input[1].call_id"),
        (custom_call("c", ""), "empty_string", "input[1].name"),
        ({"type": "function_call_output", "output": "x"}, M, "input[1].call_id"),
        ({"type": "function_call_output", "call_id": "c"}, M, "input[1].output"),
        (output("c", output=5), F, "input[1].output"),
        (output(""), "empty_string", "input[1].call_id"),
        (custom_output(""), "empty_string", "input[1].call_id"),
        ({"type": "reasoning", "summary": 5}, F, "input[1].summary"),
        (call("c", **{"async": "yes"}), F, "input[1].async"),
        ({"type": "compaction", "encrypted_content": 5}, F, "input[1].encrypted_content"),
        ({"type": "item_reference"}, M, "input[1].id"),
        ({"type": "item_reference", "id": None}, F, "input[1].id"),
        ({"type": "item_reference", "id": ""}, "empty_string", "input[1].id"),
        ({"type": "message", "id": "msg_1"}, M, "input[1].role"),
        ({"role": "user", "content": [{"type": "input_image"}]}, M, "input[1].content[0].image_url"),
        ({"role": "user", "content": [{"type": "input_text"}]}, M, "input[1].content[0].text"),
        (output("c", output=[{"type": "input_file"}]), M, "input[1].output[0].file_id"),
        ({"type": "reasoning", "summary": [{"text": 5}]}, F, "input[1].summary[0].text"),
        ({"type": "reasoning", "encrypted_content": 5}, F, "input[1].encrypted_content"),
        ({"type": "additional_tools"}, M, "input[1].tools"),
    ],
    ids=str,
)
def test_a_faulty_item_is_named_by_its_place(entry: Any, code: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_input(raw_of([user(), entry]))
    assert (caught.value.code, caught.value.param) == (code, param)


@pytest.mark.parametrize("raw", [b"5", b"{}", b"true", b"null", b"1.5"])
def test_input_is_a_string_or_an_array(raw: bytes) -> None:
    with pytest.raises(InvalidField) as caught:
        read_input(raw, "input")
    assert (caught.value.code, caught.value.param) == ("invalid_type", "input")


def test_the_place_is_told_below_any_name() -> None:
    with pytest.raises(InvalidField) as caught:
        read_input(b"[5]", "history")
    assert caught.value.param == "history[0]"


@pytest.mark.parametrize("raw", [b'"\\ud800"', b'["', b"[" * 5000 + b"]" * 5000], ids=["surrogate", "cut", "deep"])
def test_broken_text_is_refused_without_a_fault_of_ours(raw: bytes) -> None:
    with pytest.raises(InvalidJson):
        read_input(raw)


BAD_IDS = {"": "empty_string", "x" * (MAX_ID + 1): "string_above_max_length"}
PREFIXES = [
    (call("c"), "fc"),
    (custom_call("c"), "ctc"),
    (assistant("x"), "msg"),
    (user(), "msg"),
    ({"type": "reasoning"}, "rs"),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.get("type", "message"))
@pytest.mark.parametrize("bad", BAD_IDS, ids=BAD_IDS.values())
def test_an_item_id_is_a_short_string_or_absent(entry: Any, bad: str) -> None:
    one({**entry, "id": None})
    with pytest.raises(InvalidField) as caught:
        one({**entry, "id": bad})
    assert (caught.value.code, caught.value.param) == (BAD_IDS[bad], "input[0].id")


@pytest.mark.parametrize(("entry", "prefix"), PREFIXES, ids=[prefix for _, prefix in PREFIXES])
def test_ids_of_the_kinds_that_we_make_begin_with_their_kind(entry: Any, prefix: str) -> None:
    assert one({**entry, "id": f"{prefix}_{'0' * (MAX_ID - len(prefix) - 1)}"}).id is not None
    with pytest.raises(InvalidField) as caught:
        one({**entry, "id": "call_9"})
    assert caught.value.code == "invalid_id_prefix"
    assert caught.value.message == f"Invalid 'input[0].id': 'call_9'. Expected an ID that begins with '{prefix}'."


def test_ids_of_other_kinds_may_begin_with_anything() -> None:
    for entry in (output("c"), custom_output("c"), {"type": "additional_tools", "tools": []}, {"type": "zzz"}):
        assert one({**entry, "id": "call_9"}).id == "call_9"
