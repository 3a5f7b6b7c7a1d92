"""What a connection keeps of the hosted tools that it has opened."""

from __future__ import annotations

import json

import pytest
import trio
from msgspec import Raw

from respserver.errors import InvalidField
from respserver.schema.tools import HostedDef, Other
from respserver.tools.base import Toolbox, ToolboxUnavailable
from respserver.turn.toolboxes import MAX_KEPT, Toolboxes
from tests.support.hosts import FakeHost, mcp


def definition(label: str = "srv", **fields: str) -> HostedDef:
    return HostedDef("mcp", label, Raw(json.dumps(mcp(label, **fields)).encode()), "tools[0]", Other("mcp", label))


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def boxes(host: FakeHost) -> Toolboxes:
    return Toolboxes({"mcp": host}, seconds=1.0)


async def test_the_same_bytes_are_opened_once(host: FakeHost, boxes: Toolboxes) -> None:
    one, again = await boxes.take(definition()), await boxes.take(definition())
    other = await boxes.take(definition(authorization="x"))
    assert one is again
    assert other is not one
    assert host.opened == 2
    await boxes.aclose()
    await boxes.aclose()
    assert host.closed == 2


async def test_what_is_open_was_checked(boxes: Toolboxes) -> None:
    forbidden = definition(server_url="https://forbidden.test")
    with pytest.raises(InvalidField):
        boxes.check(forbidden)
    await boxes.take(forbidden)  # nobody does
    boxes.check(forbidden)


def test_kinds_without_a_host_are_not_served(boxes: Toolboxes) -> None:
    assert boxes.serves(definition())
    assert not boxes.serves(HostedDef("web_search", "", Raw(b"{}"), "tools[0]", Other("web_search")))


async def test_a_fault_keeps_nothing(host: FakeHost, boxes: Toolboxes) -> None:
    host.down = "down"
    with pytest.raises(ToolboxUnavailable):
        await boxes.take(definition())
    host.down = None
    await boxes.take(definition())
    assert host.opened == 1


async def test_two_lanes_that_open_the_same_share_it(host: FakeHost, boxes: Toolboxes) -> None:
    taken: list[Toolbox] = []

    async def take() -> None:
        taken.append(await boxes.take(definition()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        nursery.start_soon(take)
    assert taken[0] is taken[1]
    assert (host.opened, host.closed) == (2, 1)


async def test_only_so_many_idle_ones_are_kept(host: FakeHost, boxes: Toolboxes) -> None:
    used = await boxes.take(definition("used"))
    for number in range(MAX_KEPT + 5):
        boxes.give_back(await boxes.take(definition(f"s{number}")))
    assert host.opened - host.closed == MAX_KEPT
    assert await boxes.take(definition("used")) is used


async def test_closing_goes_on_in_a_cancelled_scope(host: FakeHost, boxes: Toolboxes) -> None:
    await boxes.take(definition())
    with trio.CancelScope() as scope:
        scope.cancel()
        await boxes.aclose()
    assert host.closed == 1
