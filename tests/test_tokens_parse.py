"""The parser: what was rendered comes back, whatever was sampled means something, and splits do not matter."""

from __future__ import annotations

import importlib.resources
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.tokens.parse import Delta, ItemBegan, ItemEnded, OutputParser, PartBegan, PartEnded, TextDelta
from respserver.tokens.render import Pieces, Template, call_pieces, message_pieces, reasoning_pieces
from respserver.tokens.special import SPECIAL_COUNT, Special
from respserver.tokens.tokenizer import DATA_FILE, Tokenizer

TEMPLATE = Template(Tokenizer(importlib.resources.files("respserver.tokens").joinpath(DATA_FILE).read_bytes()))
TABLE = TEMPLATE.token_bytes
START, SEP, END, STOP = Special.START, Special.SEP, Special.END, Special.STOP
THINK, REFUSAL, CALL, CUSTOM = Special.THINK, Special.REFUSAL, Special.CALL, Special.CUSTOM
MESSAGE = ItemBegan("message")
REASONING = ItemBegan("reasoning")
TEXT, REFUSED, THOUGHT, OVER = PartBegan("text"), PartBegan("refusal"), PartBegan("thought"), PartEnded()
DONE, CUT = ItemEnded(True), ItemEnded(False)


def parsed(*pieces: int | str) -> list[Delta]:
    """The deltas of a whole sampling, neighbouring texts joined."""
    parser = OutputParser(TABLE)
    return joined(parser.feed(TEMPLATE.tokenise(list(pieces))))


def joined(deltas: list[Delta]) -> list[Delta]:
    result: list[Delta] = []
    for delta in deltas:
        before = result[-1] if result else None
        if isinstance(delta, TextDelta) and isinstance(before, TextDelta):
            result[-1] = TextDelta(before.text + delta.text)
        else:
            result.append(delta)
    return result


def byte_ids(data: bytes) -> list[int]:
    """One token for each byte, so that characters are split."""
    return [TABLE.index(bytes([byte])) for byte in data]


WELL_FORMED: dict[str, tuple[Pieces, list[Delta]]] = {
    "message": (
        [START, "assistant", SEP, "Hello.", END],
        [MESSAGE, TEXT, TextDelta("Hello."), OVER, DONE],
    ),
    "message in parts": (
        [START, "assistant", SEP, "a", REFUSAL, "b", SEP, END],
        [MESSAGE, TEXT, TextDelta("a"), OVER, REFUSED, TextDelta("b"), OVER, TEXT, OVER, DONE],
    ),
    "message without parts": ([START, "assistant", END], [MESSAGE, DONE]),
    "reasoning": (
        [START, "assistant", THINK, "a", THINK, "b", END],
        [REASONING, THOUGHT, TextDelta("a"), OVER, THOUGHT, TextDelta("b"), OVER, DONE],
    ),
    "function call": (
        [START, "assistant", CALL, "fs.ls", SEP, "{}", END],
        [ItemBegan("function_call", "fs.ls"), TextDelta("{}"), DONE],
    ),
    "custom call": (
        [START, "assistant", CUSTOM, "run", SEP, "x", END],
        [ItemBegan("custom_tool_call", "run"), TextDelta("x"), DONE],
    ),
    "several items": (
        [START, "assistant", THINK, END, START, "assistant", CALL, "a", SEP, END],
        [REASONING, THOUGHT, OVER, DONE, ItemBegan("function_call", "a"), DONE],
    ),
}


@pytest.mark.parametrize(("pieces", "deltas"), WELL_FORMED.values(), ids=WELL_FORMED)
def test_well_formed_items_come_back(pieces: Pieces, deltas: list[Delta]) -> None:
    assert parsed(*pieces) == deltas


MALFORMED: dict[str, tuple[Pieces, list[Delta]]] = {
    "text outside any item": (["hi", END], [MESSAGE, TEXT, TextDelta("hi"), OVER, DONE]),
    "a part outside any item": ([REFUSAL, "no", END], [MESSAGE, REFUSED, TextDelta("no"), OVER, DONE]),
    "a call outside any item": (
        [CALL, "ls", SEP, "{}", END],
        [ItemBegan("function_call", "ls"), TextDelta("{}"), DONE],
    ),
    "an end outside any item": ([END, END], []),
    "a foreign role": ([START, "user", SEP, "hi", END], [MESSAGE, TEXT, TextDelta("hi"), OVER, DONE]),
    "a call without arguments": ([START, CALL, "ls", END], [ItemBegan("function_call", "ls"), DONE]),
    "a call without a name": ([START, CALL, SEP, "x", END], [ItemBegan("function_call"), TextDelta("x"), DONE]),
    "a start inside a message": (
        [START, "assistant", SEP, "a", START, "assistant", SEP, "b", END],
        [MESSAGE, TEXT, TextDelta("a"), OVER, CUT, MESSAGE, TEXT, TextDelta("b"), OVER, DONE],
    ),
    "a start inside a role": ([START, "assi", START, "assistant", END], [MESSAGE, DONE]),
    "a start inside a name": ([START, CALL, "l", START, END], [MESSAGE, DONE]),
    "a call inside a message": (
        [START, SEP, "a", CALL, "ls", SEP, "{}", END],
        [MESSAGE, TEXT, TextDelta("a"), OVER, CUT, ItemBegan("function_call", "ls"), TextDelta("{}"), DONE],
    ),
    "a second separator inside a call": (
        [START, CALL, "ls", SEP, "{", SEP, "}", END],
        [ItemBegan("function_call", "ls"), TextDelta("{"), CUT, MESSAGE, TEXT, TextDelta("}"), OVER, DONE],
    ),
    "another call inside a name": ([START, CALL, "a", CUSTOM, "b", END], [ItemBegan("custom_tool_call", "b"), DONE]),
    "a refusal inside a name": ([START, CALL, "a", REFUSAL, "b", END], [MESSAGE, REFUSED, TextDelta("b"), OVER, DONE]),
    "a thought inside a message": (
        [START, SEP, "a", THINK, "b", END],
        [MESSAGE, TEXT, TextDelta("a"), OVER, CUT, REASONING, THOUGHT, TextDelta("b"), OVER, DONE],
    ),
    "text inside reasoning": (
        [START, THINK, "a", SEP, "b", END],
        [REASONING, THOUGHT, TextDelta("a"), OVER, CUT, MESSAGE, TEXT, TextDelta("b"), OVER, DONE],
    ),
    "a stop inside a message": ([START, SEP, "a", STOP, "b", END], [MESSAGE, TEXT, TextDelta("ab"), OVER, DONE]),
    "ids beyond the vocabulary": (
        [START, SEP, "a", len(TABLE), -1, 2**32 - 1, "b", END],
        [MESSAGE, TEXT, TextDelta("ab"), OVER, DONE],
    ),
}


@pytest.mark.parametrize(("pieces", "deltas"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_items_mean_something(pieces: Pieces, deltas: list[Delta]) -> None:
    assert parsed(*pieces) == deltas


def test_each_text_token_makes_its_own_delta_as_it_comes() -> None:
    parser = OutputParser(TABLE)
    parser.feed([START, SEP])
    ids = TEMPLATE.tokenizer.encode("The quick brown fox jumps.")
    deltas = [parser.feed([token]) for token in ids]
    assert deltas == [[TextDelta(TABLE[token].decode())] for token in ids]
    assert len(ids) > 3


def test_a_split_character_arrives_with_the_token_that_completes_it() -> None:
    parser = OutputParser(TABLE)
    parser.feed([START, SEP])
    assert [parser.feed([token]) for token in byte_ids("é🎈a".encode())] == [
        [],
        [TextDelta("é")],
        [],
        [],
        [],
        [TextDelta("🎈")],
        [TextDelta("a")],
    ]


def test_a_character_that_breaks_off_is_replaced_where_its_part_ends() -> None:
    head = byte_ids("🎈".encode()[:3])
    assert parsed(START, SEP, *head, SEP, "b", END) == [
        MESSAGE, TEXT, TextDelta("\ufffd"), OVER, TEXT, TextDelta("b"), OVER, DONE,
    ]  # fmt: skip
    assert parsed(START, CALL, "ls", SEP, *head, END) == [ItemBegan("function_call", "ls"), TextDelta("\ufffd"), DONE]
    assert parsed(START, CALL, *head, SEP, END) == [ItemBegan("function_call", "\ufffd"), DONE]


def test_a_character_that_breaks_off_inside_text_is_replaced_and_the_text_goes_on() -> None:
    assert parsed(START, SEP, *byte_ids(b"\xc3a\xffb"), END) == [
        MESSAGE, TEXT, TextDelta("\ufffda\ufffdb"), OVER, DONE,
    ]  # fmt: skip


def test_bytes_of_a_name_that_never_became_a_call_do_not_reach_the_next_item() -> None:
    head = byte_ids("🎈".encode()[:2])
    assert parsed(START, CALL, "x", *head, START, SEP, "a", END) == [MESSAGE, TEXT, TextDelta("a"), OVER, DONE]
    assert parsed(START, CALL, "x", *head, CALL, "y", END) == [ItemBegan("function_call", "y"), DONE]


def test_a_call_begins_only_when_its_whole_name_is_known() -> None:
    parser = OutputParser(TABLE)
    assert parser.feed(TEMPLATE.tokenise([START, "assistant", CALL, "get_weather"])) == []
    assert parser.feed([SEP]) == [ItemBegan("function_call", "get_weather")]


@pytest.mark.parametrize(
    ("pieces", "deltas"),
    [
        ([], []),
        ([START, "assistant"], []),
        ([START, CALL, "ls"], []),
        ([START, SEP, "a"], [OVER, CUT]),
        ([START, THINK], [OVER, CUT]),
        ([START, CALL, "ls", SEP, "{"], [CUT]),
        ([START, SEP, *byte_ids(b"\xc3")], [TextDelta("\ufffd"), OVER, CUT]),
        ([START, SEP, "a", END], []),
    ],
)
def test_finishing_closes_what_is_open_as_incomplete(pieces: Pieces, deltas: list[Delta]) -> None:
    parser = OutputParser(TABLE)
    parser.feed(TEMPLATE.tokenise(pieces))
    assert parser.finish() == deltas
    assert parser.finish() == []


def test_a_frame_is_open_from_its_first_mark_to_its_end() -> None:
    parser = OutputParser(TABLE)
    ids = TEMPLATE.tokenise([START, "assistant", CALL, "ls", SEP, "{}", END])
    assert parser.between_items
    assert [(parser.feed([token]), parser.between_items)[1] for token in ids] == [False] * (len(ids) - 1) + [True]


def test_reasoning_tokens_are_those_of_its_frames() -> None:
    parser = OutputParser(TABLE)
    thought = TEMPLATE.tokenise(reasoning_pieces(["Let me see.", "Yes."]))
    message = TEMPLATE.tokenise(message_pieces("assistant", [("text", "Yes.")]))
    parser.feed(thought[:4])
    assert parser.reasoning_tokens == 4
    parser.feed(thought[4:] + message)
    assert parser.reasoning_tokens == len(thought)
    for token in thought:
        parser.feed([token])
    assert parser.reasoning_tokens == 2 * len(thought)


def test_reasoning_that_was_cut_counts_up_to_the_cut() -> None:
    parser = OutputParser(TABLE)
    parser.feed([START, SEP, END, THINK, *byte_ids(b"ab"), SEP, *byte_ids(b"c"), END, START, THINK])
    assert parser.reasoning_tokens == 3 + 2
    parser.finish()
    assert parser.reasoning_tokens == 5


names = st.text(min_size=1, max_size=8)
texts = st.text(max_size=12) | st.sampled_from(
    ["e\u0301", "\u0301", "👩‍👩‍👧 🇨🇭", "\x00", "a\n\n\tb\r\n", "<|im_end|>", "\ufffd"]
)
part_kinds = st.sampled_from(["text", "refusal"])


@given(st.lists(st.tuples(part_kinds, texts), max_size=3))
def test_a_message_comes_back_exactly(parts: list[tuple[str, str]]) -> None:
    deltas: list[Delta] = [MESSAGE]
    for kind, text in parts:
        deltas += [PartBegan(kind), *said(text), OVER]  # type: ignore[arg-type]  # a kind by its name
    assert parsed(*message_pieces("assistant", parts)) == [*deltas, DONE]  # type: ignore[arg-type]  # as above


@given(st.lists(texts, min_size=1, max_size=3))
def test_reasoning_comes_back_exactly(thoughts: list[str]) -> None:
    deltas: list[Delta] = [REASONING]
    for text in thoughts:
        deltas += [THOUGHT, *said(text), OVER]
    assert parsed(*reasoning_pieces(thoughts)) == [*deltas, DONE]


@given(st.sampled_from(["function_call", "custom_tool_call"]), names, texts)
def test_a_call_comes_back_exactly(kind: str, name: str, text: str) -> None:
    deltas = [ItemBegan(kind, name), *said(text), DONE]  # type: ignore[arg-type]  # a kind by its name
    assert parsed(*call_pieces(kind, name, text)) == deltas  # type: ignore[arg-type]  # as above


def said(text: str) -> list[Delta]:
    return [TextDelta(text)] if text else []


bytes_of_characters = st.sampled_from(byte_ids("aé🎈".encode()))
any_ids = st.lists(
    st.integers(0, SPECIAL_COUNT - 1) | bytes_of_characters | st.integers(-2, len(TABLE) + 2), max_size=24
)


@pytest.mark.slow
@given(any_ids, st.lists(st.integers(0, 24), max_size=6))
def test_any_split_of_the_ids_makes_the_same_deltas(ids: list[int], cuts: list[int]) -> None:
    whole, split = OutputParser(TABLE), OutputParser(TABLE)
    deltas: list[Delta] = []
    for start, end in pairwise([0, *sorted(cuts), len(ids) + 24]):
        deltas += split.feed(ids[start:end])
    assert deltas == whole.feed(ids)
    assert (split.between_items, split.reasoning_tokens) == (whole.between_items, whole.reasoning_tokens)
    assert split.finish() == whole.finish()


@pytest.mark.slow
@given(any_ids)
def test_whatever_is_sampled_parses_into_whole_items(ids: list[int]) -> None:
    """Deltas nest, every id makes at most one text, and texts are never empty."""
    parser = OutputParser(TABLE)
    deltas: list[Delta] = []
    for token in ids:
        fresh = parser.feed([token])
        assert sum(isinstance(delta, TextDelta) for delta in fresh) <= 1
        deltas += fresh
    assert 0 <= parser.reasoning_tokens <= len(ids)
    item: ItemBegan | None = None
    part_is_open = False
    for delta in deltas + parser.finish():
        match delta:
            case ItemBegan():
                assert item is None
                item = delta
            case PartBegan(kind):
                assert item is not None
                assert not part_is_open
                assert item.kind == ("reasoning" if kind == "thought" else "message")
                part_is_open = True
            case TextDelta(text):
                assert text
                assert item is not None
                assert part_is_open or item.kind in ("function_call", "custom_tool_call")
            case PartEnded():
                assert part_is_open
                part_is_open = False
            case ItemEnded():
                assert item is not None
                assert not part_is_open
                item = None
    assert item is None


@pytest.mark.parametrize(
    ("shown", "unshown"),
    [
        ([], [START]),
        ([], [START, "assistant"]),
        ([], [START, "assistant", CALL]),
        ([], [START, "assistant", CALL, "ls"]),
        ([START, "assistant", CALL, "ls", SEP], []),
        ([START, "assistant", SEP, "a"], []),
        ([START, "assistant", SEP, "a"], [CALL, "ls"]),
        ([START, "assistant", END], []),
        ([], []),
    ],
)
def test_ids_that_no_delta_tells_of_are_counted(shown: Pieces, unshown: Pieces) -> None:
    parser = OutputParser(TABLE)
    parser.feed(TEMPLATE.tokenise([START, "assistant", END, *shown, *unshown]))
    assert parser.unshown == len(TEMPLATE.tokenise(unshown))
