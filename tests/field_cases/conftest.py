"""Every field case that opens a WebSocket runs on the default lane and on a named one.

``connect`` gives a ``Wire`` of the lane at hand, which names it in what it sends, checks that every frame bears the
name, and takes it off. A test that opens its socket in another way asks for ``lane``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from respserver.embed import RunningServer
from tests.conftest import Open
from tests.support.lane_wire import LaneWires
from tests.support.live import Wire, open_wire

NAMED = "plan.A-1_b"
"""A name with every kind of character that may be in one."""
DEFAULT_LANE = pytest.mark.parametrize("lane", [None], ids=["default lane"])
"""For a test that takes its time, and to which lanes are no matter."""
HTTP = {"http", "sse", "json"}
"""Values of ``transport`` for which a test plays its turns over HTTP: lanes are no matter there."""


@pytest.fixture(params=[None, NAMED], ids=["default lane", "named lane"])
def lane(request: pytest.FixtureRequest) -> str | None:
    """The lane that the turns of a test run on."""
    name: str | None = request.param
    return name


@pytest.fixture
async def connect(hold: Open, lane: str | None) -> Callable[..., Awaitable[Wire]]:
    """Open a raw WebSocket to a server: ``await connect(server)``. It is closed with the test."""

    async def start(server: RunningServer, **options: Any) -> Wire:
        wire: Wire = await hold(open_wire(server.ws_url, **{"lane": lane, **options}))
        return wire

    return start


@pytest.fixture
async def open_lanes(hold: Open) -> Callable[..., Awaitable[LaneWires]]:
    """Open a socket for several lanes: ``await open_lanes(server)``."""

    async def start(server: RunningServer) -> LaneWires:
        return LaneWires(await hold(open_wire(server.ws_url)))

    return start


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs over HTTP runs once."""
    items[:] = [item for item in items if not _is_http_on_a_named_lane(item)]


def _is_http_on_a_named_lane(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    params = callspec.params if callspec is not None else {}
    return params.get("lane") is not None and params.get("transport") in HTTP
