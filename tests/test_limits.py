"""Limits of the whole process: what is said when one is reached, that it costs one turn at most, and what is freed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import trio
import trio.testing

from respserver.config import Limits, Mode
from respserver.engines.sim import Script, call, delay
from tests.support.live import Frame, calls_of, http, open_wire, output, post, text_of, tool, user
from tests.support.pages import DOCS
from tests.support.pages import text_of as page_text
from tests.support.talk import Talk, services, settled, spy_of

TOOLS = [tool("first")]
MODES = pytest.mark.parametrize("mode", list(Mode))
SHUTTING_DOWN = (503, "server_shutting_down")


def told(frame: Frame) -> tuple[int, str]:
    """An error frame's status and code."""
    assert frame["type"] == "error", frame
    return frame["status"], frame["error"]["code"]


@pytest.mark.parametrize("name", Limits.__struct_fields__)
def test_every_limit_stands_in_the_table_with_its_answer(name: str) -> None:
    flag = "--" + name.replace("_", "-")
    section = page_text(DOCS / "protocol.md").partition("### 1.8")[2].partition("\n## ")[0]
    assert re.search(rf"^\|[^|]*`{flag}`[^|]*\|[^|]*\|[^|]+\|$", section, re.MULTILINE), flag


# ------------------------------------------------------------------------------------------- turns that run at once


@MODES
async def test_a_turn_that_finds_no_slot_waits_and_says_nothing_until_it_begins(
    nursery: trio.Nursery, mode: Mode
) -> None:
    parts = services(Script.of("fine", on_end="repeat"), mode=mode, active_turns=1)
    spy_of(parts).gate = gate = trio.Event()
    first = Talk(nursery, parts)
    second = Talk(nursery, parts, beside=first)
    first.create(input="one")
    await settled()
    second.create(input="two")
    await settled()
    assert second.socket.unheard == 0
    assert (parts.slots.active, parts.slots.waiting, parts.metrics.turns_waited) == (1, 1, 1)
    gate.set()
    for talk in (first, second):
        assert (await talk.socket.hear_step())[-1]["type"] == "response.completed"
    await settled()
    assert (parts.slots.active, parts.slots.waiting) == (0, 0)


@MODES
async def test_one_turn_too_many_is_one_error_frame_and_its_parent_can_still_be_continued(
    nursery: trio.Nursery, mode: Mode
) -> None:
    parts = services(Script.of("fine", on_end="repeat"), mode=mode, active_turns=1, waiting_turns=0)
    first = Talk(nursery, parts)
    second = Talk(nursery, parts, beside=first)
    parent = (await second.turn(input="hi", store=False))["response"]
    spy_of(parts).gate = gate = trio.Event()
    first.create(input="one")
    await settled()
    error = await second.turn(input="more", previous_response_id=parent["id"])
    assert told(error) == (429, "server_busy")
    assert error["headers"] == error["error"]["headers"] == {"retry-after": "1"}
    gate.set()
    await first.socket.hear_step()
    await settled()
    again = await second.turn(input="more", previous_response_id=parent["id"])
    assert again["type"] == "response.completed"
    assert parts.metrics.refused == 1


@MODES
async def test_one_tenants_crowd_keeps_no_other_tenant_out(nursery: trio.Nursery, mode: Mode) -> None:
    parts = services(Script.of("fine", on_end="repeat"), mode=mode, active_turns=1, waiting_turns=2)
    crowd = [Talk(nursery, parts, tenant="many")]
    crowd += [Talk(nursery, parts, tenant="many", beside=crowd[0]) for _ in range(2)]
    modest = Talk(nursery, parts, tenant="few", beside=crowd[0])
    parent = (await crowd[2].turn(input="hi", store=False))["response"]
    spy_of(parts).gate = gate = trio.Event()
    for number, talk in enumerate(crowd):
        talk.create(input=f"crowd {number}", previous_response_id=parent["id"] if number == 2 else None)
        await settled()
    modest.create(input="modest")
    assert told(await crowd[2].socket.hear()) == (429, "server_busy")
    assert parts.metrics.refused == 1
    gate.set()
    for talk in (modest, *crowd[:2]):
        assert (await talk.socket.hear_step())[-1]["type"] == "response.completed"
    again = await crowd[2].turn(input="again", previous_response_id=parent["id"])
    assert again["type"] == "response.completed"  # its parent is still there


async def test_a_turn_that_waits_looks_for_its_parent_only_when_it_begins(nursery: trio.Nursery) -> None:
    parts = services(Script.of("fine", on_end="repeat"), active_turns=1)
    spy_of(parts).gate = gate = trio.Event()
    first = Talk(nursery, parts)
    second = Talk(nursery, parts, beside=first)
    first.create(input="one")
    created = await first.socket.hear()
    second.create(input="two", previous_response_id=created["response"]["id"])
    await settled()
    gate.set()
    assert (await second.socket.hear_step())[-1]["type"] == "response.completed"
    assert spy_of(parts).contexts[-1] == "user: one\nassistant: fine\nuser: two"


async def test_one_client_with_a_full_queue_does_not_hold_up_another(nursery: trio.Nursery) -> None:
    parts = services(Script.of("fine", on_end="repeat"), active_turns=1)
    spy_of(parts).gate = gate = trio.Event()
    greedy = Talk(nursery, parts)
    modest = Talk(nursery, parts, beside=greedy)
    for number in range(20):
        greedy.create(input=f"greedy {number}")
    await settled()
    modest.create(input="modest")
    await settled()
    gate.set()
    await modest.socket.hear_step()
    await settled()
    lines = [context.splitlines()[-1] for context in spy_of(parts).contexts]
    assert lines.index("user: modest") <= 1
    assert len(lines) == 21


@MODES
@pytest.mark.parametrize("place", ["runs", "waits"])
async def test_a_client_that_leaves_frees_its_slot_or_its_place_in_the_line(
    nursery: trio.Nursery, mode: Mode, place: str
) -> None:
    parts = services(Script.of("fine", on_end="repeat"), mode=mode, active_turns=1)
    spy_of(parts).gate = gate = trio.Event()
    runs = Talk(nursery, parts)
    waits, last = (Talk(nursery, parts, beside=runs) for _ in range(2))
    for talk in (runs, waits, last):
        talk.create(input="go")
        await settled()
    leaves = runs if place == "runs" else waits
    leaves.socket.leave()
    await leaves.over.wait()
    assert (parts.slots.active, parts.slots.waiting) == (1, 1)
    gate.set()
    assert (await last.socket.hear_step())[-1]["type"] == "response.completed"
    await settled()
    assert (parts.slots.active, parts.slots.waiting) == (0, 0)


@MODES
async def test_a_shutdown_refuses_turns_that_wait_for_a_slot_at_once(
    nursery: trio.Nursery, mode: Mode, autojump_clock: trio.testing.MockClock
) -> None:
    parts = services(Script.of([delay(5), "in time"]), mode=mode, active_turns=1, grace_seconds=10.0)
    runs = Talk(nursery, parts)
    runs.create(input="one")
    assert (await runs.socket.hear())["type"] == "response.created"
    waits = Talk(nursery, parts, beside=runs)
    waits.create(input="two")
    await trio.sleep(1)
    runs.stop.set()
    assert told(await waits.socket.hear()) == SHUTTING_DOWN
    await waits.over.wait()
    assert waits.socket.code == 1001
    assert trio.current_time() == pytest.approx(1, abs=0.1)
    assert (await runs.socket.hear_step())[-1]["type"] == "response.completed"
    await runs.over.wait()
    assert (parts.slots.active, parts.slots.waiting) == (0, 0)


async def test_the_age_limit_refuses_a_turn_that_waits_for_a_slot(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    parts = services(Script.of([delay(50), "fine"]), active_turns=1, connection_seconds=60.0)
    waits = Talk(nursery, parts)
    await trio.sleep(30)
    runs = Talk(nursery, parts, beside=waits)
    runs.create(input="one")
    await settled()
    waits.create(input="two")
    limit = (400, "websocket_connection_limit_reached")
    assert [told(await waits.socket.hear()) for _ in range(2)] == [limit, limit]
    await waits.over.wait()
    assert waits.socket.code == 1001
    assert trio.current_time() == pytest.approx(60, abs=0.1)
    assert (await runs.socket.hear_step())[-1]["type"] == "response.completed"


# ------------------------------------------------------------------------------------------------ suspended rollouts

ROLLOUT = Script.of(call("first"), "thanks")


def second_step(text: str) -> list[Frame]:
    """The input of a turn at which the script's call lies behind."""
    return [{"role": "assistant", "content": "called"}, user(text)]


async def suspended(talk: Talk) -> Frame:
    done = await talk.turn(input="go", tools=TOOLS)
    assert done["type"] == "response.done", done
    return done


def append(talk: Talk, done: Frame) -> None:
    talk.socket.say({"type": "response.append", "input": [output(calls_of(done["response"])[0])]})


async def test_a_suspended_rollout_has_no_slot_and_takes_one_ahead_of_turns_that_have_not_begun(
    nursery: trio.Nursery,
) -> None:
    parts = services(ROLLOUT, mode=Mode.PROTOTYPE, active_turns=1)
    rollout = Talk(nursery, parts)
    other, new = (Talk(nursery, parts, beside=rollout) for _ in range(2))
    done = await suspended(rollout)
    assert (parts.slots.active, parts.suspensions.count) == (0, 1)
    spy_of(parts).gate = gate = trio.Event()
    other.create(input=second_step("other"))
    await settled()
    new.create(input=second_step("new"))
    await settled()
    append(rollout, done)
    await settled()
    assert (parts.slots.active, parts.slots.waiting, parts.suspensions.count) == (1, 2, 0)
    assert rollout.socket.unheard == 0
    gate.set()
    assert (await rollout.socket.hear_step())[-1]["type"] == "response.completed"
    for talk in (other, new):
        assert (await talk.socket.hear_step())[-1]["type"] == "response.completed"
    lines = [context.splitlines()[-1] for context in spy_of(parts).contexts]
    assert lines == ["user: go", "user: other", "tool first: ok", "user: new"]
    assert parts.slots.active == 0


async def test_a_rollout_that_waits_to_go_on_ends_with_a_terminal_when_its_grace_is_over(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    script = Script.of(call("first"), [delay(50), "late"])
    parts = services(script, mode=Mode.PROTOTYPE, active_turns=1, grace_seconds=10.0)
    rollout = Talk(nursery, parts)
    done = await suspended(rollout)
    other = Talk(nursery, parts, beside=rollout)
    other.create(input=second_step("go"))
    spy_of(parts).gate = trio.Event()
    await settled()
    append(rollout, done)
    await settled()
    rollout.stop.set()
    for talk in (rollout, other):
        last = (await talk.socket.hear_step())[-1]
        assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", SHUTTING_DOWN[1])
        await talk.over.wait()
    assert trio.current_time() == pytest.approx(10, abs=0.1)
    assert (parts.slots.active, parts.slots.waiting, parts.suspensions.count) == (0, 0, 0)
    assert spy_of(parts).sequences_open == 0


async def test_one_suspended_rollout_too_many_fails_and_its_socket_works_on(nursery: trio.Nursery) -> None:
    parts = services(ROLLOUT, mode=Mode.PROTOTYPE, suspended_rollouts=1)
    first = Talk(nursery, parts)
    second = Talk(nursery, parts, beside=first)
    done = await suspended(first)
    second.create(input="go", tools=TOOLS)
    *_, item_done, failed = await second.socket.hear_step()
    assert item_done["type"] == "response.output_item.done"
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"]["code"] == "too_many_suspended_rollouts"
    assert "1 rollouts of this server" in failed["response"]["error"]["message"]
    assert (parts.suspensions.count, parts.metrics.pauses, spy_of(parts).sequences_open) == (1, 1, 1)
    append(second, done)
    assert told(await second.socket.hear()) == (400, "response_not_suspended")
    assert (await second.turn(input=second_step("no pause")))["type"] == "response.completed"

    append(first, done)
    assert (await first.socket.hear_step())[-1]["type"] == "response.completed"
    append(second, await suspended(second))
    assert (await second.socket.hear_step())[-1]["type"] == "response.completed"
    assert (parts.suspensions.count, parts.slots.active) == (0, 0)


@pytest.mark.parametrize("end", ["silence", "leaving"])
async def test_a_rollout_that_ends_suspended_is_counted_no_more(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, end: str
) -> None:
    parts = services(ROLLOUT, mode=Mode.PROTOTYPE, suspended_rollouts=1, tool_seconds=600.0)
    first = Talk(nursery, parts)
    await suspended(first)
    if end == "silence":
        failed = (await first.socket.hear_step())[-1]
        assert failed["response"]["error"]["code"] == "tool_timeout"
        assert trio.current_time() == pytest.approx(600, abs=1)
    else:
        first.socket.leave()
        await first.over.wait()
    assert (parts.suspensions.count, parts.slots.active) == (0, 0)
    await suspended(Talk(nursery, parts, beside=first))


async def test_the_lanes_of_a_connection_share_its_limit_of_suspended_rollouts(nursery: trio.Nursery) -> None:
    parts = services(ROLLOUT, mode=Mode.PROTOTYPE, connection_suspended_rollouts=1)
    talk = Talk(nursery, parts)
    talk.create(input="go", stream_id="one")
    assert (await talk.socket.hear_step())[-1]["type"] == "response.done"
    talk.create(input="go", stream_id="two")
    failed = (await talk.socket.hear_step())[-1]
    assert failed["response"]["error"]["code"] == "too_many_suspended_rollouts"
    assert (failed["stream_id"], parts.suspensions.count) == ("two", 1)


# ------------------------------------------------------------------------------------------------------- connections


@pytest.mark.slow
async def test_connections_of_both_kinds_count_together_and_one_that_ends_makes_room(serve: Any) -> None:
    server = await serve(limits={"connections": 2})
    async with http(server) as client:
        assert (await client.get("/models")).status_code == 200  # and is kept open
        async with open_wire(server.ws_url) as wire:
            assert text_of(await wire.completed(input="hi")) == "You said: hi"
            for path in ("/models", "/healthz"):
                async with http(server) as other:
                    refused = await other.get(path)
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
                assert refused.headers["connection"] == "close"
                assert refused.json()["error"]["code"] == "too_many_connections"
            assert (await client.get("/models")).status_code == 200
        assert server.metrics.connections_refused == 2
        with trio.fail_after(5):
            while (await post(server, input="hi")).status_code != 200:
                await trio.sleep(0.001)


# ------------------------------------------------------------------------------------------------------ the turn's end


async def test_a_store_that_does_not_answer_costs_a_turn_its_end_seconds(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = services(Script.of("fine", on_end="repeat"), end_seconds=5.0)

    async def hang(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(parts.store, "save", hang)
    talk = Talk(nursery, parts)
    failed = await talk.turn(input="hi")
    assert failed["type"] == "response.failed"
    assert trio.current_time() == pytest.approx(5, abs=0.1)
    assert failed["response"]["error"]["code"] == "server_error"
    assert (await talk.turn(input="hi", store=False))["type"] == "response.completed"
