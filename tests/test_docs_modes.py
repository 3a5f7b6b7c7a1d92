"""docs/modes.md draws what happens, and its figures are measured: the drawings are held against the tables and a real
rollout, the counts against another one, the times against the page that they are taken from.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from respserver.client import Client, connection, event_type
from respserver.config import Mode
from respserver.engines.sim import Script, call, reasoning
from respserver.protocol.states import TABLES, LaneState, Move
from respserver.schema import events
from respserver.turn.stopwatch import STAGES
from tests.support.pages import DOCS, text_of
from tests.support.ways import Played, play

PAGE = DOCS / "modes.md"
SENT = {"response.create", "response.append"}
SCRIPT = Script.of(
    [reasoning("Both."), call("get_tide", harbour="Brest"), call("get_tide", harbour="Dover")],
    call("note", text="Brest"),
    "Brest.",
)
"""The rollout that the page tells."""
COLUMNS = ["http full", "http chained", "websocket shipped", "websocket prototype"]


def drawings() -> list[str]:
    """The four of the page: the rollout in each mode, then its cancel paths in each."""
    return re.findall(r"```mermaid\nsequenceDiagram\n(.*?)```", text_of(PAGE), re.DOTALL)


def table(first: str) -> list[list[str]]:
    """The rows of the table whose second column begins so, cells without their marks."""
    lines = text_of(PAGE).partition(f"| {first} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def moves(drawing: str) -> list[tuple[str, ...]]:
    return re.findall(r"Note over L: ([A-Z]+), (\w+), ([A-Z]+)$", drawing, re.MULTILINE)


def wire(drawing: str) -> list[str]:
    """The messages that pass the client, in their order."""
    return re.findall(r"^ *(?:C->>L|T-->>C): (response\.\w+)", drawing, re.MULTILINE)


def test_each_mode_has_two_drawings() -> None:
    assert len(drawings()) == 2 * len(Mode)


def test_every_event_that_is_drawn_exists() -> None:
    kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, events.Event)]
    known = {kind.__struct_config__.tag for kind in kinds} | SENT
    for drawing in drawings():
        assert set(re.findall(r"response\.\w+", drawing)) <= known


def test_every_code_that_is_drawn_is_an_error() -> None:
    codes = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", "".join(drawings()[2:])))
    assert {"tool_timeout", "websocket_connection_limit_reached"} == codes
    assert all(f"### `{code}`" in text_of(DOCS / "errors.md") for code in codes)


@pytest.mark.parametrize(("number", "mode"), [*enumerate([*Mode, *Mode])])
def test_every_move_that_is_drawn_is_in_the_modes_table_and_they_follow_one_another(number: int, mode: Mode) -> None:
    ways = drawings()[number].split("    else ")
    for way in ways:
        drawn = moves(way)
        assert drawn
        for before, move, after in drawn:
            assert TABLES[mode][LaneState[before], Move(move)] is LaneState[after]
        assert all(one[2] == next[0] for one, next in pairwise(drawn))
    whole = len(ways) == 1
    assert not whole or (moves(ways[0])[0][0], moves(ways[0])[-1][2]) == ("IDLE", "IDLE")


@pytest.mark.parametrize(("number", "mode"), [*enumerate(Mode)])
async def test_the_drawn_rollout_is_what_passes_between_client_and_server(
    serve: Any, monkeypatch: pytest.MonkeyPatch, number: int, mode: Mode
) -> None:
    passed: list[str] = []
    send = connection.Connection.send

    async def sent(self: connection.Connection, event: Any) -> None:
        passed.append(event["type"])
        await send(self, event)

    async def tool(_: dict[str, Any]) -> str:
        return "12:04"

    monkeypatch.setattr(connection.Connection, "send", sent)
    server = await serve(SCRIPT, mode=mode)
    drawn = wire(drawings()[number])
    async with Client(server.base_url) as client:
        async for event in client.rollout("Which?", model="sim", tools={"get_tide": tool, "note": tool}):
            passed += {event_type(event)} & set(drawn)
    assert passed == drawn


def test_every_stage_is_told_and_none_is_invented() -> None:
    cells = [row[1] for row in table("stages")]
    assert sorted(re.findall(r"`(\w+)`", "".join(cells))) == sorted(STAGES)


def counted(played: Played) -> dict[str, int]:
    """What the page counts, by what it is called there."""
    server, kinds = played.server, played.kinds
    usage = server.usage()
    metrics = server.metrics
    names = ("turns", "pauses", "items_rendered", "sequences_opened", "tokens_extended", "tokens_sampled")
    return {
        "requests of the client": kinds.count("response.created") + kinds.count("response.done"),
        "items in them": metrics.items_rendered,  # all that is sent is rendered, and nothing else
        "events sent": len(kinds),
        "usage": usage.input_tokens,
        "routes_resolved": metrics.routes_resolved,
        "ledger rows": len(server.turns()),
        **{name: getattr(metrics, name) for name in names},
    }


@pytest.mark.slow
async def test_the_counts_are_those_of_the_rollout_in_each_way(serve: Any) -> None:
    found = [counted(await play(serve, way)) for way in COLUMNS]
    rows = table("HTTP, full history")
    names = [re.sub(r".*\(`(\w+)`\)", r"\1", row[0]) for row in rows]
    assert sorted(names) == sorted(found[0])
    for name, row in zip(names, rows, strict=True):
        assert [int(cell.replace(",", "")) for cell in row[1:]] == [one[name] for one in found], name


def test_the_times_are_those_of_the_benchmarks() -> None:
    benchmarks = text_of(DOCS / "benchmarks.md")
    rows = table("nothing behind it")
    assert [row[0] for row in rows] == ["append", "shipped", "HTTP chained", "HTTP full"]
    for name, empty, full, sent in rows:
        assert f"\n| {name}, 0 KB | {empty} |" in benchmarks
        (line,) = re.findall(rf"^\| {name}, 5 MB \|.*$", benchmarks, re.MULTILINE)
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert (cells[1], cells[-1]) == (full, sent)
