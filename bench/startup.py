"""How long until a server answers, and what does it hold while nothing happens?

Milliseconds from the start of the process until the command accepts connections, and until a turn over WebSocket has
been answered; the resident memory it then has, and what each idle WebSocket adds. Beside it a server inside a program:
the import, the first ``start_server``, which reads the tokenizer, and the second. Each round is a new process.

    python -m bench.startup [--rounds N] [--sockets N] [--json]

Needs psutil (``pip install -e '.[test]'``).
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.measure import Figures, add, arguments, report
from bench.memory import resident_bytes
from bench.peers import WebSocketPeer, connected

COMMAND = [sys.executable, "-m", "respserver", "--port", "0", "--log-level", "warning"]
CREATE = b'{"type":"response.create","model":"sim","input":"hello"}'
EMBEDDING = """
import json, time
times = [time.perf_counter()]
from respserver.embed import start_server
times.append(time.perf_counter())
for _ in range(2):
    began = time.perf_counter()
    with start_server():
        times.append(time.perf_counter() - began)
print(json.dumps([times[1] - times[0], *times[2:]]))
"""
EMBEDDED_ROWS = ("import respserver.embed", "start_server, the first", "start_server, the second")


@contextlib.contextmanager
def command(*options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The running command and its port, once the banner says that it listens."""
    with subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = next(match for line in process.stdout if (match := re.search(r":(\d+)/v1", line)))
            yield process, int(found[1])
        finally:
            process.terminate()


def measure_command(figures: Figures, sockets: int) -> None:
    began = time.perf_counter()
    with command() as (process, port), contextlib.ExitStack() as stack:
        accepting = time.perf_counter() - began
        WebSocketPeer(stack.enter_context(connected(port))).ask(CREATE)
        answered = time.perf_counter() - began
        idle = resident_bytes(process.pid)
        for _ in range(sockets):
            WebSocketPeer(stack.enter_context(connected(port)))
        held = resident_bytes(process.pid) - idle
    add(figures, "the command", "until it accepts, ms", accepting * 1000)
    add(figures, "the command", "until the first answer, ms", answered * 1000)
    add(figures, "the command", "memory, MB", idle / 1e6)
    add(figures, "an idle WebSocket", "memory, KB", held / sockets / 1e3)


def measure_embedded(figures: Figures) -> None:
    told = subprocess.run([sys.executable, "-c", EMBEDDING], stdout=subprocess.PIPE, check=True)
    for row, seconds in zip(EMBEDDED_ROWS, json.loads(told.stdout), strict=True):
        add(figures, row, "until it accepts, ms", seconds * 1000)


def main() -> None:
    options = arguments(__doc__, rounds=7, sockets=200)
    figures: Figures = {}
    for _ in range(options.rounds):
        measure_command(figures, options.sockets)
        measure_embedded(figures)
    report(figures, options)


if __name__ == "__main__":
    main()
