"""Which hosts an entry means, and which addresses are public."""

from __future__ import annotations

import pytest

from respserver.hosts import HostPattern, find, is_public, read_pattern


@pytest.mark.parametrize(
    ("entry", "pattern"),
    [
        ("mcp.example.com", HostPattern("mcp.example.com", None)),
        ("MCP.Example.com:8443", HostPattern("mcp.example.com", 8443)),
        ("10.0.0.7", HostPattern("10.0.0.7", None)),
        ("[::1]:80", HostPattern("::1", 80)),
        ("*.example.com", HostPattern("*.example.com", None)),
        ("*", HostPattern("*", None)),
        ("*:443", HostPattern("*", 443)),
    ],
)
def test_an_entry_is_a_host_perhaps_with_a_port(entry: str, pattern: HostPattern) -> None:
    assert read_pattern(entry) == pattern


@pytest.mark.parametrize(
    "entry",
    ["", "https://a.test", "a.test/mcp", "a b", "a.test:", "a.test:0", "a.test:65536", "a.*", "**", "u@a.test", "::1"],
)
def test_what_is_no_entry_is_none(entry: str) -> None:
    assert read_pattern(entry) is None


@pytest.mark.parametrize(
    ("entry", "host", "port", "fits"),
    [
        ("a.test", "a.test", 443, True),
        ("a.test", "b.test", 443, False),
        ("a.test", "x.a.test", 443, False),
        ("a.test:80", "a.test", 443, False),
        ("a.test:443", "a.test", 443, True),
        ("*.a.test", "x.a.test", 443, True),
        ("*.a.test", "x.y.a.test", 443, True),
        ("*.a.test", "a.test", 443, False),
        ("*.a.test", "xa.test", 443, False),
        ("*", "anything", 1, True),
        ("*:2", "anything", 1, False),
    ],
)
def test_an_entry_means_a_host_or_a_domain(entry: str, host: str, port: int, fits: bool) -> None:
    pattern = read_pattern(entry)
    assert pattern is not None
    assert pattern.fits(host, port) is fits


def test_an_entry_without_a_wildcard_goes_before_one_with_it() -> None:
    patterns = [HostPattern("*", None), HostPattern("*.test", None), HostPattern("a.test", None)]
    assert find(patterns, "a.test", 443) == patterns[2]
    assert find(patterns, "b.test", 443) == patterns[0]
    assert find([], "a.test", 443) is None


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "64:ff9b::808:808"])
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "100.64.0.1"),
        *("224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"),
        *("::127.0.0.1", "::ffff:0:7f00:1", "64:ff9b:1::a00:1", "fec0::1"),
    ],
)
def test_addresses_of_a_machine_a_house_or_a_cloud_are_not_public_however_they_are_written(address: str) -> None:
    assert not is_public(address)
