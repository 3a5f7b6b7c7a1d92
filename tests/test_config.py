from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args, get_origin

import msgspec
import pytest

from respserver.config import (
    Config,
    Group,
    HttpClassifierConfig,
    Limits,
    Mode,
    RouteConfig,
    check,
    is_key,
    is_loopback,
)
from respserver.errors import ConfigError


def described(struct: type[msgspec.Struct]) -> list[msgspec.structs.FieldInfo]:
    return [field for field in msgspec.structs.fields(struct) if get_origin(field.type) is Annotated]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("requests_per_minute", r"^requests_per_minute is a field of Limits: Config\(limits=Limits\("),
        ("sript", "^unexpected setting 'sript'; did you mean script\\?$"),
        ("zzz", "^unexpected setting 'zzz'$"),
    ],
)
def test_a_keyword_that_is_no_setting_is_told_with_what_was_meant(name: str, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Config(**{name: 3})  # type: ignore[arg-type]  # mypy sees all of the keywords


def test_the_defaults_may_start_a_server():
    check(Config())


@pytest.mark.parametrize("struct", [Config, Limits, RouteConfig])
def test_every_field_says_what_it_means(struct):
    for field in described(struct):
        descriptions = [mark.description for mark in get_args(field.type) if isinstance(mark, msgspec.Meta)]
        assert any(descriptions), field.name


def test_every_setting_has_a_place_in_the_help():
    for field in described(Config):
        assert any(isinstance(mark, Group) for mark in get_args(field.type)), field.name


def test_a_name_means_one_setting_only():
    names = [field.name for field in (*msgspec.structs.fields(Config), *msgspec.structs.fields(Limits))]
    assert sorted(names) == sorted(set(names))
    assert not {"config", "help", "version"} & set(names)  # the command's own options


def test_keys_do_not_show_in_repr():
    shown = repr(Config(api_key=("tell-nobody",), encryption_key="tell-nobody" * 3, port=1234))
    assert "tell-nobody" not in shown
    assert "port=1234" in shown
    assert "api_key=()" in repr(Config())
    assert "encryption_key=None" in repr(Config())


@pytest.mark.parametrize(
    ("config", "option"),
    [
        (Config(mode="both"), "mode"),
        (Config(classifiers=({"kind": "terms", "file": "x"},)), "classifiers[0]"),
        (Config(routes=(RouteConfig(pattern=""),)), "routes[0].pattern"),
        (Config(limits={"tool_seconds": 1}), "limits"),
        (Config(certfile="cert.pem"), "keyfile"),
        (Config(keyfile="key.pem"), "certfile"),
        (Config(host=""), "host"),
        (Config(host="0.0.0.0"), "host"),
        (Config(host="::"), "host"),
        (Config(host="example.org"), "host"),
        (Config(api_key=("",)), "api_key"),
        (Config(encryption_key="too short"), "encryption_key"),
        (Config(api_key=("good", "two words")), "api_key"),
        (Config(port=70_000), "port"),
        (Config(ttft=float("nan")), "ttft"),
        (Config(limits=Limits(tool_seconds=0)), "limits.tool_seconds"),
        (Config(limits=Limits(message_bytes=10)), "limits.message_bytes"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(config, option):
    with pytest.raises(ConfigError) as caught:
        check(config)
    assert caught.value.option == option


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (Config(mode="both"), "mode: expected shipped or prototype, got 'both'"),
        (Config(port=99999), "port: expected a whole number from 0 to 65535, got 99999"),
        (Config(tps=-1), "tps: expected a number of at least 0, got -1"),
        (Config(strict="on"), "strict: expected true or false, without quotes, got 'on'"),
        (Config(model="gpt-*"), "model: expected a list of texts, got 'gpt-*'"),
        (Config(script=Path("x")), f"script: expected a file name, got {type(Path()).__name__}"),
        (Config(limits={"tool_seconds": 1}), "limits: expected Limits, got dict"),
        (Config(routes=[{"pattern": "*"}]), "routes[0]: expected RouteConfig, got dict"),
        (
            Config(classifiers=({"kind": "terms", "file": "x"},)),
            "classifiers[0]: expected TermsClassifierConfig, HttpClassifierConfig or LatencyClassifierConfig, got dict",
        ),
        (
            Config(classifiers=(HttpClassifierConfig(url="ftp://x"),)),
            "classifiers[0].url: expected http://… or https://…",
        ),
        ("shipped", "config: expected a Config, got 'shipped'; use Config(mode=…, …)"),
    ],
)
def test_a_wrong_setting_from_python_is_told_in_the_words_of_the_command(config, told):
    with pytest.raises(ConfigError) as caught:
        check(config)
    assert str(caught.value) == told


def test_a_mode_may_be_given_by_its_name():
    assert Config(mode="prototype").mode is Mode.PROTOTYPE


@pytest.mark.parametrize(
    "config",
    [
        Config(host="0.0.0.0", insecure=True),
        Config(host="0.0.0.0", api_key=("k",)),
        Config(host="0.0.0.0", api_keys_file="keys.txt"),
        Config(certfile="cert.pem", keyfile="key.pem"),
        Config(mode=Mode.PROTOTYPE, script="s.toml", rehearse=True),
    ],
)
def test_settings_that_go_together_pass(config):
    check(config)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("localhost", True),
        ("LocalHost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.7", False),
        ("localhost.example.org", False),
        ("", False),
    ],
)
def test_only_addresses_of_this_machine_are_loopback(host, expected):
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("sk-1", True), ("~!#", True), ("", False), ("a b", False), ("a\n", False), ("clé", False), ("\x7f", False)],
)
def test_a_key_is_visible_ascii(text, expected):
    assert is_key(text) is expected


def test_a_refused_key_is_not_told():
    with pytest.raises(ConfigError) as caught:
        check(Config(api_key=("my secret",)))
    assert "secret" not in str(caught.value)
    for config in (
        Config(api_key=("my", b"secret")),
        Config(encryption_key="my secret"),
        Config(encryption_key=b"my secret" * 4),
        Config(classifiers=(HttpClassifierConfig(url="http://x", api_key="my secret"),)),
    ):
        with pytest.raises(ConfigError) as caught:
            check(config)
        assert "secret" not in str(caught.value)
