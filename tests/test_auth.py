from __future__ import annotations

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver import auth
from respserver.auth import KeyRing, bearer_key
from respserver.config import Config, is_key
from respserver.errors import ConfigError, InvalidApiKey

FILE = Config(api_keys_file="keys.txt")
KEYS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1).filter(lambda key: key[0] != "#")


def ring(*lines: str, **fields: object) -> KeyRing:
    return KeyRing.from_config(Config(api_keys_file="keys.txt", **fields), lines)


@pytest.mark.parametrize("header", [None, "", "Bearer anything", "Basic abc", "nonsense"])
def test_without_keys_everybody_is_the_default_tenant(header):
    keys = KeyRing.from_config(Config())
    assert keys.is_open
    assert keys.authenticate(header) == "default"


def test_a_named_key_stands_for_its_tenant():
    keys = ring("one alice", "two bob", "three alice")
    assert not keys.is_open
    assert [keys.authenticate(f"Bearer {key}") for key in ("one", "two", "three")] == ["alice", "bob", "alice"]


def test_an_unnamed_key_is_a_tenant_of_its_own_that_does_not_show_it():
    keys = KeyRing.from_config(Config(api_key=("sk-first-key", "sk-second-key")))
    first, second = (keys.authenticate(f"Bearer {key}") for key in ("sk-first-key", "sk-second-key"))
    assert first != second
    assert first.startswith("key-")
    assert "first" not in first


def test_the_option_and_the_file_name_an_unnamed_key_alike():
    assert ring("abc").authenticate("Bearer abc") == KeyRing.from_config(Config(api_key=("abc",))).authenticate(
        "Bearer abc"
    )


def test_the_files_name_counts_for_a_key_that_stands_in_both():
    assert ring("abc alice", api_key=("abc", "def")).authenticate("Bearer abc") == "alice"


@pytest.mark.parametrize("header", ["Bearer k", "bearer k", "BEARER   k", "  Bearer k  "])
def test_the_scheme_may_be_written_in_any_case_and_with_spaces(header):
    assert ring("k alice").authenticate(header) == "alice"


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic k", "k"])
def test_a_header_without_a_bearer_key_is_told_how_to_send_one(header):
    with pytest.raises(InvalidApiKey, match="didn't provide") as caught:
        ring("k").authenticate(header)
    assert caught.value.status == 401


@pytest.mark.parametrize(
    "header", ["Bearer wrong", "Bearer zebra zebra", "Bearer ZEBRA", "Bearer \udcff", "Bearer clé"]
)
def test_an_unknown_key_is_refused_and_not_repeated(header):
    with pytest.raises(InvalidApiKey, match="Incorrect") as caught:
        ring("zebra").authenticate(header)
    assert header.split()[-1] not in str(caught.value)


def test_every_key_is_compared_whatever_the_first_ones_say(monkeypatch):
    compared = []

    def compare(known: bytes, given: bytes) -> bool:
        compared.append(known)
        return hmac.compare_digest(known, given)

    keys = ring("a", "b", "c")
    monkeypatch.setattr(auth, "hmac", type("Spy", (), {"compare_digest": staticmethod(compare)}))
    keys.authenticate("Bearer a")
    assert len(set(compared)) == 3


def test_comments_and_empty_lines_do_not_count():
    keys = ring("# all keys", "", "   ", "  k alice  ", "#k2 bob")
    assert keys.authenticate("Bearer k") == "alice"
    with pytest.raises(InvalidApiKey):
        keys.authenticate("Bearer #k2")


@pytest.mark.parametrize("lines", [[], ["", "# nothing"]])
def test_a_keys_file_without_keys_does_not_open_the_server(lines):
    with pytest.raises(ConfigError, match=r"^keys.txt: holds no keys"):
        KeyRing.from_config(FILE, lines)


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        (["a", "b c d"], "keys.txt:2"),
        (["clé-secret"], "keys.txt:1"),
        (["a bad/tenant"], "keys.txt:1"),
        (["a " + "t" * 65], "keys.txt:1"),
        (["secret alice", "", "secret bob"], "keys.txt:3"),
    ],
)
def test_a_bad_line_is_named_and_its_key_is_not_shown(lines, place):
    with pytest.raises(ConfigError) as caught:
        KeyRing.from_config(FILE, lines)
    assert caught.value.option == place
    assert "secret" not in str(caught.value)


def test_the_same_line_twice_does_no_harm():
    assert ring("a alice", "a alice").authenticate("Bearer a") == "alice"


@given(KEYS)
def test_every_possible_key_gets_in_and_no_longer_one_does(key):
    assert is_key(key)
    keys = ring(key)
    assert keys.authenticate(f"Bearer {key}").startswith("key-")
    with pytest.raises(InvalidApiKey):
        keys.authenticate(f"Bearer {key}x")


@given(st.text())
def test_no_header_can_break_in_or_break_the_server(header):
    keys = ring("k-3f9c0a7d51")
    if bearer_key(header) != "k-3f9c0a7d51":
        with pytest.raises(InvalidApiKey):
            keys.authenticate(header)
