"""The ledger's file: whole batches or nothing, readers beside writers, and no file taken for a ledger that is none."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from respserver.errors import ConfigError
from respserver.ledger.base import LedgerError, Timings, TurnRecord
from respserver.ledger.sqlite import SqliteLedger
from respserver.ledger.table import APPLICATION_ID, VERSION
from respserver.ledger.totals import GROUPS, Totals, read_totals
from tests.support.ledger_kit import record, usage

ROOT = Path(__file__).parent.parent


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "ledger.db")


def rows(file: str, what: str = "response_id") -> list[Any]:
    with closing(sqlite3.connect(file)) as connection:
        return [row[0] if len(row) == 1 else row for row in connection.execute(f"SELECT {what} FROM turns ORDER BY id")]


async def test_a_row_holds_all_that_is_known_of_a_turn(file: str) -> None:
    ledger = SqliteLedger(file)
    turn = record(
        1,
        previous_response_id="resp_0",
        error_code="tool_timeout",
        status="failed",
        kind="rollout",
        verdict="flagged: terms",
        usage=usage(100, 40, 20, 5),
        pauses=3,
        items_in=4,
        items_out=6,
        timings_ms=Timings(bind=0.123, sample=12.0),
    )
    await ledger.write([turn])
    await ledger.aclose()
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        row = dict(connection.execute("SELECT * FROM turns").fetchone())
    assert json.loads(row.pop("timings_ms")) == {"bind": 0.123, "sample": 12.0}
    assert row == {
        "id": 1,
        "created_at": 1_700_000_001.0,
        "kind": "rollout",
        "response_id": "resp_1",
        "previous_response_id": "resp_0",
        "connection_id": "conn_1",
        "transport": "websocket",
        "tenant": "alice",
        "model": "sim",
        "status": "failed",
        "error_code": "tool_timeout",
        "verdict": "flagged: terms",
        "input_tokens": 100,
        "cached_tokens": 40,
        "cache_write_tokens": 0,
        "output_tokens": 20,
        "reasoning_tokens": 5,
        "pauses": 3,
        "items_in": 4,
        "items_out": 6,
    }


async def test_a_file_is_continued_by_the_next_server(file: str) -> None:
    for number in range(3):
        ledger = SqliteLedger(file)
        await ledger.write([record(number)])
        await ledger.aclose()
        await ledger.aclose()
    assert rows(file) == ["resp_0", "resp_1", "resp_2"]
    with closing(sqlite3.connect(file)) as connection:
        versions = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
    assert versions == [APPLICATION_ID, VERSION]


async def test_two_servers_write_one_file_and_readers_see_whole_batches(file: str) -> None:
    first, second = SqliteLedger(file), SqliteLedger(file)
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(first.write, [record(number), record(number)])
            nursery.start_soon(second.write, [record(number), record(number)])
            assert read_totals(file, ())[1].turns % 2 == 0
    assert read_totals(file, ())[1].turns == 20  # both still have it open
    await first.aclose()
    await second.aclose()


async def test_a_text_that_utf_8_cannot_hold_makes_a_row_all_the_same(file: str) -> None:
    ledger = SqliteLedger(file)
    await ledger.write([record(0, model="a\ud800\0b")])
    await ledger.aclose()
    assert rows(file, "model") == ["a?\0b"]


async def test_a_locked_file_takes_nothing_and_works_again_once_free(file: str) -> None:
    ledger = SqliteLedger(file, busy_seconds=0)
    await ledger.write([record(0)])
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="locked"):
            await ledger.write([record(1)])
        with pytest.raises(LedgerError, match="locked"):  # also with the connection opened anew
            await ledger.write([record(1)])
        other.execute("ROLLBACK")
    await ledger.write([record(1)])
    await ledger.aclose()
    assert rows(file) == ["resp_0", "resp_1"]


class FullDisk(sqlite3.Connection):
    """A connection to a disk that is full after so many pages."""

    pages: int | None = None

    def execute(self, *args: Any) -> sqlite3.Cursor:
        if self.pages is not None:
            super().execute(f"PRAGMA max_page_count = {self.pages}")
        return super().execute(*args)


async def test_a_full_disk_takes_nothing_of_a_batch_and_all_of_it_once_there_is_room(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = SqliteLedger(file)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, factory=FullDisk, **options))
    monkeypatch.setattr(FullDisk, "pages", 6)
    batch = [record(number, model="m" * 100) for number in range(500)]
    with pytest.raises(LedgerError, match="full"):
        await ledger.write(batch)
    assert rows(file) == []
    monkeypatch.setattr(FullDisk, "pages", 10_000)
    await ledger.write(batch)
    await ledger.aclose()
    assert len(rows(file)) == 500


async def test_a_fault_of_ours_in_a_batch_leaves_nothing_of_it(file: str) -> None:
    ledger = SqliteLedger(file)
    with pytest.raises(OverflowError):
        await ledger.write([record(0), record(1, pauses=1 << 70)])
    await ledger.write([record(2)])
    await ledger.aclose()
    assert rows(file) == ["resp_2"]


async def test_a_cancelled_write_has_either_begun_and_ended_or_not_begun(file: str) -> None:
    ledger = SqliteLedger(file)
    with trio.CancelScope() as scope:
        scope.cancel()
        await ledger.write([record(0)])
    assert scope.cancelled_caught
    assert rows(file) == []
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def write_both() -> None:
                await ledger.write([record(1)])  # cancelled while in the thread: comes back all the same
                await ledger.write([record(2)])

            nursery.start_soon(write_both)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    await ledger.aclose()
    assert rows(file) == ["resp_1"]


def foreign(file: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE turns (x)")


def newer(file: str) -> None:
    SqliteLedger(file)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (foreign, "this SQLite file is not a ledger"),
        (newer, f"this ledger has version {VERSION + 1}, of a newer respserver; this one knows {VERSION}"),
        (lambda file: Path(file).write_text("port = 8080\n" * 100), "file is not a database"),
        (lambda file: Path(file).mkdir(), "(unable to open database file|disk I/O error)"),  # writing, reading
    ],
)
def test_a_file_that_is_no_ledger_is_refused_and_left_as_it_is(file: str, make: Any, told: str) -> None:
    make(file)
    before = Path(file).read_bytes() if Path(file).is_file() else b""
    with pytest.raises(ConfigError, match=f"ledger: cannot use {file}: {told}"):
        SqliteLedger(file)
    with pytest.raises(LedgerError, match=told):
        read_totals(file, ())
    assert (Path(file).read_bytes() if Path(file).is_file() else b"") == before


async def test_a_damaged_ledger_is_an_error_that_names_it(file: str) -> None:
    ledger = SqliteLedger(file)
    await ledger.write([record(number) for number in range(500)])
    await ledger.aclose()
    data = Path(file).read_bytes()
    Path(file).write_bytes(data[:8192] + b"x" * (len(data) - 8192))
    with pytest.raises(LedgerError, match=f"{file}: database disk image is malformed"):
        read_totals(file, ("model",))


def test_reading_makes_no_file(file: str) -> None:
    with pytest.raises(LedgerError, match="unable to open"):
        read_totals(file, ())
    assert not Path(file).exists()
    Path(file).touch()
    with pytest.raises(LedgerError, match="not a ledger"):
        read_totals(file, ())
    SqliteLedger(file)
    assert read_totals(file, ())[1].turns == 0
    assert [path.name for path in Path(file).parent.iterdir()] == ["ledger.db"]


TURNS = st.lists(
    st.builds(
        record,
        tenant=st.sampled_from(["alice", "bob"]),
        model=st.sampled_from(["sim", "gpt-5", ""]),
        kind=st.sampled_from(["response", "rollout"]),
        status=st.sampled_from(["completed", "incomplete", "failed", "refused", "cancelled"]),
        created_at=st.floats(1_700_000_000, 1_700_300_000),
        usage=st.builds(usage, *[st.integers(0, 10**9)] * 4),
    ),
    max_size=20,
)
FAILED = {"failed", "refused", "cancelled"}


def summed(turns: list[TurnRecord], group: tuple[str, ...] = ()) -> Totals:
    return Totals(
        group=group,
        turns=len(turns),
        failed=sum(turn.status in FAILED for turn in turns),
        input_tokens=sum(turn.usage.input_tokens for turn in turns),
        cached_tokens=sum(turn.usage.input_tokens_details.cached_tokens for turn in turns),
        output_tokens=sum(turn.usage.output_tokens for turn in turns),
        reasoning_tokens=sum(turn.usage.output_tokens_details.reasoning_tokens for turn in turns),
    )


def named(turn: TurnRecord, by: list[str]) -> tuple[str, ...]:
    day = time.strftime("%Y-%m-%d", time.gmtime(turn.created_at))
    return tuple({"day": day, "key": turn.tenant}.get(name) or str(getattr(turn, name)) for name in by)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    TURNS, st.lists(st.integers(1, 20), max_size=5), st.lists(st.sampled_from(sorted(GROUPS)), unique=True), st.data()
)
def test_totals_are_the_sums_of_the_records_whatever_the_batches(
    tmp_path_factory: pytest.TempPathFactory, turns: list[TurnRecord], cuts: list[int], by: list[str], data: Any
) -> None:
    file = str(tmp_path_factory.mktemp("ledger") / "ledger.db")

    async def write() -> None:
        ledger = SqliteLedger(file)
        places = [0, *sorted(cuts), len(turns)]
        for start, end in itertools.pairwise(places):
            await ledger.write(turns[start:end])
        await ledger.aclose()

    trio.run(write)
    since = data.draw(st.sampled_from([0.0, 1_700_150_000.0]))
    counted = [turn for turn in turns if turn.created_at >= since]
    names = sorted({named(turn, by) for turn in counted}) if by else []
    groups, total = read_totals(file, by, since)
    assert groups == [summed([turn for turn in counted if named(turn, by) == name], name) for name in names]
    assert total == summed(counted)


WRITE_FOREVER = """
import itertools, sys, trio
from respserver.ledger.sqlite import SqliteLedger
from tests.support.ledger_kit import record, usage

async def main():
    ledger = SqliteLedger(sys.argv[1])
    for number in itertools.count():
        await ledger.write([record(number, usage=usage(1)) for _ in range(7)])
        print(number, flush=True)

trio.run(main)
"""


@pytest.mark.slow
@pytest.mark.parametrize("batches", [1, 20, 60])
def test_after_a_kill_what_was_told_as_written_is_there_and_no_batch_is_torn(file: str, batches: int) -> None:
    command = [sys.executable, "-c", WRITE_FOREVER, file]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, env=os.environ, text=True) as process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(batches)]
        process.send_signal(signal.SIGKILL)
        told += [int(line) for line in process.stdout.read().splitlines()]
    total = read_totals(file, ())[1]
    assert total.turns % 7 == 0
    assert total.input_tokens == total.turns
    assert total.turns // 7 in (len(told), len(told) + 1)
    trio.run(SqliteLedger(file).write, [record(0)])
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert connection.execute("SELECT count(*) FROM turns").fetchone()[0] == total.turns + 1
