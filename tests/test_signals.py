from __future__ import annotations

import os
import signal

import pytest
import trio
import trio.testing

from respserver import signals
from respserver.config import RouteConfig
from respserver.errors import ConfigError
from tests.support.command import FakeServe, run

HANGUP = getattr(signal, "SIGHUP", None)
needs_hangup = pytest.mark.skipif(HANGUP is None, reason="this system has no SIGHUP")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_in_order(capsys, number):
    async def wait(stop: trio.Event) -> None:
        os.kill(os.getpid(), number)
        await stop.wait()

    serve = FakeServe(wait)
    assert run(serve=serve) == 0
    assert serve.ended == "in order"
    assert f"stopping signal={number.name}" in capsys.readouterr().err


async def receive(stop: trio.Event, *signals: signal.Signals) -> None:
    for number in signals:
        os.kill(os.getpid(), number)
        await stop.wait()
        await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_a_second_ctrl_c_ends_the_server_at_once(first):
    async def hang(stop: trio.Event) -> None:
        await receive(stop, first, signal.SIGINT)
        await trio.sleep_forever()

    serve = FakeServe(hang)
    assert run(serve=serve) == 0
    assert serve.ended == "at once"


@pytest.mark.parametrize("level", ["info", "warning"])
@pytest.mark.parametrize(("number", "told"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_ctrl_c_that_has_to_wait_tells_for_how_long_and_how_to_stop_at_once(capsys, monkeypatch, number, told, level):
    async def take_long(stop: trio.Event) -> None:
        await receive(stop, number)

    monkeypatch.setattr(signals, "HINT_SECONDS", 0.0)
    assert run("--grace-seconds", "7", "--log-level", level, serve=FakeServe(take_long)) == 0
    assert ("running turns get 7 seconds to end; a second Ctrl-C stops at once" in capsys.readouterr().err) is told


def test_ctrl_c_that_ends_the_server_soon_says_no_more(capsys):
    async def end(stop: trio.Event) -> None:
        await receive(stop, signal.SIGINT)

    run(serve=FakeServe(end))
    assert "second Ctrl-C" not in capsys.readouterr().err


def test_a_second_sigterm_does_not_hurry_the_server():
    async def go_on(stop: trio.Event) -> None:
        await receive(stop, signal.SIGTERM, signal.SIGTERM)
        await trio.lowlevel.checkpoint()  # would be where a cut shows

    serve = FakeServe(go_on)
    assert run(serve=serve) == 0
    assert serve.ended == "in order"


def test_signals_act_as_before_once_the_server_has_ended():
    numbers = [number for number in (signal.SIGTERM, signal.SIGINT, HANGUP) if number is not None]
    before = [signal.getsignal(number) for number in numbers]
    run()
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.fixture
def hang_up(monkeypatch):
    """Send SIGHUP and wait until ``settled``, at most a while: the settings are read in a thread.

    Whether a terminal is there is told by ``hang_up.terminal``, not by the machine that runs the tests.
    """

    async def send(settled):
        os.kill(os.getpid(), HANGUP)
        with trio.fail_after(5):
            while not settled():
                await trio.sleep(0.001)

    send.terminal = False
    monkeypatch.setattr("respserver.signals._has_terminal", lambda: send.terminal)
    return send


@needs_hangup
def test_sighup_gives_the_server_the_settings_as_they_are_now(tmp_path, hang_up):
    file = tmp_path / "respserver.toml"
    file.write_text("tps = 1")

    async def change(stop):
        for number in (1, 2):
            file.write_text(f"[[routes]]\npattern = '{number}'")
            await hang_up(lambda number=number: len(serve.reloads) == number)

    serve = FakeServe(change)
    assert run("--config", str(file), "--ttft", "3", serve=serve) == 0
    assert (serve.config.tps, serve.ended) == (1, "in order")
    assert [config.routes for config in serve.reloads] == [(RouteConfig(pattern=name),) for name in "12"]
    assert {config.ttft for config in serve.reloads} == {3}  # the command line still weighs more


@needs_hangup
def test_sighup_without_a_settings_file_does_not_end_the_server(hang_up):
    async def change(stop):
        await hang_up(lambda: serve.reloads)

    serve = FakeServe(change)
    assert run("--port", "0", serve=serve) == 0
    assert (serve.reloads, serve.ended) == ([serve.config], "in order")


BROKEN = [
    ("tps = ", "not valid TOML"),
    ("model = 3", "model"),
    ("[[routes]]\npattern = 'a'\nengine = 'vroom'", "routes[0].engine"),
    ("api_keys_file = 'missing.txt'", "api_keys_file"),
]


@needs_hangup
@pytest.mark.parametrize(("text", "named"), BROKEN)
def test_settings_that_are_broken_by_sighup_are_named_and_not_taken(tmp_path, hang_up, capsys, text, named):
    file = tmp_path / "respserver.toml"
    file.write_text("")
    told = []

    def look():
        told.append(capsys.readouterr().err)
        return "reload_failed" in "".join(told)

    async def change(stop):
        file.write_text(text)
        await hang_up(look)
        file.write_text("")
        await hang_up(lambda: serve.reloads)

    serve = FakeServe(change)
    assert run("--config", str(file), serve=serve) == 0
    assert len(serve.reloads) == 1  # the broken settings did not come through, and those after them did
    line = next(line for line in "".join(told).splitlines() if "reload_failed" in line)
    assert " error " in line
    assert str(file) in line
    assert named in line


@needs_hangup
@pytest.mark.parametrize("failure", [ConfigError("api_key", "no keys are left"), RuntimeError("a fault of ours")])
def test_a_server_that_refuses_new_settings_goes_on(hang_up, capsys, failure):
    told = []

    def look():
        told.append(capsys.readouterr().err)
        return str(failure).rpartition(": ")[2] in "".join(told)

    async def refuse(stop):
        serve.refuses = failure
        await hang_up(look)

    serve = FakeServe(refuse)
    assert run(serve=serve) == 0
    assert serve.ended == "in order"
    assert "reload_failed" in "".join(told)


@needs_hangup
def test_a_terminal_that_closes_ends_the_server_in_order(hang_up, capsys):
    async def close(stop):
        await hang_up(lambda: serve.reloads)  # while it is open, the signal means what it means elsewhere
        hang_up.terminal = False
        await hang_up(stop.is_set)
        await hang_up(lambda: True)  # a closing terminal may tell it twice

    hang_up.terminal = True
    serve = FakeServe(close)
    assert run(serve=serve) == 0
    assert (len(serve.reloads), serve.ended) == (1, "in order")
    assert "stopping signal=SIGHUP" in capsys.readouterr().err


@needs_hangup
def test_under_nohup_a_server_outlives_its_terminal_and_reloads(hang_up):
    async def close(stop):
        hang_up.terminal = False
        await hang_up(lambda: serve.reloads)
        assert not stop.is_set()

    hang_up.terminal = True
    before = signal.signal(HANGUP, signal.SIG_IGN)
    try:
        serve = FakeServe(close)
        assert run(serve=serve) == 0
        assert signal.getsignal(HANGUP) is signal.SIG_IGN
    finally:
        signal.signal(HANGUP, before)
