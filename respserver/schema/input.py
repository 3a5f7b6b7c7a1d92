"""Reading the ``input`` of a request: a string, or items that are typed one by one.

Lenient on the way in (design.md section 8, "items in"): a missing ``type`` means message, content is a string or
parts, unknown kinds pass through. Each item's raw JSON is copied out of the frame, so that a stored item never keeps a
whole message alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Raw

from respserver.errors import InvalidField, UnsupportedParameter
from respserver.schema.codec import decode, encode, join, split_array
from respserver.schema.items import (
    AdditionalToolsItem,
    CallOutputItem,
    FunctionCallItem,
    InputItem,
    InputPart,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    Role,
)

MAX_ID = 64
"""Characters of an item's id (F15)."""
_ID_PREFIXES = {"message": "msg", "function_call": "fc", "custom_tool_call": "ctc", "reasoning": "rs"}
"""How ids of the kinds that this server makes begin (protocol.md section 3.5)."""


UNRESOLVED = frozenset({"item_reference"})
"""Items that stand for others. Nothing here looks them up, and a context without them would be silently another."""


class _Head(msgspec.Struct):
    type: str | None = None
    id: str | None = None
    call_id: str | None = None


class _Message(msgspec.Struct):
    role: Role
    content: str | list[InputPart]
    id: str | None = None


class _FunctionCall(msgspec.Struct):
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None
    id: str | None = None
    status: str | None = None


class _CustomCall(msgspec.Struct):
    call_id: str
    name: str
    input: str
    namespace: str | None = None
    id: str | None = None
    status: str | None = None


class _CallOutput(msgspec.Struct):
    call_id: str
    output: str | list[InputPart]
    id: str | None = None


class _Text(msgspec.Struct):
    text: str = ""


class _Reasoning(msgspec.Struct):
    summary: list[_Text] = []
    content: list[_Text] | None = None
    encrypted_content: str | None = None
    id: str | None = None


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
_additional_tools = msgspec.json.Decoder(_AdditionalTools)


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


def _read_item(raw: bytes, param: str) -> InputItem:
    head = decode(_head, raw, param)
    kind = "message" if head.type is None else head.type
    if kind in UNRESOLVED:
        raise UnsupportedParameter(param, f"of type '{kind}' is not supported: send the item itself.")
    if head.id is not None:
        _check_id(head.id, kind, join(param, "id"))
    reader = _READERS.get(kind)
    if reader is not None:
        return reader(raw, param)
    return OpaqueItem(raw=raw, kind=kind, id=head.id, call_id=head.call_id)


def _check_id(item_id: str, kind: str, param: str) -> None:
    """An item's id is optional; one that is given names its kind (F15)."""
    if not item_id:
        raise _empty(param)
    if len(item_id) > MAX_ID:
        raise InvalidField(param, f"string too long. Expected at most {MAX_ID} characters.", "string_above_max_length")
    prefix = _ID_PREFIXES.get(kind, "")
    if not item_id.startswith(prefix):
        raise InvalidField(param, f"'{item_id}'. Expected an ID that begins with '{prefix}'.", "invalid_id_prefix")


def _read_message(raw: bytes, param: str) -> InputItem:
    item = decode(_message, raw, param)
    return MessageItem(raw=raw, role=item.role, parts=_parts(item.content), id=item.id)


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
    )


def _read_function_output(raw: bytes, param: str) -> InputItem:
    return _output(raw, "function_call_output", param)


def _read_custom_output(raw: bytes, param: str) -> InputItem:
    return _output(raw, "custom_tool_call_output", param)


def _output(raw: bytes, kind: Literal["function_call_output", "custom_tool_call_output"], param: str) -> CallOutputItem:
    item = decode(_call_output, raw, param)
    if not item.call_id:
        raise _empty(join(param, "call_id"))
    return CallOutputItem(raw=raw, kind=kind, call_id=item.call_id, parts=_parts(item.output), id=item.id)


def _read_reasoning(raw: bytes, param: str) -> InputItem:
    item = decode(_reasoning, raw, param)
    return ReasoningItem(
        raw=raw,
        summary=[part.text for part in item.summary],
        content=[part.text for part in item.content or ()],
        encrypted_content=item.encrypted_content,
        id=item.id,
    )


def _read_additional_tools(raw: bytes, param: str) -> InputItem:
    item = decode(_additional_tools, raw, param)
    return AdditionalToolsItem(raw=raw, tools=Raw(bytes(item.tools)), id=item.id)


def _parts(content: str | list[InputPart]) -> list[InputPart]:
    return [InputPart(type="input_text", text=content)] if isinstance(content, str) else content


def _empty(param: str) -> InvalidField:
    return InvalidField(param, "expected a non-empty string.", "empty_string")


_READERS: dict[str, Callable[[bytes, str], InputItem]] = {
    "message": _read_message,
    "function_call": _read_function_call,
    "custom_tool_call": _read_custom_call,
    "function_call_output": _read_function_output,
    "custom_tool_call_output": _read_custom_output,
    "reasoning": _read_reasoning,
    "additional_tools": _read_additional_tools,
}
