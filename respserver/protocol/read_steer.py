"""Reading a ``response.steer``. Its schema is strict where that of a create is not (protocol.md section 2.3)."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from respserver.errors import ApiError, InvalidSteer, MissingParameter
from respserver.protocol.validate import NULL, Fields
from respserver.schema.codec import decode, split_array, split_object
from respserver.schema.input import check_sizes, read_input
from respserver.schema.items import InputItem

_FIELDS = frozenset({"type", "previous_response_id", "input"})
_ITEM_FIELDS = frozenset({"type", "role", "content"})
_PARTS = frozenset({"input_text", "input_image", "input_file"})
_string = msgspec.json.Decoder(str)


def read_steer(fields: Fields, max_media: int) -> list[InputItem]:
    """The user messages of a ``response.steer``. Raises ``InvalidSteer``.

    No other fields may come with them, no other roles, and no other parts than text, images and files of at most
    ``max_media`` bytes.
    """
    try:
        for name in fields:
            if name not in _FIELDS:
                hint = " The lane is that of previous_response_id." if name == "stream_id" else ""
                raise InvalidSteer(f"Unknown parameter: '{name}'.{hint}")
        if fields.get("input", NULL) == NULL:
            raise MissingParameter("input")
        raw = bytes(fields["input"])
        if raw.startswith(b"["):
            _check_messages(raw)
        elif not raw.startswith(b'"') or not decode(_string, raw, "input"):
            raise InvalidSteer("Invalid 'input': expected a non-empty string or array of user messages.")
        items = read_input(raw)
        check_sizes(items, max_media)
        return items
    except InvalidSteer:
        raise
    except ApiError as error:
        raise InvalidSteer(error.message) from None


def _check_messages(raw: bytes) -> None:
    entries = decode(split_array, raw, "input")
    if not entries:
        raise InvalidSteer("Invalid 'input': empty array. Expected at least one user message.")
    for index, entry in enumerate(entries):
        item = decode(split_object, entry, f"input[{index}]")
        kind = decode(_string, item.get("type", Raw(b'"message"')), f"input[{index}].type")
        if kind != "message":
            hint = "; bring outputs with response.create" if kind.endswith("_output") else ""
            raise InvalidSteer(f"Invalid 'input[{index}].type': only messages of the user may steer{hint}.")
        for name in item:
            if name not in _ITEM_FIELDS:
                raise InvalidSteer(f"Unknown parameter: 'input[{index}].{name}'.")
        if decode(_string, item.get("role", Raw(b'""')), f"input[{index}].role") != "user":
            raise InvalidSteer(f"Invalid 'input[{index}].role': only messages of the user may steer.")
        content = bytes(item.get("content", b""))
        if content.startswith(b"["):
            _check_parts(content, f"input[{index}].content")


def _check_parts(raw: bytes, param: str) -> None:
    entries = decode(split_array, raw, param)
    for index, entry in enumerate(entries):
        part = decode(split_object, entry, f"{param}[{index}]")
        kind = decode(_string, part.get("type", Raw(b'""')), f"{param}[{index}].type")
        if kind not in _PARTS:
            raise InvalidSteer(f"Invalid '{param}[{index}].type': '{kind}' is not a part that may steer.")
