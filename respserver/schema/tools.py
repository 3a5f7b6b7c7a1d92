"""Tool definitions as clients send them (protocol.md sections 6.5 and 6.6).

A ``ToolSet`` is made once from the request's raw ``tools`` and kept while the same bytes come again, so that 15 KB of
repeated definitions cost one comparison. Kinds that this server does not know pass through unharmed.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Raw, UnsetType

from respserver.errors import InvalidField, MissingParameter
from respserver.schema.codec import MAX_DEPTH, check_depth, decode, encode, on_one_line, split_array, split_object
from respserver.schema.json_schema import MAX_TOLD, check_strict

DEFAULT_NAMESPACE = "functions"
"""Calls of tools in this namespace carry no ``namespace`` field: it is where plain tools live (Codex' lite shape)."""


def qualified_name(namespace: str | UnsetType | None, name: str) -> str:
    """A tool's name as the model sees and samples it: ``namespace.name``, or the bare name of a plain tool."""
    return f"{namespace}.{name}" if namespace and namespace != DEFAULT_NAMESPACE else name


class Other(NamedTuple):
    """What ``tool_choice`` tells tools by that are no functions and have no name of their own."""

    type: str
    server_label: str = ""
    name: str = ""
    """The one tool of an MCP server that is meant, if not all are."""


WEB_SEARCH = ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11")
SEARCH_NAME = "web_search"
"""What the model calls a search by, whatever its definition is called."""


class HostedDef(NamedTuple):
    """A definition of tools that the server may run itself."""

    kind: Literal["mcp", "web_search"]
    label: str
    raw: Raw
    place: str
    """Where it stands, as in ``tools[2]``."""
    other: Other


class ToolDef(msgspec.Struct, kw_only=True, frozen=True):
    """What the server reads of one definition."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: Any = None  # Any: a JSON schema, the engine's to read
    format: Any = None  # Any: a custom tool's grammar, likewise
    namespace: str | None = None
    is_async: bool = False
    """Whether the output of its calls may come in any later turn."""

    @property
    def qualified_name(self) -> str:
        """The name that the model sees and samples: ``namespace.name``, or the bare name."""
        return qualified_name(self.namespace, self.name)


class ToolSet(msgspec.Struct, kw_only=True, frozen=True):
    """A list of definitions in the forms that the turn needs."""

    raw: bytes = b"[]"
    """The JSON array exactly as the client sent it."""
    echo: Raw = Raw(b"[]")
    """The array as the Response shows it, defaults filled in."""
    digest: bytes = b""
    by_name: dict[str, ToolDef] = {}
    """Callable definitions by qualified name."""
    others: frozenset[Other] = frozenset()
    """Definitions of no callable name: hosted tools, and those of which a client runs what the model says."""
    hosted: tuple[HostedDef, ...] = ()
    """Those of ``others`` that the server may run itself."""
    told: bytes = b"[]"
    """The array as the model is told of it: the tools of MCP servers are listed behind the input instead. No secret of
    a definition is in it."""


NO_TOOLS = ToolSet()
Mode = Literal["none", "auto", "required"]
"""Whether tools may be called, or must be."""


class ToolChoice(msgspec.Struct, kw_only=True, frozen=True):
    """The request's ``tool_choice`` in one form: a mode and, if it narrows the offer, what it leaves."""

    mode: Mode = "auto"
    names: tuple[str, ...] = ()
    kind: Literal["function", "custom"] | None = None
    """What the named tool must be, if the choice says so."""
    others: tuple[Other, ...] = ()
    """Tools without a name that it leaves."""
    echo: Raw = Raw(b'"auto"')
    """The choice as the Response shows it."""


class _RawTool(msgspec.Struct, kw_only=True):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | bool | None = None  # Any: a JSON schema
    strict: bool | None = None
    format: Raw = Raw(b"null")
    output_schema: dict[str, Any] | bool | None = None  # Any: a JSON schema
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None
    defer_loading: bool | None = None
    is_async: bool | None = msgspec.field(name="async", default=None)
    tools: list[Raw] | None = None


class _Format(msgspec.Struct):
    """What a custom tool's input looks like."""

    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] | None = None
    definition: str | None = None


class _ToolSearch(msgspec.Struct):
    """A search for deferred tools, by the service or by the client."""

    description: str | None = None
    execution: Literal["server", "client"] | None = None
    parameters: dict[str, Any] | bool | None = None  # Any: a JSON schema


class _Kind(msgspec.Struct):
    type: str
    server_label: Any = None  # Any: read where it is a string; the rest of such a tool is not ours to judge


MAX_TOOL_DEPTH = 2 * MAX_DEPTH
"""Of a whole definition: its schema, namespaces around it, and whatever else a client says beside it."""
_kind = msgspec.json.Decoder(_Kind)
_whole = msgspec.json.Decoder(float_hook=str)  # what is passed through unread may hold a number that is no float
_tool = msgspec.json.Decoder(_RawTool)
_format = msgspec.json.Decoder(_Format | None)
_search = msgspec.json.Decoder(_ToolSearch)
_FUNCTION_DEFAULTS = {"description": Raw(b"null"), "parameters": Raw(b"null"), "strict": Raw(b"true")}
_MCP_DEFAULTS = {
    **dict.fromkeys(("server_description", "allowed_tools", "headers"), Raw(b"null")),
    "require_approval": Raw(b'"always"'),
}
_ORIGIN = re.compile(r"[A-Za-z]+://[^/?#]*(?=[/?#])")
"""Of a URL with more behind its host."""
_READ = ("function", "custom", "namespace")
SECRET_FIELDS = ("authorization", "headers")
"""Of an MCP definition: what opens its server is nobody's to read again, neither in a Response nor in a store."""


def parse_tools(raw: bytes, param: str = "tools") -> ToolSet:
    """Read a JSON array of tool definitions.

    Raises an ``InvalidRequest`` naming the definition, as in ``tools[2].name``.
    """
    entries = decode(split_array, raw, param)
    by_name: dict[str, ToolDef] = {}
    others: set[Other] = set()
    hosted: list[HostedDef] = []
    echoes: list[bytes] = []
    for index, entry in enumerate(entries):
        place = f"{param}[{index}]"
        kind = decode(_kind, entry, place)
        if kind.type in _READ:
            _collect(entry, place, None, by_name)
        else:
            if kind.type == "tool_search":
                decode(_search, entry, place)
            other = Other(kind.type, kind.server_label if isinstance(kind.server_label, str) else "")
            if other.type == "mcp" and other.server_label and other in others:
                whose = f"'{other.server_label[:MAX_TOLD]}'"
                raise InvalidField(f"{place}.server_label", f"{whose} is another server's label too.")
            others.add(other)
            hosted += _hosted(other, entry, place)
        check_depth(decode(_whole, entry, place), place, MAX_TOOL_DEPTH)
        echoes.append(_echo(entry))
    echo = Raw(on_one_line(b"[" + b",".join(echoes) + b"]"))
    told = raw
    if any(one.kind == "mcp" for one in hosted):
        told = encode([entry for entry in entries if _kind.decode(entry).type != "mcp"])
    digest = hashlib.sha256(told).digest() if told != NO_TOOLS.told else NO_TOOLS.digest
    return ToolSet(
        raw=raw,
        echo=echo,
        digest=digest,
        by_name=by_name,
        others=frozenset(others),
        hosted=tuple(hosted),
        told=told,
    )


def _hosted(other: Other, entry: Raw, place: str) -> list[HostedDef]:
    if other.type == "mcp":
        return [HostedDef("mcp", other.server_label, Raw(bytes(entry)), place, other)]
    return [HostedDef("web_search", "", Raw(bytes(entry)), place, other)] if other.type in WEB_SEARCH else []


class _Query(msgspec.Struct):
    query: str


_query = msgspec.json.Decoder(_Query)


def search_query(arguments: str) -> str | None:
    """What a search is for; None if the model did not say it in the form that was asked for."""
    try:
        return _query.decode(arguments).query
    except (msgspec.DecodeError, UnicodeError):
        return None


def _collect(entry: Raw, param: str, namespace: str | None, by_name: dict[str, ToolDef]) -> None:
    if decode(_kind, entry, param).type not in _READ:
        return
    tool = decode(_tool, entry, param)
    if not tool.name:
        raise MissingParameter(f"{param}.name")
    if tool.type == "namespace":
        for index, inner in enumerate(tool.tools or ()):
            _collect(inner, f"{param}.tools[{index}]", tool.name, by_name)
        return
    _check_schemas(tool, tool.name, param)
    known = ToolDef(
        type=tool.type,
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        format=_read_format(tool.format, f"{param}.format"),
        namespace=None if namespace == DEFAULT_NAMESPACE else namespace,
        is_async=bool(tool.is_async),
    )
    by_name[known.qualified_name] = known


def _check_schemas(tool: _RawTool, name: str, param: str) -> None:
    for field, schema in (("parameters", tool.parameters), ("output_schema", tool.output_schema)):
        check_depth(schema, f"{param}.{field}")
    # Only where the client said so: the echo's ``true`` is the API's default, which falls back to what it can follow.
    if tool.strict and tool.type == "function" and tool.parameters is not None:
        whose, place = f"function '{name[:MAX_TOLD]}'", f"{param}.parameters"
        check_strict(tool.parameters, whose, place, "invalid_function_parameters")


def _read_format(raw: Raw, param: str) -> Any:  # Any: a grammar, or None
    given = decode(_whole, raw, param)
    check_depth(given, param)
    form = decode(_format, raw, param)
    if form is not None and form.type == "grammar":
        for field in ("syntax", "definition"):
            if getattr(form, field) is None:
                raise MissingParameter(f"{param}.{field}")
    return given


def _echo(entry: Raw) -> bytes:
    kind = _kind.decode(entry).type
    if kind == "mcp":
        return _echo_mcp(split_object.decode(entry))
    if kind != "function":
        return bytes(entry)
    return encode({**_FUNCTION_DEFAULTS, **split_object.decode(entry)})


def _told_url(raw: Raw | None) -> str:
    """What a definition says of its server's place, read: JSON may write a slash as ``\\/``."""
    url = msgspec.json.decode(raw) if raw is not None else ""
    return url if isinstance(url, str) else ""


def _echo_mcp(fields: dict[str, Raw]) -> bytes:
    """As the API shows it: without what opens the server, of which only the host is named."""
    said = {name: value for name, value in fields.items() if name not in SECRET_FIELDS and value != Raw(b"null")}
    if address := _ORIGIN.match(_told_url(said.get("server_url"))):
        said["server_url"] = Raw(encode(f"{address[0]}/<redacted>"))
    return encode({**_MCP_DEFAULTS, **said})
