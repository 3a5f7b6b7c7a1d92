"""The ledger of a running server: a row for each response, rollout and refusal, in a file or in memory."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from respserver.client import Client
from respserver.config import Config, Limits, Mode
from respserver.embed import make_server, open_server
from respserver.engines.sim import Script, call
from respserver.errors import ConfigError
from respserver.ledger.totals import Totals, read_totals
from tests.support.live import http, open_wire

SCRIPT = Script.of(call("look"), call("look"), "seen twice")


async def look(_arguments: dict[str, Any]) -> str:
    return "a tree"


async def roll(base_url: str) -> None:
    async with Client(base_url).rollout("go", model="sim", tools={"look": look}) as events:
        async for _ in events:
            pass


def rows(file: Path, *columns: str) -> list[Any]:
    with closing(sqlite3.connect(file)) as connection:
        return list(connection.execute(f"SELECT {', '.join(columns)} FROM turns ORDER BY id"))


async def total_of(file: Path, mode: Mode) -> Totals:
    async with open_server(Config(port=0, mode=mode, ledger=str(file)), script=SCRIPT) as server:
        await roll(server.base_url)
    return read_totals(str(file), ())[1]


async def test_a_rollout_is_three_rows_in_shipped_mode_and_one_in_prototype_mode(tmp_path: Path) -> None:
    shipped, prototype = tmp_path / "shipped.db", tmp_path / "prototype.db"
    of_turns, of_rollout = await total_of(shipped, Mode.SHIPPED), await total_of(prototype, Mode.PROTOTYPE)
    assert rows(shipped, "kind", "pauses", "status") == [("response", 0, "completed")] * 3
    assert rows(prototype, "kind", "pauses", "status") == [("rollout", 2, "completed")]
    assert of_rollout.output_tokens == of_turns.output_tokens > 0
    assert of_rollout.input_tokens == of_turns.input_tokens > 0
    assert of_rollout.cached_tokens == of_turns.cached_tokens > 0


async def test_a_row_says_what_the_response_said(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    async with open_server(Config(port=0, mode=Mode.PROTOTYPE, ledger=str(file))) as server, http(server) as client:
        answer = (await client.post("/responses", json={"model": "sim", "input": "hi"})).json()
    ((response_id, created_at, kind, tokens, timings),) = rows(
        file, "response_id", "created_at", "kind", "input_tokens + output_tokens", "timings_ms"
    )
    assert (response_id, created_at, kind) == (answer["id"], answer["created_at"], "response")  # HTTP never suspends
    assert tokens == answer["usage"]["total_tokens"]
    assert {"receive", "render", "first_token", "sample", "save", "post", "total"} <= set(json.loads(timings))


async def test_a_refused_turn_has_a_row_too(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    async with open_server(Config(port=0, ledger=str(file))) as server, open_wire(server.ws_url) as wire:
        await wire.refused(input="hi", previous_response_id="resp_unknown")
    ((created_at, *row),) = rows(file, "created_at", "status", "error_code", "model", "response_id")
    assert row == ["refused", "previous_response_not_found", "sim", ""]
    assert created_at > 1_700_000_000


async def test_without_a_file_the_latest_turns_are_kept_in_memory() -> None:
    async with open_server(Config(port=0, limits=Limits(ledger_records=2))) as server, open_wire(server.ws_url) as wire:
        ended = [(await wire.completed(input=text))["id"] for text in ("one", "two", "three")]
        assert [turn.response_id for turn in server.turns()] == ended[1:]


def test_a_ledger_that_cannot_be_one_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ledger: cannot use .*: unable to open database file"):
        make_server(Config(ledger=str(tmp_path / "nowhere" / "ledger.db")))
