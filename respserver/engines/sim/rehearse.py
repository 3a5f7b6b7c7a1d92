"""What the embedded model says when no script tells it: one harmless tool call, then an answer that quotes its output.

A client may run what it is told to, so the rule is strict: a tool is called only if ``tool_choice`` demands it, or if
its name reads as harmless: a shell, which gets an ``echo``, or a name that begins like a question and has no word for
changing anything in it. Every choice is deterministic.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any  # Any: tool and answer schemas are JSON of every shape, throughout this file

import msgspec

from respserver.engines.base import SamplingParams
from respserver.engines.sim.context import MESSAGE_ROLES, Context, Item
from respserver.engines.sim.schema_value import schema_value
from respserver.engines.sim.script import Call, Custom, Text
from respserver.schema.tools import ToolDef

COMMAND = "echo hello from respserver"
JAVASCRIPT_COMMAND = f'const r = await tools.exec_command({{cmd: "{COMMAND}"}}); text(JSON.stringify(r));'
"""For Codex' code mode, whose ``exec`` takes a program and not a command."""
GREETING = "hello from respserver"
QUOTED = 2000
"""Characters that are quoted of one message or tool output."""
SHELL_NAMES = frozenset(
    (
        *("shell", "shell command", "shell exec", "local shell", "run shell", "run shell command", "execute shell"),
        *("exec", "exec command", "execute", "execute command", "run command", "run in terminal", "run terminal cmd"),
        *("run terminal command", "bash", "bash command", "run bash", "execute bash", "sh", "zsh", "terminal"),
        *("command", "command line", "container exec"),
    )
)
COMMAND_PROPERTIES = ("command", "cmd", "script", "commands", "command_line", "shell_command", "bash_command")
READING_STARTS = (("get",), ("list",), ("search",), ("read",), ("look", "up"), ("lookup",), ("fetch",), ("find",))
CHANGING_WORDS = frozenset(
    (
        *("add", "apply", "book", "buy", "cancel", "clear", "close", "create", "delete", "drop", "edit", "execute"),
        *("insert", "kill", "merge", "move", "order", "patch", "pay", "post", "publish", "purge", "put", "remove"),
        *("rename", "replace", "reset", "run", "send", "set", "start", "stop", "update", "upload", "write"),
    )
)
"""A name such as find_and_replace or get_or_create does not read as harmless."""


def rehearse(context: Context, params: SamplingParams) -> Call | Custom | Text:
    """The model's whole turn: a tool call if the rules above allow one, else an answer."""
    last = context.tail[-1] if context.tail else None
    asked = last is not None and last.role in MESSAGE_ROLES
    if params.tool_mode == "required" or (params.tool_mode == "auto" and asked):
        called = _choose(context.tools(), params)
        if called is not None:
            return called
    return answer(context, params)


def answer(context: Context, params: SamplingParams) -> Text:
    """A message in the form that the request asks for; plain text quotes the tool outputs or the message before it."""
    if params.text_schema is not None:
        return Text((_json(schema_value(params.text_schema)),))
    quote = _quote(context)
    return Text((_json({"answer": quote}) if params.json_object else quote,))


def _quote(context: Context) -> str:
    last = context.tail[-1] if context.tail else None
    if last is not None and last.role == "tool":
        outputs = [item for item in context.tail if item.role == "tool"]
        return "\n\n".join(_quote_output(context, item) for item in outputs)
    message = last or (context.users[-1] if context.users else None)
    return f"You said: {context.text(message, QUOTED)}" if message is not None else f"{GREETING.capitalize()}."


def _quote_output(context: Context, item: Item) -> str:
    return f"{context.tool_name(item) or 'The tool'} returned: {context.text(item, QUOTED)}"


def _choose(offer: Mapping[str, ToolDef], params: SamplingParams) -> Call | Custom | None:
    """The call of the first shell, else of the first tool that reads, else of any that is demanded."""
    names = [name for name in offer if not params.tool_names or name in params.tool_names]
    shells = {name: call for name in names if (call := _shell_call(offer[name])) is not None}
    if shells:
        return next(iter(shells.values()))
    readers = [name for name in names if _reads(offer[name])]
    demanded = params.tool_mode == "required" or bool(params.tool_names)
    chosen = readers or (names if demanded else [])
    return _plain_call(offer[chosen[0]]) if chosen else None


def _words(name: str) -> list[str]:
    """A snake, kebab or camel case name as lower-case words."""
    parted = re.sub(r"([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])", r"\1\3 \2\4", name)
    return [word.lower() for word in re.split(r"[^A-Za-z0-9]+", parted) if word]


def _reads(tool: ToolDef) -> bool:
    words = _words(tool.name)
    starts_so = any(tuple(words[: len(start)]) == start for start in READING_STARTS)
    return starts_so and CHANGING_WORDS.isdisjoint(words)


def _plain_call(tool: ToolDef) -> Call | Custom:
    if tool.type == "custom":
        return Custom(tool.qualified_name, GREETING)
    return Call(tool.qualified_name, _arguments(tool))


def _arguments(tool: ToolDef) -> dict[str, Any]:
    """Arguments that the tool's schema accepts; an object even where the schema is no object's."""
    if not isinstance(tool.parameters, Mapping):
        return {}
    value = schema_value({"type": "object", **tool.parameters}, sparse=True)
    return value if isinstance(value, dict) else {}


def _shell_call(tool: ToolDef) -> Call | Custom | None:
    """The call that prints a line, if this is a shell with a place for a command."""
    if " ".join(_words(tool.name)) not in SHELL_NAMES:
        return None
    if tool.type == "custom":
        return Custom(tool.qualified_name, JAVASCRIPT_COMMAND if _takes_javascript(tool) else COMMAND)
    parameters = tool.parameters if isinstance(tool.parameters, Mapping) else {}
    properties = parameters.get("properties")
    if not isinstance(properties, Mapping):
        return None
    key = _command_property(properties, parameters.get("required"))
    if key is None:
        return None
    return Call(tool.qualified_name, {**_arguments(tool), key: _command_for(properties[key])})


def _command_property(properties: Mapping[str, Any], required: Any) -> str | None:
    """The property that takes the command: by its name, else the only one that is required."""
    for name in COMMAND_PROPERTIES:
        if name in properties:
            return name
    return required[0] if isinstance(required, list) and len(required) == 1 and required[0] in properties else None


def _command_for(schema: Any) -> str | list[str]:
    """The command in the form that the property takes: a line, or an argument vector."""
    shapes = [schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())] if isinstance(schema, Mapping) else []
    kinds = [kind for shape in shapes if isinstance(shape, Mapping) for kind in _as_list(shape.get("type"))]
    return ["bash", "-lc", COMMAND] if "array" in kinds and "string" not in kinds else COMMAND


def _as_list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _takes_javascript(tool: ToolDef) -> bool:
    told = f"{tool.description or ''} {_json(tool.format)}".lower()
    return "javascript" in told or "tools.exec_command" in told


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
