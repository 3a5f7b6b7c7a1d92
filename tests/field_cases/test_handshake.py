"""F24 and F25: who may open a socket is decided before the 101, by either road; the model comes later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from respserver.config import Mode
from respserver.engines.sim import Script, conversation
from tests.support.live import Wire, http, post, text_of
from tests.support.raw_websocket import request
from tests.support.roads import ROADS, raw_connection

RIGHT = "Bearer sk-right"
BETA = "responses_websockets=2026-02-06"


async def shake_hands(server: Any, road: str, **headers: str | None) -> tuple[int, dict[str, str], Any]:
    """Status and headers of an upgrade's answer, and the error of its JSON body if it is refused."""
    async with raw_connection(server, road) as client:
        await client.stream.send_all(request(**headers))
        head = (await client.head()).decode("latin-1")
        status_line, *lines = head.split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(status_line.split()[1])
        if status == 101:
            return status, fields, None
        body = await client.rest()  # to the end: a refused connection is closed
    whole = body[body.index(b"{") : body.rindex(b"}") + 1]  # without the size of the chunk, if it came as one
    return status, fields, json.loads(whole)["error"]


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("beta", [None, BETA], ids=["no beta header", "beta header"])
@pytest.mark.parametrize(
    ("token", "status"),
    [(None, 401), ("Bearer sk-wrong", 401), ("Basic c2stcmlnaHQ6", 401), ("Bearer", 401), (RIGHT, 101)],
    ids=["none", "wrong", "another scheme", "empty", "right"],
)
async def test_f25_a_wrong_key_is_a_401_with_a_json_body_before_any_101(
    serve: Any, road: str, beta: str | None, token: str | None, status: int
) -> None:
    server = await serve(api_key=("sk-right",))
    got, fields, error = await shake_hands(server, road, Authorization=token, OpenAI_Beta=beta)
    assert got == status
    if status == 401:
        assert fields["content-type"] == "application/json"
        assert set(error) == {"type", "code", "message", "param"}
        assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
        assert "sk-wrong" not in str(error)


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 101),
        ("http://server.test", 101),
        ("https://server.test", 101),
        ("HTTP://Server.TEST:80", 101),
        ("https://app.example", 101),
        ("https://APP.example:443", 101),
        ("http://localhost:5173", 101),
        ("https://evil.example", 403),
        ("https://app.example.evil.example", 403),
        ("http://app.example", 403),
        ("https://app.example:8443", 403),
        ("http://localhost", 403),
        ("http://localhost:5174", 403),
        ("http://server.test:8080", 403),
        ("http://server.test@evil.example", 403),
        ("https://app.example/", 403),
        ("https://app.example, https://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("http://[", 403),
    ],
)
async def test_f25_a_foreign_origin_is_a_403_unless_it_is_allowed(
    serve: Any, road: str, origin: str | None, status: int
) -> None:
    server = await serve(allow_origin=("https://app.example", "http://localhost:5173"))
    got, fields, error = await shake_hands(server, road, Origin=origin)
    assert got == status
    if status == 403:
        assert fields["content-type"] == "application/json"
        assert error["code"] == "origin_not_allowed"
        assert error["message"]


@pytest.mark.parametrize("road", ROADS)
async def test_f25_a_foreign_page_with_a_key_is_refused_too(serve: Any, road: str) -> None:
    server = await serve(api_key=("sk-right",))
    status, _, error = await shake_hands(server, road, Authorization=RIGHT, Origin="https://evil.example")
    assert (status, error["code"]) == (403, "origin_not_allowed")


@pytest.mark.parametrize("road", ROADS)
async def test_f25_of_several_origins_each_must_be_allowed(serve: Any, road: str) -> None:
    server = await serve(allow_origin=("https://app.example",))
    pair = {"Origin": "https://app.example", "ORIGIN": "https://evil.example"}
    assert (await shake_hands(server, road, **pair))[0] == 403


@pytest.mark.parametrize("road", ROADS)
async def test_f25_a_page_without_an_origin_may_be_allowed_by_its_name(serve: Any, road: str) -> None:
    server = await serve(allow_origin=("null",))
    assert (await shake_hands(server, road, Origin="null"))[0] == 101


REFUSALS: dict[str, tuple[dict[str, Any], dict[str, str | None], int, str]] = {
    "no key": ({"api_key": ("sk-right",)}, {}, 401, "invalid_api_key"),
    "a foreign page": ({}, {"Origin": "https://evil.example"}, 403, "origin_not_allowed"),
    "another path": ({}, {"target": "/v1/nowhere"}, 404, "unknown_url"),
    "switched off": ({"websocket": False}, {}, 426, "websocket_disabled"),
    "no handshake key": ({}, {"Sec_WebSocket_Key": None}, 400, "invalid_handshake"),
    "no version": ({}, {"Sec_WebSocket_Version": None}, 400, "invalid_handshake"),
    "another version": ({}, {"Sec_WebSocket_Version": "8"}, 426, "unsupported_websocket_version"),
    "a long head": ({"limits": {"head_bytes": 1024}}, {"X": "x" * 2000}, 431, "request_head_too_large"),
}
"""Settings, changes of the upgrade request, status and code."""


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("case", REFUSALS)
async def test_every_refusal_of_an_upgrade_has_the_envelope_and_ends_the_connection(
    serve: Any, road: str, case: str
) -> None:
    config, changes, status, code = REFUSALS[case]
    got, fields, error = await shake_hands(await serve(**config), road, **changes)
    assert (got, error["code"]) == (status, code)
    assert set(error) == {"type", "code", "message", "param"}
    assert error["message"]
    assert (fields["content-type"], fields["connection"]) == ("application/json", "close")
    assert fields.get("upgrade") == {"switched off": "HTTP/1.1", "another version": "websocket"}.get(case)
    assert fields.get("sec-websocket-version") == ("13" if case == "another version" else None)


@pytest.mark.parametrize("road", ROADS)
async def test_f24_with_websocket_off_an_upgrade_is_a_426_at_once_and_the_same_turn_goes_by_post(
    serve: Any, road: str
) -> None:
    """Whatever else is wrong with it, and without a look at the key: the client is to go on over HTTP."""
    server = await serve(Script.of("Over HTTP, then."), websocket=False, api_key=("sk-right",))
    for changes in ({}, {"Authorization": RIGHT}, {"Origin": "https://evil.example"}, {"OpenAI_Beta": BETA}):
        status, fields, error = await shake_hands(server, road, **changes)
        assert (status, fields["connection"], error["code"]) == (426, "close", "websocket_disabled")
        assert error["message"] == "WebSocket mode is switched off on this server. Use HTTP."
    async with http(server, headers={"Authorization": RIGHT}) as client:
        answer = await client.post("/responses", json={"model": "sim", "input": "go"})
    assert text_of(answer.json()) == "Over HTTP, then."


@pytest.mark.parametrize("mode", list(Mode))
async def test_f25_no_model_is_needed_to_connect_and_each_create_names_its_own(
    serve: Any, connect: Any, mode: Mode
) -> None:
    script = Script(
        conversations=(
            conversation("I am the first.", "Still the first.", model="gpt-first"),
            conversation("I am the second.", "I take over.", model="gpt-second"),
        )
    )
    server = await serve(script, mode=mode, model=("gpt-*",), strict_models=True)
    wire: Wire = await connect(server)
    error = await wire.refused(model=None, input="who?")
    assert (error["error"]["code"], error["error"]["param"]) == ("missing_required_parameter", "model")
    first = await wire.completed(model="gpt-first", input="who?")
    assert (first["model"], text_of(first)) == ("gpt-first", "I am the first.")
    second = await wire.completed(model="gpt-second", input="who?")
    assert (second["model"], text_of(second)) == ("gpt-second", "I am the second.")
    error = await wire.refused(model="nobody", input="who?")
    assert (error["error"]["code"], error["error"]["param"]) == ("model_not_found", "model")
    changed = await wire.completed(model="gpt-second", previous_response_id=first["id"], input="and now?")
    assert (changed["model"], text_of(changed)) == ("gpt-second", "I take over.")
    assert (await post(server, model="gpt-first", input="who?")).json()["model"] == "gpt-first"
