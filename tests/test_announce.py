from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest
import trio

from respserver import __version__, announce, server
from respserver.config import Config, Mode
from tests.support.command import ROOT, Address, FakeServe, run


def shell_values(text: str) -> dict[str, str]:
    return dict(re.findall(r"export (\w+)=(\S+)", text))


def test_the_ready_file_tells_where_the_server_is_until_it_ends(tmp_path):
    ready = tmp_path / "ready.json"
    seen: list[dict[str, object]] = []

    async def look(stop: trio.Event) -> None:
        seen.append(json.loads(ready.read_text()))
        assert os.listdir(tmp_path) == ["ready.json"]

    assert run("--ready-file", str(ready), "--mode", "prototype", serve=FakeServe(look)) == 0
    assert seen == [
        {
            "base_url": "http://127.0.0.1:40123/v1",
            "ws_url": "ws://127.0.0.1:40123/v1/responses",
            "host": "127.0.0.1",
            "port": 40123,
            "mode": "prototype",
            "pid": os.getpid(),
            "version": __version__,
        }
    ]
    assert os.listdir(tmp_path) == []


def test_the_ready_file_goes_away_when_the_server_breaks(tmp_path):
    async def break_down(stop: trio.Event) -> None:
        raise RuntimeError

    ready = tmp_path / "ready.json"
    assert run("--ready-file", str(ready), serve=FakeServe(break_down)) == 1
    assert not ready.exists()


@pytest.mark.parametrize("there", [None, "another server's"])
def test_a_ready_file_of_somebody_else_is_left_alone(tmp_path, there):
    ready = tmp_path / "ready.json"

    async def replace(stop: trio.Event) -> None:
        ready.unlink()
        if there is not None:
            ready.write_text(there)

    assert run("--ready-file", str(ready), serve=FakeServe(replace)) == 0
    assert (ready.read_text() if ready.exists() else None) == there


def test_a_ready_file_that_cannot_be_written_exits_with_2(tmp_path, capsys):
    ready = tmp_path / "ready.json"
    ready.mkdir()
    assert run("--ready-file", str(ready)) == 2
    assert f"--ready-file: cannot write {ready}" in capsys.readouterr().err


def test_the_banner_goes_to_standard_output_and_logs_elsewhere(capsys):
    run("--log-format", "json")
    printed = capsys.readouterr()
    assert printed.out.startswith(f"respserver {__version__}, shipped mode\n")
    assert "base URL   http://127.0.0.1:40123/v1" in printed.out
    assert "WebSocket  ws://127.0.0.1:40123/v1/responses" in printed.out
    assert shell_values(printed.out) == {"OPENAI_BASE_URL": "http://127.0.0.1:40123/v1", "OPENAI_API_KEY": "any"}
    (line,) = map(json.loads, printed.err.splitlines())
    assert (line["event"], line["base_url"], line["mode"]) == ("ready", "http://127.0.0.1:40123/v1", "shipped")


def test_a_server_with_keys_asks_for_one_in_the_banner():
    lines = announce.sdk_settings(Config(api_key=("tell-nobody",)), Address())
    assert shell_values("\n".join(lines))["OPENAI_API_KEY"] == "YOUR_KEY"
    lines = announce.sdk_settings(Config(api_keys_file="keys.txt"), Address())
    assert shell_values("\n".join(lines))["OPENAI_API_KEY"] == "YOUR_KEY"


def test_what_is_pasted_into_a_shell_holds_no_comment():
    for config in (Config(), Config(api_key=("k",))):
        assert not any("#" in line for line in announce.sdk_settings(config, Address()))


def codex(config: Config) -> dict[str, object]:
    return tomllib.loads("\n".join(announce.codex_settings(config, Address())))


def test_the_codex_settings_are_toml_for_the_shipped_mode():
    assert codex(Config()) == {
        "model": "gpt-5.5",
        "model_provider": "respserver",
        "model_providers": {
            "respserver": {
                "name": "respserver",
                "base_url": "http://127.0.0.1:40123/v1",
                "wire_api": "responses",
                "supports_websockets": True,
                "env_key": "OPENAI_API_KEY",
            }
        },
    }


def test_the_codex_settings_for_the_prototype_are_those_of_its_time():
    text = "\n".join(announce.codex_settings(Config(mode=Mode.PROTOTYPE), Address()))
    provider = tomllib.loads(text)["model_providers"]["respserver"]
    assert provider["wire_api"] == "responses_websocket"
    assert "supports_websockets" not in provider
    later = tomllib.loads(re.sub(r"(?m)^wire_api.*\n|^# (?=\w+ = )", "", text))["model_providers"]["respserver"]
    assert (later["wire_api"], later["supports_websockets"]) == ("responses", True)


def test_without_websocket_clients_are_not_sent_there():
    config = Config(websocket=False)
    assert "supports_websockets" not in codex(config)["model_providers"]["respserver"]
    assert "ws://" not in announce.banner(config, Address())


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "http://127.0.0.1:80/v1"), ("::", "http://[::1]:80/v1"), ("0::0", "http://[::1]:80/v1")],
)
def test_a_server_on_all_addresses_is_announced_by_one_that_can_be_called(host, url):
    config, address = Config(host=host, api_key=("k",)), server.Address(host=host, port=80)
    text = announce.banner(config, address)
    assert shell_values(text)["OPENAI_BASE_URL"] == url
    assert f"base URL   {url}\n  WebSocket  {url.replace('http', 'ws')}/responses\n" in text
    assert f"  listening  on all addresses of this machine ({host})\n" in text
    ready = json.loads(announce.ready_text(config, address, 1))
    assert (ready["base_url"], ready["host"]) == (url, host)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "10.1.2.3", "tides.example"])
def test_a_server_on_one_address_is_announced_by_it(host):
    text = announce.banner(Config(), server.Address(host=host, port=80))
    assert f"http://{f'[{host}]' if ':' in host else host}:80/v1" in text
    assert "listening" not in text


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Config(), "rehearses (no script)"),
        (Config(script="/somewhere/tides.toml"), "plays tides.toml"),
        (Config(rehearse=False), "repeats what it is told (no script, no rehearsal)"),
    ],
)
def test_the_banner_says_what_answers(config, words):
    assert f"\n  model      {words}\n" in announce.banner(config, Address())


@pytest.mark.parametrize(
    ("config", "is_warned"),
    [
        (Config(), False),
        (Config(mode=Mode.PROTOTYPE), True),
        (Config(mode=Mode.PROTOTYPE, websocket=False), False),
    ],
)
def test_the_banner_of_the_prototype_says_what_the_sdks_cannot_do(config, is_warned):
    assert ("tool loops over WebSocket need --mode shipped" in announce.banner(config, Address())) is is_warned


@pytest.mark.parametrize(
    ("model", "named"), [((), "gpt-5.5"), (("gpt-*", "mine", "other"), "mine"), (("o*",), "gpt-5.5")]
)
def test_the_codex_settings_name_a_model_that_is_served(model, named):
    assert codex(Config(model=model))["model"] == named


@pytest.mark.slow
def test_a_reader_of_the_banner_may_leave():
    code = (
        "import sys; from tests.support.command import FakeServe; from respserver.cli import main\n"
        "sys.stdin.read(); sys.exit(main(['--port', '0'], FakeServe()))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, errors = process.communicate(b"")
    assert process.returncode == 0
    assert b"Error" not in errors
