"""Each bench runs, small, and prints figures that can be read; how fast anything is, no test says."""

from __future__ import annotations

import functools
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.loops import Base, Way, make_base, outputs
from bench.measure import Goal, summary
from bench.model import TALKER, Model
from bench.peers import HttpPeer, WebSocketPeer, connected
from bench.served import Served, serving
from bench.texts import tool_output
from bench.turns import WAYS
from respserver.engines.base import SamplingParams
from respserver.engines.sim import Script

ROOT = Path(__file__).parent.parent
SMALL = {
    "outbox": ["--events", "64"],
    "tokens": ["--tokens", "32"],
    "turns": ["--turns", "2", "--most", "100", "--pause", "0"],
    "slow_reader": ["--readers", "2", "--turns", "2", "--pause", "0"],
    "lanes": ["--turns", "16", "--pause", "0"],
    "startup": ["--sockets", "2"],
    "suspended": ["--rollouts", "2", "--pauses", "1"],
}


@functools.cache
def run(name: str, *options: str) -> str:
    command = [sys.executable, "-m", f"bench.{name}", "--rounds", "1", *SMALL[name], *options]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def input_tokens(served: Served, way: Way, base: Base, texts: list[str]) -> list[int]:
    """What each turn of a loop counts as its input; a rollout counts all of its turns in the last one."""
    with connected(served.ports[way.port]) as connection:
        loop = way.loop(way.peer(connection), base, **way.fields)
        told = [json.loads(loop.step(text).last)["response"]["usage"] for text in texts]
    return [usage["input_tokens"] for usage in told]


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
def test_goals_are_told_met_or_not_with_their_figures() -> None:
    told = json.loads(run("turns", "--json"))["goals"]
    assert len(told) == 5  # the sixth needs 1 MB of history
    for goal in told:
        assert goal["is_met"] == (goal["figure"] <= goal["limit"])
    assert {goal["text"].split(":")[0] for goal in told} == {"shipped", "append", "HTTP chained"}


@pytest.mark.slow
def test_a_turn_that_fails_stops_the_bench() -> None:
    """A refusal is quick; it must not be taken for a turn."""
    request = b'{"type":"response.create","model":"sim","previous_response_id":"resp_none","input":"x"}'
    with serving() as served:
        for peer, sign in ((WebSocketPeer, "previous_response_not_found"), (HttpPeer, "HTTP/1.1 400")):
            with connected(served.ports["shipped"]) as connection, pytest.raises(RuntimeError, match=sign):
                peer(connection).ask(request)


@pytest.mark.slow
def test_a_served_process_that_dies_stops_the_bench() -> None:
    with pytest.raises(subprocess.CalledProcessError), serving() as served:
        os.kill(served.pid, signal.SIGKILL)


@pytest.mark.slow
def test_every_way_of_serving_puts_the_same_context_before_the_model() -> None:
    """Else their costs could not be compared."""
    texts = ["Loaded.", *outputs(2)]
    with serving() as served:
        base = make_base(served, 10)
        tokens = {name: input_tokens(served, way, base, texts) for name, way in WAYS.items()}
    assert tokens.pop("append")[-1] == sum(tokens["shipped"])
    assert set(tokens) == set(WAYS) - {"append"}
    assert len({tuple(each) for each in tokens.values()}) == 1


async def test_the_talker_never_ends_and_the_model_tells_its_time() -> None:
    model = Model(Script.of("Done."))
    run = await model.open()
    await run.extend(range(1000))
    spent = model.spent
    assert spent > 0
    batches = [await run.next(SamplingParams(model=TALKER)) for _ in range(3)]
    assert all(batch.ids and not batch.finished for batch in batches)
    batch = await run.next(SamplingParams(model="sim"))
    assert batch.finished
    assert model.spent > spent
    await run.aclose()


def test_a_goal_is_met_at_its_limit() -> None:
    assert Goal("cost", figure=1.1, limit=1.1).is_met
    assert not Goal("cost", figure=1.2, limit=1.1).is_met
    assert Goal("gain", figure=10, limit=10, is_least=True).is_met
    assert not Goal("gain", figure=9, limit=10, is_least=True).is_met


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
