"""Where MCP servers may be: what the settings allow, and what a name turns out to stand for."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import trio

from respserver.errors import InvalidField
from respserver.tools.base import ToolboxUnavailable
from tests.support.mcp_kit import FakeServer, define, host_for, open_box

# Any in this file: what Trio hands to a resolver.


@pytest.mark.parametrize(
    ("allow", "url", "words"),
    [
        ([], "https://mcp.test/mcp", "--mcp-allow"),
        (["other.test"], "https://mcp.test/mcp", "'mcp.test'"),
        (["mcp.test:444"], "https://mcp.test/mcp", "'mcp.test'"),
        (["*.test"], "http://mcp.test/mcp", "plain http"),
        (["*"], "http://127.0.0.1/mcp", "plain http"),
        (["*"], "http://localhost:81/mcp", "plain http"),
    ],
)
def test_a_host_that_is_not_allowed_is_refused_before_it_is_asked(allow: list[str], url: str, words: str) -> None:
    with pytest.raises(InvalidField) as caught:
        host_for(*allow).check(define(url), "tools[3]")
    assert (caught.value.param, caught.value.status) == ("tools[3].server_url", 400)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        (["mcp.test"], "https://MCP.test/mcp"),
        (["mcp.test"], "http://mcp.test:81/mcp"),
        (["*.test"], "https://mcp.test/mcp"),
        (["*"], "https://127.0.0.1/mcp"),  # and refused when it is connected to
        (["[::1]:81"], "http://[::1]:81/mcp"),
    ],
)
def test_a_host_that_is_allowed_passes(allow: list[str], url: str) -> None:
    host_for(*allow).check(define(url), "tools[3]")


class Resolver(trio.abc.HostnameResolver):
    """Answers with one list of addresses after the other, the last one again and again."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.port = 0

    async def getaddrinfo(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        addresses = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, int(port))) for address in addresses]

    async def getnameinfo(self, *args: Any) -> Any:
        raise NotImplementedError("an address is never turned back into a name")


@pytest.mark.parametrize(
    ("allow", "addresses"),
    [
        ("*", ["127.0.0.1"]),
        ("*.test", ["10.0.0.1"]),
        ("*.test", ["93.184.215.14", "169.254.169.254"]),
    ],
)
async def test_a_name_that_stands_for_a_private_address_is_not_called(allow: str, addresses: list[str]) -> None:
    trio.socket.set_custom_hostname_resolver(Resolver(addresses))
    with pytest.raises(ToolboxUnavailable, match="not public"):
        await host_for(allow).open(define("https://mcp.test/mcp"), "tools[0]")


async def test_a_name_of_its_own_entry_may_stand_for_a_private_address() -> None:
    server = FakeServer()
    async with server.served() as url:
        trio.socket.set_custom_hostname_resolver(Resolver(["127.0.0.1"]))
        async with open_box(url.replace("127.0.0.1", "mcp.test")) as box:
            assert len(box.tools) == 1
    assert server.heads[0]["host"].startswith("mcp.test:")


async def test_the_address_that_was_looked_at_is_the_one_that_is_called() -> None:
    """A name that resolves to a public address at first and to a private one later is looked at each time."""
    resolver = Resolver(["198.51.100.1"], ["127.0.0.1"])
    trio.socket.set_custom_hostname_resolver(resolver)
    host = host_for("*.test", list_seconds=1)
    for _ in range(2):
        with pytest.raises(ToolboxUnavailable) as caught:
            await host.open(define("https://mcp.test/mcp"), "tools[0]")
    assert "not public" in str(caught.value)


async def test_of_several_addresses_the_next_one_is_tried() -> None:
    server = FakeServer()
    async with server.served() as url:
        trio.socket.set_custom_hostname_resolver(Resolver(["127.0.0.2", "127.0.0.1"]))
        async with open_box(url.replace("127.0.0.1", "mcp.test")) as box:
            assert len(box.tools) == 1
