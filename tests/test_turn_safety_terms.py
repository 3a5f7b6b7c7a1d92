"""Terms and patterns: how the file reads, what is found, and that long texts hold nobody up."""

from __future__ import annotations

import contextlib

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from respserver.errors import ConfigError
from respserver.schema.codec import encode
from respserver.schema.input import read_input, user_message
from respserver.turn.safety.base import PASS, Verdict
from respserver.turn.safety.terms import BATCH_CHARACTERS, BATCH_WORDS, TermsClassifier, normalise, read_terms


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
    item = {"role": "user", "content": [{"type": "input_image", "image_url": "data:bomb"}]}
    classifier = TermsClassifier("terms", read_terms(["bomb"], "terms.txt", "terms"))
    assert await classifier.screen(read_input(encode([item])), PASS) == PASS


@pytest.mark.parametrize("filler", ["w", "é"])
@pytest.mark.parametrize("offset", [-2, -1, 0, 1])
async def test_a_term_is_found_across_the_pieces_that_a_long_text_is_read_in(filler, offset):
    padding = f"{filler} " * (BATCH_WORDS + offset)
    text = padding + "one two three " + f"{filler} " * BATCH_CHARACTERS
    assert (await screen("one two three", text)).blocks
    assert await screen("one two four", text) == PASS


async def test_a_long_text_lets_other_tasks_run_and_a_short_one_does_not_wait():
    passes = 0

    async def count():
        nonlocal passes
        while True:
            await trio.lowlevel.checkpoint()
            passes += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await screen("bomb", "short")
        assert passes == 0
        await screen(["bomb", "/b0mb/"], "word " * BATCH_WORDS * 8)
        assert passes >= 3
        nursery.cancel_scope.cancel()


@given(st.text())
def test_normalising_twice_is_normalising_once(text):
    once = normalise(text)
    assert normalise(once) == once


@given(st.text(alphabet="abc é炸:/#", min_size=1).filter(str.strip))
def test_any_line_is_a_term_or_a_configuration_error(line):
    with contextlib.suppress(ConfigError):
        assert read_terms([line], "f", "c").longest >= 1
