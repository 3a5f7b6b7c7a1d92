"""A server inside another program, with Trio or without."""

from __future__ import annotations

import json
import urllib.request

import pytest

from respserver.config import Config
from respserver.embed import start_server
from respserver.engines.sim import Script
from respserver.errors import ConfigError


def ask(base_url: str, text: str) -> str:
    body = json.dumps({"model": "sim", "input": text}).encode()
    request = urllib.request.Request(f"{base_url}/responses", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        response = json.load(answer)
    text_found: str = response["output"][0]["content"][0]["text"]
    return text_found


def test_a_server_in_a_thread_serves_code_without_any_async_library() -> None:
    with start_server(script=Script.of("from the script", on_end="repeat")) as server:
        assert ask(server.base_url, "hi") == "from the script"
        assert server.metrics.turns == 1
        assert server.ws_url.startswith("ws://127.0.0.1:")
        port = server.address.port
    with pytest.raises(OSError):
        ask(f"http://127.0.0.1:{port}/v1", "gone")


def test_two_servers_in_one_process_do_not_know_each_other() -> None:
    with start_server(script=Script.of("one")) as one, start_server(script=Script.of("two")) as two:
        assert (ask(one.base_url, "hi"), ask(two.base_url, "hi")) == ("one", "two")


def test_what_is_wrong_is_raised_where_the_server_is_opened() -> None:
    with pytest.raises(ConfigError, match="host"), start_server(Config(host="0.0.0.0", port=0)):
        pass
    with (
        start_server() as server,
        pytest.raises(OSError, match="in use"),
        start_server(Config(port=server.address.port)),
    ):
        pass
