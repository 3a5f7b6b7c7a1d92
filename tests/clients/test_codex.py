"""The published Codex CLI works with the server: today's over WebSocket and HTTP, early ones in prototype mode.

The scripts beside this file install Codex into the user's cache folder, run it, and judge its own record of what it
did. Whoever lacks Node or cannot download Codex sees these tests skipped; in CI, where ``CI`` is set, they fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from respserver.engines.sim.rehearse import GREETING
from tests.clients.codex_kit import run_codex, run_early_codex
from tests.clients.server_process import running_server

pytestmark = [pytest.mark.client, pytest.mark.codex, pytest.mark.slow]

CODE_MODE = "gpt-5.6-sol"
"""A model for which Codex offers one custom tool that takes a program, and sends its tools as an input item."""
UNKNOWN = "gpt-fake"
"""A model that is not in Codex's catalogue: it falls back to plain function tools."""


@pytest.fixture(scope="session")
def shipped_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running_server(tmp_path_factory.mktemp("shipped")) as port:
        yield port


@pytest.fixture(scope="session")
def prototype_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running_server(tmp_path_factory.mktemp("prototype"), "--mode", "prototype") as port:
        yield port


@pytest.mark.parametrize("transport", ["ws", "http"])
@pytest.mark.parametrize(("model", "turns"), [("gpt-5.5", 3), (CODE_MODE, 1), (UNKNOWN, 1)])
def test_codex_runs_the_tool_and_shows_the_answer(shipped_port: int, transport: str, model: str, turns: int) -> None:
    run = run_codex("--model", model, "--turns", str(turns), f"{shipped_port}", transport)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("version", ["0.92.0", "0.101.0"], ids=["append with echo", "append of outputs alone"])
def test_an_early_codex_goes_on_by_appending_to_the_suspended_turn(prototype_port: int, version: str) -> None:
    run = run_early_codex("--version", version, f"{prototype_port}")
    assert run.returncode == 0, run.stderr


def test_the_check_fails_if_the_model_calls_no_tool(tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text(f'[[step]]\ntext = "{GREETING}"\n', "utf-8")
    with running_server(tmp_path, "--script", str(script)) as port:
        run = run_codex(f"{port}", "ws")
    assert run.returncode == 1
    assert "no command ran" in run.stderr


def test_the_check_fails_if_an_early_codex_meets_shipped_mode(shipped_port: int) -> None:
    run = run_early_codex("--version", "0.101.0", f"{shipped_port}")
    assert run.returncode == 1
    assert "response.append" in run.stderr
