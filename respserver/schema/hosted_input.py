"""Items of calls that a server ran itself, as clients send them back (protocol.md sections 6.3 and 6.4).

An item that lacks what the context needs of it is none of ours, and passes through like any other kind (``opaque.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from respserver.schema.codec import decode, encode
from respserver.schema.items import (
    ApprovalRequestItem,
    ApprovalResponseItem,
    InputItem,
    ListedTool,
    McpCallItem,
    McpToolsItem,
    OpaqueItem,
    SearchItem,
)
from respserver.schema.opaque import read_opaque
from respserver.schema.tools import qualified_name

T = TypeVar("T")


class _Call(msgspec.Struct):
    name: str
    server_label: str
    arguments: str
    id: str | None = None
    output: str | None = None
    error: Any = None  # Any: a text, or what the API makes of one
    approval_request_id: str | None = None


class _Tools(msgspec.Struct):
    server_label: str
    tools: list[ListedTool]
    id: str | None = None


class _Request(msgspec.Struct):
    id: str
    name: str
    server_label: str
    arguments: str


class _Response(msgspec.Struct):
    approval_request_id: str
    approve: bool
    reason: str | None = None


class _Search(msgspec.Struct):
    encrypted_content: str
    id: str | None = None


_call = msgspec.json.Decoder(_Call)
_tools = msgspec.json.Decoder(_Tools)
_request = msgspec.json.Decoder(_Request)
_response = msgspec.json.Decoder(_Response)
_search = msgspec.json.Decoder(_Search)


def _read_call(raw: bytes, param: str) -> InputItem:
    item = _decode(_call, raw)
    if item is None:
        return read_opaque(raw, "mcp_call", param)
    return McpCallItem(
        raw=raw,
        name=qualified_name(item.server_label, item.name),
        arguments=item.arguments,
        output=item.output,
        error=_error_text(item.error),
        approval_request_id=item.approval_request_id,
        id=item.id,
    )


def _read_tools(raw: bytes, param: str) -> InputItem:
    item = _decode(_tools, raw)
    if item is None or not item.server_label:
        return read_opaque(raw, "mcp_list_tools", param)
    return McpToolsItem(raw=raw, server_label=item.server_label, tools=item.tools, id=item.id)


def _read_request(raw: bytes, param: str) -> InputItem:
    plain, item = read_opaque(raw, "mcp_approval_request", param), _decode(_request, raw)
    if item is None:
        return plain
    name = qualified_name(item.server_label, item.name)
    return ApprovalRequestItem(**_fields(plain), name=name, arguments=item.arguments)


def _read_response(raw: bytes, param: str) -> InputItem:
    plain, item = read_opaque(raw, "mcp_approval_response", param), decode(_response, raw, param)
    return ApprovalResponseItem(**_fields(plain), approve=item.approve, reason=item.reason)


def _read_search(raw: bytes, param: str) -> InputItem:
    item = _decode(_search, raw)
    if item is None:
        return read_opaque(raw, "web_search_call", param)
    return SearchItem(raw=raw, encrypted_content=item.encrypted_content, id=item.id)


def _fields(item: OpaqueItem) -> dict[str, Any]:
    return msgspec.structs.asdict(item)


def _decode(decoder: msgspec.json.Decoder[T], raw: bytes) -> T | None:
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        return None


def _error_text(error: Any) -> str | None:
    """What the model was told: the text, the texts of a list of parts, or the JSON of what is neither."""
    content = error.get("content", error) if isinstance(error, dict) else error
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        return "\n".join(part["text"] for part in content)
    return encode(content).decode()


HOSTED_READERS: dict[str, Callable[[bytes, str], InputItem]] = {
    "mcp_call": _read_call,
    "mcp_list_tools": _read_tools,
    "mcp_approval_request": _read_request,
    "mcp_approval_response": _read_response,
    "web_search_call": _read_search,
}
