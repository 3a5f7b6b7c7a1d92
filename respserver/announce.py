"""What the command tells the world once the server can be reached: the banner and the ready file.

The banner goes to standard output, with settings that can be pasted into clients as they are; log lines go elsewhere
(``log.py``). A key that the server accepts is never shown, only where it belongs.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from respserver import __version__
from respserver.config import Config, Mode
from respserver.errors import ConfigError
from respserver.logger import get_logger

if TYPE_CHECKING:
    from respserver.server import Address

log = get_logger("respserver.cli")

CODEX_MODEL = "gpt-5.5"
"""A model name that today's Codex knows; it decides the shape of its requests, ours takes any name."""
OLD_CODEX_MODEL = "gpt-5.2-codex"
"""The same for the builds that speak the prototype (0.87 to 0.107)."""


class Announcement:
    """Called with the server's address once it listens; ``made`` says whether that has happened.

    Writes the ready file, then prints the banner. ``withdraw`` takes the ready file back.
    """

    def __init__(self, config: Config) -> None:
        self.made = False
        self._config = config
        self._ready_text: str | None = None

    def __call__(self, address: Address) -> None:
        """Announce the address. Raises ``ConfigError`` if the ready file cannot be written."""
        self.made = True
        if self._config.ready_file is not None:
            text = ready_text(self._config, address, os.getpid())
            _write_whole(self._config.ready_file, text)
            self._ready_text = text
        _show(banner(self._config, address))
        log.info("ready", base_url=address.base_url, mode=self._config.mode, pid=os.getpid(), version=__version__)

    def withdraw(self) -> None:
        """Remove the ready file, unless another server has put its own there meanwhile."""
        file = self._config.ready_file
        if file is None or self._ready_text is None:
            return
        try:
            with open(file, encoding="utf-8") as there:
                is_ours = there.read() == self._ready_text
            if is_ours:
                os.unlink(file)
        except FileNotFoundError:
            pass  # whoever waited for it has taken it away


def banner(config: Config, address: Address) -> str:
    """The text shown at start: version, mode, addresses, and settings for the OpenAI SDKs and for Codex."""
    lines = [f"respserver {__version__}, {config.mode} mode", "", f"  base URL   {address.base_url}"]
    if config.websocket:
        lines.append(f"  WebSocket  {address.ws_url}")
    if address.is_everywhere:
        lines.append(f"  listening  on all addresses of this machine ({address.host})")
    lines.append(f"  model      {what_answers(config)}")
    lines += ["", f"OpenAI SDKs ({_key_hint(config)}):", "", *_indented(sdk_settings(config, address))]
    if config.websocket and config.mode is Mode.PROTOTYPE:
        lines += ["", "No SDK sends response.append: their tool loops over WebSocket need --mode shipped."]
    lines += ["", "Codex, in ~/.codex/config.toml:", "", *_indented(codex_settings(config, address))]
    return "\n".join([*lines, "", "Ctrl-C stops it.", ""])


def what_answers(config: Config) -> str:
    """What the embedded model does, in a few words."""
    if config.script is not None:
        return f"plays {os.path.basename(config.script)}"
    return "rehearses (no script)" if config.rehearse else "repeats what it is told (no script, no rehearsal)"


def ready_text(config: Config, address: Address, pid: int) -> str:
    """The ready file's JSON: where the server is, how it was started, and which process it is."""
    facts = {
        "base_url": address.base_url,
        "ws_url": address.ws_url,
        "host": address.host,
        "port": address.port,
        "mode": config.mode,
        "pid": pid,
        "version": __version__,
    }
    return json.dumps(facts) + "\n"


def sdk_settings(config: Config, address: Address) -> list[str]:
    """Shell lines that point the OpenAI SDKs here."""
    key = "YOUR_KEY" if _has_keys(config) else "any"
    return [f"export OPENAI_BASE_URL={address.base_url}", f"export OPENAI_API_KEY={key}"]


def codex_settings(config: Config, address: Address) -> list[str]:
    """Lines of Codex's ``config.toml`` for the mode that the server speaks."""
    if not config.websocket:
        wire = ['wire_api = "responses"']
    elif config.mode is Mode.PROTOTYPE:
        wire = [
            'wire_api = "responses_websocket"  # Codex 0.89 to 0.92',
            "# Codex 0.93 to 0.107 wants these instead, and [features] responses_websockets = true:",
            '# wire_api = "responses"',
            "# supports_websockets = true",
        ]
    else:
        wire = ['wire_api = "responses"', "supports_websockets = true"]
    return [
        f"model = {json.dumps(_codex_model(config))}",
        'model_provider = "respserver"',
        "",
        "[model_providers.respserver]",
        'name = "respserver"',
        f"base_url = {json.dumps(address.base_url)}",
        *wire,
        'env_key = "OPENAI_API_KEY"',
    ]


def _codex_model(config: Config) -> str:
    """The first model that is served under a plain name, else one that Codex knows."""
    plain = (name for name in config.model if not any(sign in name for sign in "*?["))
    return next(plain, OLD_CODEX_MODEL if config.mode is Mode.PROTOTYPE else CODEX_MODEL)


def _key_hint(config: Config) -> str:
    # Not behind the export line: some shells do not take comments at the prompt.
    return "YOUR_KEY is one of the keys this server was given" if _has_keys(config) else "any key will do"


def _has_keys(config: Config) -> bool:
    return bool(config.api_key) or config.api_keys_file is not None


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}".rstrip() for line in lines]


def _show(text: str) -> None:
    """Print at once. A reader that has left (``respserver | head -1``) is no reason to stop serving."""
    try:
        print(text, flush=True)  # noqa: T201 - the banner is what the command is asked to show
    except BrokenPipeError:
        # What is still buffered must go somewhere, or the interpreter complains at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_whole(file: str, text: str) -> None:
    """Write a file so that nobody ever reads half of it."""
    draft = f"{file}.{os.getpid()}"
    try:
        with open(draft, "w", encoding="utf-8") as new:
            new.write(text)
        os.replace(draft, file)
    except OSError as error:
        raise ConfigError("--ready-file", f"cannot write {file}: {error.strerror}") from error
