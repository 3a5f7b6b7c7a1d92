from __future__ import annotations

import errno
import json
import re
import socket
import subprocess
import sys

import pytest
import trio
import trio.testing

from respserver import __version__, cli, settings
from respserver.config import Config, Mode
from respserver.errors import ConfigError
from tests.support.command import ROOT, FakeServe, run


def test_options_reach_the_server():
    serve = FakeServe()
    assert (
        run("--mode", "prototype", "--port=0", "--strict", "--rehearse", "off", "--queued-creates", "3", serve=serve)
        == 0
    )
    assert serve.config is not None
    assert (serve.config.mode, serve.config.port, serve.config.strict) == (Mode.PROTOTYPE, 0, True)
    assert (serve.config.rehearse, serve.config.limits.queued_creates) == (False, 3)


@pytest.mark.parametrize(
    ("argv", "strict"), [(["--strict"], True), (["--strict", "on"], True), (["--strict", "off"], False), ([], False)]
)
def test_a_switch_alone_means_on(argv, strict):
    serve = FakeServe()
    run(*argv, "--port", "0", serve=serve)
    assert serve.config is not None
    assert serve.config.strict is strict


def test_file_environment_and_command_line_are_layered(tmp_path, monkeypatch):
    file = tmp_path / "settings.toml"
    file.write_text("port = 1\ntps = 1\nttft = 1\n")
    monkeypatch.setenv("RESPSERVER_TPS", "2")
    monkeypatch.setenv("RESPSERVER_TTFT", "2")
    serve = FakeServe()
    run("--config", str(file), "--ttft", "3", serve=serve)
    assert serve.config == Config(port=1, tps=2.0, ttft=3.0)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--prot", "1"], "--prot: unknown option; did you mean --port?"),
        (["--xyzzy"], "--xyzzy: unknown option"),
        (["-p", "1"], "-p: unknown option"),
        (["--port"], "--port: expected one argument"),
        (["--port", "many"], "--port: expected a whole number from 0 to 65535, got 'many'"),
        (["serve"], "argument 1: is no command; respserver alone serves, and usage is the only other one"),
        (["--config", "/nowhere.toml"], "--config: cannot read /nowhere.toml: No such file or directory\n"),
        (["--engine", "sim"], "--engine: is no option; it is a key of [[routes]], in the file that --config names"),
        (["--port", "1", "x"], "argument 3: is not an option; respserver takes options only"),
        (["--api-key", ""], "--api-key: is empty\n"),
        (["--api-key", "two words"], "--api-key: a key is one or more visible ASCII characters without spaces\n"),
        (["--host", "0.0.0.0"], "--host: '0.0.0.0' can be reached from other machines"),
    ],
)
def test_a_mistake_names_itself_and_exits_with_2(capsys, argv, told):
    serve = FakeServe()
    assert run(*argv, serve=serve) == 2
    assert capsys.readouterr().err.startswith(f"respserver: {told}")
    assert serve.config is None


@pytest.mark.parametrize(
    ("argv", "is_said"),
    [
        (["--prot", "1"], True),
        (["--port", "many"], True),
        (["serve"], True),
        (["usage", "--leger", "x"], True),
        (["--config", "/nowhere.toml"], False),
        (["--script", "/nowhere.toml"], False),
        (["usage", "--ledger", "/nowhere.db"], False),
    ],
)
def test_where_the_options_are_listed_is_said_when_an_option_is_wrong(capsys, argv, is_said):
    assert run(*argv) == 2
    assert (" --help lists the options." in capsys.readouterr().err) is is_said


def test_a_mistake_in_a_file_does_not_send_to_the_options(capsys, tmp_path):
    (tmp_path / "a.toml").write_text("prot = 1")
    assert run("--config", str(tmp_path / "a.toml")) == 2
    assert capsys.readouterr().err == f"respserver: {tmp_path / 'a.toml'}: prot: unknown key; did you mean port?\n"


@pytest.mark.parametrize(
    "argv",
    [
        ["--api-key", "good", "tell-nobody"],
        ["--api-keys=tell-nobody"],
        ["--api_key", "tell-nobody"],
        ["--api-key", "tell nobody"],
        ["--insecure", "sk-tell-nobody"],
        ["--port", "sk-tell-nobody"],
        ["--help=sk-tell-nobody"],
        ["--api-key", "a", "--", "tell-nobody"],
    ],
)
def test_no_mistake_shows_a_key(capsys, argv):
    assert run(*argv) == 2
    printed = capsys.readouterr()
    assert "nobody" not in printed.out + printed.err


def test_keys_are_shown_neither_at_start_nor_in_logs(capsys, tmp_path):
    ready = tmp_path / "ready.json"
    seen: list[str] = []

    async def look(stop: trio.Event) -> None:
        seen.append(ready.read_text())

    assert (
        run("--api-key", "tell-nobody", "--log-level", "debug", "--ready-file", str(ready), serve=FakeServe(look)) == 0
    )
    printed = capsys.readouterr()
    assert "tell-nobody" not in printed.out + printed.err + "".join(seen)


def test_version_and_help_exit_with_0(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"respserver {__version__}\n"
    assert cli.main(["-h"]) == 0
    text = capsys.readouterr().out
    assert all(option.flag in text for option in settings.OPTIONS)


@pytest.mark.slow
def test_the_version_is_told_without_loading_the_server():
    code = "import sys; from respserver.cli import main; main(['--version']); print(sorted(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    version, modules = result.stdout.splitlines()
    assert version == f"respserver {__version__}"
    assert not {"trio", "quart", "hypercorn", "structlog", "tokenizers"} & set(re.findall(r"'(\w+)'", modules))


@pytest.mark.slow
def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "respserver", "--version"]
    assert (
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        == f"respserver {__version__}\n".encode()
    )


def test_a_taken_port_is_told_and_exits_with_1(capsys):
    serve = FakeServe(fails=OSError(errno.EADDRINUSE, "Address already in use"))
    assert run("--port", "8123", serve=serve) == 1
    assert "respserver: cannot listen on 127.0.0.1 port 8123: it is already in use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (OSError(errno.EACCES, "Permission denied"), "port 80: it needs more rights"),
        (OSError(errno.EADDRNOTAVAIL, "Cannot assign"), "port 80: this machine has no such address"),
        (socket.gaierror(-2, "Name or service not known"), "port 80: there is no such host"),
        (
            FileNotFoundError(errno.ENOENT, "No such file", "model.bin"),
            "cannot start: [Errno 2] No such file: 'model.bin'",
        ),
        (ExceptionGroup("", [OSError(errno.EADDRINUSE, "in use")]), "port 80: it is already in use"),
    ],
)
def test_why_it_cannot_start_is_told(capsys, failure, told):
    assert run("--port", "80", serve=FakeServe(fails=failure)) == 1
    printed = capsys.readouterr()
    assert told in printed.err
    assert printed.out == ""


def test_a_wrong_script_found_by_the_server_exits_with_2(capsys):
    failure = ExceptionGroup("", [ConfigError("demo.toml: step[0]", "unknown key 'tex'")])
    assert run(serve=FakeServe(fails=failure)) == 2
    assert "respserver: demo.toml: step[0]: unknown key 'tex'" in capsys.readouterr().err


@pytest.mark.parametrize("failure", [RuntimeError("sk-tell-nobody"), OSError(errno.EIO, "disk")])
def test_a_server_that_breaks_is_logged_and_exits_with_1(capsys, failure):
    async def break_down(stop: trio.Event) -> None:
        raise failure

    assert run("--log-format", "json", serve=FakeServe(break_down)) == 1
    line = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (line["level"], line["logger"], line["event"]) == ("error", "respserver.cli", "the server broke")
    assert type(failure).__name__ in line["exception"]
    assert "nobody" not in str(line)


def test_an_interrupt_before_the_server_runs_exits_with_130(monkeypatch):
    def interrupted(*_: object) -> Config:
        raise KeyboardInterrupt

    monkeypatch.setattr(settings, "load", interrupted)
    assert run() == 130


def test_the_documentation_page_names_every_setting_and_exit_code():
    text = (ROOT / "docs" / "cli.md").read_text("utf-8")
    for option in settings.OPTIONS:
        assert all(f"`{name}" in text for name in (option.flag, option.key, option.variable))
    codes = [cli.EXIT_OK, cli.EXIT_FAILED, cli.EXIT_USAGE, cli.EXIT_INTERRUPTED]
    assert re.findall(r"(?m)^\| (\d+) \|", text) == [str(code) for code in codes]


def test_the_settings_file_in_the_documentation_is_valid(tmp_path):
    text = (ROOT / "docs" / "cli.md").read_text("utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "demo.toml").touch()
    (tmp_path / "respserver.toml").write_text(example)
    assert settings.load(file=str(tmp_path / "respserver.toml")).port == 8081
