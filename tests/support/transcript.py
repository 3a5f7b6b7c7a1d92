"""Conversations written down in files, and how one is held against a server.

A file opens with what it shows, in comments. Then comes its head, in TOML: the model's script (``docs/scripts.md``),
and under ``play`` where it is played (``roads``), with which ``limits`` and other ``settings``. Behind a line ``---``
each line is one thing that happens:

    C response.create {"input": "go"}       the client sends this; a create without a model asks for ``sim``
    C not even json                         the client sends just this
    S response.done {"required_input": …}   the server's next message is of this type and holds at least this
    M user: go | tool first: ok             the model was given just this context, item by item
    T 600                                   so many seconds pass
    ! leave                                 something else happens, ``leave`` or ``stop``, or must have: ``closed 1001``

In a pattern ``"$one"`` stands for a text that is the same wherever the name is found, also in what the client sends;
``"..."`` stands for anything; a list holds all of its entries, in order. ``<ho *1000>`` in what the client sends is
said so often. Events that every turn has in between (items, parts, deltas) are read and checked, but not written down.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from respserver.engines.sim import Script
from respserver.engines.sim.script_file import parse_script
from tests.support.live import Frame, off_lane
from tests.support.replay import Replay
from tests.support.sdk import check_event

FOLDER = Path(__file__).parent.parent / "transcripts"
ROADS = ("pure", "session", "socket")
"""Through the rules alone; through a session with a clock of its own; through a server's port."""
ENDS = {"response.completed", "response.incomplete", "response.failed"}
TOLD = {"response.created", "response.done", "error", *ENDS}
"""What a transcript tells of; it may tell of other events as well."""
FENCE = json.dumps({"type": "fence"})
_MANY = re.compile(r"<(.+?)\*(\d+)>")


class Line(NamedTuple):
    """One line of a file: what happens (``C``, ``S``, ``M``, ``T``, ``!``), and with what."""

    place: str
    text: str
    mark: str
    rest: str


class Transcript:
    """A file, read."""

    def __init__(self, path: Path) -> None:
        head, _, body = path.read_text("utf-8").partition("\n---\n")
        fields = tomllib.loads(head)
        play = fields.pop("play", {})
        self.roads: list[str] = play.pop("roads", list(ROADS))
        self.limits: dict[str, Any] = play.pop("limits", {})
        self.settings: dict[str, Any] = play.pop("settings", {})
        self.is_slow: bool = play.pop("slow", False)
        assert not play, f"{path.name}: unknown keys {list(play)}"
        assert head.startswith("# "), f"{path.name}: it does not say what it shows"
        self.script: Script = parse_script(json.dumps(fields), "json", path.name)
        first = head.count("\n") + 3
        self.lines = [_line(path.name, first + at, text) for at, text in enumerate(body.splitlines()) if text.strip()]


def _line(name: str, number: int, text: str) -> Line:
    mark, _, rest = text.partition(" ")
    assert mark in ("C", "S", "M", "T", "!"), f"{name}:{number}: {text}"
    return Line(f"{name}:{number}", text, mark, rest.strip())


class End(Protocol):
    """The client's end of whatever a transcript is played on."""

    contexts: list[str]
    """What the model was given, one text for each of its answers."""

    async def say(self, text: str) -> None:
        """The client sends a message."""

    async def hear(self) -> Frame | None:
        """The next message from the server; None if none is there, and none will come by itself."""

    async def wait_for_model(self, count: int) -> None:
        """Wait until the model has been asked so often, or nobody will ask it."""

    async def act(self, what: str) -> None:
        """Make something else happen, or look whether it has."""


class Player:
    """Holds a transcript against an end. Raises ``AssertionError`` with the line that does not fit."""

    def __init__(self, transcript: Transcript, end: End) -> None:
        self.names: dict[str, Any] = {}
        self._transcript = transcript
        self._end = end
        self._replays: dict[str | None, Replay] = defaultdict(Replay)
        self._models = 0
        self._is_closed = False

    async def play(self) -> None:
        """From the first line to the last; then nothing more may come."""
        for line in self._transcript.lines:
            try:
                await self._step(line)
            except AssertionError as error:
                raise AssertionError(f"{line.place}: {line.text}\n{error}\nnames: {self.names}") from error
        tells_of_models = any(line.mark == "M" for line in self._transcript.lines)
        assert not tells_of_models or self._end.contexts[self._models :] == [], "the model spoke more often"
        if not self._is_closed:
            await self._end.say(FENCE)
            frame = await self._next(None)
            assert frame.get("error", {}).get("code") == "unknown_event_type", f"too much: {frame}"

    async def _step(self, line: Line) -> None:
        match line.mark:
            case "C":
                await self._end.say(self._message(line.rest))
            case "S":
                kind, _, pattern = line.rest.partition(" ")
                frame = await self._next(kind)
                assert frame["type"] == kind, f"got {json.dumps(frame)}"
                problem = self._problem(json.loads(pattern or "{}"), frame, "")
                assert problem is None, f"{problem} in {json.dumps(frame)}"
            case "M":
                await self._end.wait_for_model(self._models + 1)
                assert len(self._end.contexts) > self._models, "the model was not asked"
                told = self._end.contexts[self._models].replace("\n", " | ")
                self._models += 1
                assert told == line.rest, f"the model was given: {told}"
            case "T":
                await self._end.act(f"pass {line.rest}")
            case _:
                self._is_closed = self._is_closed or line.rest.startswith(("leave", "closed"))
                await self._end.act(line.rest)

    async def _next(self, wanted: str | None) -> Frame:
        """The next message that is told of; those in between are checked."""
        while True:
            frame = await self._end.hear()
            assert frame is not None, "nothing came"
            self._check(frame)
            if frame["type"] in TOLD or frame["type"] == wanted:
                return frame

    def _check(self, frame: Frame) -> None:
        """What holds for every message: it suits the official types, and the events of a response add up."""
        if frame["type"] == "error":
            assert "sequence_number" not in frame
            assert all(frame["error"][field] for field in ("type", "code", "message"))
            return
        lane = frame.get("stream_id")
        shown = copy.deepcopy(off_lane(frame, lane))
        if frame["type"] == "response.failed":
            shown["response"]["error"]["code"] = "server_error"  # the official list has none of the codes that are ours
        check_event(shown)
        self._replays[lane].feed(frame)
        if frame["type"] in ENDS:
            del self._replays[lane]

    def _message(self, rest: str) -> str:
        """What a client line sends."""
        kind, _, fields = rest.partition(" ")
        if not kind.startswith("response.") or not fields.startswith("{"):
            return rest
        model = {"model": "sim"} if kind == "response.create" else {}
        return json.dumps({"type": kind, **model, **self._filled(json.loads(fields))})

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self._filled(entry) for entry in value]
        if isinstance(value, str) and value.startswith("$"):
            assert value in self.names, f"nothing was called {value} yet"
            return self.names[value]
        return _MANY.sub(lambda many: many[1] * int(many[2]), value) if isinstance(value, str) else value

    def _problem(self, pattern: Any, value: Any, where: str) -> str | None:
        """What of a pattern a value does not hold."""
        if pattern == "...":
            return None
        if isinstance(pattern, str) and pattern.startswith("$") and isinstance(value, str):
            known = self.names.setdefault(pattern, value)
            return None if known == value else f"{where} is not {pattern}"
        if isinstance(pattern, dict) and isinstance(value, dict):
            missing = [key for key in pattern if key not in value]
            if missing:
                return f"{where}.{missing[0]} is missing"
            pairs = [(pattern[key], value[key], f"{where}.{key}") for key in pattern]
        elif isinstance(pattern, list) and isinstance(value, list):
            if len(pattern) != len(value):
                return f"{where} has {len(value)} entries"
            pairs = [(one, other, f"{where}[{at}]") for at, (one, other) in enumerate(zip(pattern, value, strict=True))]
        else:
            return None if pattern == value else f"{where} is {value!r}"
        return next((problem for pair in pairs if (problem := self._problem(*pair)) is not None), None)
