"""What does a rollout hold while it stands suspended at a tool call, and how soon do a thousand of them end?

Each rollout has a WebSocket of its own. ``held`` is by how much the server's resident memory grows for each of them:
for the connection alone, then with a rollout at its first call, and then with one that has had ``--pauses`` outputs of
2 KB. ``ids`` is what of it are the token ids of the context, four bytes each in the turn's buffer and four in the
embedded model's run; ``texts`` what the client has sent. The cache of rendered tokens, which is the process's and has a
bound of its own, is off. Rollouts that grow in step are the worst that an allocator can meet: each one's buffer has to
move when all others have just grown as well. ``all go on`` is the time in which each rollout is answered and completes,
one after another; ``all leave`` that from the first connection's end until the server has closed them all. Each round
is two new processes.

    python -m bench.suspended [--rounds N] [--rollouts N] [--pauses N] [--json]

Needs psutil (``pip install -e '.[test]'``), and about as many open files as rollouts, twice.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it brings no types

from bench.measure import Figures, add, arguments, report
from bench.memory import resident_bytes
from bench.peers import WebSocketPeer, connected
from bench.startup import command
from bench.texts import tool_output

OUTPUT_BYTES = 2000
ID_BYTES = 8
"""Of a token: four in the buffer and four in the run."""
PATIENCE_SECONDS = 60.0


class Rollout:
    """One connection and the rollout on it."""

    def __init__(self, peer: WebSocketPeer) -> None:
        self._peer = peer
        self._calls: list[str] = []
        self._read = 0
        self.tokens = 0
        """Of its context at the last answer."""

    def begin(self) -> None:
        self._ask({"type": "response.create", "model": "sim", "store": False, "input": "go"})

    def go_on(self, output: str) -> None:
        """Answer the call that it stands at."""
        answers = [{"type": "function_call_output", "call_id": call_id, "output": output} for call_id in self._calls]
        self._ask({"type": "response.append", "input": answers})

    def _ask(self, message: dict[str, object]) -> None:
        told = json.loads(self._peer.ask(json.dumps(message).encode()).last)
        self._calls = [stub["call_id"] for stub in told.get("required_input", ())]
        read = told["response"]["usage"]["input_tokens"]
        self.tokens, self._read = read - self._read, read


def script_of(pauses: int) -> str:
    calls = [{"call": "run_tests", "arguments": {"command": "pytest -q"}}] * (pauses + 1)
    return json.dumps({"step": [*calls, {"text": "All pass."}]})


def measure(figures: Figures, count: int, pauses: int, script: str, *, in_step: bool) -> None:
    limits = [
        "--suspended-rollouts",
        f"{count}",
        "--connections",
        "0",
        "--ping-seconds",
        "0",
        "--token-cache-bytes",
        "0",
    ]
    with command("--mode", "prototype", "--script", script, *limits) as (process, port):
        with contextlib.ExitStack() as stack:
            nobody = resident_bytes(process.pid)
            files = psutil.Process(process.pid).num_fds()
            rollouts = [Rollout(WebSocketPeer(stack.enter_context(connected(port)))) for _ in range(count)]
            idle = resident_bytes(process.pid)
            add(figures, "an idle connection", "held, KB", (idle - nobody) / count / 1e3)
            for rollout in rollouts:
                rollout.begin()
            note_held(figures, "suspended at its first call", idle, process.pid, rollouts)
            grow(rollouts, pauses, in_step=in_step)
            row = f"suspended, {pauses} outputs behind it, {'all in step' if in_step else 'one after another'}"
            note_held(figures, row, idle, process.pid, rollouts)
            add(figures, row, "texts, KB", OUTPUT_BYTES * pauses / 1e3)
            began = time.perf_counter()
            for rollout in rollouts:
                rollout.go_on("ok")
            add(figures, "all go on", "ms", (time.perf_counter() - began) * 1e3)
            for rollout in rollouts:
                rollout.begin()
            began = time.perf_counter()
        while psutil.Process(process.pid).num_fds() > files and time.perf_counter() < began + PATIENCE_SECONDS:
            time.sleep(0.005)
        add(figures, "all leave", "ms", (time.perf_counter() - began) * 1e3)


def grow(rollouts: list[Rollout], pauses: int, *, in_step: bool) -> None:
    """Take each rollout to its last call: one after another, or all of them a pause at a time."""
    steps = [(rollout, number) for rollout in rollouts for number in range(pauses)]
    if in_step:
        steps.sort(key=lambda step: step[1])
    for seed, (rollout, _) in enumerate(steps):
        rollout.go_on(tool_output(OUTPUT_BYTES, seed=seed))


def note_held(figures: Figures, row: str, idle: int, pid: int, rollouts: list[Rollout]) -> None:
    """What the rollouts hold beside their connections."""
    add(figures, row, "held, KB", (resident_bytes(pid) - idle) / len(rollouts) / 1e3)
    add(figures, row, "ids, KB", sum(rollout.tokens for rollout in rollouts) * ID_BYTES / len(rollouts) / 1e3)


def main() -> None:
    options = arguments(__doc__, rounds=3, rollouts=1000, pauses=20)
    figures: Figures = {}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.json"
        script.write_text(script_of(options.pauses), "utf-8")
        for _ in range(options.rounds):
            for in_step in (False, True):
                measure(figures, options.rollouts, options.pauses, str(script), in_step=in_step)
    report(figures, options)


if __name__ == "__main__":
    main()
