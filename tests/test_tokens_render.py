"""The template: every kind of item in its frame, replayed items equal to made ones, pieces equal to the whole."""

from __future__ import annotations

import importlib.resources

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from respserver.schema.codec import encode
from respserver.schema.input import read_input
from respserver.schema.items import (
    AdditionalToolsItem,
    CallOutputItem,
    CompactionItem,
    CustomToolCall,
    FunctionCall,
    FunctionCallItem,
    InputItem,
    InputPart,
    ItemReference,
    MessageItem,
    OpaqueItem,
    OutputItem,
    OutputMessage,
    OutputText,
    Reasoning,
    ReasoningItem,
    ReasoningText,
    RefusalPart,
    SummaryText,
)
from respserver.tokens.render import TEMPLATE_VERSION, Pieces, Template, call_pieces, message_pieces, reasoning_pieces
from respserver.tokens.special import Special, is_special
from respserver.tokens.tokenizer import DATA_FILE, Tokenizer

TEMPLATE = Template(Tokenizer(importlib.resources.files("respserver.tokens").joinpath(DATA_FILE).read_bytes()))
START, SEP, END, PAD = Special.START, Special.SEP, Special.END, Special.PAD
THINK, REFUSAL, CALL, CUSTOM = Special.THINK, Special.REFUSAL, Special.CALL, Special.CUSTOM


def text_part(text: str) -> InputPart:
    return InputPart(type="input_text", text=text)


def message(*parts: InputPart, role: str = "user", phase: str | None = None) -> MessageItem:
    return MessageItem(raw=b"", role=role, parts=list(parts), phase=phase)  # type: ignore[arg-type]  # a role by its name


def call(
    kind: str = "function_call", namespace: str | None = None, name: str = "ls", arguments: str = "{}"
) -> FunctionCallItem:
    return FunctionCallItem(raw=b"", kind=kind, call_id="c", name=name, arguments=arguments, namespace=namespace)  # type: ignore[arg-type]  # a kind by its name


def output(kind: str, *parts: InputPart, name: str = "ls") -> CallOutputItem:
    return CallOutputItem(raw=b"", kind=kind, call_id="c", parts=list(parts), name=name)  # type: ignore[arg-type]  # a kind by its name


FORMS: dict[str, tuple[InputItem | OutputItem, Pieces]] = {
    "message": (message(text_part("hi"), text_part("there")), [START, "user", SEP, "hi", SEP, "there", END]),
    "developer message": (message(text_part("hi"), role="developer"), [START, "developer", SEP, "hi", END]),
    "message without parts": (message(), [START, "user", END]),
    "message with an empty part": (message(text_part("")), [START, "user", SEP, "", END]),
    "refusal": (
        message(InputPart(type="refusal", refusal="no"), role="assistant"),
        [START, "assistant", REFUSAL, "no", END],
    ),
    "refusal without its text": (message(InputPart(type="refusal")), [START, "user", REFUSAL, "", END]),
    "image": (
        message(InputPart(type="input_image", pads=3), text_part("look")),
        [START, "user", SEP, "[input_image]", PAD, PAD, PAD, SEP, "look", END],
    ),
    "a text that says image": (message(text_part("[input_image]")), [START, "user", SEP, "[input_image]", END]),
    "unknown part": (message(InputPart(type="new")), [START, "user", SEP, "[new]", END]),
    "phase": (
        message(text_part("x"), role="assistant", phase="commentary"),
        [START, "assistant commentary", SEP, "x", END],
    ),
    "phase that nobody knows": (
        message(text_part("x"), role="assistant", phase="x"),
        [START, "assistant", SEP, "x", END],
    ),
    "unknown part with text": (message(InputPart(type="new", text="x")), [START, "user", SEP, "x", END]),
    "function call": (call(), [START, "assistant", CALL, "ls", SEP, END]),
    "call in a namespace": (call(namespace="fs"), [START, "assistant", CALL, "fs.ls", SEP, END]),
    "call with arguments": (call(arguments='{"a":1}'), [START, "assistant", CALL, "ls", SEP, '{"a":1}', END]),
    "call without arguments": (call(arguments=""), [START, "assistant", CALL, "ls", SEP, "", END]),
    "custom call": (call("custom_tool_call"), [START, "assistant", CUSTOM, "ls", SEP, "{}", END]),
    "function output": (
        output("function_call_output", text_part("a"), InputPart(type="input_file", pads=1)),
        [START, "tool", CALL, "ls", SEP, "a", SEP, "[input_file]", PAD, END],
    ),
    "custom output": (output("custom_tool_call_output", text_part("a")), [START, "tool", CUSTOM, "ls", SEP, "a", END]),
    "output of an unknown call": (output("function_call_output", name=""), [START, "tool", CALL, "", END]),
    "reasoning": (
        ReasoningItem(raw=b"", summary=["a"], content=["c"], sealed=["a", "b"]),
        [START, "assistant", THINK, "a", THINK, "b", END],
    ),
    "reasoning without summary": (
        ReasoningItem(raw=b"", summary=[], content=["c"]),
        [START, "assistant", THINK, "c", END],
    ),
    "reasoning that nobody can read": (
        ReasoningItem(raw=b"", summary=[], content=[], encrypted_content="x"),
        [],
    ),
    "added tools": (AdditionalToolsItem(raw=b"", tools=Raw(b"[1]")), [START, "tools", SEP, "[1]", END]),
    "found tools": (
        OpaqueItem(raw=b"{}", kind="tool_search_output", tools=Raw(b"[1]")),
        [START, "tools", SEP, "[1]", END],
    ),
    "item with an image": (OpaqueItem(raw=b"{1}", kind="x", shown=b"{}", pads=1), [START, "item", SEP, "{}", PAD, END]),
    "compaction": (
        CompactionItem(raw=b"", encrypted_content="x", items=[message(text_part("a")), message()]),
        [START, "user", SEP, "a", END, START, "user", END],
    ),
    "compaction that was not opened": (CompactionItem(raw=b"", encrypted_content="x"), []),
    "unknown item": (OpaqueItem(raw=b'{"type":"new"}', kind="new"), [START, "item", SEP, '{"type":"new"}', END]),
}


@pytest.mark.parametrize(("item", "pieces"), FORMS.values(), ids=FORMS)
def test_every_kind_has_its_form(item: InputItem | OutputItem, pieces: Pieces) -> None:
    assert TEMPLATE.item(item) == pieces


@pytest.mark.parametrize(
    ("instructions", "tools", "pieces"),
    [
        (None, b"[]", []),
        ("", b"[]", []),
        ("Be brief.", b"[]", [START, "system", SEP, "Be brief.", END]),
        (None, b"[1]", [START, "tools", SEP, "[1]", END]),
        ("x", '["é"]'.encode(), [START, "system", SEP, "x", END, START, "tools", SEP, '["é"]', END]),
    ],
)
def test_head_says_only_what_there_is_to_say(instructions: str | None, tools: bytes, pieces: Pieces) -> None:
    assert TEMPLATE.head(instructions, tools) == pieces


def test_bytes_that_are_no_text_do_not_stop_a_rendering() -> None:
    assert TEMPLATE.head(None, b'["\xff"]') == [START, "tools", SEP, '["\ufffd"]', END]


MADE: dict[str, OutputItem] = {
    "message": OutputMessage(id="msg_1", status="completed", content=[OutputText(text="é"), RefusalPart(refusal="no")]),
    "empty message": OutputMessage(id="msg_1", status="completed"),
    "function call": FunctionCall(id="fc_1", status="completed", call_id="c", name="ls", arguments='{"a": 1}'),
    "function call in a namespace": FunctionCall(id="fc_1", status="completed", call_id="c", name="ls", namespace="fs"),
    "custom call": CustomToolCall(id="ctc_1", status="completed", call_id="c", name="ls", input="a\nb"),
    "custom call in a namespace": CustomToolCall(id="ctc_1", status="completed", call_id="c", name="x", namespace="fs"),
    "reasoning with a summary": Reasoning(
        id="rs_1",
        status="completed",
        summary=[SummaryText(text="a"), SummaryText(text="")],
        content=[ReasoningText(text="b")],
    ),
    "reasoning with its text": Reasoning(id="rs_1", status="completed", content=[ReasoningText(text="b")]),
    "reasoning that is sealed": Reasoning(id="rs_1", status="completed", encrypted_content="x"),
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_a_replayed_item_renders_like_the_one_the_server_made(made: OutputItem) -> None:
    (replayed,) = read_input(b"[" + encode(made) + b"]")
    assert TEMPLATE.tokenise(TEMPLATE.item(replayed)) == TEMPLATE.tokenise(TEMPLATE.item(made))


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_ids_and_status_are_no_part_of_the_context(made: OutputItem) -> None:
    before = TEMPLATE.item(made)
    (other,) = read_input(b"[" + encode(made).replace(b'"completed"', b'"incomplete"') + b"]")
    other.id = None
    assert TEMPLATE.item(other) == before


texts = st.text(max_size=12) | st.sampled_from([mark.text for mark in Special])
maybe_texts = st.none() | texts
lists_of_texts = st.lists(texts, max_size=2)
kinds = st.sampled_from(["function_call", "custom_tool_call"])
output_kinds = st.sampled_from(["function_call_output", "custom_tool_call_output"])
part_types = st.sampled_from(["input_text", "output_text", "refusal", "input_image"])
input_parts = st.builds(InputPart, type=part_types, text=maybe_texts, refusal=maybe_texts, pads=st.integers(0, 2))
output_parts = st.builds(OutputText, text=texts) | st.builds(RefusalPart, refusal=texts)
same = {"id": st.just("i"), "status": st.just("completed")}
"""What every output item has."""
items: st.SearchStrategy[InputItem | OutputItem] = st.one_of(
    st.lists(input_parts, max_size=3).map(lambda parts: message(*parts)),
    st.builds(call, kind=kinds, namespace=maybe_texts, name=texts, arguments=texts),
    st.builds(output, output_kinds, input_parts, name=texts),
    st.builds(ReasoningItem, raw=st.just(b""), summary=lists_of_texts, content=lists_of_texts),
    st.builds(OpaqueItem, raw=st.binary(max_size=12), kind=st.just("new")),
    st.builds(AdditionalToolsItem, raw=st.just(b""), tools=st.binary(max_size=12).map(Raw)),
    st.builds(OutputMessage, content=st.lists(output_parts, max_size=3), **same),
    st.builds(FunctionCall, call_id=texts, name=texts, arguments=texts, namespace=st.just(UNSET) | texts, **same),
    st.builds(CustomToolCall, call_id=texts, name=texts, input=texts, namespace=st.just(UNSET) | texts, **same),
    st.builds(Reasoning, summary=st.lists(st.builds(SummaryText, text=texts), max_size=2), **same),
)


@pytest.mark.slow
@given(st.lists(items, max_size=3))
def test_rendering_in_pieces_equals_rendering_at_once(several: list[InputItem | OutputItem]) -> None:
    at_once = TEMPLATE.tokenise([piece for item in several for piece in TEMPLATE.item(item)])
    assert at_once == [token for item in several for token in TEMPLATE.tokenise(TEMPLATE.item(item))]


@pytest.mark.slow
@given(items)
def test_an_items_marks_are_the_templates_own_whatever_its_texts_say(item: InputItem | OutputItem) -> None:
    pieces = TEMPLATE.item(item)
    marks = [token for token in TEMPLATE.tokenise(pieces) if is_special(token)]
    assert marks == [piece for piece in pieces if not isinstance(piece, str)]
    if not pieces:  # reasoning whose text was never told
        return
    marks = [mark for mark in marks if mark != PAD]
    assert (marks[0], marks[-1]) == (START, END)
    assert not {START, END, Special.STOP} & set(marks[1:-1])


@given(st.lists(st.text(max_size=6) | st.sampled_from(list(Special)), max_size=6))
def test_size_counts_the_bytes_of_the_texts(pieces: Pieces) -> None:
    assert TEMPLATE.text_bytes(pieces) == sum(len(piece.encode()) for piece in pieces if isinstance(piece, str))


def test_size_of_half_a_surrogate_pair_is_that_of_its_replacement() -> None:
    assert TEMPLATE.text_bytes(["\ud800"]) == 1


def test_pieces_can_be_made_without_an_item() -> None:
    assert message_pieces("assistant", [("text", "a"), ("refusal", "b")]) == [
        START,
        "assistant",
        SEP,
        "a",
        REFUSAL,
        "b",
        END,
    ]
    assert reasoning_pieces([""]) == [START, "assistant", THINK, "", END]
    assert call_pieces("function_call", "ls", "{}") == TEMPLATE.item(call())
    assert call_pieces("custom_tool_call", "ls", "{}") == TEMPLATE.item(call("custom_tool_call"))


def test_sampled_reasoning_comes_back_in_its_parts() -> None:
    for parts in (["a", "", "é 🎉"], [""]):
        pieces = reasoning_pieces(parts)
        assert TEMPLATE.sampled_reasoning(TEMPLATE.tokenise(pieces)) == pieces


def test_a_reference_is_never_rendered() -> None:
    with pytest.raises(AssertionError):
        TEMPLATE.item(ItemReference(raw=b"", id="msg_1"))


def test_fingerprint_names_tokenizer_and_template_version() -> None:
    assert TEMPLATE.fingerprint == f"{TEMPLATE.tokenizer.fingerprint}.{TEMPLATE_VERSION}"


def test_template_hands_on_the_token_table() -> None:
    assert TEMPLATE.token_bytes is TEMPLATE.tokenizer.token_bytes
