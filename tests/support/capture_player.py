"""Plays captured conversations against our server, as the client that had them would.

What the captured server named (responses, items, calls) is renamed in every later request to what ours named.
"""

from __future__ import annotations

import contextlib
from typing import Any

import httpx
import trio

from tests.support.captures import Answer, Exchange, Json, Scenario, items_of, texts_of, words_of
from tests.support.lane_wire import LaneWire, LaneWires
from tests.support.live import PATIENCE, open_wire, parse_sse
from tests.support.sdk import check_event, check_frame, check_response
from tests.support.spy import Spy


class Player:
    """Plays one scenario against a server whose engine is ``spy``; ``turns`` counts those that completed.

    ``wires`` is a socket that others use too; without it the scenario opens its own.
    """

    def __init__(self, server: Any, spy: Spy, wires: LaneWires | None = None) -> None:
        # A context for TLS would take longer to make than most scenarios take to play.
        self._http = httpx.AsyncClient(base_url=server.base_url.removesuffix("/v1"), timeout=PATIENCE, verify=False)
        self._websocket_origin = server.ws_url.removesuffix("/v1/responses")
        self._spy = spy
        self._wires = {} if wires is None else {1: wires}
        self._names: dict[str, str | None] = {}
        self._calls: dict[str, Json] = {}
        """Calls that the captured server made and ours does not make, by ``call_id``."""
        self.turns = 0
        self.stand_ins: list[str] = []
        """Items, by type, that stand for what only the captured server could have made."""

    async def play(self, scenario: Scenario) -> None:
        """Send every request of the scenario. Raises ``AssertionError`` if an answer is not as captured."""
        async with self._http, contextlib.AsyncExitStack() as sockets:
            if len(scenario.strands) == 1:
                await self._play(scenario.exchanges, sockets)
                return
            for exchange in scenario.exchanges:  # the socket has to be there, with all lanes, before one of them sends
                await self._lane(exchange, sockets)
            async with trio.open_nursery() as nursery:
                for strand in scenario.strands:
                    nursery.start_soon(self._play, strand, sockets)

    async def _play(self, strand: list[Exchange], sockets: contextlib.AsyncExitStack) -> None:
        for exchange in strand:
            if exchange.refused is not None:
                await self._be_refused(exchange)
            elif exchange.get:
                answer = await self._http.get(exchange.path, headers=exchange.headers)
                assert answer.status_code == 200, answer.text
                assert answer.json()["object"] == "list"
            elif exchange.connection is None:
                await self._post(exchange)
            else:
                await self._send(exchange, await self._lane(exchange, sockets))

    async def _lane(self, exchange: Exchange, sockets: contextlib.AsyncExitStack) -> LaneWire:
        assert exchange.connection is not None
        if exchange.connection not in self._wires:
            opened = open_wire(self._websocket_origin + exchange.path, headers=exchange.headers)
            self._wires[exchange.connection] = LaneWires(await sockets.enter_async_context(opened))
        return self._wires[exchange.connection].lane(exchange.lane)

    async def _send(self, exchange: Exchange, wire: LaneWire) -> None:
        request = self._request(exchange)
        before = len(self._spy.contexts)
        match exchange.answer.end:
            case "completed":
                await wire.send(request)
                frames = await wire.frames()
                for frame in frames:
                    check_frame(frame)
                self._compare(exchange, frames[-1], before)
            case "abandoned":
                await wire.send(request)
                while (await wire.frame())["type"] != "response.output_item.added":
                    pass
                await wire.aclose()
            case "previous_response_not_found" as code:
                # Our server knows the response, so that it has to be asked for another.
                await wire.send(request | {"previous_response_id": "resp_unknown"})
                (error,) = await wire.frames()
                check_frame(error)
                assert error["error"]["code"] == code
                await wire.aclose()
            case "websocket_connection_limit_reached":
                # Our connection is young: what counts is how the client goes on.
                await wire.aclose()

    async def _post(self, exchange: Exchange) -> None:
        request = self._request(exchange)
        before = len(self._spy.contexts)
        answer = await self._http.post(exchange.path, json=request, headers=exchange.headers)
        assert answer.status_code == 200, answer.text
        if request.get("stream"):
            events = parse_sse(answer.text)
            for event in events:
                check_event(event)
            self._compare(exchange, events[-1], before)
        else:
            check_response(answer.json())
            end = {"type": f"response.{answer.json()['status']}", "response": answer.json()}
            self._compare(exchange, end, before)

    async def _be_refused(self, exchange: Exchange) -> None:
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        headers = exchange.headers | upgrade | {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
        answer = await self._http.get(exchange.path, headers=headers)
        assert answer.status_code == exchange.refused

    def _compare(self, exchange: Exchange, end: Json, before: int) -> None:
        """The turn completed, said what the capture says, and its model had read what the client sent.

        ``before`` is how many contexts the spy had seen before it: on lanes, others may have come with its own.
        """
        assert end["type"] == "response.completed", end
        response = end["response"]
        if exchange.samples:
            said, captured = response["output"], exchange.answer.items
            assert [words_of(item) for item in said] == [words_of(item) for item in captured], said
            parts = [part for output in exchange.outputs for part in texts_of(output["output"])]
            contexts = self._spy.contexts[before:]
            assert not parts or any(all(part in context for part in parts) for context in contexts), exchange.outputs
        else:
            assert response["output"] == []
        self._learn(exchange.answer, response)
        self.turns += 1

    def _learn(self, answer: Answer, response: Json) -> None:
        """Note what our server calls the things that the captured one named, and what ours has not made."""
        assert answer.id is not None
        self._names[answer.id] = response["id"]
        for theirs, ours in zip(answer.items, response["output"], strict=True):
            if theirs["type"] == ours["type"]:
                for field in ("id", "call_id", "encrypted_content"):
                    if theirs.get(field) and ours.get(field):
                        self._names[theirs[field]] = ours[field]
            elif "call_id" in theirs:
                self._calls[theirs["call_id"]] = theirs
            elif "encrypted_content" in theirs:
                self._names[theirs["encrypted_content"]] = None

    def _request(self, exchange: Exchange) -> Json:
        """The request in our server's names. A call that it did not make is sent along with its output, and what
        another server has sealed is left out: ours can neither know the one nor open the other."""
        request: Json = self._renamed(exchange.request)
        items = items_of(request)
        missing = [self._calls.pop(item["call_id"]) for item in items if item.get("call_id") in self._calls]
        if missing:
            request["input"] = [*missing, *items]
        unsealed = [item for item in items if "encrypted_content" in item and item["encrypted_content"] is None]
        self.stand_ins += [item["type"] for item in (*missing, *unsealed)]
        return request

    def _renamed(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._renamed(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [self._renamed(entry) for entry in value]
        return self._names.get(value, value) if isinstance(value, str) else value
