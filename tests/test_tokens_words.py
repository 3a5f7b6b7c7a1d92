"""Known words: the same ids as the tokenizer's own, whatever the text, and a bounded memory of them."""

from __future__ import annotations

import importlib.resources
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.tokens import words as room
from respserver.tokens.tokenizer import DATA_FILE, Tokenizer
from respserver.tokens.words import LONGEST, Words

DATA = importlib.resources.files("respserver.tokens").joinpath(DATA_FILE).read_bytes()
TOKENIZER = Tokenizer(DATA)

ascii_texts = st.text(st.characters(max_codepoint=127), max_size=60)
code_like = st.lists(
    st.sampled_from(
        ["don't", "'", "''s", "I'LL", " ", "  ", "\n", "\r\n", "\t", "\v\f", "\x1c\x1f", "x1", "3.14", "_a", "("]
    )
    | ascii_texts,
    max_size=12,
).map("".join)


class Asked:
    """The tokenizer behind the words, and what it was asked for."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def __call__(self, word: str) -> list[int]:
        self.words.append(word)
        return TOKENIZER.encode(word)


@given(st.lists(code_like | st.text(max_size=20), max_size=4))
def test_the_ids_are_the_tokenizers_own_when_words_are_new_and_when_they_are_known(texts: list[str]) -> None:
    expected = TOKENIZER.encode_batch(texts)
    assert TOKENIZER.encode_short(texts) == expected
    assert TOKENIZER.encode_short(texts) == expected


@pytest.mark.parametrize("character", [chr(code) for code in range(128)])
def test_every_ascii_character_is_cut_off_as_the_tokenizer_does_it(character: str) -> None:
    for text in (character, f"a{character}b", f" {character} ", f"1{character}{character}2", f"{character}\n "):
        assert Words(Asked()).encode(text) == TOKENIZER.encode(text)
        assert TOKENIZER.encode_short([text]) == [TOKENIZER.encode(text)]


def test_known_words_are_not_asked_for_again() -> None:
    asked = Asked()
    words = Words(asked)
    words.encode("one two")
    words.encode(" two two")
    assert words.encode("one three") == TOKENIZER.encode("one three")
    assert asked.words == ["one", " two", " three"]


def test_long_words_are_not_kept() -> None:
    words = Words(Asked())
    words.encode("b" * LONGEST + " " + "a" * LONGEST)
    assert len(words) == 1


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_WORDS", 10)
    words = Words(Asked())
    for number in range(100):
        text = f"{number:b} and {number:o}"
        assert words.encode(text) == TOKENIZER.encode(text)
        assert len(words) <= 10


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pre_tokenizer", None),
        ("pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}),
        ("pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}),
        ("normalizer", {"type": "Lowercase"}),
    ],
)
def test_a_tokenizer_that_cuts_in_another_way_is_asked_for_every_text(field: str, value: object) -> None:
    other = Tokenizer(json.dumps({**json.loads(DATA), field: value}))
    for _ in range(2):
        assert other.encode_short(["It's ONE  two", "x"]) == other.encode_batch(["It's ONE  two", "x"])
