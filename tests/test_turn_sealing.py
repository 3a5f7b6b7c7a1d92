"""Sealed texts: only who made them opens them, for the same tenant and kind, and only unchanged."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.schema.input import read_input
from respserver.schema.items import CallOutputItem, CompactionItem, InputItem, ReasoningItem
from respserver.turn.sealing import SealBroken, Sealer

SEALER = Sealer("0123456789abcdef" * 2)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_="


@given(st.binary(max_size=200), st.text(max_size=8))
def test_what_was_sealed_comes_back(content: bytes, tenant: str) -> None:
    sealed = SEALER.seal("reasoning", tenant, content)
    assert SEALER.open("reasoning", tenant, sealed) == content
    assert set(sealed) <= set(ALPHABET)


def test_the_same_content_is_never_sealed_the_same() -> None:
    assert SEALER.seal("reasoning", "t", b"x") != SEALER.seal("reasoning", "t", b"x")


@given(st.binary(max_size=9), st.data())
def test_one_changed_character_breaks_it(content: bytes, data: st.DataObject) -> None:
    sealed = SEALER.seal("reasoning", "t", content)
    at = data.draw(st.integers(0, len(sealed) - 1))
    other = data.draw(st.sampled_from(ALPHABET).filter(lambda character: character != sealed[at]))
    with pytest.raises(SealBroken):
        SEALER.open("reasoning", "t", sealed[:at] + other + sealed[at + 1 :])


@pytest.mark.parametrize("size", range(3))
def test_bits_that_say_nothing_may_not_be_changed_either(size: int) -> None:
    """The last character of base64 has some, unless the bytes come in threes."""
    sealed = SEALER.seal("reasoning", "t", bytes(size))
    last = len(sealed.rstrip("=")) - 1
    for other in set(ALPHABET) - {sealed[last]}:
        with pytest.raises(SealBroken):
            SEALER.open("reasoning", "t", sealed[:last] + other + sealed[last + 1 :])


@given(st.text(max_size=80))
def test_no_text_at_all_is_a_fault_of_ours(text: str) -> None:
    with pytest.raises(SealBroken):
        SEALER.open("reasoning", "t", text)


def test_other_keys_tenants_and_kinds_do_not_open_it() -> None:
    sealed = SEALER.seal("reasoning", "t", b"x")
    for sealer in (Sealer("another key, of some length, at least"), Sealer(), Sealer()):
        with pytest.raises(SealBroken):
            sealer.open("reasoning", "t", sealed)
    with pytest.raises(SealBroken):
        SEALER.open("reasoning", "u", sealed)
    with pytest.raises(SealBroken):
        SEALER.open("compaction", "t", sealed)


def test_the_same_key_opens_it_in_another_process() -> None:
    assert Sealer("k" * 32).open("reasoning", "t", Sealer("k" * 32).seal("reasoning", "t", b"x")) == b"x"


def opened(entry: dict[str, object]) -> InputItem:
    (item,) = read_input(json.dumps([entry]).encode())
    return SEALER.open_item(item, "t")


def test_an_item_is_opened_in_place() -> None:
    item = opened({"type": "reasoning", "encrypted_content": SEALER.seal_thoughts("t", ["a", "é"])})
    assert isinstance(item, ReasoningItem)
    assert item.thoughts == ["a", "é"]
    assert opened({"type": "compaction"}) == read_input(b'[{"type": "compaction"}]')[0]


def test_a_compaction_may_hold_everything_also_another_one() -> None:
    inner = [
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "x"},
        {"type": "reasoning", "encrypted_content": SEALER.seal_thoughts("t", ["hm"])},
    ]
    first = {"type": "compaction", "encrypted_content": SEALER.seal_items("t", [json.dumps(i).encode() for i in inner])}
    item = opened({"type": "compaction", "encrypted_content": SEALER.seal_items("t", [json.dumps(first).encode()])})
    assert isinstance(item, CompactionItem)
    (nested,) = item.items
    assert isinstance(nested, CompactionItem)
    _, output, thought = nested.items
    assert isinstance(output, CallOutputItem)
    assert isinstance(thought, ReasoningItem)
    assert (output.name, thought.sealed) == ("look", ["hm"])


@pytest.mark.slow
def test_a_start_does_not_wait_for_the_cipher() -> None:
    code = "import sys, respserver.cli, respserver.server; print('cryptography' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "False"
