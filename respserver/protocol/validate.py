"""From a frame's JSON text to a ``CreateRequest``: types, bounds, and what this server does not do.

The text is split once into its top-level fields. ``input`` and ``tools`` stay raw until they are needed: tools that are
byte for byte those of the turn before are not looked at again (design.md section 2).
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Raw

from respserver.errors import (
    InvalidField,
    InvalidRequest,
    MissingParameter,
    UnknownParameter,
    UnsupportedParameter,
)
from respserver.schema.codec import check_depth, decode, on_one_line
from respserver.schema.input import read_input
from respserver.schema.request import (
    MAX_METADATA_PAIRS,
    OWN_METADATA,
    AppendRequest,
    CreateParams,
    CreateRequest,
    TextFormat,
)
from respserver.schema.tools import NO_TOOLS, ToolChoice, ToolSet, parse_tools

Fields = dict[str, Raw]
Transport = Literal["websocket", "http"]

INCLUDES = frozenset(
    {
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "message.input_image.image_url",
        "computer_call_output.output.image_url",
        "code_interpreter_call.outputs",
        "reasoning.encrypted_content",
        "message.output_text.logprobs",
    }
)
"""protocol.md section 6.8."""
NOT_YET = (
    "conversation",
    "prompt",
    "context_management",
    "background_options",
    "moderation",
    "image",
    "access_programs",
    "multi_agent",
)
"""Fields that change what is computed and that nothing here computes: refused, never ignored."""
_LARGE = frozenset({"input", "tools"})
_SMALL = frozenset(CreateParams.__struct_fields__)
_KNOWN = _SMALL | _LARGE
_APPEND_FIELDS = frozenset({"type", "input", "response_id", "stream_id", "client_metadata"})
_NULL = Raw(b"null")
_NOT_NESTED = "The fields stand beside 'type', not in 'response'."
"""For those who know the Realtime API's ``response.create``."""

_params = msgspec.json.Decoder(CreateParams)
_string = msgspec.json.Decoder(str)
_text_format = msgspec.json.Decoder(TextFormat)


class _NamedTool(msgspec.Struct):
    type: str
    name: str | None = None


class _ToolChoice(msgspec.Struct):
    type: str
    name: str | None = None
    mode: Literal["auto", "required"] = "auto"
    tools: list[_NamedTool] | None = None


_tool_choice = msgspec.json.Decoder(_ToolChoice)


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
        tool_choice=_read_tool_choice(params.tool_choice),
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
    if "stream_id" in given:
        raise UnsupportedParameter("stream_id")
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
    return {name: raw for name, raw in fields.items() if raw != _NULL}


def _small_fields(given: Fields) -> bytes:
    """The known fields but the large ones, as one small object."""
    parts = [b'"%s":%s' % (name.encode(), raw) for name, raw in given.items() if name in _SMALL]
    return on_one_line(b"{" + b",".join(parts) + b"}")


def _check_transport(params: CreateParams, given: Fields, transport: Transport, strict: bool) -> None:
    """Fields that belong to the other transport (F23)."""
    if params.background:
        raise UnsupportedParameter("background", f"is not supported over {_TRANSPORT_WORDS[transport]}.")
    if "stream_id" in given:
        raise UnsupportedParameter("stream_id", "is not supported: this server has only the default lane.")
    if transport == "http":
        if params.generate is not None:
            raise UnsupportedParameter("generate", "is only supported over WebSocket.")
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
    for index, name in enumerate(params.include or ()):
        if name not in INCLUDES:
            raise InvalidField(f"include[{index}]", f"'{name}' is not one of the supported values.")
        if name == "message.output_text.logprobs":
            raise UnsupportedParameter(f"include[{index}]")
    if params.top_logprobs:
        raise UnsupportedParameter("top_logprobs")
    if params.metadata is not None:
        _check_metadata(params.metadata)


def _check_metadata(metadata: dict[str, str]) -> None:
    """Also takes out the pairs that are ours: whoever sends a Response's metadata back does not say them."""
    for name in OWN_METADATA:
        metadata.pop(name, None)
    if len(metadata) > MAX_METADATA_PAIRS:
        problem = f"too many pairs. Expected at most {MAX_METADATA_PAIRS}."
        raise InvalidField("metadata", problem, "object_above_max_properties")


def _read_tools(raw: Raw, last: ToolSet) -> ToolSet:
    text = bytes(raw)
    return last if text == last.raw else parse_tools(text)


def _read_tool_choice(raw: Raw) -> ToolChoice:
    if not raw:
        return ToolChoice()
    text = bytes(raw)
    if text.startswith(b'"'):
        mode = decode(_string, text, "tool_choice")
        if mode not in ("none", "auto", "required"):
            raise InvalidField("tool_choice", f"'{mode}' is not one of 'none', 'auto', 'required'.")
        return ToolChoice(mode=mode)  # type: ignore[arg-type]  # narrowed by the check above
    choice = decode(_tool_choice, text, "tool_choice")
    if choice.type in ("function", "custom"):
        if not choice.name:
            raise MissingParameter("tool_choice.name")
        return ToolChoice(
            mode="required", names=(choice.name,), kind="function" if choice.type == "function" else "custom"
        )
    if choice.type == "allowed_tools":
        return ToolChoice(mode=choice.mode, names=_allowed_names(choice))
    raise UnsupportedParameter("tool_choice", f"of type '{choice.type}' is not supported by this server.")


def _allowed_names(choice: _ToolChoice) -> tuple[str, ...]:
    """The names that ``allowed_tools`` leaves: at least one, since no names mean that nothing is narrowed."""
    if choice.tools is None:
        raise MissingParameter("tool_choice.tools")
    if not choice.tools:
        raise InvalidField("tool_choice.tools", "expected at least one tool.", "empty_array")
    names: list[str] = []
    for index, tool in enumerate(choice.tools):
        if tool.type not in ("function", "custom"):
            raise UnsupportedParameter(f"tool_choice.tools[{index}]", f"of type '{tool.type}' is not supported.")
        if not tool.name:
            raise MissingParameter(f"tool_choice.tools[{index}].name")
        names.append(tool.name)
    return tuple(names)


def _read_text_format(params: CreateParams) -> TextFormat:
    if params.text is None or not params.text.format:
        return TextFormat()
    text_format = decode(_text_format, params.text.format, "text.format")
    check_depth(text_format.schema, "text.format.schema")
    if text_format.type == "json_schema":
        if not text_format.name:
            raise MissingParameter("text.format.name")
        if text_format.schema is None:
            raise MissingParameter("text.format.schema")
    return text_format
