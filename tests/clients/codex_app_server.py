"""Several user turns in one Codex process: ``codex app-server``, which takes JSON-RPC on its standard input.

    codex_app_server.py CODEX PROMPT [PROMPT ...]

Prints what ``codex exec --json`` prints for one turn, for all of them together, so that ``codex_judge.py`` reads it:
completed items and ends of turns. Ends with 1 if the process says that something failed. Needs nothing but Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import IO, Any

CLIENT = {"clientInfo": {"name": "e2e", "title": "e2e", "version": "1"}}
FREE = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
"""The scratch folder is all that a command can harm."""


class AppServer:
    """The process's two ends of a talk."""

    def __init__(self, requests: IO[str], answers: IO[str]) -> None:
        self._requests = requests
        self._answers = answers
        self._count = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """A request's result. Notifications before it are shown."""
        self._count += 1
        self.tell(method, id=self._count, params=params)
        while True:
            message = self._next()
            if message.get("id") == self._count and "method" not in message:
                return dict(message["result"])
            show(message)

    def tell(self, method: str, **fields: Any) -> None:
        """A message that is not waited for."""
        self._requests.write(json.dumps({"method": method, **fields}) + "\n")
        self._requests.flush()

    def watch_turn(self) -> None:
        """Show what comes until the turn has ended."""
        while True:
            message = self._next()
            show(message)
            if message.get("method") == "turn/completed":
                return

    def _next(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            sys.exit("the app-server has ended")
        message: dict[str, Any] = json.loads(line)
        if "error" in message or message.get("method") == "error":
            sys.exit(f"the app-server says: {line}")
        return message


def show(message: dict[str, Any]) -> None:
    """Print a notification in the words of ``codex exec --json``, if the judge needs it."""
    params = message.get("params") or {}
    item = params.get("item") or {}
    match message.get("method"), item.get("type"):
        case "turn/completed", _ if params["turn"]["status"] == "completed":
            event: dict[str, Any] = {"type": "turn.completed"}
        case "item/completed", "agentMessage":
            event = completed(type="agent_message", text=item["text"])
        case "item/completed", "commandExecution":
            ended = {"exit_code": item["exitCode"], "aggregated_output": item["aggregatedOutput"]}
            event = completed(type="command_execution", status=item["status"], **ended)
        case _:
            return
    print(json.dumps(event), flush=True)


def completed(**item: Any) -> dict[str, Any]:
    """An item in the words of ``codex exec --json``."""
    return {"type": "item.completed", "item": item}


def main() -> None:
    """Hold the talk and end the process."""
    codex, *prompts = sys.argv[1:]
    pipe = subprocess.PIPE
    with subprocess.Popen([codex, "app-server"], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        server = AppServer(process.stdin, process.stdout)
        server.ask("initialize", **CLIENT)
        server.tell("initialized")
        thread = server.ask("thread/start", cwd=os.getcwd(), **FREE)["thread"]["id"]
        for prompt in prompts:
            server.ask("turn/start", threadId=thread, input=[{"type": "text", "text": prompt}])
            server.watch_turn()
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    main()
