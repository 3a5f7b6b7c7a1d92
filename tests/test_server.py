"""The whole server over real sockets: who may enter, which paths lead in, and how it ends."""

from __future__ import annotations

import errno
import json
import ssl
from typing import Any

import pytest
import trio
import trio.testing
import trustme

from respserver.auth import KeyRing
from respserver.client import Client
from respserver.config import Config, Limits
from respserver.embed import RunningServer, running_server
from respserver.engines.sim import Script, delay
from respserver.errors import ConfigError
from respserver.schema.events import ResponseCompleted
from respserver.server import LAST_SECOND, Address, Server
from respserver.services import build_services
from tests.support.live import PATIENCE, Wire, http, open_wire, parse_sse, post, text_of
from tests.support.raw_websocket import RawClient

UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{extra}\r\n"
)


async def upgrade(server: RunningServer, path: str = "/v1/responses", *extra: str) -> tuple[int, dict[str, Any]]:
    """The status of an upgrade, and the JSON body of a refusal."""
    host = f"127.0.0.1:{server.address.port}"
    async with await trio.open_tcp_stream("127.0.0.1", server.address.port) as stream:
        lines = "".join(f"{line}\r\n" for line in extra)
        await stream.send_all(UPGRADE.format(path=path, host=host, extra=lines).encode())
        received = b""
        with trio.fail_after(PATIENCE):
            while b"\r\n\r\n" not in received:
                received += await stream.receive_some()
            status = int(received.split()[1])
            if status != 101:
                async for chunk in stream:
                    received += chunk
    body = received.split(b"\r\n\r\n", 1)[1] if status != 101 else b"{}"
    return status, json.loads(body)


@pytest.mark.parametrize("path", ["/v1/responses", "/responses", "/v1/codex/responses", "/openai/v1/responses"])
async def test_every_alias_leads_to_both_transports(serve: Any, path: str) -> None:
    server = await serve()
    root = server.base_url.removesuffix("/v1")
    async with http(server) as client:
        answer = await client.post(f"{root}{path}", json={"model": "sim", "input": "hi"})
        assert answer.status_code == 200
        assert (await client.get(f"{root}{path}/{answer.json()['id']}")).json()["id"] == answer.json()["id"]
    async with open_wire(f"{root.replace('http', 'ws')}{path}?model=sim&x=y") as wire:
        assert text_of(await wire.completed(input="hi", model=None)) == "You said: hi"


async def test_keys_are_asked_for_before_the_handshake_is_answered(serve: Any, connect: Any) -> None:
    server = await serve(api_key=("sk-right",))
    for extra in ([], ["Authorization: Bearer sk-wrong"]):
        status, body = await upgrade(server, "/v1/responses", *extra)
        assert status == 401
        assert body["error"]["code"] == "invalid_api_key"
        assert "sk-wrong" not in str(body)
    assert (await upgrade(server, "/v1/responses", "authorization: bearer sk-right"))[0] == 101
    wire: Wire = await connect(server, headers={"Authorization": "Bearer sk-right"})
    response = await wire.completed(input="hi")
    async with http(server) as client:
        assert (await client.get("/models")).status_code == 401
        assert (await client.get(f"{server.base_url.removesuffix('/v1')}/healthz")).status_code == 200
        found = await client.get(f"/responses/{response['id']}", headers={"Authorization": "Bearer sk-right"})
        assert found.json()["id"] == response["id"]


async def test_another_keys_responses_are_unknown(serve: Any, connect: Any) -> None:
    server = await serve(api_key=("sk-one", "sk-two"))
    one = {"Authorization": "Bearer sk-one"}
    two = {"Authorization": "Bearer sk-two"}
    wire: Wire = await connect(server, headers=one)
    response = await wire.completed(input="hi")
    async with http(server, headers=two) as client:
        assert (await client.get(f"/responses/{response['id']}")).status_code == 404
        assert (await client.delete(f"/responses/{response['id']}")).status_code == 404
        answer = await client.post(
            "/responses", json={"model": "sim", "input": "x", "previous_response_id": response["id"]}
        )
        assert answer.json()["error"]["code"] == "previous_response_not_found"
    async with http(server, headers=one) as client:
        assert (await client.delete(f"/responses/{response['id']}")).json()["deleted"] is True
        assert (await client.get(f"/responses/{response['id']}")).status_code == 404


@pytest.mark.parametrize(
    ("origin", "status"), [("https://evil.example", 403), ("https://good.example", 101), ("same", 101)]
)
async def test_a_foreign_origin_is_refused_unless_it_is_allowed(serve: Any, origin: str, status: int) -> None:
    server = await serve(allow_origin=("https://good.example",))
    given = f"http://127.0.0.1:{server.address.port}" if origin == "same" else origin
    assert (await upgrade(server, "/v1/responses", f"Origin: {given}"))[0] == status


@pytest.mark.parametrize(
    ("path", "origin", "status", "code"),
    [
        ("/v1/responses", "http://[", 403, "origin_not_allowed"),
        ("/v1/responses", "http://\xff\xe9", 403, "origin_not_allowed"),
        ("/v1/responses", "http://a\xbd.b", 403, "origin_not_allowed"),
        ("/v1/responses", "null", 403, "origin_not_allowed"),
        ("//[", None, 404, "unknown_url"),
        ("//host/v1/responses", None, 404, "unknown_url"),
        ("http://[/v1/responses", None, 404, "unknown_url"),
        ("?model=sim", None, 404, "unknown_url"),
        ("/v1/%ff%zz%", None, 404, "unknown_url"),
        ("/v1/respon%73es?model=%ff%zz&%", None, 101, None),
        ("http://host/v1/responses?model=sim", None, 101, None),
    ],
)
@pytest.mark.parametrize("late", [False, True])
async def test_no_target_and_no_origin_can_make_an_upgrade_fail_in_us(
    serve: Any, caplog: pytest.LogCaptureFixture, late: bool, path: str, origin: str | None, status: int, code: str
) -> None:
    server = await serve()
    extra = "" if origin is None else f"Origin: {origin}\r\n"
    async with await trio.open_tcp_stream("127.0.0.1", server.address.port) as stream:
        client = RawClient(stream)
        if late:
            await stream.send_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            await client.head()
            await client.take(len(b'{"status":"ok","mode":"shipped"}'))
        await stream.send_all(UPGRADE.format(path=path, host="x", extra=extra).encode("latin-1"))
        with trio.fail_after(PATIENCE):
            assert int((await client.head()).split()[1]) == status
            if code is not None:
                assert f'"code":"{code}"'.encode() in await client.rest()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("target", ["//[", "http://[/v1/models", "?x", "*", "host:80", "/v1/%ff%zz%"])
async def test_a_target_that_names_no_path_of_ours_is_unknown(
    serve: Any, caplog: pytest.LogCaptureFixture, target: str
) -> None:
    server = await serve()
    async with await trio.open_tcp_stream("127.0.0.1", server.address.port) as stream:
        await stream.send_all(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        with trio.fail_after(PATIENCE):
            received = await RawClient(stream).rest()
    assert received.startswith(b"HTTP/1.1 404 ")
    assert b'"code":"unknown_url"' in received
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_whole_url_as_the_target_is_served(serve: Any) -> None:
    server = await serve()
    async with await trio.open_tcp_stream("127.0.0.1", server.address.port) as stream:
        await stream.send_all(b"GET http://x/v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await RawClient(stream).head()).startswith(b"HTTP/1.1 200")


async def test_upgrades_elsewhere_and_with_websocket_off_are_refused_and_http_goes_on(serve: Any) -> None:
    server = await serve()
    status, body = await upgrade(server, "/v1/elsewhere")
    assert (status, body["error"]["code"]) == (404, "unknown_url")
    off = await serve(websocket=False)
    status, body = await upgrade(off)
    assert (status, body["error"]["code"]) == (426, "websocket_disabled")
    assert (await post(off, input="hi")).status_code == 200


@pytest.mark.parametrize("late_upgrade", [True, False])
async def test_an_upgrade_behind_a_request_is_served_by_the_same_session_unless_switched_off(
    serve: Any, late_upgrade: bool
) -> None:
    server = await serve(late_upgrade=late_upgrade)
    host = f"127.0.0.1:{server.address.port}"
    async with await trio.open_tcp_stream("127.0.0.1", server.address.port) as stream:
        await stream.send_all(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        received = await stream.receive_some()
        while b"}" not in received:
            received += await stream.receive_some()
        await stream.send_all(UPGRADE.format(path="/v1/responses", host=host, extra="").encode())
        head = await stream.receive_some()
        assert head.startswith(b"HTTP/1.1 101" if late_upgrade else b"HTTP/1.1 426")
        if late_upgrade:
            frame = json.dumps({"type": "response.create", "model": "sim", "input": "hi"}).encode()
            await stream.send_all(bytes([0x81, 0x80 | len(frame), 0, 0, 0, 0]) + frame)
            events = b""
            while b"response.completed" not in events:
                events += await stream.receive_some()
            assert b"You said: hi" in events


async def test_http_answers_carry_the_apis_headers_and_errors_its_envelope(serve: Any) -> None:
    server = await serve()
    async with http(server) as client:
        answer = await client.post("/responses", json={"model": "sim", "input": "hi"})
        assert answer.headers["x-request-id"].startswith("req_")
        assert int(answer.headers["openai-processing-ms"]) >= 0
        for method, path, status, code in (
            ("GET", "/nowhere", 404, "unknown_url"),
            ("POST", f"{server.base_url}//responses", 404, "unknown_url"),
            ("POST", "/responses/compact", 404, "unknown_url"),
            ("POST", "/responses/input_tokens", 404, "unknown_url"),
            ("PUT", "/responses/resp_x", 405, "method_not_allowed"),
            ("POST", "/models", 405, "method_not_allowed"),
            ("PUT", "/responses", 405, "method_not_allowed"),
            ("GET", "/responses/resp_x", 404, "response_not_found"),
            ("DELETE", "/responses/resp_x", 404, "response_not_found"),
        ):
            answer = await client.request(method, path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        answer = await client.post("/responses", content=b"{broken")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


async def test_models_suit_the_sdk_and_codex(serve: Any) -> None:
    server = await serve(model=("gpt-5.5", "o*"), strict_models=True)
    async with http(server) as client:
        models = (await client.get("/models?client_version=0.169.0")).json()
        assert models["object"] == "list"
        assert [model["id"] for model in models["data"]] == ["gpt-5.5"]
        assert models["models"] == []
        assert (await client.get("/models/gpt-5.5")).json()["id"] == "gpt-5.5"
        missing = await client.get("/models/nobody")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
        refused = await client.post("/responses", json={"model": "sim", "input": "hi"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "model_not_found")
        told = "The requested model 'sim' does not exist. This server serves gpt-5.5, o*."
        assert refused.json()["error"]["message"] == told
        assert missing.json()["error"]["message"] == told.replace("'sim'", "'nobody'")


@pytest.mark.parametrize(
    ("models", "strict", "listed"),
    [
        ((), False, ["sim"]),
        (("gpt-*",), False, ["sim"]),
        (("gpt-*",), True, []),
        (("s*",), True, ["sim"]),
        ((), True, ["sim"]),
    ],
)
async def test_every_model_that_is_listed_is_served(
    serve: Any, models: tuple[str, ...], strict: bool, listed: list[str]
) -> None:
    server = await serve(model=models, strict_models=strict)
    async with http(server) as client:
        found = [model["id"] for model in (await client.get("/models")).json()["data"]]
        assert found == listed
        for name in found:
            assert (await client.post("/responses", json={"model": name, "input": "hi"})).status_code == 200


async def test_a_port_that_is_taken_raises_at_once(serve: Any) -> None:
    server = await serve()
    config = Config(port=server.address.port)
    told = f"cannot listen on 127.0.0.1 port {server.address.port}: .*in use"
    with pytest.raises(OSError, match=told) as caught:
        await Server(config, build_services(config), KeyRing({})).serve(lambda address: None)
    assert caught.value.errno == errno.EADDRINUSE


def test_settings_that_do_not_fit_together_are_refused_for_embedders_too() -> None:
    config = Config(host="0.0.0.0")
    with pytest.raises(ConfigError, match="host"):
        Server(config, build_services(config), KeyRing({}))


async def test_what_ignores_a_shutdown_is_cut_a_second_after_the_grace_time(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def run(self) -> None:
            await trio.sleep_forever()

    monkeypatch.setattr("respserver.server.Session", Deaf)
    autojump_clock.autojump_threshold = 0.01  # real sockets need real moments
    config = Config(port=0, limits=Limits(grace_seconds=7.0, ping_seconds=0))
    server = Server(config, build_services(config), KeyRing({}))
    ready: list[Address] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, ready.append)
        while not ready:
            await trio.testing.wait_all_tasks_blocked()
        async with await trio.open_tcp_stream("127.0.0.1", ready[0].port) as stream:
            await stream.send_all(UPGRADE.format(path="/v1/responses", host="x", extra="").encode())
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 101 ")
            stopped = trio.current_time()
            server.stop.set()
            with pytest.raises(trio.BrokenResourceError):  # it is reset: there was nobody to say goodbye
                await stream.receive_some()
            assert trio.current_time() - stopped == pytest.approx(7.0 + LAST_SECOND, abs=0.5)


async def test_shutdown_lets_running_turns_end_refuses_new_connections_and_returns() -> None:
    config = Config(port=0, limits=Limits(grace_seconds=5.0))
    script = Script.of([delay(0.2), "in time"], on_end="repeat")
    server = Server(config, build_services(config, script=script), KeyRing({}))
    ready: list[Address] = []
    results: dict[str, Any] = {}

    async def run_server() -> None:
        await server.serve(ready.append)
        results["returned"] = trio.current_time()

    async def stream(running: RunningServer) -> None:
        results["sse"] = (await post(running, input="go", stream=True)).text

    async def whole(running: RunningServer) -> None:
        results["json"] = await post(running, input="go")

    async def socket(running: RunningServer, name: str, turns: int) -> None:
        async with open_wire(running.ws_url) as wire:
            frames = await wire.turn(input="go") if turns else []
            with trio.fail_after(PATIENCE):
                await wire.socket._for_testing_peer_closed_connection.wait()
            results[name] = (frames, wire.socket.closed)

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_server)
            while not ready:
                await trio.sleep(0.001)
            running = running_server(server, ready[0])
            nursery.start_soon(stream, running)
            nursery.start_soon(whole, running)
            nursery.start_soon(socket, running, "busy", 1)
            nursery.start_soon(socket, running, "idle", 0)
            while server.services.metrics.turns < 3 or server.services.metrics.connections < 2:
                await trio.sleep(0.001)
            stopped = trio.current_time()
            server.stop.set()
            await trio.testing.wait_all_tasks_blocked(0.01)
            with pytest.raises(OSError):
                await trio.open_tcp_stream("127.0.0.1", ready[0].port)
    assert results["returned"] - stopped < 2.0
    assert text_of(parse_sse(results["sse"])[-1]["response"]) == "in time"
    assert results["json"].status_code == 200
    assert results["busy"][0][-1]["type"] == "response.completed"
    assert results["busy"][1].code == results["idle"][1].code == 1001


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /hea",
        b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
    ],
)
async def test_a_connection_that_runs_no_request_does_not_hold_up_a_shutdown(sent: bytes) -> None:
    config = Config(port=0, limits=Limits(grace_seconds=60.0))
    server = Server(config, build_services(config), KeyRing({}))
    ready: list[Address] = []
    with trio.fail_after(2):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, ready.append)
            while not ready:
                await trio.sleep(0.001)
            stream = await trio.open_tcp_stream("127.0.0.1", ready[0].port)
            await stream.send_all(sent)
            await trio.testing.wait_all_tasks_blocked(0.02)
            server.stop.set()
            async with stream:
                await RawClient(stream).rest()  # a reset would raise


async def test_tls_serves_both_transports(serve: Any, tmp_path: Any) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    server = await serve(certfile=str(tmp_path / "server.pem"), keyfile=str(tmp_path / "server.pem"))
    assert server.base_url.startswith("https://127.0.0.1:")
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with http(server, verify=context) as client:
        answer = await client.post("/responses", json={"model": "sim", "input": "hi", "stream": True})
        assert text_of(parse_sse(answer.text)[-1]["response"]) == "You said: hi"
    async with Client(server.base_url, ssl_context=context).connect() as wire:
        events = [event async for event in wire.turn(model="sim", input="hi")]
    assert isinstance(events[-1], ResponseCompleted)
