"""Item kinds that pass through: what has to be read of them all the same (protocol.md section 6.4).

A context holds such an item as its JSON text. Beside that only three things matter: whether it is a call that a client
owes an output for, or such an output; whether it puts tools on offer; and whether an image hides in it, whose data is
no text. Kinds that nobody here has heard of have none of these.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from respserver.errors import InvalidField, MissingParameter
from respserver.schema.codec import decode, encode, join, split_object
from respserver.schema.items import CALL_KIND_OF_OUTPUT, OUTPUT_KIND_OF_CALL, OpaqueItem
from respserver.schema.parts import IMAGE_TOKENS, base64_size, read_image

_CLIENT = "client"


class _Typed(msgspec.Struct):
    type: str = ""


class _Item(msgspec.Struct, kw_only=True):
    """All that is read of any of these kinds."""

    id: str | None = None
    call_id: str | None = None


class _Call(_Item, kw_only=True):
    status: str | None = None
    execution: str | None = None
    environment: _Typed | None = None


class _Output(_Item, kw_only=True):
    approval_request_id: str | None = None
    execution: str | None = None
    tools: Raw = Raw(b"")


class _Screenshot(msgspec.Struct):
    image_url: str | None = None
    file_id: str | None = None
    detail: str | None = None


class _MadeImage(msgspec.Struct):
    result: str | None = None


_item = msgspec.json.Decoder(_Item)
_call = msgspec.json.Decoder(_Call)
_output = msgspec.json.Decoder(_Output)
_screenshot = msgspec.json.Decoder(_Screenshot)
_made_image = msgspec.json.Decoder(_MadeImage)


def read_opaque(raw: bytes, kind: str, param: str) -> OpaqueItem:
    """An item of a kind that has no reader of its own. Raises an ``InvalidRequest`` that names the field at fault."""
    if kind in OUTPUT_KIND_OF_CALL:
        return _read_call(raw, kind, param)
    if kind in CALL_KIND_OF_OUTPUT:
        return _read_output(raw, kind, param)
    if kind == "image_generation_call":
        return _read_made_image(raw, kind, param)
    item = decode(_item, raw, param)
    return OpaqueItem(raw=raw, kind=kind, id=item.id, call_id=item.call_id)


def _read_call(raw: bytes, kind: str, param: str) -> OpaqueItem:
    call = decode(_call, raw, param)
    key = call.id if kind == "mcp_approval_request" else call.call_id
    owed = key is not None and call.status != "incomplete" and _is_clients(kind, call)
    return OpaqueItem(raw=raw, kind=kind, id=call.id, call_id=key, owed=owed)


def _is_clients(kind: str, call: _Call) -> bool:
    """Whether the client carries the call out, and not the service that made it."""
    if kind == "tool_search_call":
        return call.execution == _CLIENT
    if kind == "shell_call":
        return call.environment is None or not call.environment.type.startswith("container")
    return True


def _read_output(raw: bytes, kind: str, param: str) -> OpaqueItem:
    output = decode(_output, raw, param)
    item = OpaqueItem(raw=raw, kind=kind, id=output.id, call_id=output.call_id)
    if kind == "tool_search_output":
        if output.execution != _CLIENT:
            item.call_id = None
        if output.tools:
            item.tools = Raw(bytes(output.tools))
        return item
    if kind == "mcp_approval_response":
        item.call_id = _required(output.approval_request_id, join(param, "approval_request_id"))
    elif kind == "local_shell_call_output" and output.call_id is None:
        # In the published schema this kind has no ``call_id``: its id is the call's.
        item.call_id, item.id = _required(output.id, join(param, "call_id")), None
    else:
        item.call_id = _required(output.call_id, join(param, "call_id"))
    return _without_screenshot(item, param) if kind == "computer_call_output" else item


def _without_screenshot(item: OpaqueItem, param: str) -> OpaqueItem:
    """A screenshot's data is not for the context's text, its address may stay."""
    fields = split_object.decode(item.raw)
    place = join(param, "output")
    if "output" not in fields:
        raise MissingParameter(place)
    shot = decode(_screenshot, fields["output"], place)
    item.pads, item.size = read_image(shot.image_url, shot.file_id, shot.detail, place)
    if item.size:
        output = decode(split_object, fields["output"], place)
        del output["image_url"]
        item.shown = encode({**fields, "output": output})
    return item


def _read_made_image(raw: bytes, kind: str, param: str) -> OpaqueItem:
    item = decode(_item, raw, param)
    opaque = OpaqueItem(raw=raw, kind=kind, id=item.id)
    result = decode(_made_image, raw, param).result
    if result:
        size = base64_size(result)
        if size is None:
            raise InvalidField(join(param, "result"), "the data is not valid base64.", "invalid_base64_image")
        fields = split_object.decode(raw)
        del fields["result"]
        opaque.shown, opaque.size = encode(fields), size
        opaque.pads = IMAGE_TOKENS["auto"]
    return opaque


def _required(value: str | None, param: str) -> str:
    if value is None:
        raise MissingParameter(param)
    if not value:
        raise InvalidField(param, "expected a non-empty string.", "empty_string")
    return value
