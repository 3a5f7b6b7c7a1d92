"""The examples of the documentation do what stands beside them. How they are marked: ``tests/support/pages.py``."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from respserver import Config, Limits, Mode, settings, start_server
from respserver.engines.sim import parse_script
from tests.support.pages import BASE_URL, DOCS, ROOT, Block, all_blocks, blocks

pytestmark = pytest.mark.slow

EXAMPLES = DOCS / "examples"
PATIENCE = 30.0
"""Seconds after which a shell command has failed."""


@pytest.fixture(scope="module")
def base_urls() -> Iterator[dict[str, str]]:
    """A server of each mode, for all examples: they must not need one of their own."""
    with contextlib.ExitStack() as stack:
        servers = {
            mode: stack.enter_context(start_server(Config(port=0, mode=mode, limits=Limits(grace_seconds=0.0))))
            for mode in Mode
        }
        yield {str(mode): server.base_url for mode, server in servers.items()}


@pytest.mark.parametrize("block", [block for block in all_blocks("run") if block.language == "python"], ids=str)
def test_python_in_pages_prints_what_stands_below_it(block: Block, base_urls: dict[str, str]) -> None:
    code = _pointed(block, base_urls)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, str(block), "exec"), {"__name__": "__main__"})
    assert out.getvalue() == block.prints


@pytest.mark.parametrize("block", [block for block in all_blocks("run") if block.language == "sh"], ids=str)
def test_shell_commands_in_pages_work(block: Block, base_urls: dict[str, str], tmp_path: Path) -> None:
    command = block.code.split(maxsplit=1)[0]
    if command != "python" and shutil.which(command) is None:
        pytest.skip(f"there is no {command} here")
    (tmp_path / "docs").symlink_to(DOCS)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        ["sh", "-ec", _pointed(block, base_urls)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert run.returncode == 0, run.stderr
    if block.prints is not None:
        assert run.stdout == block.prints
    if command == "curl":
        assert "You said: Hello" in run.stdout


@pytest.mark.parametrize("block", all_blocks("test"), ids=str)
def test_test_files_in_pages_pass(block: Block, tmp_path: Path) -> None:
    (tmp_path / "test_page.py").write_text(block.code)
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tmp_path), "test_page.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}  # our options are not the reader's
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 0, run.stdout
    assert "1 passed" in run.stdout


@pytest.mark.parametrize("block", all_blocks("script"), ids=str)
def test_scripts_in_pages_can_be_played(block: Block) -> None:
    assert parse_script(block.code, "toml", str(block)).conversations


def test_the_two_steps_to_a_classifier_refuse_what_the_page_shows(tmp_path: Path) -> None:
    terms, table, talk = blocks(DOCS / "safety.md")[:3]
    (tmp_path / "terms.txt").write_text(terms.code)
    (tmp_path / "respserver.toml").write_text(table.code)
    config = settings.load({"port": ["0"]}, {}, str(tmp_path / "respserver.toml"))
    command, shown = talk.code.removeprefix("$ ").split("\n{", 1)
    with start_server(config) as server:
        said = subprocess.run(
            ["sh", "-ec", command.replace(BASE_URL, server.base_url)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    assert said.stdout + "\n" == "{" + shown


def test_every_marked_block_has_a_use_that_is_run() -> None:
    assert {block.use for block in all_blocks()} == {"", "run", "script", "test"}
    assert {block.language for block in all_blocks("run")} == {"python", "sh"}
    assert all(block.mode in ("", *Mode) for block in all_blocks())


def test_every_python_example_says_what_it_prints() -> None:
    assert not [str(block) for block in all_blocks("run") if block.language == "python" and block.prints is None]


EXPECTED = {
    "tool_loop.py": ("shipped", ["get_tide({", "get_tide returned: high water at example: 12:04"]),
    "prototype_rollout.py": ("prototype", ["0: resp_", "is suspended and waits for 1 output", "ends with 2 items"]),
    "embedded.py": ("", ["one call, one answer, one fault: as scripted"]),
}


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_example_programs_run(
    name: str, base_urls: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mode, expected = EXPECTED[name]
    monkeypatch.setattr(sys, "argv", [name, *([base_urls[mode]] if mode else [])])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    said = capsys.readouterr().out
    assert [text for text in expected if text not in said] == []


def _pointed(block: Block, base_urls: dict[str, str]) -> str:
    """The block's code with the address of a server that runs."""
    return block.code.replace(BASE_URL, base_urls[block.mode or "shipped"])
