"""Rollouts that lose what the server had kept of them: servers of several connections, and what is sent to them."""

from __future__ import annotations

from respserver.client import Client
from respserver.schema.events import ErrorDetail, ErrorFrame, ResponseFailed
from respserver.schema.response import ResponseError
from tests.support.client_servers import collect, response

USER = {"role": "user", "content": "Go."}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "sun"}


def refusal(code, status=400):
    error = ErrorDetail(type="invalid_request_error", code=code, message=f"This is {code}.", param=None)
    return ErrorFrame(status=status, error=error)


def failed(code):
    error = ResponseError(code=code, message="It is over.")
    return ResponseFailed(response=response(status="failed", error=error))


class Series:
    """A server whose n-th connection is for the n-th script; what comes after the last is turned away."""

    def __init__(self, *scripts, status=503):
        self.scripts = list(scripts)
        self.status = status
        self.connections = 0

    async def serve(self, request):
        self.connections += 1
        if self.connections > len(self.scripts):
            await request.reject(self.status)
        else:
            await self.scripts[self.connections - 1].serve(request)

    @property
    def creates(self):
        """What was asked for on each connection, without what is the same every time."""
        same = ("type", "model", "tools")
        return [
            [{key: value for key, value in event.items() if key not in same} for event in script.received]
            for script in self.scripts
        ]


class Weather:
    """A tool, and how often it has run."""

    def __init__(self, before=None):
        self.runs = 0
        self._before = before

    async def __call__(self, arguments):
        """Tells the weather."""
        self.runs += 1
        if self._before:
            await self._before()
        return "sun"


async def drive(url, weather, **options):
    """A rollout to its end; the rollout and its events."""
    async with Client(url) as client:
        rollout = client.rollout("Go.", model="sim", tools={"weather": weather}, **options)
        return rollout, await collect(rollout)


def whole():
    """What is sent after a loss, as it is read: the input, what the model said, what the tool said."""
    return [USER, {"type": "function_call", "call_id": "call_1"}, OUTPUT]


def short(items):
    """Items without what the tests do not ask for."""
    return [
        {name: item[name] for name in ("type", "call_id")} if item.get("type") == "function_call" else item
        for item in items
    ]
