"""From a frame's JSON text to a ``CreateRequest``: types, bounds, and what this server does not do.

The text is split once into its top-level fields. ``input`` and ``tools`` stay raw until they are needed: tools that are
byte for byte those of the turn before are not looked at again (design.md section 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Raw

from respserver.errors import (
    InvalidField,
    InvalidRequest,
    MissingParameter,
    UnknownParameter,
    UnsupportedParameter,
)
from respserver.protocol.choose import read_tool_choice
from respserver.schema.codec import check_depth, decode, on_one_line
from respserver.schema.input import read_input
from respserver.schema.json_schema import check_strict
from respserver.schema.request import (
    MAX_COUNT,
    MAX_METADATA_PAIRS,
    OWN_METADATA,
    PLAIN_TEXT,
    AppendRequest,
    CreateParams,
    CreateRequest,
    Included,
    TextFormat,
)
from respserver.schema.tools import NO_TOOLS, ToolSet, parse_tools

Fields = dict[str, Raw]
Transport = Literal["websocket", "http"]

INCLUDES = frozenset(get_args(Included))
NOT_YET = ("conversation", "prompt", "context_management", "moderation")
"""Fields that change what is computed and that nothing here computes: refused, never ignored."""
_LARGE = frozenset({"input", "tools"})
_SMALL = frozenset(CreateParams.__struct_fields__)
_KNOWN = _SMALL | _LARGE
_APPEND_FIELDS = frozenset({"type", "input", "response_id", "stream_id", "client_metadata"})
NULL = Raw(b"null")
_NOT_NESTED = "The fields stand beside 'type', not in 'response'."
"""For those who know the Realtime API's ``response.create``."""

_params = msgspec.json.Decoder(CreateParams)
_string = msgspec.json.Decoder(str)
_text_format = msgspec.json.Decoder(TextFormat)


class _BackgroundOptions(msgspec.Struct):
    completion_window: Literal["soonest", "2h", "8h"] = "soonest"
    continuation_id: str | None = None

    @property
    def asks(self) -> bool:
        return self.completion_window != "soonest"


class _Image(msgspec.Struct):
    context_compression: Literal["auto", "enabled", "disabled"] = "auto"

    @property
    def asks(self) -> bool:
        return self.context_compression == "enabled"


class _AccessPrograms(msgspec.Struct):
    cyber: Literal["standard", "daybreak_blue", "daybreak_red"] = "standard"

    @property
    def asks(self) -> bool:
        return self.cyber != "standard"


class _MultiAgent(msgspec.Struct):
    enabled: bool = False
    max_concurrent_subagents: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | None = None

    @property
    def asks(self) -> bool:
        return self.enabled


NOT_YET_IF_ASKED: Mapping[str, msgspec.json.Decoder[_BackgroundOptions | _Image | _AccessPrograms | _MultiAgent]] = {
    "background_options": msgspec.json.Decoder(_BackgroundOptions),
    "image": msgspec.json.Decoder(_Image),
    "access_programs": msgspec.json.Decoder(_AccessPrograms),
    "multi_agent": msgspec.json.Decoder(_MultiAgent),
}
"""Likewise, but for the values that ask for what is done anyway."""


def read_create(
    fields: Fields,
    transport: Transport,
    *,
    strict: bool = False,
    default_model: str | None = None,
    last_tools: ToolSet = NO_TOOLS,
) -> CreateRequest:
    """Validate the fields of a create. Raises an ``InvalidRequest`` that names the first field at fault.

    ``last_tools`` is the set of the turn before: the same bytes give the same set back, unread.
    """
    unknown = _unknown(fields, _KNOWN, strict)
    given = _given(fields)
    params = decode(_params, _small_fields(given))
    _check_transport(params, given, transport, strict)
    _check_support(params, given)
    if params.model is None:
        params.model = default_model
    if params.model is None:
        raise MissingParameter("model", _hint(unknown))
    request = CreateRequest(
        params=params,
        items=read_input(given["input"]) if "input" in given else [],
        tools=_read_tools(given["tools"], last_tools) if "tools" in given else NO_TOOLS,
        tool_choice=read_tool_choice(params.tool_choice),
        text_format=_read_text_format(params),
        unknown=unknown,
    )
    if not request.items and params.previous_response_id is None and not request.warm_up:
        raise MissingParameter("input", _hint(unknown))
    return request


def read_append(fields: Fields, strict: bool) -> AppendRequest:
    """Validate the fields of a ``response.append``. Raises an ``InvalidRequest`` that names the field."""
    _unknown(fields, _APPEND_FIELDS, strict)
    given = _given(fields)
    if "input" not in given:
        raise MissingParameter("input")
    response_id = decode(_string, given["response_id"], "response_id") if "response_id" in given else None
    return AppendRequest(items=read_input(given["input"]), response_id=response_id)


def peek_string(fields: Fields, name: str) -> str | None:
    """A string field, or None if it is absent or something else."""
    try:
        return _string.decode(fields[name]) if name in fields else None
    except msgspec.MsgspecError:
        return None


def _unknown(fields: Fields, known: frozenset[str], strict: bool) -> tuple[str, ...]:
    """Names of fields that are not known, in the order in which they came. Raises for the first if ``strict``."""
    if fields.keys() <= known:
        return ()
    unknown = tuple(name for name in fields if name not in known)
    if strict:
        raise UnknownParameter(unknown[0], _hint(unknown[:1]))
    return unknown


def _hint(unknown: tuple[str, ...]) -> str:
    return _NOT_NESTED if "response" in unknown else ""


def _given(fields: Fields) -> Fields:
    """The fields but the null ones: null means the same as absence."""
    return {name: raw for name, raw in fields.items() if raw != NULL}


def _small_fields(given: Fields) -> bytes:
    """The known fields but the large ones, as one small object."""
    parts = [b'"%s":%s' % (name.encode(), raw) for name, raw in given.items() if name in _SMALL]
    return on_one_line(b"{" + b",".join(parts) + b"}")


def _check_transport(params: CreateParams, given: Fields, transport: Transport, strict: bool) -> None:
    """Fields that belong to the other transport (F23)."""
    if params.background:
        raise UnsupportedParameter("background", f"is not supported over {_TRANSPORT_WORDS[transport]}.")
    if transport == "http":
        for name in ("generate", "stream_id"):
            if name in given:
                raise UnsupportedParameter(name, "is only supported over WebSocket.")
    elif strict:
        for name in ("stream", "stream_options", "background"):
            if getattr(params, name) is not None:
                raise UnsupportedParameter(name, "must not be sent over WebSocket.")


_TRANSPORT_WORDS = {"websocket": "WebSocket", "http": "HTTP by this server"}


def _check_support(params: CreateParams, given: Fields) -> None:
    if "conversation" in given and params.previous_response_id is not None:
        raise InvalidRequest(
            "'conversation' and 'previous_response_id' are mutually exclusive.",
            param="conversation",
            code="mutually_exclusive_parameters",
        )
    for name in NOT_YET:
        if name in given:
            raise UnsupportedParameter(name)
    for name, decoder in NOT_YET_IF_ASKED.items():
        if name in given and decode(decoder, given[name], name).asks:
            raise UnsupportedParameter(name)
    if params.metadata is not None:
        _check_metadata(params.metadata)


def _check_metadata(metadata: dict[str, str]) -> None:
    """Also takes out the pairs that are ours: whoever sends a Response's metadata back does not say them."""
    for name in OWN_METADATA:
        metadata.pop(name, None)
    if len(metadata) > MAX_METADATA_PAIRS:
        expected = f"Expected an object with at most {MAX_METADATA_PAIRS} properties"
        problem = f"too many properties. {expected}, but got {len(metadata)} properties instead."
        raise InvalidField("metadata", problem, "object_above_max_properties")


def _read_tools(raw: Raw, last: ToolSet) -> ToolSet:
    text = bytes(raw)
    return last if text == last.raw else parse_tools(text)


def _read_text_format(params: CreateParams) -> TextFormat:
    if params.text is None or not params.text.format:
        return PLAIN_TEXT
    text_format = decode(_text_format, params.text.format, "text.format")
    check_depth(text_format.schema, "text.format.schema")
    if text_format.type == "json_schema":
        if not text_format.name:
            raise MissingParameter("text.format.name")
        if text_format.schema is None:
            raise MissingParameter("text.format.schema")
        if text_format.strict:
            whose = f"response_format '{text_format.name}'"
            check_strict(text_format.schema, whose, "text.format.schema", "invalid_json_schema")
    return text_format
