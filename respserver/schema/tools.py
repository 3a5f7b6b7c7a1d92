"""Tool definitions as clients send them (protocol.md sections 6.5 and 6.6).

A ``ToolSet`` is made once from the request's raw ``tools`` and kept while the same bytes come again, so that 15 KB of
repeated definitions cost one comparison. Kinds that this server does not know pass through unharmed.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec
from msgspec import Raw, UnsetType

from respserver.errors import MissingParameter
from respserver.schema.codec import MAX_DEPTH, check_depth, decode, encode, on_one_line, split_array, split_object

DEFAULT_NAMESPACE = "functions"
"""Calls of tools in this namespace carry no ``namespace`` field: it is where plain tools live (Codex' lite shape)."""


def qualified_name(namespace: str | UnsetType | None, name: str) -> str:
    """A tool's name as the model sees and samples it: ``namespace.name``, or the bare name of a plain tool."""
    return f"{namespace}.{name}" if namespace and namespace != DEFAULT_NAMESPACE else name


class ToolDef(msgspec.Struct, kw_only=True, frozen=True):
    """What the server reads of one definition."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: Any = None  # Any: a JSON schema, the engine's to read
    format: Any = None  # Any: a custom tool's grammar, likewise
    namespace: str | None = None

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


NO_TOOLS = ToolSet()


class ToolChoice(msgspec.Struct, kw_only=True, frozen=True):
    """The request's ``tool_choice`` in one form: a mode and, if it narrows the offer, the names it leaves."""

    mode: Literal["none", "auto", "required"] = "auto"
    names: tuple[str, ...] = ()
    kind: Literal["function", "custom"] | None = None
    """What the named tool must be, if the choice says so."""


class _RawTool(msgspec.Struct, kw_only=True):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | bool | None = None  # Any: a JSON schema
    strict: bool | None = None
    format: Any = None  # Any: a grammar
    tools: list[Raw] | None = None


class _Kind(msgspec.Struct):
    type: str


MAX_TOOL_DEPTH = 2 * MAX_DEPTH
"""Of a whole definition: its schema, namespaces around it, and whatever else a client says beside it."""
_kind = msgspec.json.Decoder(_Kind)
_whole = msgspec.json.Decoder(float_hook=str)  # what is passed through unread may hold a number that is no float
_tool = msgspec.json.Decoder(_RawTool)
_FUNCTION_DEFAULTS = {"description": Raw(b"null"), "parameters": Raw(b"null"), "strict": Raw(b"true")}
_READ = ("function", "custom", "namespace")


def parse_tools(raw: bytes, param: str = "tools") -> ToolSet:
    """Read a JSON array of tool definitions.

    Raises an ``InvalidRequest`` naming the definition, as in ``tools[2].name``.
    """
    entries = decode(split_array, raw, param)
    by_name: dict[str, ToolDef] = {}
    echoes: list[bytes] = []
    for index, entry in enumerate(entries):
        _collect(entry, f"{param}[{index}]", None, by_name)
        check_depth(decode(_whole, entry, f"{param}[{index}]"), f"{param}[{index}]", MAX_TOOL_DEPTH)
        echoes.append(_echo(entry))
    echo = Raw(on_one_line(b"[" + b",".join(echoes) + b"]"))
    return ToolSet(raw=raw, echo=echo, digest=hashlib.sha256(raw).digest(), by_name=by_name)


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
    for field, value in (("parameters", tool.parameters), ("format", tool.format)):
        check_depth(value, f"{param}.{field}")
    known = ToolDef(
        type=tool.type,
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        format=tool.format,
        namespace=None if namespace == DEFAULT_NAMESPACE else namespace,
    )
    by_name[known.qualified_name] = known


def _echo(entry: Raw) -> bytes:
    if _kind.decode(entry).type != "function":
        return bytes(entry)
    return encode({**_FUNCTION_DEFAULTS, **split_object.decode(entry)})
