"""Reading the ``input`` of a request: a string, or items that are typed one by one.

Lenient on the way in (design.md section 8, "items in"): a missing ``type`` means message, content is a string or
parts, unknown kinds pass through. Content parts are ``parts.py``'s, kinds that are only passed through ``opaque.py``'s.
Each item's raw JSON is copied out of the frame, so that a stored item never keeps a whole message alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Raw

from respserver.errors import InvalidField
from respserver.schema.codec import decode, encode, join, split_array
from respserver.schema.hosted_input import HOSTED_READERS
from respserver.schema.items import (
    AdditionalToolsItem,
    CallOutputItem,
    CompactionItem,
    FunctionCallItem,
    InputItem,
    InputPart,
    ItemReference,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    Role,
)
from respserver.schema.opaque import read_opaque
from respserver.schema.parts import Part, read_parts

MAX_ID = 64
"""Characters of an item's id (F15)."""
_ID_PREFIXES = {"message": "msg", "function_call": "fc", "custom_tool_call": "ctc", "reasoning": "rs"}
"""How ids of the kinds that this server makes begin (protocol.md section 3.5)."""


class _Head(msgspec.Struct):
    type: str | None = None
    id: str | None = None
    role: Raw = Raw(b"")


class _Message(msgspec.Struct):
    role: Role
    content: str | list[Part]
    id: str | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class _FunctionCall(msgspec.Struct):
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None
    id: str | None = None
    status: str | None = None
    is_async: bool | None = msgspec.field(name="async", default=None)


class _CustomCall(msgspec.Struct):
    call_id: str
    name: str
    input: str
    namespace: str | None = None
    id: str | None = None
    status: str | None = None
    is_async: bool | None = msgspec.field(name="async", default=None)


class _CallOutput(msgspec.Struct):
    call_id: str
    output: str | list[Part]
    id: str | None = None


class _Text(msgspec.Struct):
    text: str = ""


class _Reasoning(msgspec.Struct):
    summary: list[_Text] | None = None
    content: list[_Text] | None = None
    encrypted_content: str | None = None
    id: str | None = None


class _Compaction(msgspec.Struct):
    encrypted_content: str | None = None
    id: str | None = None


class _Reference(msgspec.Struct):
    id: str


class _AdditionalTools(msgspec.Struct):
    tools: Raw
    id: str | None = None


_string = msgspec.json.Decoder(str)
_head = msgspec.json.Decoder(_Head)
_message = msgspec.json.Decoder(_Message)
_function_call = msgspec.json.Decoder(_FunctionCall)
_custom_call = msgspec.json.Decoder(_CustomCall)
_call_output = msgspec.json.Decoder(_CallOutput)
_reasoning = msgspec.json.Decoder(_Reasoning)
_compaction = msgspec.json.Decoder(_Compaction)
_additional_tools = msgspec.json.Decoder(_AdditionalTools)
_reference = msgspec.json.Decoder(_Reference)


def read_input(raw: Raw | bytes, param: str = "input") -> list[InputItem]:
    """The items of an ``input`` value. Raises an ``InvalidRequest`` that names the item, as in ``input[2].role``."""
    text = bytes(raw)
    if text.startswith(b'"'):
        return [user_message(decode(_string, text, param))]
    if not text.startswith(b"["):
        raise InvalidField(param, "expected a string or an array of items.", "invalid_type")
    entries = decode(split_array, text, param)
    return [_read_item(bytes(entry), f"{param}[{index}]") for index, entry in enumerate(entries)]


def user_message(text: str) -> MessageItem:
    """The item that a plain string input stands for."""
    raw = encode({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
    return MessageItem(raw=raw, role="user", parts=[InputPart(type="input_text", text=text)])


def check_sizes(items: list[InputItem], limit: int) -> None:
    """Refuse images and files of more than ``limit`` bytes."""
    for index, item in enumerate(items):
        if isinstance(item, OpaqueItem):
            _check_size(item.size, limit, f"input[{index}]", is_image=True)
        elif isinstance(item, MessageItem | CallOutputItem):
            field = "content" if isinstance(item, MessageItem) else "output"
            for at, part in enumerate(item.parts):
                if part.size:
                    _check_size(part.size, limit, f"input[{index}].{field}[{at}]", is_image=part.type == "input_image")


def _read_item(raw: bytes, param: str) -> InputItem:
    head = decode(_head, raw, param)
    kind = head.type
    if kind is None:
        # A reference may leave its type out as well: it is known by what it has not.
        kind = "message" if head.role or head.id is None else "item_reference"
    if head.id is not None:
        _check_id(head.id, kind, join(param, "id"))
    reader = _READERS.get(kind)
    return read_opaque(raw, kind, param) if reader is None else reader(raw, param)


def _check_id(item_id: str, kind: str, param: str) -> None:
    """An item's id is optional; one that is given names its kind (F15)."""
    if not item_id:
        raise _empty(param)
    if len(item_id) > MAX_ID:
        raise InvalidField(param, f"string too long. Expected at most {MAX_ID} characters.", "string_above_max_length")
    prefix = _ID_PREFIXES.get(kind, "")
    if not item_id.startswith(prefix):
        raise InvalidField(param, f"'{item_id}'. Expected an ID that begins with '{prefix}'.", "invalid_id_prefix")


def _check_size(size: int, limit: int, param: str, *, is_image: bool) -> None:
    if size > limit:
        problem = f"the {'image' if is_image else 'file'} has {size} bytes. Expected at most {limit}."
        raise InvalidField(param, problem, "image_file_too_large" if is_image else "file_too_large")


def _read_message(raw: bytes, param: str) -> InputItem:
    item = decode(_message, raw, param)
    parts = read_parts(item.content, join(param, "content"))
    return MessageItem(raw=raw, role=item.role, parts=parts, id=item.id, phase=item.phase)


def _read_function_call(raw: bytes, param: str) -> InputItem:
    item = decode(_function_call, raw, param)
    return _call(raw, "function_call", item, item.arguments, param)


def _read_custom_call(raw: bytes, param: str) -> InputItem:
    item = decode(_custom_call, raw, param)
    return _call(raw, "custom_tool_call", item, item.input, param)


def _call(
    raw: bytes,
    kind: Literal["function_call", "custom_tool_call"],
    item: _FunctionCall | _CustomCall,
    text: str,
    param: str,
) -> FunctionCallItem:
    if not item.call_id:
        raise _empty(join(param, "call_id"))
    if not item.name:
        raise _empty(join(param, "name"))
    return FunctionCallItem(
        raw=raw,
        kind=kind,
        call_id=item.call_id,
        name=item.name,
        arguments=text,
        namespace=item.namespace,
        id=item.id,
        complete=item.status != "incomplete",
        is_async=bool(item.is_async),
    )


def _read_function_output(raw: bytes, param: str) -> InputItem:
    return _output(raw, "function_call_output", param)


def _read_custom_output(raw: bytes, param: str) -> InputItem:
    return _output(raw, "custom_tool_call_output", param)


def _output(raw: bytes, kind: Literal["function_call_output", "custom_tool_call_output"], param: str) -> CallOutputItem:
    item = decode(_call_output, raw, param)
    if not item.call_id:
        raise _empty(join(param, "call_id"))
    parts = read_parts(item.output, join(param, "output"))
    return CallOutputItem(raw=raw, kind=kind, call_id=item.call_id, parts=parts, id=item.id)


def _read_reasoning(raw: bytes, param: str) -> InputItem:
    item = decode(_reasoning, raw, param)
    return ReasoningItem(
        raw=raw,
        summary=[part.text for part in item.summary or ()],
        content=[part.text for part in item.content or ()],
        encrypted_content=item.encrypted_content,
        id=item.id,
        has_summary=item.summary is not None,
    )


def _read_compaction(raw: bytes, param: str) -> InputItem:
    item = decode(_compaction, raw, param)
    return CompactionItem(raw=raw, encrypted_content=item.encrypted_content, id=item.id)


def _read_reference(raw: bytes, param: str) -> InputItem:
    return ItemReference(raw=raw, id=decode(_reference, raw, param).id)


def _read_additional_tools(raw: bytes, param: str) -> InputItem:
    item = decode(_additional_tools, raw, param)
    return AdditionalToolsItem(raw=raw, tools=Raw(bytes(item.tools)), id=item.id)


def _empty(param: str) -> InvalidField:
    return InvalidField(param, "expected a non-empty string.", "empty_string")


_READERS: dict[str, Callable[[bytes, str], InputItem]] = {
    "message": _read_message,
    "function_call": _read_function_call,
    "custom_tool_call": _read_custom_call,
    "function_call_output": _read_function_output,
    "custom_tool_call_output": _read_custom_output,
    "reasoning": _read_reasoning,
    "compaction": _read_compaction,
    "item_reference": _read_reference,
    "additional_tools": _read_additional_tools,
    **HOSTED_READERS,
}
