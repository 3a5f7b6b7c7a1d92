"""Whoever runs the server sees each request that was refused before a turn, once, and nothing that is secret."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import trio
import trio.testing
import trustme

from respserver.transport.refusals import MAX_PATH
from tests.support.live import PATIENCE, http
from tests.support.raw_websocket import RawClient

Line = dict[str, Any]
UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}


class Lines:
    """The fields of what was logged under one of some names."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def of(self, event: str) -> list[Line]:
        fields = ("status", "code", "method", "path", "request_id", "reason", "unknown", "error_code", "model", "param")
        found = [record for record in self._caplog.records if record.getMessage() == event]
        return [{name: vars(one)[name] for name in fields if name in vars(one)} for one in found]

    async def next(self, event: str) -> Line:
        with trio.fail_after(PATIENCE):
            while not self.of(event):
                await trio.sleep(0.001)
        return self.of(event)[0]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    caplog.set_level(logging.INFO, "respserver")
    yield Lines(caplog)
    assert "nobody" not in "".join(str(vars(record)) for record in caplog.records)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/v1/respones?key=tell-nobody", 404, "unknown_url"),
        ("PUT", "/v1/responses", 405, "method_not_allowed"),
        ("GET", "/v1/responses/resp_x", 404, "response_not_found"),
    ],
)
async def test_a_refused_request_has_one_line(
    serve: Any, lines: Lines, method: str, path: str, status: int, code: str
) -> None:
    server = await serve()
    async with http(server) as client:
        answer = await client.request(method, server.base_url.removesuffix("/v1") + path)
    assert answer.status_code == status
    assert lines.of("refused") == [
        {
            "status": status,
            "code": code,
            "method": method,
            "path": path.partition("?")[0],
            "request_id": answer.headers["x-request-id"],
        }
    ]


async def test_a_wrong_key_is_told_and_not_shown(serve: Any, lines: Lines) -> None:
    server = await serve(api_key=("k",))
    async with http(server, headers={"Authorization": "Bearer tell-nobody"}) as client:
        assert (await client.get("/models")).status_code == 401
    [line] = lines.of("refused")
    assert (line["status"], line["code"], line["path"]) == (401, "invalid_api_key", "/v1/models")


async def test_a_refused_turn_has_its_own_line_and_no_other(serve: Any, lines: Lines) -> None:
    server = await serve()
    async with http(server) as client:
        assert (await client.post("/responses", json={"model": "sim"})).status_code == 400
    assert (await lines.next("turn"))["error_code"] == "missing_required_parameter"
    assert lines.of("refused") == []


async def test_a_body_that_cannot_be_read_is_no_turn_and_has_a_line(serve: Any, lines: Lines) -> None:
    server = await serve()
    async with http(server) as client:
        assert (await client.post("/responses", content=b"{")).status_code == 400
        assert (await client.post("/responses", content=b"{", headers={"Content-Encoding": "odd"})).status_code == 415
    assert [line["code"] for line in lines.of("refused")] == ["invalid_json", "unsupported_content_encoding"]
    assert lines.of("turn") == []


@pytest.mark.parametrize(
    ("config", "path", "headers", "status", "code"),
    [
        ({}, "/v1/nowhere?x=tell-nobody", {}, 404, "unknown_url"),
        ({"api_key": ("k",)}, "/v1/responses", {"Authorization": "Bearer tell-nobody"}, 401, "invalid_api_key"),
        ({"websocket": False}, "/v1/responses", {}, 426, "websocket_disabled"),
        ({}, "/v1/responses", {"Origin": "http://elsewhere.example"}, 403, "origin_not_allowed"),
        ({}, "/" + "x" * 1000, {}, 404, "unknown_url"),
    ],
)
async def test_a_refused_upgrade_has_one_line(
    serve: Any, lines: Lines, config: Any, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    server = await serve(**config)
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        address = server.base_url.removesuffix("/v1") + path
        answer = await client.get(address, headers=UPGRADE | {"Sec-WebSocket-Key": "a" * 22 + "=="} | headers)
    assert answer.status_code == status
    assert lines.of("refused") == [
        {"status": status, "code": code, "method": "GET", "path": path.partition("?")[0][:MAX_PATH]}
    ]


async def test_a_handshake_without_its_key_is_told_what_is_missing(serve: Any, lines: Lines) -> None:
    server = await serve()
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        answer = await client.get(server.base_url + "/responses", headers=UPGRADE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_handshake")
    assert answer.json()["error"]["message"].endswith("It has no Sec-WebSocket-Key.")
    assert [line["code"] for line in lines.of("refused")] == ["invalid_handshake"]


async def test_a_head_over_its_limit_and_what_is_no_http_have_lines_too(serve: Any, lines: Lines) -> None:
    server = await serve(limits={"head_bytes": 1024})
    for sent in (b"GET / HTTP/1.1\r\nX: " + b"x" * 2000, b"\x00\x01\x02\r\n\r\n"):
        stream = await trio.open_tcp_stream("127.0.0.1", server.address.port)
        async with stream:
            await stream.send_all(sent)
            with trio.fail_after(PATIENCE):
                await RawClient(stream).rest()
    assert [line["status"] for line in lines.of("refused")] == [431, 400]


async def test_plain_http_on_a_tls_port_is_told_as_that(serve: Any, lines: Lines, tmp_path: Any) -> None:
    pem = str(tmp_path / "server.pem")
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    server = await serve(certfile=pem, keyfile=pem)
    with pytest.raises(httpx.HTTPError):
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            await client.get(server.base_url.replace("https", "http") + "/models")
    assert (await lines.next("tls_failed"))["reason"] == "plain HTTP came to a TLS port"


async def test_a_tls_handshake_that_fails_has_a_line_with_the_reason(serve: Any, lines: Lines, tmp_path: Any) -> None:
    pem = str(tmp_path / "server.pem")
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    server = await serve(certfile=pem, keyfile=pem)
    with pytest.raises(httpx.HTTPError):
        async with httpx.AsyncClient(timeout=PATIENCE, verify=ssl.create_default_context()) as client:
            await client.get(server.base_url + "/models")
    assert (await lines.next("tls_failed"))["reason"]


async def test_the_line_of_a_turn_names_the_fields_that_the_api_does_not_have(serve: Any, lines: Lines) -> None:
    server = await serve()
    fields = {"temperatur": "tell-nobody", "max_tokens": 3, **{f"x{number}": 1 for number in range(20)}, "y" * 500: 1}
    async with http(server) as client:
        assert (await client.post("/responses", json={"model": "sim", "input": "hi", **fields})).status_code == 200
    assert (await lines.next("turn"))["unknown"] == "temperatur,max_tokens,x0,x1,x2,x3,x4,x5"


async def test_the_line_of_a_turn_without_such_fields_says_nothing_of_them(serve: Any, lines: Lines) -> None:
    server = await serve()
    async with http(server) as client:
        assert (await client.post("/responses", json={"model": "sim", "input": "hi"})).status_code == 200
    assert "unknown" not in await lines.next("turn")


async def test_the_line_of_a_refused_turn_says_for_which_model_and_where_the_fault_is(serve: Any, lines: Lines) -> None:
    server = await serve()
    fields = {"model": "sim", "input": [{"role": "user", "content": {"tell": "nobody"}}]}
    async with http(server) as client:
        assert (await client.post("/responses", json=fields)).status_code == 400
    line = await lines.next("turn")
    assert (line["status"], line["model"], line["param"]) == ("refused", "sim", "input[0].content")
    assert line["error_code"] == "invalid_type"
