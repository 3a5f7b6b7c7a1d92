"""Log lines of the command: what ``logger.py`` and other libraries log, in one shape, to one stream.

Only ``cli.py`` calls ``configure``; whoever embeds the server keeps their own logging. Loggers are named
``respserver.<room>``. What a line must never hold (keys, request text, the client's private metadata) is kept out by
those who log; the ``hide`` processor stands behind them in case one forgets. A line is one line whatever a client
sends: control characters are escaped.

Programs and files get complete lines. A person at a terminal gets what fits on one: ``render_terminal``.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import re
import sys
from collections.abc import Mapping
from enum import Enum
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from respserver.config import LogFormat, LogLevel

HIDDEN = "[hidden]"

PRIVATE_NAMES = frozenset(
    {
        # Keys, in whatever header or field they come.
        *("authorization", "proxy_authorization", "cookie", "set_cookie", "api_key", "api_keys", "x_api_key"),
        *("openai_api_key", "key", "token", "secret", "password", "credentials", "encryption_key"),
        # What people and models wrote.
        *("input", "output", "instructions", "prompt", "content", "text", "delta", "arguments", "messages", "tools"),
        *("body", "payload", "frame", "data", "query", "headers", "encrypted_content"),
        # Codex puts repository addresses and commit hashes here.
        *("client_metadata", "metadata", "x_codex_turn_metadata"),
    }
)
"""Field names whose values are not shown; case does not matter, and a dash counts as an underscore."""

_NAMED_SECRET = re.compile(
    r"""(\b(?:proxy-)?authorization|\b(?:x-|openai[-_])?api[-_]?key|x-codex-turn-metadata)\b["']?\s*[:=].*""",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\bbearer\s+[^\s\"',]+", re.IGNORECASE)
_KEY_SHAPE = re.compile(r"\bsk-[A-Za-z0-9_\-]+")
_SIGNS = ("sk-", "bearer", "auth", "key", "codex")
"""One of these is in every text that a pattern above fits. Nearly no text has any, and seeing that costs a tenth."""
_BARE = re.compile(r"[A-Za-z0-9_./:@%+,*\-\[\]]+")
_HEAD = ("time", "level", "logger", "event")
_MAX_DEPTH = 6

_ON_TERMINAL = {
    # These tell by their look what they are.
    **dict.fromkeys(("status", "transport", "connection_id", "request_id", "response_id", "model", "signal"), ""),
    "error_code": "error",
    "verdict": "verdict",
    "pauses": "pauses",
    "input_tokens": "in",
    "cached_tokens": "cached",
    "output_tokens": "out",
    "first_token_ms": "first",
    "total_ms": "total",
}
"""What a field is called on a terminal, in this order; others follow under their own names."""
_NOT_ON_TERMINAL = {"tenant", "items_in", "items_out", "reasoning_tokens", "previous_response_id"}
"""Nor what is zero or empty, nor a turn's stages."""
_LONG_ID = re.compile(r"([a-z]+_[0-9a-f]{6})[0-9a-f]{10,}")
KEPT_NAMES = 1024
"""Field names are few and come with every line; judging one anew costs more than writing it."""


def configure(level: LogLevel, format: LogFormat, stream: TextIO | None = None) -> None:
    """Send every log line of this process to a stream, in one shape.

    ``level`` is the least level shown. Other libraries are never shown below ``info``: their debug lines can hold what
    a client sent. ``format`` is ``text`` (time, level, logger, event, key=value) or ``json`` (one object a line; both
    with UTC times); ``text`` is shorter, with local times, if the stream is a terminal. ``stream`` is standard error if
    None. A second call replaces the first.
    """
    stream = stream or sys.stderr
    on_terminal = format == "text" and stream is not None and stream.isatty()  # a process may have no standard error
    time_format = "%H:%M:%S" if on_terminal else "iso"
    number = logging.getLevelNamesMapping()[level.upper()]
    chain: list[Processor] = [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        drop_formatted,
        structlog.processors.TimeStamper(fmt=time_format, utc=not on_terminal, key="time"),
        structlog.processors.format_exc_info,
        hide,
    ]
    renderer = render_json if format == "json" else render_terminal if on_terminal else render_text
    _route_standard_logging(chain, renderer, number, stream)


def scrub(text: str) -> str:
    """The text without what looks like a key: ``sk-…``, ``Bearer …``, and the rest of a line that names one."""
    lowered = text.lower()
    if not any(sign in lowered for sign in _SIGNS):
        return text
    text = _NAMED_SECRET.sub(rf"\1: {HIDDEN}", text)
    text = _BEARER.sub(f"Bearer {HIDDEN}", text)
    return _KEY_SHAPE.sub(HIDDEN, text)


def drop_formatted(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """structlog processor: leave out what another handler's formatter has put on the same record."""
    event.pop("message", None)
    event.pop("asctime", None)
    return event


def hide(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """structlog processor: private fields become ``[hidden]``, texts are scrubbed, only plain values are shown.

    Names that begin with an underscore are structlog's own and pass.
    """
    return {_shown_name(name): _shown_field(name, value) for name, value in event.items()}


def render_text(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """structlog renderer: ``TIME LEVEL LOGGER EVENT key=value …``, and a traceback's lines, if any, behind a bar."""
    exception = event.pop("exception", None)
    head = [_word(event.pop(name, "-")) for name in _HEAD]
    words = head + [f"{_name_word(name)}={_word(value)}" for name, value in event.items()]
    return _with_traceback(words, exception)


def render_terminal(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """structlog renderer for people: ``render_text`` without what they can do without, a turn on about 120 columns.

    The level is shown if it is not ``info``, the logger if it is another library's. Ids are cut.
    """
    exception = event.pop("exception", None)
    time, level, logger, name = [str(event.pop(part, "-")) for part in _HEAD]
    head = [time, level if level != "info" else "", "" if _is_ours(logger) else logger, _escape(name)]
    order = [field for field in _ON_TERMINAL if field in event]
    order += [field for field in event if field not in _ON_TERMINAL]
    words = [_terminal_word(field, event[field]) for field in order if _is_for_terminal(field, event[field])]
    return _with_traceback([*filter(None, head), *words], exception)


def render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """structlog renderer: one JSON object in ASCII, the same four fields first, a traceback under ``exception``."""
    head = {name: event.pop(name) for name in _HEAD if name in event}
    return json.dumps(head | dict(event))


class _Handler(logging.StreamHandler[TextIO]):
    """Ours among a logger's handlers, so that a second ``configure`` finds and replaces it."""


def _route_standard_logging(chain: list[Processor], renderer: Processor, level: int, stream: TextIO | None) -> None:
    remove_meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler = _Handler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=chain, processors=[remove_meta, renderer])
    )
    root = logging.getLogger()
    root.handlers = [old for old in root.handlers if not isinstance(old, _Handler)] + [handler]
    root.setLevel(max(level, logging.INFO))
    logging.getLogger("respserver").setLevel(level)
    for name in ("hypercorn.access", "hypercorn.error", "quart.app"):
        # These libraries bring handlers of their own; with ours at the root each line would come twice.
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True


def _with_traceback(words: list[str], exception: object) -> str:
    lines = str(exception).splitlines() if exception else []
    return "\n".join([" ".join(words), *(f"  | {_escape(line)}" for line in lines)])


def _is_ours(logger: str) -> bool:
    return logger.partition(".")[0] == "respserver"


def _is_for_terminal(name: str, value: object) -> bool:
    if name in _NOT_ON_TERMINAL or (name.endswith("_ms") and name not in _ON_TERMINAL):
        return False
    if name.endswith("_ms") and isinstance(value, (int, float)):
        return round(value) > 0
    return value is False or bool(value)


def _terminal_word(name: str, value: object) -> str:
    """A field as one word: cut if it is an id, rounded if it is a time."""
    label = _ON_TERMINAL.get(name, name)
    if name.endswith("_ms") and isinstance(value, (int, float)):
        word = f"{value:.0f}ms" if value < 1000 else f"{value / 1000:.2f}s"
    else:
        word = _word(_LONG_ID.sub(r"\1", value) if isinstance(value, str) else value)
    return f"{_name_word(label)}={word}" if label else word


def _shown_field(name: str, value: object) -> object:
    if name.startswith("_"):
        return value
    return HIDDEN if _is_private(name) else _shown(value, _MAX_DEPTH)


def _shown(value: object, depth: int) -> object:
    """Plain values as they are, texts scrubbed. Anything else is only named: its ``repr`` could tell a request."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # JSON has no word for those
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str):
        return scrub(str(value.value) if isinstance(value, Enum) else value)
    if isinstance(value, BaseException):
        return scrub(f"{type(value).__name__}: {value}")
    if isinstance(value, (Mapping, list, tuple)) and depth:
        return _shown_inside(value, depth - 1)
    return f"<{type(value).__name__}>"


def _shown_inside(value: Mapping[object, object] | list[object] | tuple[object, ...], depth: int) -> object:
    if isinstance(value, Mapping):
        fields = ((str(name), inner) for name, inner in value.items())
        return {scrub(name): HIDDEN if _is_private(name) else _shown(inner, depth) for name, inner in fields}
    if len(value) == 2 and isinstance(value[0], str) and _is_private(value[0]):
        return [value[0], HIDDEN]  # a header as a pair
    return [_shown(inner, depth) for inner in value]


@functools.lru_cache(KEPT_NAMES)
def _shown_name(name: str) -> str:
    return name if name.startswith("_") else scrub(name)


@functools.lru_cache(KEPT_NAMES)
def _is_private(name: str) -> bool:
    return name.lower().replace("-", "_") in PRIVATE_NAMES


@functools.lru_cache(KEPT_NAMES)
def _name_word(name: str) -> str:
    return _word(name)


def _word(value: object) -> str:
    """A value as one word of a text line: bare if it cannot be misread, else as JSON, which escapes all the rest."""
    if isinstance(value, str):
        return value if _BARE.fullmatch(value) else json.dumps(value)
    if type(value) in (int, float):
        return repr(value)  # what JSON says of finite numbers, at a tenth of the cost; there are no others by now
    return json.dumps(value, default=str)


def _escape(line: str) -> str:
    return "".join(character if character.isprintable() or character == "\t" else "?" for character in line)
