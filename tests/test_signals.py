from __future__ import annotations

import os
import signal

import pytest
import trio
import trio.testing

from tests.support.command import FakeServe, run


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


def test_a_second_sigterm_does_not_hurry_the_server():
    async def go_on(stop: trio.Event) -> None:
        await receive(stop, signal.SIGTERM, signal.SIGTERM)
        await trio.lowlevel.checkpoint()  # would be where a cut shows

    serve = FakeServe(go_on)
    assert run(serve=serve) == 0
    assert serve.ended == "in order"


def test_signals_act_as_before_once_the_server_has_ended():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    run()
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
