"""Which tokens made which delta, and what of them is shown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.schema.logprobs import Logprob
from respserver.tokens.logprobs import LOWEST, ScoredParser, TokenLogprob
from respserver.tokens.parse import Delta, OutputParser, ScoredText, TextDelta
from respserver.tokens.special import SPECIAL_COUNT, Special
from tests.support.sim_kit import template

TABLE = template().token_bytes
MESSAGE = [Special.START, *template().tokenise(["assistant"]), Special.SEP]


def score(token: int) -> TokenLogprob:
    """A score by which its token is known again."""
    return TokenLogprob(-float(token), ((token, -float(token)), (token + 1, -1e9), (Special.END, -math.inf)))


def read(ids: list[int], most: int = 0) -> list[Delta]:
    parser = ScoredParser(OutputParser(TABLE), TABLE, most)
    return [*parser.feed(ids, [score(token) for token in ids]), *parser.finish()]


def scored(deltas: list[Delta]) -> list[ScoredText]:
    return [delta for delta in deltas if isinstance(delta, ScoredText)]


def bytes_of(logprobs: tuple[Logprob, ...]) -> bytes:
    return b"".join(bytes(logprob.bytes or []) for logprob in logprobs)


@given(st.lists(st.integers(0, len(TABLE) + 3), max_size=40), st.integers(1, 7))
def test_any_ids_give_the_parsers_deltas_however_they_are_split(ids: list[int], size: int) -> None:
    plain = OutputParser(TABLE)
    expected = [*plain.feed(ids), *plain.finish()]
    pieces = ScoredParser(OutputParser(TABLE), TABLE, 1)
    split: list[Delta] = []
    for at in range(0, len(ids), size):
        split += pieces.feed(ids[at : at + size], [score(token) for token in ids[at : at + size]])
    split += pieces.finish()
    assert split == read(ids, 1)
    assert [TextDelta(one.text) if isinstance(one, ScoredText) else one for one in split] == expected


@given(st.text(min_size=1, max_size=30))
def test_the_tokens_of_a_text_are_all_told_once_and_in_order(text: str) -> None:
    said = template().tokenise([text])
    deltas = scored(read([*MESSAGE, *said, Special.END]))
    logprobs = [logprob for delta in deltas for logprob in delta.logprobs]
    assert [logprob.logprob for logprob in logprobs] == [max(LOWEST, -float(token)) for token in said]
    assert b"".join(bytes_of(delta.logprobs) for delta in deltas).decode() == text
    assert "".join(delta.text for delta in deltas) == text


def test_the_tokens_of_a_split_character_belong_to_the_delta_that_shows_it() -> None:
    said = template().tokenise(["a\U0001f30ab"])
    before, wave, behind = scored(read([*MESSAGE, *said]))
    assert (before.text, wave.text, behind.text) == ("a", "\U0001f30a", "b")
    assert len(wave.logprobs) == len(said) - 2 > 1
    assert {logprob.token for logprob in wave.logprobs} <= {"\ufffd", "\ufffd\ufffd", "\ufffd\ufffd\ufffd"}


def test_a_character_that_breaks_off_is_shown_with_its_tokens() -> None:
    half = template().tokenise(["\U0001f30a"])[:-1]
    (delta,) = scored(read([*MESSAGE, *half, Special.END]))
    assert (set(delta.text), len(delta.logprobs)) == ({"\ufffd"}, len(half))
    (delta,) = scored(read([*MESSAGE, *half]))  # and at the end of all
    assert len(delta.logprobs) == len(half)


@pytest.mark.parametrize("mark", [Special.THINK, Special.CALL, Special.CUSTOM])
def test_only_a_messages_text_has_log_probabilities(mark: Special) -> None:
    arguments = [] if mark == Special.THINK else [Special.SEP, *template().tokenise(["{}"])]
    ids = [*MESSAGE[:-1], mark, *template().tokenise(["look"]), *arguments, Special.END]
    texts = [delta.text for delta in scored(read([*ids, *MESSAGE, *template().tokenise(["hi"]), Special.END]))]
    assert texts == ["hi"]


def test_a_text_without_a_frame_is_told_from_its_first_token_on() -> None:
    said = template().tokenise(["some words"])
    assert sum(len(delta.logprobs) for delta in scored(read(said))) == len(said)


def test_alternatives_are_as_many_as_were_asked_for() -> None:
    (token,) = template().tokenise(["a"])
    for most in range(5):
        (delta,) = scored(read([*MESSAGE, token], most))
        (logprob,) = delta.logprobs
        assert len(logprob.top_logprobs) == min(most, 3)
    assert [top.logprob for top in logprob.top_logprobs] == [-float(token), LOWEST, LOWEST]
    assert logprob.top_logprobs[2].token == ""  # a mark says nothing
    assert logprob.top_logprobs[0].bytes == list(b"a")


@pytest.mark.parametrize(("given", "shown"), [(math.nan, LOWEST), (-math.inf, LOWEST), (0.1, 0.0), (-2.5, -2.5)])
def test_what_json_cannot_say_is_the_lowest_number(given: float, shown: float) -> None:
    parser = ScoredParser(OutputParser(TABLE), TABLE, 0)
    ids = [*MESSAGE, SPECIAL_COUNT + 40]
    (delta,) = scored(parser.feed(ids, [TokenLogprob(given)] * len(ids)))
    assert delta.logprobs[0].logprob == shown


def test_events_show_log_probabilities_without_bytes() -> None:
    (delta,) = scored(read([*MESSAGE, *template().tokenise(["a"])], 1))
    (logprob,) = delta.logprobs
    assert "bytes" not in repr(logprob.in_stream).replace("bytes=UNSET", "")
    assert (logprob.in_stream.token, logprob.in_stream.top_logprobs[0].token) == ("a", "a")
