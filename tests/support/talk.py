"""A session on a fake socket and its client's end; several of them make a server without a port."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from respserver.config import Config, Limits, Mode
from respserver.engines.sim import Script
from respserver.services import build_services
from respserver.session import Session
from respserver.turn.services import Services
from tests.support.fake_socket import FakeSocket
from tests.support.live import Frame
from tests.support.spy import Spy


def services(script: Script | None = None, *, mode: Mode = Mode.SHIPPED, **limits: Any) -> Services:
    config = Config(mode=mode, limits=Limits(**limits))
    return build_services(config, engine=Spy(script))


def spy_of(services: Services) -> Spy:
    engine = services.router.routes[0].engine
    assert isinstance(engine, Spy)
    return engine


async def settled() -> None:
    """Let everybody go as far as they get."""
    await trio.testing.wait_all_tasks_blocked()


class Talk:
    """A running session and its client's end; ``beside`` is another one of the same server."""

    def __init__(
        self,
        nursery: trio.Nursery,
        services: Services,
        socket: FakeSocket | None = None,
        *,
        tenant: str = "default",
        beside: Talk | None = None,
    ) -> None:
        self.socket = socket or FakeSocket()
        self.services = services
        self.stop: trio.Event = trio.Event() if beside is None else beside.stop
        self.over = trio.Event()
        self._tenant = tenant
        if beside is None:
            nursery.start_soon(services.post.run)
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        await Session(self.socket, self.services, tenant=self._tenant, stop=self.stop).run()
        self.over.set()

    def create(self, **fields: Any) -> None:
        self.socket.say({"type": "response.create", "model": "sim", **fields})

    async def turn(self, **fields: Any) -> Frame:
        self.create(**fields)
        return (await self.socket.hear_step())[-1]
