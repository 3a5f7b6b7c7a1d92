"""The command as a process: it serves, obeys signals in the middle of work, and stays small."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.live import Wire, open_wire
from tests.support.process import PATIENCE, Process

pytestmark = pytest.mark.slow
needs_hangup = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    started: list[Process] = []

    def begin(*options: str, terminal: int | None = None) -> Process:
        started.append(Process(tmp_path, *options, terminal=terminal))
        return started[-1]

    yield begin
    for server in started:
        server.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_of_a_stream_gives_it_a_terminal_and_exits_with_0(start: Any, number: int) -> None:
    server = start("--tps", "20", "--grace-seconds", "0.3")
    with server.post(input="word " * 500, stream=True) as connection:
        received = b""
        while b"output_text.delta" not in received:
            received += connection.recv(65536)
        server.process.send_signal(number)
        while chunk := connection.recv(65536):
            received += chunk
    assert server.process.wait(PATIENCE) == 0
    assert b"event: response.failed" in received
    assert b"server_shutting_down" in received
    assert b"data: [DONE]" in received
    assert not server.ready_file.exists()
    assert "Traceback" not in server.log.read_text()


def test_an_idle_server_holds_less_than_100_mb(start: Any) -> None:
    server = start()
    with server.post(input="hi") as connection:
        received = b""
        while b"You said: hi" not in received:
            received += connection.recv(65536)
    assert psutil.Process(server.process.pid).memory_info().rss < 100e6
    assert server.end() == 0


def test_a_taken_port_is_said_and_exits_with_1(start: Any, tmp_path: Path) -> None:
    server = start()
    command = [sys.executable, "-m", "respserver", "--port", str(server.ready["port"])]
    second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=os.environ, check=False)
    assert second.returncode == 1
    assert str(server.ready["port"]) in second.stderr
    assert "in use" in second.stderr
    assert "Traceback" not in second.stderr


@needs_hangup
async def test_sighup_brings_another_routing_table_to_open_sockets_unless_it_is_broken(
    start: Any, hold: Any, tmp_path: Path
) -> None:
    file = tmp_path / "respserver.toml"
    file.write_text("strict_models = true\n[[routes]]\npattern = 'old'\n")
    server = start("--config", str(file))
    wire: Wire = await hold(open_wire(server.ready["ws_url"]))
    assert (await wire.refused(model="new", input="hi"))["error"]["code"] == "model_not_found"

    file.write_text("strict_models = true\n[[routes]]\npattern = 'new'\n")
    server.process.send_signal(signal.SIGHUP)
    server.wait_for(" reloaded ")
    await wire.completed(model="new", input="hi")
    assert (await wire.refused(model="old", input="hi"))["error"]["code"] == "model_not_found"

    file.write_text("strict_models = true\n[[routes]]\npattern = 'old'\nengine = 'vroom'\n")
    server.process.send_signal(signal.SIGHUP)
    server.wait_for("reload_failed")
    assert f"{file}: routes[0].engine" in server.log.read_text()
    await wire.completed(model="new", input="hi")
    assert server.end() == 0


@needs_hangup
def test_a_server_in_a_terminal_ends_with_it(start: Any) -> None:
    ours, its = os.openpty()
    try:
        server = start(terminal=its)
        server.process.send_signal(signal.SIGHUP)  # while the terminal is there, it asks for a reload
        server.wait_for(" reloaded ")
    finally:
        os.close(its)
        os.close(ours)
    assert server.process.wait(PATIENCE) == 0
    assert not server.ready_file.exists()
    assert "stopping signal=SIGHUP" in server.log.read_text()
