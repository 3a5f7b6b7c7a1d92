"""What the tests with OpenAI's Python SDK share: a script of tides, chosen by model name, and a server that plays it.

The server lives in a thread, since the SDK knows threads and asyncio, not Trio.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pydantic
from openai import AsyncOpenAI, OpenAI
from openai.lib.responses_websocket import ResponsesWebSocketLimits

from respserver.config import Config, Limits, Mode
from respserver.embed import RunningServer, start_server
from respserver.engines.sim import Script, call, conversation, delay, fault, reasoning, step
from respserver.engines.sim.script import Output

KEY = "key-of-the-tests"
LIMITS = ResponsesWebSocketLimits(
    max_lanes=4, max_events_per_lane=512, max_events=512, max_bytes_per_lane=1 << 22, max_bytes=1 << 22
)
PATIENCE = 10.0
"""Seconds of real time after which a wait has failed."""

HELLO, TIDES, BREAKS, REHEARSED = "hello", "tides", "breaks", "rehearsed"
"""Model names. The last has no script: the model rehearses."""
THINKS, CALLS = "thinks", "calls"
"""Models with time to be steered: one says one thing after the other, one is slow to write its call."""
THOUGHTS: list[Output] = [part for number in range(100) for part in (f"Thought {number}.", delay(0.1))]
SCRIPT = Script(
    conversations=(
        conversation("Hello there.", "Hello again.", model=HELLO),
        conversation(
            [reasoning("The tide of Brest."), call("lookup_tide", place="Brest")],
            "High water at {last_tool_output}.",
            model=TIDES,
        ),
        conversation(THOUGHTS, "As you say.", model=THINKS),
        conversation(
            step(call("lookup_tide", place="Brest"), tps=8.0), "High water at {last_tool_output}.", model=CALLS
        ),
        conversation(step("It begins well, then", fault=fault("The model broke.")), model=BREAKS),
    ),
    on_end="rehearse",
)


class Tide(pydantic.BaseModel):
    """Arguments of the tool, and the shape of a parsed answer."""

    place: str


# Any, here and below: the SDK's own dictionaries and unions, which it types by the dozen
TOOL: Any = {
    "type": "function",
    "name": "lookup_tide",
    "description": "When high water is.",
    "parameters": {
        "type": "object",
        "properties": {"place": {"type": "string"}},
        "required": ["place"],
        "additionalProperties": False,
    },
    "strict": True,
}
HIGH_WATER = "12:04"
ANSWER = f"High water at {HIGH_WATER}."


@contextlib.contextmanager
def tide_server(mode: Mode = Mode.SHIPPED) -> Iterator[RunningServer]:
    """A server with the script that takes ``KEY`` alone."""
    config = Config(port=0, mode=mode, api_key=(KEY,), limits=Limits(grace_seconds=0.0))
    with start_server(config, script=SCRIPT) as server:
        yield server


@contextlib.contextmanager
def sdk(server: RunningServer, key: str = KEY) -> Iterator[OpenAI]:
    """The SDK's client, without its own retries."""
    with OpenAI(base_url=server.base_url, api_key=key, max_retries=0, timeout=PATIENCE) as client:
        yield client


@contextlib.asynccontextmanager
async def async_sdk(server: RunningServer, key: str = KEY) -> AsyncIterator[AsyncOpenAI]:
    """The same for asyncio."""
    async with AsyncOpenAI(base_url=server.base_url, api_key=key, max_retries=0, timeout=PATIENCE) as client:
        yield client


def tool_output(response: Any, answer: str = HIGH_WATER) -> list[Any]:
    """The output of the response's one call."""
    (called,) = [item for item in response.output if item.type == "function_call"]
    assert called.arguments == '{"place":"Brest"}'
    return [{"type": "function_call_output", "call_id": called.call_id, "output": answer}]
