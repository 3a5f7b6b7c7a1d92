"""``respserver usage``: totals as a table and as JSON, and every mistake named."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from respserver import cli, usage
from respserver.errors import ConfigError
from respserver.ledger.sqlite import SqliteLedger
from tests.support import ledger_kit
from tests.support.ledger_kit import record

DAY = 86400.0
JAN_1 = 1_735_689_600.0
"""2025-01-01T00:00:00Z"""


@pytest.fixture
async def file(tmp_path: Path) -> str:
    name = str(tmp_path / "ledger.db")
    ledger = SqliteLedger(name)
    await ledger.write(
        [
            record(1, created_at=JAN_1 - 1, usage=ledger_kit.usage(1_200_000, 1_000_000, 300, 20)),
            record(2, created_at=JAN_1, usage=ledger_kit.usage(10, 0, 5)),
            record(3, created_at=JAN_1 + 1, usage=ledger_kit.usage(20, 10, 5), status="failed"),
            record(4, created_at=JAN_1 + DAY, tenant="bob", model="", status="refused"),
        ]
    )
    await ledger.aclose()
    return name


def ask(*argv: str, **environment: str) -> str:
    return usage.report(argv, environment)


async def test_the_table_has_a_line_for_each_day_key_and_model_and_a_total(file: str) -> None:
    assert ask("--ledger", file) == (
        "day         key    model  turns  failed      input     cached  output  reasoning\n"
        "2024-12-31  alice  sim        1       0  1,200,000  1,000,000     300         20\n"
        "2025-01-01  alice  sim        2       1         30         10      10          0\n"
        "2025-01-02  bob    -          1       1          0          0       0          0\n"
        "total                         4       2  1,200,030  1,000,010     310         20\n"
    )


async def test_totals_can_be_taken_by_other_names_in_their_order(file: str) -> None:
    heads = [line.split()[:2] for line in ask("--ledger", file, "--by", "status, key").splitlines()]
    assert heads[:-1] == [["status", "key"], ["completed", "alice"], ["failed", "alice"], ["refused", "bob"]]


async def test_since_counts_from_the_beginning_of_that_day(file: str) -> None:
    answer = json.loads(ask("--ledger", file, "--since", "2025-01-01", "--by", "key", "--json"))
    alice = {"turns": 2, "failed": 1, "input_tokens": 30, "cached_tokens": 10, "output_tokens": 10}
    nothing = {"input_tokens": 0, "cached_tokens": 0, "output_tokens": 0}
    assert answer == {
        "by": ["key"],
        "since": "2025-01-01",
        "groups": [
            {"key": "alice", **alice, "reasoning_tokens": 0},
            {"key": "bob", "turns": 1, "failed": 1, **nothing, "reasoning_tokens": 0},
        ],
        "total": {"turns": 3, "failed": 2, "input_tokens": 30, "cached_tokens": 10, "output_tokens": 10}
        | {"reasoning_tokens": 0},
    }


async def test_no_turns_are_totals_of_zero(file: str) -> None:
    assert ask("--ledger", file, "--since", "2030-01-01").splitlines()[1].split() == ["total", *["0"] * 6]
    assert json.loads(ask("--ledger", file, "--since", "2030-01-01", "--json"))["groups"] == []


async def test_a_model_name_cannot_command_the_terminal(file: str) -> None:
    ledger = SqliteLedger(file)
    await ledger.write([record(5, model="\x1b[31mred\nline\u202e")])
    await ledger.aclose()
    table = ask("--ledger", file)
    assert r"\x1b[31mred\nline\u202e" in table
    assert "\x1b" not in table
    assert len(table.splitlines()) == 6


async def test_it_reads_while_a_server_writes(file: str) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as server:
        server.execute("BEGIN IMMEDIATE")
        server.execute("DELETE FROM turns")
        assert ask("--ledger", file).splitlines()[-1].split()[1] == "4"
        server.execute("COMMIT")
        assert ask("--ledger", file).splitlines()[-1].split()[1] == "0"


async def test_the_servers_variable_names_the_ledger_too(file: str) -> None:
    assert ask("--json", RESPSERVER_LEDGER=file) == ask("--ledger", file, "--json")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "--ledger: expected a file name"),
        (["--ledger", ""], "--ledger: expected a file name"),
        (["--ledger", "a\0b"], "--ledger: expected a file name"),
        (["--ledger", "/nowhere/ledger.db"], "--ledger: there is no file /nowhere/ledger.db"),
        (["x.db"], "argument: 'x.db' is no option; a ledger is named with --ledger"),
        (["--leger", "x"], "--leger: unknown option of respserver usage; did you mean --ledger?"),
        (["--ledger"], "--ledger: expected one argument"),
        (["--ledger", ".", "--by", "day,hour"], "--by: expected some of day, key, model, kind, status, with commas"),
        (["--ledger", ".", "--by", ""], "--by: expected some of"),
        (["--ledger", ".", "--by", "day,day"], "--by: a name stands twice"),
        (["--ledger", ".", "--since", "yesterday"], "--since: expected a date such as 2025-01-31, got 'yesterday'"),
        (["--ledger", "x", "--port", "1"], "--port: unknown option of respserver usage"),
    ],
)
def test_a_mistake_names_itself_and_exits_with_2(
    argv: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RESPSERVER_LEDGER", raising=False)
    with pytest.raises(ConfigError):
        ask(*argv)
    assert cli.main(["usage", *argv]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"respserver: {told}")
    assert printed.err.endswith("respserver usage --help lists the options.\n") is ("there is no" not in told)
    assert printed.out == ""


def test_the_command_prints_the_report_and_exits_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "ledger.db")
    trio.run(SqliteLedger(file).write, [])
    monkeypatch.setenv("RESPSERVER_LEDGER", file)
    assert cli.main(["usage"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["total", *["0"] * 6]


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["usage", "--help"]) == 0
    text = capsys.readouterr().out
    assert all(option in text for option in ("--ledger", "--by", "--since", "--json", "RESPSERVER_LEDGER"))
    assert cli.main(["--help"]) == 0
    assert "respserver usage" in capsys.readouterr().out


def documentation() -> str:
    return (Path(__file__).parent.parent / "docs" / "usage.md").read_text("utf-8")


def test_the_documentation_names_every_option_column_and_group() -> None:
    text = documentation()
    for action in usage.build_parser()._actions:
        assert f"`{action.option_strings[-1]}" in text
    for name in usage.GROUPS:
        assert f"`{name}`" in text


async def test_the_documentations_columns_and_query_are_the_files(file: str) -> None:
    text = documentation()
    with closing(sqlite3.connect(file)) as connection:
        columns: list[Any] = [row[1] for row in connection.execute("PRAGMA table_info(turns)")]
        assert all(f"`{column}`" in text for column in columns)
        for query in text.split("```sql\n")[1:]:
            connection.execute(query.split("```")[0])
