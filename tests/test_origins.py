"""Origins of pages are read and compared as browsers do: by scheme, host and port, and by nothing else."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.config import Config, check
from respserver.errors import ConfigError
from respserver.origins import canonical, is_same_host


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("https://app.example", "https://app.example"),
        ("HTTPS://App.Example", "https://app.example"),
        ("https://app.example:443", "https://app.example"),
        ("http://app.example:80", "http://app.example"),
        ("http://app.example:443", "http://app.example:443"),
        ("http://localhost:05173", "http://localhost:5173"),
        ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
        ("http://[::1]:3000", "http://[::1]:3000"),
        ("http://[::1]:80", "http://[::1]"),
        ("chrome-extension://abcdefgh", "chrome-extension://abcdefgh"),
        ("null", "null"),
    ],
)
def test_an_origin_has_one_way_to_be_written(written: str, read: str) -> None:
    assert canonical(written) == read


@pytest.mark.parametrize(
    "text",
    [
        "", "*", "app.example", "https://", "https://app.example/", "https://app.example/path", "https://a?b", "https://a#b",
        "https://user@app.example", "https://app.example:", "https://app.example:x", "https://a:1:2", "http://[", "http://[::1",
        "http://a b", "http://a\tb", "http://\xe9", "null ", "NULL", "https://a\\b", "://a", "1http://a", "http://a, http://b",
        "http://a\n",
    ],
)  # fmt: skip
def test_what_has_a_path_a_user_or_no_host_is_no_origin(text: str) -> None:
    assert canonical(text) is None


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://server.test", "server.test", True),
        ("http://server.test", "SERVER.test", True),
        ("HTTP://Server.Test", "server.test", True),
        ("http://server.test:80", "server.test", True),
        ("http://server.test", "server.test:80", True),
        ("https://server.test", "server.test", True),  # behind a proxy that speaks TLS
        ("https://server.test", "server.test:443", True),
        ("http://server.test:8080", "server.test:8080", True),
        ("http://[::1]:8080", "[::1]:8080", True),
        ("http://server.test:8080", "server.test", False),
        ("http://server.test", "server.test:8080", False),
        ("http://server.test:8080", "server.test:8081", False),
        ("http://server.test.evil", "server.test", False),
        ("http://evil", "server.test", False),
        ("http://server.test@evil", "server.test", False),
        ("chrome-extension://server.test", "server.test", False),
        ("null", "null", False),
        ("", "", False),
        ("nonsense", "nonsense", False),
        ("http://server.test", None, False),
        ("http://server.test", "", False),
        ("http://server.test", "server.test/", False),
    ],
)
def test_a_page_of_the_server_itself_is_told_by_host_and_port(origin: str, host: str | None, same: bool) -> None:
    assert is_same_host(origin, host) is same


@given(st.text(), st.text())
def test_no_text_raises_and_what_is_no_origin_is_never_the_same_host(origin: str, host: str) -> None:
    read = canonical(origin)
    assert read is None or canonical(read) == read
    if read is None:
        assert not is_same_host(origin, host)


@pytest.mark.parametrize("option", ["allow_origin", "cors_origin"])
@pytest.mark.parametrize("wrong", ["https://app.example/", "app.example", ""])
def test_a_setting_that_no_page_could_ever_match_is_refused(option: str, wrong: str) -> None:
    with pytest.raises(ConfigError, match=f"^{option}: '{wrong}' is no origin: scheme://host"):
        check(msgspec.structs.replace(Config(), **{option: ("https://right.example", wrong)}))


def test_any_origin_may_be_allowed_for_http_and_not_for_sockets() -> None:
    check(Config(cors_origin=("*",), allow_origin=("null", "http://localhost:5173")))
    with pytest.raises(ConfigError, match=r"^allow_origin: "):
        check(Config(allow_origin=("*",)))
