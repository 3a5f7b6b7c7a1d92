"""The tools that a context offers, read as far as choosing one needs: names at once, a schema only when it is called.

A request may offer tens of thousands of tools, and all of them are read on the event loop: so definitions stay raw, and
what a name reads as is decided once. What is called, and with what, is ``rehearse.py``'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import Raw

from respserver.errors import InvalidRequest, ModelFault
from respserver.schema.codec import decode, split_array
from respserver.schema.tools import SEARCH_NAME, WEB_SEARCH, qualified_name

Likeness = Literal["shell", "reader", "other"]

SHELL_NAMES = frozenset(
    (
        *("shell", "shell command", "shell exec", "local shell", "run shell", "run shell command", "execute shell"),
        *("exec", "exec command", "execute", "execute command", "run command", "run in terminal", "run terminal cmd"),
        *("run terminal command", "bash", "bash command", "run bash", "execute bash", "sh", "zsh", "terminal"),
        *("command", "command line", "container exec"),
    )
)
READING_STARTS = (("get",), ("list",), ("search",), ("read",), ("look", "up"), ("lookup",), ("fetch",), ("find",))
CHANGING_WORDS = frozenset(
    (
        *("add", "apply", "book", "buy", "cancel", "clear", "close", "create", "delete", "drop", "edit", "execute"),
        *("insert", "kill", "merge", "move", "order", "patch", "pay", "post", "publish", "purge", "put", "remove"),
        *("rename", "replace", "reset", "run", "send", "set", "start", "stop", "update", "upload", "write"),
    )
)
"""A name such as find_and_replace or get_or_create does not read as harmless."""
_NULL = Raw(b"null")


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One callable definition."""

    name: str
    """Its qualified name: what the model says, and what ``tool_choice`` names."""
    reads_as: Likeness
    is_custom: bool
    description: str
    raw_parameters: Raw
    raw_format: Raw
    is_search: bool = False
    """Whether it is the search that a server may run itself."""

    @property
    def parameters(self) -> dict[str, Any]:  # Any: a JSON schema
        """The schema of its arguments; empty if that is no object."""
        try:
            schema = _any.decode(self.raw_parameters)
        except (msgspec.DecodeError, RecursionError):
            return {}
        return schema if isinstance(schema, dict) else {}

    @property
    def told(self) -> str:
        """What the definition says of the tool in words: its description and the grammar of its input."""
        return f"{self.description} {bytes(self.raw_format).decode(errors='replace')}"


def read_offer(text: str) -> Iterator[OfferedTool]:
    """The callable tools of a JSON list of definitions, in order. Raises ``ModelFault`` if it cannot be read."""
    try:
        for entry in decode(split_array, text, "tools"):
            yield from _tools(entry, None)
    except InvalidRequest as error:
        raise ModelFault(f"The tools in the context cannot be read. {error.message}") from error


def likeness(name: str) -> Likeness:
    """What the bare name of a tool reads as: a shell, something that only reads, or neither."""
    # Most names are neither, and looking at a beginning is four times faster than taking a name apart.
    if _MAY_BE_LIKE.match(name) is None:
        return "other"
    words = [word.lower() for word in _WORD_BREAK.split(name) if word]
    if " ".join(words) in SHELL_NAMES:
        return "shell"
    starts_so = any(tuple(words[: len(start)]) == start for start in READING_STARTS)
    return "reader" if starts_so and CHANGING_WORDS.isdisjoint(words) else "other"


class _Kind(msgspec.Struct, gc=False):
    type: str


class _Definition(msgspec.Struct, kw_only=True):
    type: str
    name: str
    description: str | None = None
    parameters: Raw = _NULL
    format: Raw = _NULL
    tools: list[Raw] | None = None


_any = msgspec.json.Decoder()
_kind = msgspec.json.Decoder(_Kind)
_definition = msgspec.json.Decoder(_Definition)
_CALLABLE = ("function", "custom")
_WORD_BREAK = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Between the words of snake, kebab and camel case."""
_FIRST_WORDS = sorted({name.split()[0] for name in SHELL_NAMES} | {start[0] for start in READING_STARTS})
_MAY_BE_LIKE = re.compile(f"[^A-Za-z0-9]*(?:{'|'.join(_FIRST_WORDS)})", re.IGNORECASE)


_SEARCH = OfferedTool(
    name=SEARCH_NAME,
    reads_as="reader",
    is_custom=False,
    description="",
    raw_parameters=Raw(b'{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}'),
    raw_format=_NULL,
    is_search=True,
)


def _tools(entry: Raw, namespace: str | None) -> Iterator[OfferedTool]:
    kind = decode(_kind, entry, "tools").type
    if kind in WEB_SEARCH:
        yield _SEARCH
    if kind not in _CALLABLE and kind != "namespace":
        return
    given = decode(_definition, entry, "tools")
    if kind == "namespace":
        for inner in given.tools or ():
            yield from _tools(inner, given.name)
        return
    yield OfferedTool(
        name=qualified_name(namespace, given.name),
        reads_as=likeness(given.name),
        is_custom=kind == "custom",
        description=given.description or "",
        raw_parameters=given.parameters,
        raw_format=given.format,
    )
