"""OpenAI's Python SDK takes a 429 of ours for what it is: it waits as long as it is told, and tries again."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import openai
import pytest
import trio
from openai import OpenAI

from respserver.config import Config, Limits
from respserver.embed import make_server
from respserver.server import Address
from respserver.turn.services import Services
from tests.clients.openai_kit import PATIENCE

pytestmark = pytest.mark.client

PER_MINUTE = 60_000
"""Tokens; a thousand run off in a second."""


class Limited(NamedTuple):
    """A server with limits, and what a test must get at."""

    url: str
    services: Services

    def owe(self, seconds: float) -> None:
        """Let the next turn wait for so long."""
        self.services.rates.charge("default", PER_MINUTE + round(seconds * 1000))

    async def ask(self, *, retries: int) -> Any:  # Any: the SDK's own class
        """The answer to one turn, with its headers."""
        return await trio.to_thread.run_sync(self._ask, retries)

    def _ask(self, retries: int) -> Any:
        with OpenAI(base_url=self.url, api_key="k", max_retries=retries, timeout=PATIENCE) as client:
            return client.responses.with_raw_response.create(model="sim", input="hi")


@contextlib.asynccontextmanager
async def open_limited() -> AsyncIterator[Limited]:
    limits = Limits(tokens_per_minute=PER_MINUTE, requests_per_minute=100, grace_seconds=0.0)
    server = make_server(Config(port=0, limits=limits))

    async def listen(task_status: trio.TaskStatus[Address]) -> None:
        await server.serve(task_status.started)

    async with trio.open_nursery() as nursery:
        address = await nursery.start(listen)
        yield Limited(address.base_url, server.services)
        server.stop.set()


@pytest.fixture
async def limited(hold: Any) -> Limited:
    server: Limited = await hold(open_limited())
    return server


@pytest.mark.slow
async def test_the_sdk_waits_as_long_as_it_is_told_and_then_gets_its_answer(limited: Limited) -> None:
    """By itself it would come again after half a second at most, and its only retry would be in vain."""
    limited.owe(0.8)
    began = trio.current_time()
    answer = await limited.ask(retries=1)
    assert answer.parse().status == "completed"
    assert trio.current_time() - began >= 0.8
    assert limited.services.metrics.rate_limited == 1
    assert answer.headers["x-ratelimit-limit-tokens"] == str(PER_MINUTE)


async def test_without_retries_it_raises_its_own_error_with_the_hints(limited: Limited) -> None:
    limited.owe(30.0)
    with pytest.raises(openai.RateLimitError) as caught:
        await limited.ask(retries=0)
    error = caught.value
    assert (error.status_code, error.code, error.type, error.param) == (429, "rate_limit_exceeded", "tokens", None)
    assert 0 < int(error.response.headers["retry-after-ms"]) <= 30_001
    assert error.response.headers["x-ratelimit-remaining-tokens"] == "0"


async def test_turns_within_the_limits_are_never_told_to_wait(limited: Limited) -> None:
    answers = [await limited.ask(retries=0) for _ in range(3)]
    left = [int(answer.headers["x-ratelimit-remaining-requests"]) for answer in answers]
    assert left == sorted(left, reverse=True)
    assert limited.services.metrics.rate_limited == 0
