"""The command as a process of its own, for tests of what only a process has: signals, memory, an exit code."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import trio

PATIENCE = 20.0
POLL_SECONDS = 0.01
"""Between two looks at a file of another process: it has nothing that could be awaited."""
IN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Runs a command whose controlling terminal is its standard input."""


class Process:
    """A running ``respserver``; its ready file and its log stand in ``folder``."""

    def __init__(self, folder: Path, *options: str, terminal: int | None = None) -> None:
        self.ready_file = folder / "ready.json"
        self.log = folder / "log"
        command = [sys.executable, "-m", "respserver", "--port", "0", "--ready-file", str(self.ready_file), *options]
        if terminal is not None:
            command = [sys.executable, "-c", IN_TERMINAL, *command]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=terminal, stdout=log, stderr=subprocess.STDOUT, start_new_session=terminal is not None
            )
        deadline = time.monotonic() + PATIENCE
        while not self.ready_file.exists():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(POLL_SECONDS)
        self.ready: dict[str, Any] = json.loads(self.ready_file.read_text())

    def post(self, **fields: Any) -> socket.socket:
        body = json.dumps({"model": "sim", **fields}).encode()
        connection = socket.create_connection(("127.0.0.1", self.ready["port"]), timeout=PATIENCE)
        connection.sendall(b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return connection

    def wait_for(self, text: str) -> None:
        """Until the log holds a text."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(POLL_SECONDS)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def stop(self) -> None:
        """End it without a word, if it still runs."""
        self.process.kill()
        self.process.wait()


@contextlib.asynccontextmanager
async def faultless(folder: Path, *options: str) -> AsyncIterator[Process]:
    """A server that must not log a fault of its own, whatever is done to it."""
    server = await trio.to_thread.run_sync(lambda: Process(folder, *options))
    try:
        yield server
        log = server.log.read_text()
        assert "Traceback" not in log
        assert "_fault" not in log
    finally:
        server.stop()
