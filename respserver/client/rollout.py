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

Output = str | Sequence[Item]
"""What a tool says: a text, or a list of content parts (``input_text``, ``input_image``, ``input_file``)."""
Tool = Callable[[dict[str, Any]], Awaitable[Output]]  # Any: JSON values, the tool's to check
"""A tool: takes the call's arguments (a custom tool: ``{"input": text}``), returns its output."""


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
    calls of one pause run side by side, between two steps of the iteration.

    Raises what ``Turn`` raises, ``ToolNotFound``, an ``InvalidRequest`` for arguments that are no JSON object, and an
    ``ExceptionGroup`` of what tools raised, or of a ``TypeError`` for an output that is neither text nor a list. Then
    nothing has been sent, the other calls of the pause are cancelled, and the rollout is over: no call is run twice.
    What the model shall know of a failure, a tool returns. The pause is still open, for ``resume`` or ``turn``.

    Tools aren't cancelled when the connection is lost while they work: what they do may not bear it. They finish, then
    ``ConnectionLost`` is raised, and ``outputs`` has what they said. On a connection already lost they don't start.
    """

    outputs: Sequence[Json]
    """What the tools of the latest pause said, as items; empty as long as it hasn't been answered."""

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
        self.outputs = []

    def __aiter__(self) -> Rollout:
        return self

    async def __anext__(self) -> ServerMessage:
        end, self._end = self._end, None
        if end is not None:
            await self._go_on(end)
        event = await anext(self._turn)
        self._end = event if event_type(event) in END_TYPES else None
        return event

    async def _go_on(self, end: ServerMessage) -> None:
        """Answer the open calls; without any, the old turn is left in place, and that has nothing more to give."""
        if (kind := event_type(end)) not in ("response.done", "response.completed"):
            return
        response = decode(_end, encode(end)).response
        calls = [decode(_call, encode(item), "response.output") for item in response.output if _is_call(item)]
        calls = [call for call in calls if call.call_id not in self._answered]
        if not calls:
            return
        self._connection.check()
        self.outputs = []
        self.outputs = await _run_tools(self._tools, calls)
        self._answered.update(call.call_id for call in calls)
        if kind == "response.done":
            self._turn = self._connection.resume(self.outputs, response.id)
        else:
            fields = {**self._fields, "previous_response_id": response.id}
            self._turn = self._connection.turn(**fields, input=self.outputs)


class _EndResponse(msgspec.Struct):
    id: str
    output: list[Json] = []


class _End(msgspec.Struct):
    response: _EndResponse


class _Call(msgspec.Struct):
    type: str
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str = ""
    input: str = ""


_end = msgspec.json.Decoder(_End)
_call = msgspec.json.Decoder(_Call)
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
    return str(item.get("type")) in OUTPUT_KIND_OF_CALL and item.get("status") != "incomplete"


async def _run_tools(tools: Mapping[str, Tool], calls: list[_Call]) -> list[Json]:
    """Run the calls side by side; the outputs come in call order."""
    runs = [(call, _find_tool(tools, call), _arguments(call)) for call in calls]
    outputs: dict[str, Output] = {}

    async def run(call: _Call, tool: Tool, arguments: Json) -> None:
        outputs[call.call_id] = _checked(call.name, await tool(arguments))

    async with trio.open_nursery() as nursery:
        for prepared in runs:
            nursery.start_soon(run, *prepared)
    return [
        {"type": OUTPUT_KIND_OF_CALL[call.type], "call_id": call.call_id, "output": outputs[call.call_id]}
        for call in calls
    ]


def _checked(name: str, output: Output) -> Output:
    """Refused here, where the tool has a name, and not by the server, which can name a place in the input at most."""
    if not isinstance(output, str | list | tuple):
        kind = type(output).__name__
        raise TypeError(f"tool '{name}' returned {kind}, which is neither text nor a list of content parts")
    return output


def _find_tool(tools: Mapping[str, Tool], call: _Call) -> Tool:
    name = ".".join(filter(None, (call.namespace, call.name)))
    if name not in tools:
        raise ToolNotFound(name)
    return tools[name]


def _arguments(call: _Call) -> Json:
    if call.type == "custom_tool_call":
        return {"input": call.input}
    return decode(_object, call.arguments or "{}", "arguments")
