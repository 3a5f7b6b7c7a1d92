"""Clients that come from npm: what they need of this machine, and where they are kept between runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

INSTALL_SECONDS = 120.0


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


def installed(package: str, version: str, folder_name: str) -> Path:
    """The folder in the user's cache, outside this tree, whose ``node_modules`` has the package in this version."""
    require("node", "npm")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "respserver" / folder_name
    if _version_in(folder, package) != version:
        folder.mkdir(parents=True, exist_ok=True)
        manifest = folder / "package.json"
        if not manifest.exists():
            manifest.write_text('{"name":"client","private":true}\n', "utf-8")
        command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", f"{package}@{version}"]
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
        except subprocess.TimeoutExpired:
            give_up(f"{package} {version} could not be installed in {INSTALL_SECONDS:.0f} s")
        if _version_in(folder, package) != version:
            give_up(f"{package} {version} could not be installed\n{run.stderr[-2000:]}")
    return folder


def _version_in(folder: Path, package: str) -> str | None:
    manifest = folder / "node_modules" / package / "package.json"
    if not manifest.exists():
        return None
    version: str = json.loads(manifest.read_text("utf-8"))["version"]
    return version
