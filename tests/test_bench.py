"""Each bench runs, small, and prints figures that can be read; how fast anything is, no test says."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.measure import summary
from bench.peers import WebSocketPeer, connected
from bench.served import serving
from bench.texts import tool_output

ROOT = Path(__file__).parent.parent
SMALL = {
    "outbox": ["--events", "64"],
    "tokens": ["--tokens", "32"],
    "turn": ["--turns", "2", "--most", "0", "--pause", "0"],
    "startup": ["--sockets", "2"],
}


def run(name: str, *options: str) -> str:
    command = [sys.executable, "-m", f"bench.{name}", "--rounds", "1", *SMALL[name], *options]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_every_bench_is_run_here() -> None:
    files = {path.stem for path in (ROOT / "bench").glob("*.py") if "arguments(__doc__" in path.read_text("utf-8")}
    assert files == set(SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_bench_prints_its_figures_as_json(name: str) -> None:
    result: dict[str, Any] = json.loads(run(name, "--json"))
    assert result["rows"]
    figures = [figure for row in result["rows"].values() for figure in row.values()]
    assert figures
    for figure in figures:
        assert set(figure) == {"median", "p95"}
        assert all(math.isfinite(value) for value in figure.values())
    assert {"python", "trio", "machine"} <= set(result["about"])
    assert result["sizes"]["rounds"] == 1


@pytest.mark.slow
def test_without_json_a_bench_prints_one_line_a_row_and_what_it_ran_on() -> None:
    header, *rows, about = run("tokens").splitlines()
    assert "cpu us a token" in header
    assert [row.split("  ")[0] for row in rows] == [
        "parser.feed",
        "emitter.feed",
        "lane.send_event",
        "frame",
        "outbox.write",
        "the five together",
        "a turn's token",
    ]
    assert about.startswith("python ")


def test_the_benches_documentation_names_every_bench() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    assert all(f"python -m bench.{name}" in page for name in SMALL)


@pytest.mark.slow
def test_a_turn_that_fails_stops_the_bench() -> None:
    """A refusal is quick; it must not be taken for a turn."""
    with serving() as served, connected(served.ports["shipped"]) as connection:
        peer = WebSocketPeer(connection)
        with pytest.raises(RuntimeError, match="previous_response_not_found"):
            peer.ask(b'{"type":"response.create","model":"sim","previous_response_id":"resp_none","input":"x"}')


@pytest.mark.slow
def test_the_served_process_tells_cpu_time_that_grows_with_work() -> None:
    with serving() as served, connected(served.ports["echo"]) as connection:
        peer = WebSocketPeer(connection, echo=True)
        before = served.spent()
        for size in (1, 200, 70_000):
            assert len(peer.ask(b"x" * size).last) == size
        after = served.spent()
        assert after.total > before.total
        assert after.tokenising == before.tokenising


def test_a_summary_has_the_median_and_never_leaves_the_values() -> None:
    assert summary([4.0]) == {"median": 4.0, "p95": 4.0}
    assert summary([1.0, 2.0, 9.0])["median"] == 2.0
    assert 2.0 < summary([1.0, 2.0, 9.0])["p95"] <= 9.0


def test_texts_have_the_size_asked_for_and_differ() -> None:
    texts = [tool_output(2000, seed) for seed in range(3)]
    assert [len(text.encode()) for text in texts] == [2000, 2000, 2000]
    assert len(set(texts)) == 3
    assert texts[1] == tool_output(2000, 1)
