"""Clients that come from npm: what they need of this machine, and where they are kept between runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trio

INSTALL_SECONDS = 120.0
NODE_SECONDS = 30.0


def require(*tools: str) -> None:
    """Give up unless this machine has these commands."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        give_up(f"this needs {' and '.join(missing)}, which this machine lacks")


def give_up(reason: str) -> NoReturn:
    """Skip what cannot be tried here, and say why; in CI that fails, since nobody reads of skipped tests there."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason.partition("\n")[0])


async def run_node(script: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """What a script beside this file prints, as JSON. It gets the folder with its packages before the arguments."""
    command = ["node", str(Path(__file__).with_name(script)), str(folder), *arguments]
    with trio.fail_after(NODE_SECONDS):
        run = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    printed: dict[str, Any] = json.loads(run.stdout)
    return printed


def installed(folder_name: str, **packages: str) -> Path:
    """The folder in the user's cache, outside this tree, whose ``node_modules`` has the packages in these versions."""
    require("node", "npm")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "respserver" / folder_name
    if not _are_in(folder, packages):
        folder.mkdir(parents=True, exist_ok=True)
        manifest = folder / "package.json"
        if not manifest.exists():
            manifest.write_text('{"name":"client","private":true}\n', "utf-8")
        wanted = [f"{package}@{version}" for package, version in packages.items()]
        command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", *wanted]
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
        except subprocess.TimeoutExpired:
            give_up(f"{' '.join(wanted)} could not be installed in {INSTALL_SECONDS:.0f} s")
        if not _are_in(folder, packages):
            give_up(f"{' '.join(wanted)} could not be installed\n{run.stderr[-2000:]}")
    return folder


def _are_in(folder: Path, packages: dict[str, str]) -> bool:
    return all(_version_in(folder, package) == version for package, version in packages.items())


def _version_in(folder: Path, package: str) -> str | None:
    manifest = folder / "node_modules" / package / "package.json"
    if not manifest.exists():
        return None
    version: str = json.loads(manifest.read_text("utf-8"))["version"]
    return version
