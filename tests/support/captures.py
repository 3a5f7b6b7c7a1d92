"""Conversations that real clients had, read from files and played again against our server.

The files and their format are described in ``tests/captures/README.md``. Their server was another one; so a script is
made of its answers, and what it named (responses, items, calls) is renamed in every later request to what ours named.
"""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any, Literal

import httpx
import msgspec

from respserver.engines.sim import Script, call, conversation, custom, delay, reasoning, step, text
from respserver.engines.sim.script import Output, Step
from respserver.schema.tools import qualified_name
from tests.support.live import PATIENCE, Wire, open_wire, parse_sse
from tests.support.sdk import check_event, check_frame, check_response
from tests.support.spy import Spy

Json = dict[str, Any]
FOLDER = Path(__file__).parents[1] / "captures"
FOREVER = 3600.0
"""Seconds for which the model is silent in an answer that the client gives up."""
SPOKEN = ("function_call", "custom_tool_call", "reasoning")
"""Kinds of items, beside assistant messages, that are the model's own words."""
OUTPUTS = ("function_call_output", "custom_tool_call_output")


class Answer(msgspec.Struct, frozen=True):
    """What the captured server answered, and how that ended."""

    id: str | None
    items: list[Json]
    end: Literal["completed", "abandoned", "previous_response_not_found", "websocket_connection_limit_reached"]


class Exchange(msgspec.Struct, frozen=True):
    """One request and its answer; or, with ``refused``, an upgrade that got that status."""

    scenario: str
    path: str
    request: Json = {}
    answer: Answer = Answer(None, [], "completed")
    connection: int | None = None
    """The WebSocket's number; None is a POST."""
    headers: dict[str, str] = {}
    refused: int | None = None

    @property
    def outputs(self) -> list[Json]:
        """The tool outputs that the client sends."""
        return [item for item in _items(self.request) if item.get("type") in OUTPUTS]

    @property
    def completes(self) -> bool:
        """Whether the turn comes to its end."""
        return self.refused is None and self.answer.end == "completed"

    @property
    def samples(self) -> bool:
        """Whether the model has to speak."""
        begins = self.completes or self.answer.end == "abandoned"
        return begins and self.request.get("generate") is not False


class Scenario(msgspec.Struct, frozen=True):
    """The exchanges of one run of a client, in the order of their requests."""

    name: str
    exchanges: list[Exchange]

    @property
    def offers_websocket(self) -> bool:
        """False if the captured server refused the upgrade."""
        return all(exchange.refused is None for exchange in self.exchanges)


def read_scenarios() -> list[Scenario]:
    """All captured scenarios, named ``client/file`` or ``client/file: scenario``."""
    return [scenario for file in sorted(FOLDER.rglob("*.jsonl")) for scenario in _read_file(file)]


def _read_file(file: Path) -> list[Scenario]:
    name = str(file.relative_to(FOLDER).with_suffix(""))
    shared: Json = {}
    found: dict[str, list[Exchange]] = {}
    for line in file.read_text("utf-8").splitlines():
        record = _padded(json.loads(line))
        if "shared" in record:
            shared[record["shared"]] = record["value"]
            continue
        request = record.get("request", {})
        if "shared" in request.get("tools", ()):
            request["tools"] = shared[request["tools"]["shared"]]
        exchange = msgspec.convert(record, Exchange)
        found.setdefault(exchange.scenario, []).append(exchange)
    if len(found) == 1:
        return [Scenario(name, exchanges) for exchanges in found.values()]
    return [Scenario(f"{name}: {scenario}", exchanges) for scenario, exchanges in found.items()]


_PLACEHOLDER = re.compile(r"\[omitted: (?:.*, )?(\d+) chars\]|<(\d+) chars>")


def _padded(value: Any) -> Any:
    """The value with each left-out text at its real length, so that frames have the sizes that they had."""
    if isinstance(value, dict):
        return {key: _padded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_padded(entry) for entry in value]
    found = _PLACEHOLDER.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    missing = int(found[1] or found[2]) - len(value)
    return value + (" left out" * (missing // 9 + 1))[: max(missing, 0)]


class Heard(msgspec.Struct, frozen=True):
    """What the embedded model goes by in a context: how often it spoke, and the user's last words."""

    runs: int = 0
    spoke_last: bool = False
    user: str = ""

    def then(self, items: list[Json]) -> Heard:
        """The same after these input items; kinds that only pass through change nothing."""
        heard = self
        for item in items:
            kind = item.get("type", "message")
            if item.get("role") == "assistant" or kind in SPOKEN:
                heard = heard.then_model()
            elif kind == "message" or kind in OUTPUTS:
                user = "\n".join(_texts(item["content"])) if item.get("role") == "user" else heard.user
                heard = Heard(heard.runs, False, user)
        return heard

    def then_model(self) -> Heard:
        """The same after an item of the model."""
        return Heard(self.runs + (not self.spoke_last), True, self.user)


def script_of(scenario: Scenario) -> Script:
    """A script that answers as the captured server did.

    Steps are found by the user's last words, the model's name and how often the model spoke, since a client starts over
    with a new context whenever it likes.
    """
    heard: dict[str, Heard] = {}
    steps: dict[tuple[str, str], dict[int, Step]] = {}
    for exchange in scenario.exchanges:
        if exchange.answer.id is None:
            continue
        parent = exchange.request.get("previous_response_id", "")
        now = heard.get(parent, Heard()).then(_items(exchange.request))
        if exchange.samples:
            steps.setdefault((now.user, exchange.request["model"]), {}).setdefault(now.runs, _step(exchange.answer))
            now = now.then_model()
        heard[exchange.answer.id] = now
    conversations = tuple(
        conversation(*(found.get(run, "Not in the capture.") for run in range(max(found) + 1)), user=user, model=model)
        for (user, model), found in reversed(steps.items())
    )
    return Script(conversations=conversations, name=scenario.name)


def _step(answer: Answer) -> Step:
    if answer.end == "abandoned":
        return step("It begins", delay(FOREVER), "and never ends.")
    return step(*(_output(item) for item in answer.items))


def _output(item: Json) -> Output:
    name = qualified_name(item.get("namespace"), item.get("name", ""))
    match item["type"]:
        case "message":
            return text(*(part["text"] for part in item["content"]))
        case "reasoning":
            return reasoning(*(part["text"] for part in item["summary"]))
        case "function_call":
            return call(name, item["arguments"])
        case "custom_tool_call":
            return custom(name, item["input"])
        case kind:
            return text(f"A {kind}, which this server does not make.")


def _words(item: Json) -> Output:
    """What an item says, as far as clients are shown it: a summary of reasoning only if they ask for one."""
    return reasoning() if item["type"] == "reasoning" else _output(item)


class Player:
    """Plays one scenario against a server whose engine is ``spy``; ``turns`` counts those that completed."""

    def __init__(self, server: Any, spy: Spy) -> None:
        # A context for TLS would take longer to make than most scenarios take to play.
        self._http = httpx.AsyncClient(base_url=server.base_url.removesuffix("/v1"), timeout=PATIENCE, verify=False)
        self._websocket_origin = server.ws_url.removesuffix("/v1/responses")
        self._spy = spy
        self._wires: dict[int, Wire] = {}
        self._names: dict[str, str] = {}
        self.turns = 0

    async def play(self, scenario: Scenario) -> None:
        """Send every request of the scenario. Raises ``AssertionError`` if an answer is not as captured."""
        async with self._http, contextlib.AsyncExitStack() as sockets:
            for exchange in scenario.exchanges:
                if exchange.refused is not None:
                    await self._be_refused(exchange)
                elif exchange.connection is None:
                    await self._post(exchange)
                else:
                    if exchange.connection not in self._wires:
                        opened = open_wire(self._websocket_origin + exchange.path, headers=exchange.headers)
                        self._wires[exchange.connection] = await sockets.enter_async_context(opened)
                    await self._send(exchange, self._wires[exchange.connection])

    async def _send(self, exchange: Exchange, wire: Wire) -> None:
        request = self._renamed(exchange.request)
        match exchange.answer.end:
            case "completed":
                await wire.send(request)
                frames = await wire.frames()
                for frame in frames:
                    check_frame(frame)
                self._compare(exchange, frames[-1])
            case "abandoned":
                await wire.send(request)
                while (await wire.frame())["type"] != "response.output_item.added":
                    pass
                await wire.socket.aclose()
            case "previous_response_not_found" as code:
                # Our server knows the response, so that it has to be asked for another.
                await wire.send(request | {"previous_response_id": "resp_unknown"})
                (error,) = await wire.frames()
                check_frame(error)
                assert error["error"]["code"] == code
                await wire.socket.aclose()
            case "websocket_connection_limit_reached":
                # Our connection is young: what counts is how the client goes on.
                await wire.socket.aclose()

    async def _post(self, exchange: Exchange) -> None:
        request = self._renamed(exchange.request)
        answer = await self._http.post(exchange.path, json=request, headers=exchange.headers)
        assert answer.status_code == 200, answer.text
        if request.get("stream"):
            events = parse_sse(answer.text)
            for event in events:
                check_event(event)
            self._compare(exchange, events[-1])
        else:
            check_response(answer.json())
            self._compare(exchange, {"type": f"response.{answer.json()['status']}", "response": answer.json()})

    async def _be_refused(self, exchange: Exchange) -> None:
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        headers = exchange.headers | upgrade | {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
        answer = await self._http.get(exchange.path, headers=headers)
        assert answer.status_code == exchange.refused

    def _compare(self, exchange: Exchange, end: Json) -> None:
        """The turn completed, said what the capture says, and its model had read what the client sent."""
        assert end["type"] == "response.completed", end
        response = end["response"]
        if exchange.samples:
            said, captured = response["output"], exchange.answer.items
            assert [_words(item) for item in said] == [_words(item) for item in captured], said
            for output in exchange.outputs:
                assert all(part in self._spy.contexts[-1] for part in _texts(output["output"])), output
        else:
            assert response["output"] == []
        self._learn(exchange.answer, response)
        self.turns += 1

    def _learn(self, answer: Answer, response: Json) -> None:
        """Note what our server calls the things that the captured one named."""
        assert answer.id is not None
        self._names[answer.id] = response["id"]
        for theirs, ours in zip(answer.items, response["output"], strict=True):
            for field in ("id", "call_id", "encrypted_content"):
                if theirs.get(field) and ours.get(field):
                    self._names[theirs[field]] = ours[field]

    def _renamed(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._renamed(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self._renamed(entry) for entry in value]
        return self._names.get(value, value) if isinstance(value, str) else value


def _items(request: Json) -> list[Json]:
    given = request.get("input", [])
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def _texts(content: str | list[Json]) -> list[str]:
    return [content] if isinstance(content, str) else [part["text"] for part in content if "text" in part]
