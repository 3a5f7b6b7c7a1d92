"""The record that continues a chain: every state survives its bytes, and bytes of the past stay readable."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.state import (
    STATE_VERSION,
    OpenCall,
    ResponseState,
    StateError,
    StoredItem,
    decode_state,
    encode_state,
    find_item,
)

GOLDEN = Path(__file__).parent / "data" / "state_v1.msgpack"
"""Bytes that version 1 wrote. Never written again: stored chains outlive the code that made them."""
GOLDEN_STATE = ResponseState(
    version=1,
    id="resp_2",
    tenant="team-a",
    created_at=1_790_000_000,
    previous_response_id="resp_1",
    response=b'{"id":"resp_2","object":"response","status":"completed"}',
    items=[
        StoredItem("input", b'{"type":"function_call_output","call_id":"call_1","output":"ok"}'),
        StoredItem("output", b'{"type":"message","role":"assistant","content":[]}'),
    ],
    tools=b'[{"type":"function","name":"shell"}]',
    added_tools=[b'[{"type":"custom","name":"patch"}]'],
    body_ids=b"\x01\x00\x00\x00\xff\xff\x01\x00",
    fingerprint="words-1/1",
    head_key=b"\x00\x7f\xff",
    open_calls=[OpenCall("call_2", "custom_tool_call", "patch")],
    item_ids=["msg_1", "ctc_1"],
    call_ids=["call_2"],
    verdict="passed",
    branch="7",
    position=3,
    fork_of=None,
)
REQUIRED = {
    "id": "resp_1",
    "tenant": "",
    "created_at": 1,
    "previous_response_id": None,
    "response": b"{}",
    "items": [["input", b"{}"]],
}

words = st.text(max_size=8)
blobs = st.binary(max_size=16)
states = st.builds(
    ResponseState,
    id=words,
    tenant=words,
    created_at=st.integers(0, 1 << 40),
    previous_response_id=st.none() | words,
    response=blobs,
    items=st.lists(st.builds(StoredItem, st.sampled_from(["input", "output"]), blobs), max_size=3),
    tools=blobs,
    added_tools=st.lists(blobs, max_size=2),
    body_ids=blobs,
    fingerprint=words,
    head_key=blobs,
    open_calls=st.lists(st.builds(OpenCall, words, words, words, st.booleans()), max_size=2),
    item_ids=st.lists(words, max_size=3),
    call_ids=st.lists(words, max_size=3),
    verdict=words,
    branch=words,
    position=st.integers(0, 1 << 31),
    fork_of=st.none() | words,
)


@pytest.mark.slow
@given(states)
def test_any_state_survives_its_bytes(state):
    assert decode_state(encode_state(state)) == state


def test_bytes_written_by_version_1_are_still_read():
    assert decode_state(GOLDEN.read_bytes()) == GOLDEN_STATE


def test_a_record_without_later_fields_gets_their_defaults():
    state = decode_state(msgspec.msgpack.encode(REQUIRED))
    assert state == ResponseState(**{**REQUIRED, "items": [StoredItem("input", b"{}")]})


def test_fields_of_a_later_writer_of_the_same_version_are_passed_over():
    assert decode_state(msgspec.msgpack.encode({**REQUIRED, "colour": "blue"})).id == "resp_1"


def test_a_newer_version_is_refused_by_name():
    with pytest.raises(StateError, match=f"version {STATE_VERSION + 1} is newer"):
        decode_state(msgspec.msgpack.encode({**REQUIRED, "version": STATE_VERSION + 1}))


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\xc1",
        b"not a record",
        GOLDEN.read_bytes()[:-1],
        GOLDEN.read_bytes() + b"\x00",
        msgspec.msgpack.encode({**REQUIRED, "id": 7}),
        msgspec.msgpack.encode({**REQUIRED, "items": [["elsewhere", b""]]}),
        msgspec.msgpack.encode({"id": "resp_1"}),
        msgspec.msgpack.encode([1, 2]),
    ],
    ids=["empty", "reserved", "text", "cut", "trailing", "wrong-type", "wrong-origin", "missing", "array"],
)
def test_damaged_bytes_are_refused(damaged):
    with pytest.raises(StateError, match="not a response state"):
        decode_state(damaged)


def test_an_item_is_found_by_its_id_among_those_that_the_state_names() -> None:
    made = [
        StoredItem("input", b'{"id":"msg_0"}'),
        StoredItem("output", b"no JSON"),
        StoredItem("output", b'{"id":"b"}'),
    ]
    state = msgspec.structs.replace(GOLDEN_STATE, items=made, item_ids=["msg_0", "b", "gone"])
    assert [find_item(state, item_id) for item_id in ("msg_0", "b", "gone")] == [made[0], made[2], None]
    assert find_item(msgspec.structs.replace(state, item_ids=[]), "b") is None
