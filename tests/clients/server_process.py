"""The server as a person runs it: a process of its own, for clients that are processes too."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

STOP_SECONDS = 15.0
"""The grace time of 10 s for running turns, and what a loaded machine may take."""


@contextlib.contextmanager
def running_server(folder: Path, *options: str) -> Iterator[int]:
    """Run ``respserver`` with these options and give its port; files go to ``folder``.

    Raises ``AssertionError`` if it does not start, logs a traceback or does not end with 0 on SIGTERM.
    """
    ready, errors = folder / "ready.json", folder / "stderr"
    command = [sys.executable, "-m", "respserver", "--port", "0", "--ready-file", str(ready), *options]
    own = {name: value for name, value in os.environ.items() if not name.startswith("RESPSERVER_")}
    with (
        errors.open("wb") as log,
        subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log) as server,
    ):
        try:
            assert server.stdout is not None
            # The banner is printed after the ready file was written; its first line is a way to wait for it.
            assert server.stdout.readline(), errors.read_text("utf-8")
            yield json.loads(ready.read_text("utf-8"))["port"]
            server.send_signal(signal.SIGTERM)
            code = server.wait(STOP_SECONDS)
        finally:
            server.kill()
    said = errors.read_text("utf-8")
    assert code == 0, said
    assert "Traceback" not in said, said
