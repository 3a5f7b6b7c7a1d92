"""Terms and patterns: how the file reads, what is found, and that long texts hold nobody up."""

from __future__ import annotations

import contextlib
import time

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from respserver.errors import ConfigError
from respserver.schema.codec import encode
from respserver.schema.input import read_input, user_message
from respserver.turn.safety import terms
from respserver.turn.safety.base import PASS, Verdict
from respserver.turn.safety.terms import (
    MARKS,
    PIECE_CHARACTERS,
    REACH_CHARACTERS,
    WINDOW_CHARACTERS,
    TermsClassifier,
    normalise,
    pieces,
    read_terms,
)

LONGEST_GAP = 0.15
"""Seconds of work that another task may have to wait for: some 0.02 are usual, and each text below takes twice as many
as these when it is read as a whole."""


async def screen(lines: str | list[str], *texts: str) -> Verdict:
    lines = [lines] if isinstance(lines, str) else lines
    classifier = TermsClassifier("terms", read_terms(lines, "terms.txt", "terms"))
    return await classifier.screen([user_message(text) for text in texts], PASS)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("bomb", "A bomb."),
        ("bomb", "the BOMB"),
        ("Bomb", "bomb"),
        ("nerve agent", "a nerve\n   agent here"),
        ("c++", "in c++ only"),
        ("bomb", "(bomb)"),
        ("bomb", "ｂｏｍｂ"),  # full width
        ("bomb", "bo\u00admb and b\u200bomb"),  # soft hyphen, zero width space
        ("straße", "STRASSE"),
        ("ﬁre", "fire"),  # a ligature
        ("café", "cafe\u0301"),
        ("炸弹", "我要做一个炸弹吗"),
        ("ระเบิด", "ทำระเบิดที่บ้าน"),
        (r"/b[o0]mb/", "carb0mbs"),
        (r"/\bB[o0]MB\b/", "a b0mb"),
        (r"/(\w)\1\1/", "helllo"),
        (r"/a: b/", "a: b"),
    ],
)
async def test_a_term_is_found(line, text):
    assert await screen(line, text) == Verdict("block", ("terms",))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("bomb", "bombastic, carbomb"),
        ("bomb", "bo mb"),
        ("caf", "café"),
        ("nerve agent", "nerve, agent"),
        ("nerve agent", "agent nerve"),
        ("nerve agent", "nerve"),
        (r"/\bbomb\b/", "bombs"),
        ("bomb", ""),
    ],
)
async def test_other_words_pass(line, text):
    assert await screen(line, text) == PASS


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("x", Verdict("block", ("terms",))),
        ("weapons: x", Verdict("block", ("weapons",))),
        ("flag: x", Verdict("flag", ("terms",))),
        ("block: x", Verdict("block", ("terms",))),
        ("flag violence/graphic: x", Verdict("flag", ("violence/graphic",))),
        ("block  Weapons :  x", Verdict("block", ("Weapons",))),
        ("flagged: x", Verdict("block", ("flagged",))),
        ("  flag spam: /x+/  ", Verdict("flag", ("spam",))),
    ],
)
async def test_a_line_may_name_action_and_category(line, verdict):
    assert await screen(line, "x") == verdict


async def test_a_term_may_begin_with_the_name_of_an_action_and_hold_a_colon():
    assert await screen("flag burning", "burning") == PASS
    assert (await screen("flag burning", "flag burning")).blocks
    assert (await screen("http://evil.example", "see http://evil.example/x")).blocks
    assert (await screen("terms: note: this", "NOTE: this")).blocks


async def test_comments_and_empty_lines_do_not_count():
    assert await screen(["# bomb", "", "   ", "  # bomb"], "bomb # bomb") == PASS
    assert (await screen("terms: #bomb", "#bomb")).blocks


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("violence:", "there is no term"),
        ("violence: \u200b", "there is no term"),
        ("violence:graphic: x", "'violence:graphic' in front of the colon is not"),
        ("self harm: x", "'self harm' in front of the colon is not"),
        ("pass x: y", "'pass x' in front of the colon is not"),
        ("/(/", "not a regular expression: missing )"),
        ("//", "matches the empty text"),
        ("spam: /x*/", "matches the empty text"),
    ],
)
def test_a_bad_line_is_named_by_file_and_line(line, problem):
    with pytest.raises(ConfigError) as caught:
        read_terms(["good", "", line], "lists/terms.txt", "terms")
    assert caught.value.option == "lists/terms.txt:3"
    assert problem in caught.value.problem


async def test_terms_that_overlap_or_hold_one_another_are_all_found():
    lines = ["a: one two", "b: two three", "c: two", "d: one two three", "e: one", "f: four"]
    assert (await screen(lines, "one two three")).categories == ("a", "d", "e", "b", "c")


async def test_the_worst_of_all_texts_counts():
    lines = ["flag mild: damn", "harsh: bomb"]
    assert await screen(lines, "fine", "damn") == Verdict("flag", ("mild",))
    assert await screen(lines, "damn", "bomb", "damn") == Verdict("block", ("mild", "harsh"))


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": [{"type": "input_text", "text": "bomb"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "bomb"}]},
        {"type": "function_call_output", "call_id": "c", "output": "bomb"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "bomb"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":"bomb"}'},
        {"type": "custom_tool_call", "call_id": "c", "name": "bomb", "input": ""},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "bomb"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "bomb"}]},
        {"type": "additional_tools", "tools": [{"type": "function", "name": "bomb", "parameters": {}}]},
        {"type": "item_of_tomorrow", "words": "bomb"},
    ],
    ids=lambda item: item.get("type", item.get("role")),
)
async def test_every_kind_of_item_is_read(item):
    classifier = TermsClassifier("terms", read_terms(["bomb"], "terms.txt", "terms"))
    assert (await classifier.screen(read_input(encode([item])), PASS)).blocks


async def test_parts_without_text_are_passed_over():
    item = {"role": "user", "content": [{"type": "input_image", "image_url": "https://bomb.example/"}]}
    classifier = TermsClassifier("terms", read_terms(["bomb"], "terms.txt", "terms"))
    assert await classifier.screen(read_input(encode([item])), PASS) == PASS


@pytest.mark.parametrize("filler", ["w ", "é ", "炸", "w", "!"])
@pytest.mark.parametrize("offset", [-9, -5, -1, 0, 1])
async def test_a_term_is_found_across_the_pieces_that_a_long_text_is_read_in(filler: str, offset: int) -> None:
    padding = filler * (PIECE_CHARACTERS // len(filler))
    text = padding[:offset] + " one two three " + padding * 3
    assert (await screen("one two three", text)).blocks
    assert await screen("one two four", text) == PASS


@pytest.mark.parametrize("offset", [-7, -6, -3, -1, 0, 1])
async def test_a_pattern_is_found_across_the_windows_that_a_long_text_is_searched_in(offset: int) -> None:
    padding = "w " * (WINDOW_CHARACTERS // 2) + "ww"[: offset % 2]
    text = padding[: WINDOW_CHARACTERS + offset] + "one two" + "x" * (REACH_CHARACTERS - 8) + " " + padding * 3
    assert (await screen(r"/one two\w*\b/", text)).blocks
    assert (await screen(r"/(?<=w |.w)one two/", text)).blocks
    assert await screen(r"/one two\b/", text) == PASS
    assert await screen(r"/^one two/", text) == PASS


@given(text=st.text(alphabet="ab \n", max_size=60))
@pytest.mark.parametrize("pattern", [r"/a\b/", r"/\ba{2,4}\b/", r"/(a)b?\1/", r"/^b/", r"/(?<!b)ab(?!a)/", r"/a\n\Z/"])
def test_searching_in_windows_finds_what_searching_the_whole_text_finds(pattern: str, text: str) -> None:
    """As long as match and what follows it are no longer than the reach."""
    (compiled, verdict), *_ = read_terms([pattern], "f", "c").patterns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terms, "WINDOW_CHARACTERS", 3)
        patch.setattr(terms, "REACH_CHARACTERS", 6)
        found = {said for _, said in terms._search_pattern(compiled, verdict, text)} - {PASS}
    assert bool(found) == (compiled.search(text) is not None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "text"),
    [
        pytest.param("bomb", "word soup " * 800_000, id="words"),
        pytest.param("bomb", "wörd söup " * 300_000, id="words that are not ASCII"),
        pytest.param("bomb", "炸弹" * 1_000_000, id="no spaces"),
        pytest.param("bomb", "a" + "\u0301\u0323" * 100_000, id="marks on one letter"),
        pytest.param(r"/(\w+) gas/", "word soup " * 600_000, id="pattern"),
        pytest.param(r"/(\w+) gas/", "w" * 8_000, id="pattern that tries all beginnings and ends"),
    ],
)
async def test_a_long_text_holds_nobody_up(line: str, text: str) -> None:
    """Measured as work of this thread, so that a busy machine makes no difference."""
    gaps = [0.0]

    async def watch(task_status: trio.TaskStatus[None]) -> None:
        last = time.thread_time()
        task_status.started()
        while True:
            await trio.lowlevel.checkpoint()
            gaps.append(time.thread_time() - last)
            last += gaps[-1]

    async with trio.open_nursery() as nursery:
        await nursery.start(watch)
        assert await screen(line, text) == PASS
        await trio.lowlevel.checkpoint()  # the last gap counts too
        nursery.cancel_scope.cancel()
    assert max(gaps) < LONGEST_GAP


async def test_a_short_text_does_not_wait() -> None:
    with trio.testing.assert_no_checkpoints():
        assert await screen(["bomb", "/b0mb/"], "short") == PASS


CUTS = st.sampled_from(" \n!-<=~炸\u00a0\u3000\u2028")
ODD = st.text(
    st.sampled_from("aé\u0301\u0323<=\u0338ﬁＡ가\u1100\u1161\u11a8 \u00b4\u00adßΣς\u0e33\u0345") | st.characters()
)


@given(before=ODD, cut=CUTS, after=ODD)
def test_a_text_may_be_cut_in_front_of_what_pieces_are_cut_at(before: str, cut: str, after: str) -> None:
    assert terms._CUT.fullmatch(cut)
    whole, parts = normalise(before + cut + after), [normalise(before), normalise(cut + after)]
    assert "".join(parts) == whole
    assert terms._split(whole) == [word for part in parts for word in terms._split(part)]


@pytest.mark.parametrize("filler", ["w ", "é", "w", "炸"])
def test_pieces_are_the_whole_text_and_none_is_long(filler: str) -> None:
    text = filler * (PIECE_CHARACTERS * 3)
    cut = list(pieces(text))
    assert "".join(cut) == text
    assert len(cut) > 1
    assert max(map(len, cut)) <= 2 * PIECE_CHARACTERS


@pytest.mark.slow
def test_marks_in_any_number_are_put_in_order_in_linear_time() -> None:
    began = time.thread_time()
    normalise("a" + "\u0301\u0323" * 20_000)
    assert time.thread_time() - began < 0.3


@given(st.text(alphabet="a\u0301\u0323 \u00ad", min_size=1, max_size=30))
def test_marks_are_put_in_order_up_to_a_number_that_no_text_needs(text: str) -> None:
    filler = "-" * (MARKS + 1)
    assert normalise(f"{filler} é {text}").endswith(normalise(f"é {text}"))


@given(st.text())
def test_normalising_twice_is_normalising_once(text):
    once = normalise(text)
    assert normalise(once) == once


@given(st.text(alphabet="abc é炸:/#", min_size=1).filter(str.strip))
def test_any_line_is_a_term_or_a_configuration_error(line):
    with contextlib.suppress(ConfigError):
        assert read_terms([line], "f", "c").longest >= 1
