"""Conversations that real clients had, read from files, and a script for each that answers as their server did.

The files and their format are described in ``tests/captures/README.md``; ``capture_player.py`` plays them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from respserver.engines.sim import Script, call, conversation, custom, delay, reasoning, step, text
from respserver.engines.sim.script import Output, Step
from respserver.schema.tools import qualified_name

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
    """One request and its answer; or, with ``refused``, an upgrade that got that status; or, with ``get``, a GET."""

    scenario: str
    path: str
    request: Json = {}
    answer: Answer = Answer(None, [], "completed")
    connection: int | None = None
    """The WebSocket's number; None is a POST."""
    headers: dict[str, str] = {}
    refused: int | None = None
    get: bool = False

    @property
    def lane(self) -> str | None:
        """The lane that the frame names; None is the default one."""
        name: str | None = self.request.get("stream_id")
        return name

    @property
    def outputs(self) -> list[Json]:
        """The tool outputs that the client sends."""
        return [item for item in items_of(self.request) if item.get("type") in OUTPUTS]

    @property
    def completes(self) -> bool:
        """Whether the turn comes to its end."""
        return self.refused is None and not self.get and self.answer.end == "completed"

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

    @property
    def lanes(self) -> set[str | None]:
        """The lanes that its frames name."""
        return {one.lane for one in self.exchanges if one.connection is not None and one.refused is None}

    @property
    def fits_on_a_lane(self) -> bool:
        """Whether it is one conversation to the end, on one socket, beside which there may be others."""
        return all(one.connection == 1 and one.completes for one in self.exchanges) and len(self.lanes) == 1

    @property
    def strands(self) -> list[list[Exchange]]:
        """Exchanges that follow each other: those of a lane. Between transports and sockets the order is kept."""
        if len(self.lanes) < 2:
            return [self.exchanges]
        return [[one for one in self.exchanges if one.lane == lane] for lane in self.lanes]

    def on_lane(self, name: str) -> Scenario:
        """The same with every frame on the named lane."""
        return self._with([
            one if one.connection is None else msgspec.structs.replace(one, request=one.request | {"stream_id": name})
            for one in self.exchanges
        ])  # fmt: skip

    def about(self, city: str) -> Scenario:
        """The same about another city than Paris, so that it can be told from others."""
        text = msgspec.json.encode(self.exchanges).decode()
        return self._with(msgspec.json.decode(text.replace("Paris", city), type=list[Exchange]))

    def _with(self, exchanges: list[Exchange]) -> Scenario:
        return Scenario(self.name, exchanges)


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
                user = "\n".join(texts_of(item["content"])) if item.get("role") == "user" else heard.user
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
        now = heard.get(parent, Heard()).then(items_of(exchange.request))
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


def words_of(item: Json) -> Output:
    """What an item says, as far as clients are shown it: a summary of reasoning only if they ask for one."""
    return reasoning() if item["type"] == "reasoning" else _output(item)


def items_of(request: Json) -> list[Json]:
    """The input as items, also where it is only a text."""
    given = request.get("input", [])
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def texts_of(content: str | list[Json]) -> list[str]:
    """The texts of a message or an output."""
    return [content] if isinstance(content, str) else [part["text"] for part in content if "text" in part]
