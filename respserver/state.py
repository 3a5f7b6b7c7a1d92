"""``ResponseState``: what continues a chain, and its versioned msgpack form (design.md section 5).

A record holds its own turn only, never the history before it, so that a chain of n turns costs O(n) and forks share
their past. Fields are never reordered or reused; new ones get defaults.
"""

from __future__ import annotations

from typing import Literal

import msgspec

STATE_VERSION = 1


class StateError(ValueError):
    """Bytes that are not a state this version can read."""


class StoredItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One item of the turn, as JSON text, and where it came from."""

    origin: Literal["input", "output"]
    json: bytes


class OpenCall(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A tool call that waits for its output."""

    call_id: str
    kind: str
    name: str
    owed: bool = True
    """Whether the next input must hold its output. Else that may come in any later turn, or never."""
    arguments: str = ""
    """What it is called with, if the server runs it once the client has approved."""


class ResponseState(msgspec.Struct, frozen=True, kw_only=True):
    """One turn's share of a chain."""

    version: int = STATE_VERSION
    id: str
    tenant: str
    created_at: int
    previous_response_id: str | None
    response: bytes
    """The terminal Response as JSON, just as the client saw it."""
    items: list[StoredItem]
    tools: bytes = b"[]"
    """The request's tools, raw."""
    added_tools: list[bytes] = []
    """``tools`` arrays of this turn's ``additional_tools`` items, raw."""
    body_ids: bytes = b""
    """Token ids that this turn added to the body, packed as little-endian uint32."""
    fingerprint: str = ""
    """Tokenizer and template that made ``body_ids``."""
    head_key: bytes = b""
    open_calls: list[OpenCall] = []
    item_ids: list[str] = []
    call_ids: list[str] = []
    verdict: str = ""
    branch: str = ""
    position: int = 0
    fork_of: str | None = None
    listed: list[str] = []
    """Labels of the MCP servers whose tools this turn listed."""
    sources: list[tuple[str, str]] = []
    """What this turn's searches have found: address and title."""


class _Head(msgspec.Struct):
    id: str | None = None


_head = msgspec.json.Decoder(_Head)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ResponseState)


def encode_state(state: ResponseState) -> bytes:
    """The record's bytes, for any store."""
    return _encoder.encode(state)


def decode_state(data: bytes) -> ResponseState:
    """Read a record back. Raises ``StateError`` if it is damaged or of a newer version."""
    try:
        state = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise StateError(f"not a response state: {error}") from error
    if state.version > STATE_VERSION:
        raise StateError(f"state version {state.version} is newer than {STATE_VERSION}")
    return state


def find_item(state: ResponseState, item_id: str) -> StoredItem | None:
    """The item of the turn that has this id, or None; for stores that have found the turn by ``item_ids``."""
    if item_id not in state.item_ids:
        return None
    return next((item for item in state.items if _id_of(item) == item_id), None)


def _id_of(item: StoredItem) -> str | None:
    try:
        return _head.decode(item.json).id
    except msgspec.MsgspecError:  # a state that others made
        return None
