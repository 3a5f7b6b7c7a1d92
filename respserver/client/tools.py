"""The client's tools: what an output asks of the client, and what doing that gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import trio

from respserver.client.wire import Item, Json
from respserver.errors import RespserverError
from respserver.schema.codec import decode, encode
from respserver.schema.items import OUTPUT_KIND_OF_CALL

Output = str | Sequence[Item]
"""What a tool says: a text, or a list of content parts (``input_text``, ``input_image``, ``input_file``)."""
Tool = Callable[[dict[str, Any]], Awaitable[Output]]  # Any: JSON values, the tool's to check
"""A tool: takes the call's arguments (a custom tool: ``{"input": text}``), returns its output."""

Approve = Callable[[dict[str, Any]], Awaitable[bool]]  # Any: as above
"""Whether a hosted tool may be called: takes an ``mcp_approval_request``, as it came."""


class ToolNotFound(RespserverError):
    """The model called a tool that the rollout was given no function for."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no function was given for tool '{name}'")


class Call(msgspec.Struct):
    """A call, as far as it matters here."""

    type: str
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str = ""
    input: str = ""
    is_async: bool | None = msgspec.field(name="async", default=None)


def definitions(tools: Mapping[str, Tool]) -> list[Json]:
    """What the model is told of tools that nobody has described: functions that take any object."""
    parameters = {"type": "object", "properties": {}, "additionalProperties": True}
    return [
        {
            "type": "function",
            "name": name,
            "description": tool.__doc__,
            "parameters": parameters,
            "strict": False,
        }
        for name, tool in tools.items()
    ]


def find_calls(items: Iterable[Json]) -> list[Call]:
    """The whole calls among items. Raises an ``InvalidRequest`` for one that makes no sense."""
    return [decode(_call, encode(item), "response.output") for item in items if _is_call(item)]


def find_requests(items: Iterable[Json]) -> list[Json]:
    """The hosted calls that wait to be approved."""
    return [item for item in items if item.get("type") == _REQUEST and isinstance(item.get("id"), str)]


async def run_tools(
    tools: Mapping[str, Tool], calls: Sequence[Call], approve: Approve | None, requests: Sequence[Json]
) -> list[Json]:
    """Run the calls and ask for approvals, all side by side; the outputs come in call order, then the answers. Nothing
    is run if a call is not for any tool."""
    runs = [(call, _find_tool(tools, call), _arguments(call)) for call in calls]
    outputs: dict[str, Output] = {}
    answers: dict[str, bool] = {}

    async def run(call: Call, tool: Tool, arguments: Json) -> None:
        outputs[call.call_id] = _checked(call.name, await tool(arguments))

    async def put(request: Json) -> None:
        answers[request["id"]] = approve is not None and bool(await approve(request))

    async with trio.open_nursery() as nursery:
        for prepared in runs:
            nursery.start_soon(run, *prepared)
        for request in requests:
            nursery.start_soon(put, request)
    return [
        *(
            {"type": OUTPUT_KIND_OF_CALL[call.type], "call_id": call.call_id, "output": outputs[call.call_id]}
            for call in calls
        ),
        *(
            {
                "type": OUTPUT_KIND_OF_CALL[_REQUEST],
                "approval_request_id": request["id"],
                "approve": answers[request["id"]],
            }
            for request in requests
        ),
    ]


_REQUEST = "mcp_approval_request"
_call = msgspec.json.Decoder(Call)
_object = msgspec.json.Decoder(Json)


def _is_call(item: Json) -> bool:
    kind = str(item.get("type"))
    return kind in OUTPUT_KIND_OF_CALL and kind != _REQUEST and item.get("status") != "incomplete"


def _checked(name: str, output: Output) -> Output:
    """Refused here, where the tool has a name, and not by the server, which can name a place in the input at most."""
    if not isinstance(output, str | list | tuple):
        kind = type(output).__name__
        raise TypeError(f"tool '{name}' returned {kind}, which is neither text nor a list of content parts")
    return output


def _find_tool(tools: Mapping[str, Tool], call: Call) -> Tool:
    name = ".".join(filter(None, (call.namespace, call.name)))
    if name not in tools:
        raise ToolNotFound(name)
    return tools[name]


def _arguments(call: Call) -> Json:
    if call.type == "custom_tool_call":
        return {"input": call.input}
    return decode(_object, call.arguments or "{}", "arguments")
