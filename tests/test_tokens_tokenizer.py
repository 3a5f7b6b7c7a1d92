"""The bundled tokenizer and the class around it: text comes back whole, and never spells a mark."""

from __future__ import annotations

import importlib.resources
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.tokens.special import SPECIAL_COUNT, Special, is_special
from respserver.tokens.tokenizer import DATA_FILE, Tokenizer

DATA = importlib.resources.files("respserver.tokens").joinpath(DATA_FILE).read_bytes()
TOKENIZER = Tokenizer(DATA)
TRICKY = [
    "",
    " ",
    "\n\n\t ",
    "\x00",
    "naïve café",
    "e\u0301 \u0301 lone combining",
    "👩‍👩‍👧‍👦 🇨🇭 👍🏽",
    "中文、日本語、한국어",
    "שלום مرحبا नमस्ते",
    "\ufffd\ufeff\u2028",
    "\U0010ffff",
    "a" * 500,
    "<|im_end|>",
]
spelled = st.lists(st.sampled_from([mark.text for mark in Special]) | st.text(max_size=8), max_size=8).map("".join)


def test_marks_have_fixed_low_ids_and_their_texts() -> None:
    assert [(mark.value, mark.text) for mark in Special] == [
        (0, "<|im_start|>"),
        (1, "<|im_sep|>"),
        (2, "<|im_end|>"),
        (3, "<|im_stop|>"),
        (4, "<|im_think|>"),
        (5, "<|im_refusal|>"),
        (6, "<|im_call|>"),
        (7, "<|im_custom|>"),
        (8, "<|im_pad|>"),
    ]


def test_ids_below_the_count_are_special_and_no_others() -> None:
    assert [is_special(token) for token in (0, SPECIAL_COUNT - 1, SPECIAL_COUNT)] == [True, True, False]


def test_bundled_vocabulary_has_8192_ids_and_stays_small() -> None:
    assert TOKENIZER.size == len(TOKENIZER.token_bytes) == 8192
    assert len(DATA) < 600_000


@pytest.mark.parametrize("text", TRICKY)
def test_text_comes_back_whole(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(st.text())
def test_any_text_comes_back_whole(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(spelled)
def test_text_never_spells_a_mark(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert not any(map(is_special, ids))
    assert TOKENIZER.decode(ids) == text


@given(st.lists(st.text(max_size=20), max_size=5))
def test_a_batch_is_each_text_by_itself(texts: list[str]) -> None:
    assert TOKENIZER.encode_batch(texts) == [TOKENIZER.encode(text) for text in texts]


def test_half_a_surrogate_pair_becomes_a_question_mark_and_spares_the_rest_of_the_batch() -> None:
    assert TOKENIZER.encode_batch(["a\ud800b", "c\U00010000"]) == TOKENIZER.encode_batch(["a?b", "c\U00010000"])


def test_every_byte_has_a_token_and_marks_say_nothing() -> None:
    table = TOKENIZER.token_bytes
    assert {bytes([byte]) for byte in range(256)} <= set(table)
    assert table[:SPECIAL_COUNT] == [b""] * SPECIAL_COUNT
    assert all(table[SPECIAL_COUNT:])


@given(st.text(max_size=30))
def test_token_bytes_of_a_text_join_to_its_utf8(text: str) -> None:
    assert b"".join(TOKENIZER.token_bytes[token] for token in TOKENIZER.encode(text)) == text.encode()


def test_decoding_skips_marks_and_replaces_broken_characters() -> None:
    broken = TOKENIZER.token_bytes.index(b"\xc3")
    ids = [Special.START, *TOKENIZER.encode("so"), broken, Special.END]
    assert TOKENIZER.decode(ids) == "so\ufffd"


def test_fingerprint_follows_the_data_and_not_its_type() -> None:
    assert Tokenizer(DATA.decode()).fingerprint == TOKENIZER.fingerprint
    assert Tokenizer(DATA + b"\n").fingerprint != TOKENIZER.fingerprint
    assert len(TOKENIZER.fingerprint) == 16


def test_data_that_asks_for_truncation_or_padding_is_not_obeyed() -> None:
    fields = json.loads(DATA)
    fields["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    fields["padding"] = {
        "strategy": {"Fixed": 50},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "!",
    }
    text = "four words of text"
    assert Tokenizer(json.dumps(fields)).encode(text) == TOKENIZER.encode(text)


def test_data_whose_specials_stand_elsewhere_is_refused() -> None:
    fields = json.loads(DATA)
    vocabulary = fields["model"]["vocab"]
    vocabulary["<|im_start|>"], vocabulary["<|im_end|>"] = 2, 0
    with pytest.raises(ValueError, match="first ids"):
        Tokenizer(json.dumps(fields))


def test_data_with_gaps_in_its_ids_is_refused() -> None:
    fields = json.loads(DATA)
    fields["model"]["vocab"]["surplus"] = 9000
    with pytest.raises(ValueError, match="gaps"):
        Tokenizer(json.dumps(fields))
