"""The tool loop over one WebSocket, in whichever design the server speaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
import trio

from respserver.client.connection import Connection
from respserver.client.wire import END_TYPES, Item, Json, ServerMessage, event_type
from respserver.errors import RespserverError
from respserver.schema.codec import decode, encode
from respserver.schema.items import OUTPUT_KIND_OF_CALL

Tool = Callable[[dict[str, Any]], Awaitable[str]]  # Any: JSON values, the tool's to check
"""A tool: takes the call's arguments (a custom tool: ``{"input": text}``), returns the output's text."""


class ToolNotFound(RespserverError):
    """The model called a tool that the rollout was given no function for."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no function was given for tool '{name}'")


class Rollout:
    """Runs turns and tools until the model calls no more of them; iterating gives all events on the way.

    ``tools`` has a function for each tool name (``namespace.name`` in a namespace). ``tool_definitions`` is what the
    model is told of them; without it, function tools that take any object. ``fields`` go into every create.

    The design that the server speaks is seen from what it sends: after ``response.done`` the outputs are appended,
    after ``response.completed`` with calls that nobody has answered the next response is created on top of it. The
    calls of one pause run side by side, between two steps of the iteration. Raises what ``Turn`` raises,
    ``ToolNotFound``, an ``InvalidRequest`` for arguments that are no JSON object, and an ``ExceptionGroup`` of what the
    tools raised.
    """

    def __init__(
        self,
        connection: Connection,
        input: str | Sequence[Item],
        *,
        model: str,
        tools: Mapping[str, Tool],
        tool_definitions: Sequence[Item] | None = None,
        **fields: Any,  # Any: the server's to judge
    ) -> None:
        if tool_definitions is None:
            tool_definitions = [_definition(name, tool) for name, tool in tools.items()]
        self._connection = connection
        self._tools = tools
        self._fields: Json = {**fields, "model": model, "tools": tool_definitions}
        self._answered: set[str] = set()
        self._turn = connection.turn(**self._fields, input=input)
        self._end: ServerMessage | None = None

    def __aiter__(self) -> Rollout:
        return self

    async def __anext__(self) -> ServerMessage:
        if self._end is not None:
            await self._go_on(self._end)
        event = await anext(self._turn)
        self._end = event if event_type(event) in END_TYPES else None
        return event

    async def _go_on(self, end: ServerMessage) -> None:
        """Answer the open calls; without any, the old turn is left in place, and that has nothing more to give."""
        if (kind := event_type(end)) not in ("response.done", "response.completed"):
            return
        response = _end.decode(encode(end)).response
        calls = [item for item in response.output if _is_call(item) and item["call_id"] not in self._answered]
        if not calls:
            return
        outputs = await _run_tools(self._tools, calls)
        self._answered.update(call["call_id"] for call in calls)
        if kind == "response.done":
            self._turn = self._connection.resume(outputs, response.id)
        else:
            self._turn = self._connection.turn(**{**self._fields, "previous_response_id": response.id}, input=outputs)


class _EndResponse(msgspec.Struct):
    id: str
    output: list[Json] = []


class _End(msgspec.Struct):
    response: _EndResponse


_end = msgspec.json.Decoder(_End)
_object = msgspec.json.Decoder(Json)


def _definition(name: str, tool: Tool) -> Json:
    parameters = {"type": "object", "properties": {}, "additionalProperties": True}
    return {
        "type": "function",
        "name": name,
        "description": tool.__doc__,
        "parameters": parameters,
        "strict": False,
    }


def _is_call(item: Json) -> bool:
    return item.get("type") in OUTPUT_KIND_OF_CALL and item.get("status") != "incomplete"


async def _run_tools(tools: Mapping[str, Tool], calls: list[Json]) -> list[Json]:
    """Run the calls side by side; the outputs come in call order."""
    runs = [(call, _find_tool(tools, call), _arguments(call)) for call in calls]
    texts: dict[str, str] = {}

    async def run(call: Json, tool: Tool, arguments: Json) -> None:
        texts[call["call_id"]] = await tool(arguments)

    async with trio.open_nursery() as nursery:
        for prepared in runs:
            nursery.start_soon(run, *prepared)
    return [
        {"type": OUTPUT_KIND_OF_CALL[call["type"]], "call_id": call["call_id"], "output": texts[call["call_id"]]}
        for call in calls
    ]


def _find_tool(tools: Mapping[str, Tool], call: Json) -> Tool:
    name = ".".join(filter(None, (call.get("namespace"), call["name"])))
    if name not in tools:
        raise ToolNotFound(name)
    return tools[name]


def _arguments(call: Json) -> Json:
    if call["type"] == "custom_tool_call":
        return {"input": call["input"]}
    return decode(_object, call["arguments"] or "{}", "arguments")
