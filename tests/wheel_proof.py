"""Proof that an installed ``respserver`` works without anything that it does not declare. ``.ci/run`` calls it.

    wheel_proof.py dependencies           nothing of the extras is installed, and every module can be imported
    wheel_proof.py serves PYTHON COMMAND  a shell command starts a server that answers over HTTP and WebSocket and ends

The first is run by the Python of the environment to prove (with ``-I``, so that no checkout is in reach). The second
runs under any Python; PYTHON is the one of that environment. This is no test module: pytest brings packages of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

START_SECONDS = 900
"""The command may install everything first."""
STOP_SECONDS = 11
"""The grace time and the last second that a shutdown may take."""
TURN_SECONDS = 20


def brought_along(package: str) -> set[str]:
    """The names of what an installed package requires without its extras, and of what that requires."""
    found, waiting = set[str](), [package]
    while waiting:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # what another system would need
            lines = importlib.metadata.requires(waiting.pop()) or ()
            names = {name(line) for line in lines if "extra ==" not in line} - found
            found |= names
            waiting += names
    return found


def prove_dependencies() -> None:
    """Look for what only the extras ask for, and import the whole package without it."""
    extras = {name(line) for line in importlib.metadata.requires("respserver") or () if "extra ==" in line}
    extras.discard("respserver")  # an extra that includes another one names the package itself
    here = {name(distribution.metadata["Name"]) for distribution in importlib.metadata.distributions()}
    assert {"openai", "pytest"} <= extras, f"the wheel does not declare its extras: {extras}"
    extras -= brought_along("respserver")  # what a dependency needs itself is there anyway
    assert not extras & here, f"installed, though only extras ask for it: {extras & here}"

    import respserver

    assert "site-packages" in respserver.__file__, f"not the installed package: {respserver.__file__}"
    modules = [module.name for module in pkgutil.walk_packages(respserver.__path__, "respserver.")]
    waiting = [module for module in modules if not module.endswith(".__main__") and needs_an_extra(module, extras)]
    print(f"{len(here)} distributions; {len(modules)} modules, of which wait for an extra: {waiting or 'none'}")


def needs_an_extra(module: str, extras: set[str]) -> bool:
    """Import a module; true if it lacks what an extra brings. Raises ``ImportError`` if it lacks anything else."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if name(error.name or "") in extras:
            return True
        raise
    return False


def name(requirement: str) -> str:
    """The distribution's name at the start of a requirement, normalised."""
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")


def prove_serving(python: str, command: str) -> None:
    """Start a server, let it serve one turn each way, end it by SIGTERM: its exit code must be 0."""
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder, "ready.json")
        environment = os.environ | {"RESPSERVER_PORT": "0", "RESPSERVER_READY_FILE": str(ready)}
        with (
            Path(folder, "output").open("w+b") as output,
            subprocess.Popen(
                ["bash", "-c", command], env=environment, stdout=output, stderr=output, start_new_session=True
            ) as shell,
        ):
            try:
                facts = wait_for(ready, shell)
                turns = [python, "-I", __file__, "turns", facts["base_url"], facts["ws_url"]]
                subprocess.run(turns, check=True, timeout=3 * TURN_SECONDS)
                os.kill(facts["pid"], signal.SIGTERM)
                code = shell.wait(STOP_SECONDS)
                assert code == 0, f"it ended with {code}"
                assert not ready.exists(), "the ready file is still there"
            except BaseException:
                end_group(shell)
                output.seek(0)
                sys.stdout.write(output.read().decode("utf-8", "replace"))
                raise


def wait_for(ready: Path, shell: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What the ready file says, once it is there."""
    deadline = time.monotonic() + START_SECONDS
    while not ready.exists():
        assert shell.poll() is None, f"the command ended with {shell.returncode} before the server was ready"
        assert time.monotonic() < deadline, f"no server after {START_SECONDS} s"
        time.sleep(0.05)
    facts: dict[str, Any] = json.loads(ready.read_text("utf-8"))
    return facts


def end_group(shell: subprocess.Popen[bytes]) -> None:
    """Kill the command and what it started."""
    if shell.poll() is None:
        os.killpg(shell.pid, signal.SIGKILL)


def take_turns(base_url: str, ws_url: str) -> None:
    """One turn by POST, and two chained ones by WebSocket with the library that the server itself brings."""
    fields = {"model": "any", "input": "Say something."}
    posted = post(f"{base_url}/responses", fields)
    check(posted)

    import trio
    import trio_websocket

    async def turn(socket: Any, **more: str) -> dict[str, Any]:
        await socket.send_message(json.dumps({"type": "response.create", **fields, **more}))
        while True:
            event: dict[str, Any] = json.loads(await socket.get_message())
            if event["type"] in {"response.completed", "response.failed", "response.incomplete", "error"}:
                assert event["type"] == "response.completed", event
                response: dict[str, Any] = event["response"]
                return response

    async def converse() -> None:
        with trio.fail_after(TURN_SECONDS):
            async with trio_websocket.open_websocket_url(ws_url) as socket:
                first = await turn(socket)
                check(first)
                second = await turn(socket, previous_response_id=first["id"])
                check(second)
                assert second["previous_response_id"] == first["id"], second

    trio.run(converse)
    print(f"served one turn by POST and two by WebSocket: {text(posted)!r}")


def post(url: str, fields: dict[str, Any]) -> dict[str, Any]:
    """A turn as plain JSON."""
    request = urllib.request.Request(url, json.dumps(fields).encode(), {"Content-Type": "application/json"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=TURN_SECONDS) as answer:
        response: dict[str, Any] = json.load(answer)
    return response


def check(response: dict[str, Any]) -> None:
    """A response must be completed and say something."""
    assert response["status"] == "completed", response
    assert text(response), response


def text(response: dict[str, Any]) -> str:
    """The text of the first message."""
    message = next(item for item in response["output"] if item["type"] == "message")
    return str(message["content"][0]["text"])


if __name__ == "__main__":
    {"dependencies": prove_dependencies, "serves": prove_serving, "turns": take_turns}[sys.argv[1]](*sys.argv[2:])
