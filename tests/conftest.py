"""Fixtures that every test may use. What they are made of lives in ``tests/support``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import HealthCheck, settings

from respserver.config import Config, Limits, Mode
from respserver.embed import RunningServer, open_server
from respserver.engines.base import Engine
from respserver.engines.sim import Script
from respserver.store.base import Store
from respserver.tools.base import Host
from tests.support.live import Wire, open_wire

if TYPE_CHECKING:
    from tests.support.mcp_server import McpProcess

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run soaks and long runs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long runs are deselected unless asked for: they are not skipped, they are another run."""
    if config.getoption("--full"):
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


Open = Callable[[AbstractAsyncContextManager[Any]], Awaitable[Any]]


@pytest.fixture
async def hold() -> AsyncIterator[Open]:
    """Enter an async context manager for the rest of the test: ``value = await hold(manager)``.

    Each lives in a task of its own, so that its nursery is left by the task that entered it.
    """
    over = trio.Event()

    async def enter(manager: AbstractAsyncContextManager[Any], task_status: trio.TaskStatus[Any]) -> None:
        async with manager as value:
            task_status.started(value)
            await over.wait()

    async with trio.open_nursery() as nursery:
        yield lambda manager: nursery.start(enter, manager)
        over.set()


@pytest.fixture
async def serve(hold: Open) -> Callable[..., Awaitable[RunningServer]]:
    """Start a server: ``await serve(script, mode=…, limits=…, **config)``. It ends with the test."""

    async def start(
        script: Script | None = None,
        *,
        mode: Mode = Mode.SHIPPED,
        limits: dict[str, Any] | None = None,
        engine: Engine | None = None,
        store: Store | None = None,
        hosts: Sequence[Host] = (),
        **fields: Any,
    ) -> RunningServer:
        config = Config(port=0, mode=mode, limits=Limits(**{"grace_seconds": 0.0, **(limits or {})}), **fields)
        running: RunningServer = await hold(open_server(config, script=script, engine=engine, store=store, hosts=hosts))
        return running

    return start


@pytest.fixture(scope="session")
def new_harbour() -> Iterator[McpProcess]:
    """A real MCP server of the newest protocol, for all tests that need one."""
    from tests.support.mcp_server import running  # half the work of starting it is this import

    with running() as server:
        yield server


@pytest.fixture(scope="session")
def old_harbour() -> Iterator[McpProcess]:
    """One that knows only the handshake of 2025, and keeps sessions."""
    from tests.support.mcp_server import running

    with running("old") as server:
        yield server


@pytest.fixture(params=["new_harbour", "old_harbour"])
def harbour(request: pytest.FixtureRequest) -> McpProcess:
    """Each of the two, with an empty log."""
    server: McpProcess = request.getfixturevalue(request.param)
    server.log()
    return server


@pytest.fixture
async def connect(hold: Open) -> Callable[..., Awaitable[Wire]]:
    """Open a raw WebSocket to a server: ``await connect(server)``. It is closed with the test."""

    async def start(server: RunningServer, **options: Any) -> Wire:
        wire: Wire = await hold(open_wire(server.ws_url, **options))
        return wire

    return start
