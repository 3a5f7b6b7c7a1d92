"""What the embedded model says when no script tells it: one harmless tool call, then an answer that quotes its output.

A client may run what it is told to, so the rule is strict: a tool is called only if ``tool_choice`` demands it, or if
its name reads as harmless: a shell, which gets an ``echo``, or a name that begins like a question and has no word for
changing anything in it. Every choice is deterministic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any  # Any: tool and answer schemas are JSON of every shape, throughout this file

import msgspec

from respserver.engines.base import SamplingParams
from respserver.engines.sim.context import MESSAGE_ROLES, Context, Item
from respserver.engines.sim.offer import OfferedTool
from respserver.engines.sim.promised import check_made
from respserver.engines.sim.schema_value import schema_value
from respserver.engines.sim.script import Call, Custom, Text
from respserver.tokens.roles import OUTPUT_ROLES

COMMAND = "echo hello from respserver"
JAVASCRIPT_COMMAND = f'const r = await tools.exec_command({{cmd: "{COMMAND}"}}); text(JSON.stringify(r));'
"""For Codex' code mode, whose ``exec`` takes a program and not a command."""
GREETING = "hello from respserver"
QUOTED = 2000
"""Characters that are quoted of one message or tool output."""
SEARCHED = 200
"""Characters of the user's message that are searched for."""
COMMAND_PROPERTIES = ("command", "cmd", "script", "commands", "command_line", "shell_command", "bash_command")


def rehearse(context: Context, params: SamplingParams) -> Call | Custom | Text:
    """The model's whole turn: a tool call if the rules above allow one, else an answer."""
    last = context.tail[-1] if context.tail else None
    asked = last is not None and last.role in MESSAGE_ROLES
    if params.tool_mode == "required" or (params.tool_mode == "auto" and asked):
        called = _choose(context, params)
        if called is not None:
            return called
    return answer(context, params)


def answer(context: Context, params: SamplingParams) -> Text:
    """A message in the form that the request asks for; plain text quotes the tool outputs or the message before it.

    Raises ``ModelFault`` for a strict schema that no answer was found for.
    """
    if params.text_schema is not None:
        value = schema_value(params.text_schema)
        check_made(value, params)
        return Text((_json(value),))
    quote = _quote(context)
    return Text((_json({"answer": quote}) if params.json_object else quote,))


def _quote(context: Context) -> str:
    last = context.tail[-1] if context.tail else None
    if last is not None and last.role in OUTPUT_ROLES:
        outputs = [item for item in context.tail if item.role in OUTPUT_ROLES]
        return "\n\n".join(_quote_output(context, item) for item in outputs)
    message = last or (context.users[-1] if context.users else None)
    return f"You said: {context.text(message, QUOTED)}" if message is not None else f"{GREETING.capitalize()}."


def _quote_output(context: Context, item: Item) -> str:
    return f"{context.tool_name(item) or 'The tool'} returned: {context.text(item, QUOTED)}"


def _choose(context: Context, params: SamplingParams) -> Call | Custom | None:
    """The call of the first shell, else of the first tool that reads, else of any that is demanded."""
    offer = {name: tool for name, tool in context.tools().items() if not tool.is_search or name in params.hosted_names}
    # Names come by the thousand as well: a set, so that they are gone through once.
    allowed = frozenset(params.tool_names)
    tools = [tool for name, tool in offer.items() if not allowed or name in allowed]
    shells = (_shell_call(tool) for tool in tools if tool.reads_as == "shell")
    call = next((call for call in shells if call is not None), None)
    if call is not None:
        return call
    readers = (tool for tool in tools if tool.reads_as == "reader")
    demanded = params.tool_mode == "required" or bool(allowed)
    chosen = next(readers, tools[0] if tools and demanded else None)
    if chosen is not None and chosen.is_search:
        return Call(chosen.name, {"query": context.text(context.users[-1], SEARCHED) if context.users else GREETING})
    return _plain_call(chosen) if chosen is not None else None


def _plain_call(tool: OfferedTool) -> Call | Custom:
    if tool.is_custom:
        return Custom(tool.name, GREETING)
    return Call(tool.name, _arguments(tool.parameters))


def _arguments(parameters: dict[str, Any]) -> dict[str, Any]:
    """Arguments that a tool's schema accepts; an object even where the schema is no object's."""
    value = schema_value({"type": "object", **parameters}, sparse=True) if parameters else {}
    return value if isinstance(value, dict) else {}


def _shell_call(tool: OfferedTool) -> Call | Custom | None:
    """The call that prints a line, if this shell has a place for a command."""
    if tool.is_custom:
        return Custom(tool.name, JAVASCRIPT_COMMAND if _takes_javascript(tool) else COMMAND)
    parameters = tool.parameters
    properties = parameters.get("properties")
    if not isinstance(properties, dict):
        return None
    key = _command_property(properties, parameters.get("required"))
    if key is None:
        return None
    return Call(tool.name, {**_arguments(parameters), key: _command_for(properties[key])})


def _command_property(properties: Mapping[str, Any], required: Any) -> str | None:
    """The property that takes the command: by its name, else the only one that is required."""
    for name in COMMAND_PROPERTIES:
        if name in properties:
            return name
    if not isinstance(required, list) or len(required) != 1:
        return None
    only = required[0]
    return only if isinstance(only, str) and only in properties else None


def _command_for(schema: Any) -> str | list[str]:
    """The command in the form that the property takes: a line, or an argument vector."""
    shapes = [schema]
    if isinstance(schema, dict):
        shapes += [*_entries(schema.get("anyOf")), *_entries(schema.get("oneOf"))]
    given = [shape.get("type") for shape in shapes if isinstance(shape, dict)]
    kinds = [kind for entry in given for kind in (entry if isinstance(entry, list) else [entry])]
    return ["bash", "-lc", COMMAND] if "array" in kinds and "string" not in kinds else COMMAND


def _entries(given: Any) -> list[Any]:
    return given if isinstance(given, list) else []


def _takes_javascript(tool: OfferedTool) -> bool:
    told = tool.told.lower()
    return "javascript" in told or "tools.exec_command" in told


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
