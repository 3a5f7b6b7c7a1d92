"""Running the published Codex CLI by the two scripts beside this file, which install it, run it and judge its record.

Whoever lacks Node or cannot download Codex sees the tests skipped; in CI, where ``CI`` is set, they fail.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from respserver.engines.sim.rehearse import GREETING
from tests.clients.node_tools import give_up, require

HERE = Path(__file__).parent
NOT_INSTALLED = 3
"""The exit code by which the scripts say that it is not the server's fault."""


def run_codex(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Today's Codex: options, then the port and the transport."""
    *options, port, transport = arguments
    return run_script("codex_e2e.sh", GREETING, *options, "http://127.0.0.1", port, transport)


def run_early_codex(*arguments: str, says: str = GREETING) -> subprocess.CompletedProcess[str]:
    """A Codex that speaks the prototype: options, then the port. ``says`` must stand in a command's output and in the
    final message."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        give_up("the early Codex builds are run on Linux x86-64 only")
    *options, port = arguments
    return run_script("codex_prototype_e2e.sh", says, *options, "http://127.0.0.1", port)


def run_script(name: str, says: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of the scripts. Skips or fails the test if Codex cannot be installed."""
    require("bash", "node", "npm", "timeout")
    expected = ["--tool-output", says, "--final", says]
    run = subprocess.run([HERE / name, *expected, *arguments], capture_output=True, text=True, check=False)
    if run.returncode == NOT_INSTALLED:
        give_up(run.stderr.strip())
    return run
