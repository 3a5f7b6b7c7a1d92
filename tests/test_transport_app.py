"""The app by itself, driven as an ASGI server would: what becomes of a stream whose client leaves at an odd moment."""

from __future__ import annotations

import json
from typing import Any

import trio
import trio.testing

from respserver.auth import KeyRing
from respserver.config import Config, Limits
from respserver.embed import make_server
from respserver.engines.sim import Script
from respserver.errors import ShuttingDown
from respserver.transport.app import make_app
from respserver.transport.http import HttpTurns

BODY = json.dumps({"model": "sim", "input": "go", "stream": True}).encode()
SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0"},
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": "/v1/responses",
    "raw_path": b"/v1/responses",
    "query_string": b"",
    "root_path": "",
    "headers": [(b"content-type", b"application/json")],
    "client": ("127.0.0.1", 1),
    "server": ("127.0.0.1", 2),
    "extensions": {},
}


async def test_a_client_that_leaves_before_the_head_of_its_stream_is_out_ends_its_turn() -> None:
    """Else a long turn would wait for its reader for ever: nobody has begun to read."""
    script = Script.of("word " * 3000)
    services = make_server(Config(port=0, limits=Limits(outbox_bytes=4096)), script=script).services
    async with trio.open_nursery() as nursery:
        turns = HttpTurns(services, nursery)
        app = make_app(services, turns, KeyRing({}))
        gone = trio.Event()
        messages = [{"type": "http.request", "body": BODY, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            assert message["type"] == "http.response.start"
            gone.set()
            await trio.sleep_forever()

        with trio.fail_after(5):
            await app(SCOPE, receive, send)  # type: ignore[arg-type]  # open dictionaries, as ASGI has them
            await trio.testing.wait_all_tasks_blocked()
            assert not nursery.child_tasks
            await turns.shut_down(ShuttingDown(), grace=5.0)
