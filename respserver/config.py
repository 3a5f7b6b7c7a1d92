"""Every setting, once: the command line, the TOML file and the environment are all made from these two structs.

A field's ``Meta`` holds its bounds and help text; a ``Group`` beside it says where the help lists it. ``Limits``
fields become ``--kebab-case`` options and keys of the TOML table ``[limits]``; the lists of tables are ``tables.py``'s.
What one field alone cannot know (a certificate needs its key) is in ``check``. Nothing here reads files or the
environment: that is ``settings.py``'s.
"""

from __future__ import annotations

import enum
import functools
import ipaddress
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from respserver import mistakes
from respserver.errors import ConfigError
from respserver.hosts import read_pattern
from respserver.limits import Limits as Limits
from respserver.origins import ANY, canonical
from respserver.tables import ClassifierConfig as ClassifierConfig
from respserver.tables import HttpClassifierConfig as HttpClassifierConfig
from respserver.tables import LatencyClassifierConfig as LatencyClassifierConfig
from respserver.tables import RouteConfig as RouteConfig
from respserver.tables import TermsClassifierConfig as TermsClassifierConfig


class Group(enum.StrEnum):
    """Where the help and the documentation list a setting."""

    SERVER = "Server"
    MODEL = "Model"
    PROTOCOL = "Protocol"
    ACCESS = "Access"
    LOGGING = "Logging"
    LIMITS = "Limits"


class Kind(enum.Enum):
    """What a text setting holds, where that changes how it is read or shown."""

    FILE = "file"
    """A path; in a settings file it counts from that file's folder."""
    SECRET = "secret"
    """Never shown: not in errors, not in ``repr``."""


class Mode(enum.StrEnum):
    """Where the sampling loop stands while the client runs a tool."""

    SHIPPED = "shipped"
    """Between turns: ``response.create`` with ``previous_response_id`` goes on from the connection's cache."""
    PROTOTYPE = "prototype"
    """Inside the turn: ``response.done`` suspends the loop and ``response.append`` wakes it."""


LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]


MIN_SECRET = 32
"""Characters of a key that nobody can guess, if they are random."""
TAKEN_ANEW = ("routes", "model", "strict_models", "api_key", "api_keys_file")
"""Settings that a running server takes anew: what its routing table and its key ring are made of."""
LIMITS_TAKEN_ANEW = ("requests_per_minute", "tokens_per_minute")
"""Limits that it takes anew."""


class _Settings(msgspec.StructMeta):
    """Says of a keyword that is no setting what it was meant to be."""

    # Any: whatever a struct is made of
    def __call__(cls, *arguments: Any, **settings: Any) -> Any:  # noqa: N805 - of a metaclass
        """Make the struct. Raises ``TypeError``."""
        for name in settings.keys() - set(cls.__struct_fields__):
            if name in Limits.__struct_fields__:
                raise TypeError(f"{name} is a field of Limits: {cls.__name__}(limits=Limits({name}=…))")
            raise TypeError(f"unexpected setting '{name}'{mistakes.closest(name, cls.__struct_fields__)}")
        return super().__call__(*arguments, **settings)


class Config(msgspec.Struct, metaclass=_Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of one server. The defaults serve the embedded model ``sim`` on loopback, in shipped mode."""

    mode: Annotated[
        Mode,
        Meta(description="Design that WebSocket connections speak."),
        Group.SERVER,
    ] = Mode.SHIPPED
    host: Annotated[
        str,
        Meta(description="Address to listen on."),
        Group.SERVER,
    ] = "127.0.0.1"
    port: Annotated[
        int,
        Meta(ge=0, le=65535, description="Port to listen on; 0 takes a free one."),
        Group.SERVER,
    ] = 8080
    ready_file: Annotated[
        str | None,
        Meta(description="File to write once connections are accepted (JSON: base_url, port, mode, pid)."),
        Group.SERVER,
        Kind.FILE,
    ] = None
    certfile: Annotated[
        str | None,
        Meta(description="TLS certificate chain (PEM)."),
        Group.SERVER,
        Kind.FILE,
    ] = None
    keyfile: Annotated[
        str | None,
        Meta(description="TLS private key (PEM)."),
        Group.SERVER,
        Kind.FILE,
    ] = None
    ledger: Annotated[
        str | None,
        Meta(description="SQLite file that every turn's usage is written to; without it, it is kept in memory."),
        Group.SERVER,
        Kind.FILE,
    ] = None
    model: Annotated[
        tuple[str, ...],
        Meta(description="Model name or pattern to serve with the embedded model; may be repeated."),
        Group.MODEL,
    ] = ()
    routes: Annotated[
        tuple[RouteConfig, ...],
        Meta(description="Routing table; first match wins."),
        Group.MODEL,
    ] = ()
    classifiers: Annotated[
        tuple[ClassifierConfig, ...],
        Meta(description="Classifiers that screen the input."),
        Group.MODEL,
    ] = ()
    strict_models: Annotated[
        bool,
        Meta(description="Refuse model names that no --model or route matches (model_not_found)."),
        Group.MODEL,
    ] = False
    script: Annotated[
        str | None,
        Meta(description="Script file (TOML or JSON) that the embedded model plays."),
        Group.MODEL,
        Kind.FILE,
    ] = None
    rehearse: Annotated[
        bool,
        Meta(description="Without a script, call a harmless tool and quote its output."),
        Group.MODEL,
    ] = True
    tps: Annotated[
        float,
        Meta(ge=0, lt=1e9, description="Tokens per second of the embedded model; 0 is as fast as it goes."),
        Group.MODEL,
    ] = 0.0
    ttft: Annotated[
        float,
        Meta(ge=0, lt=1e9, description="Seconds before the embedded model's first token."),
        Group.MODEL,
    ] = 0.0
    jitter: Annotated[
        float,
        Meta(ge=0, le=1, description="Share by which the embedded model's token times vary, 0 to 1."),
        Group.MODEL,
    ] = 0.0
    websocket: Annotated[
        bool,
        Meta(description="Serve WebSocket; off answers upgrades with 426."),
        Group.PROTOCOL,
    ] = True
    late_upgrade: Annotated[
        bool,
        Meta(description="Serve an upgrade on a connection that has already carried HTTP requests."),
        Group.PROTOCOL,
    ] = True
    strict: Annotated[
        bool,
        Meta(description="Refuse unknown fields, WebSocket frames' transport fields, and reasoning that is not whole."),
        Group.PROTOCOL,
    ] = False
    obfuscation: Annotated[
        bool,
        Meta(description="Pad delta events unless the request says otherwise, as the real service does."),
        Group.PROTOCOL,
    ] = False
    reasoning_text: Annotated[
        bool,
        Meta(description="Show what the model thinks as reasoning_text, as open-weight servers do."),
        Group.PROTOCOL,
    ] = False
    debug_timings: Annotated[
        bool,
        Meta(description="Tell a turn's stage times in its terminal Response's metadata, as respserver_timings."),
        Group.PROTOCOL,
    ] = False
    sse_keepalive_seconds: Annotated[
        float,
        Meta(ge=0, lt=1e9, description="Interval of SSE comment lines during silence; 0 sends none."),
        Group.PROTOCOL,
    ] = 15.0
    api_key: Annotated[
        tuple[str, ...],
        Meta(description="Accept this bearer key; may be repeated. None given: any key or none."),
        Group.ACCESS,
        Kind.SECRET,
    ] = ()
    api_keys_file: Annotated[
        str | None,
        Meta(description="File of accepted keys, one a line: KEY, or KEY TENANT."),
        Group.ACCESS,
        Kind.FILE,
    ] = None
    encryption_key: Annotated[
        str | None,
        Meta(description="Secret that seals reasoning; without it, one that lasts until the server ends."),
        Group.ACCESS,
        Kind.SECRET,
    ] = None
    allow_origin: Annotated[
        tuple[str, ...],
        Meta(description="Origin that a browser page may open sockets from; may be repeated."),
        Group.ACCESS,
    ] = ()
    cors_origin: Annotated[
        tuple[str, ...],
        Meta(description="Origin whose pages may use HTTP from a browser, or * for all; may be repeated."),
        Group.ACCESS,
    ] = ()
    search_folder: Annotated[
        str | None,
        Meta(description="Folder of .txt and .md files that web_search looks through; without it nothing is searched."),
        Group.SERVER,
        Kind.FILE,
    ] = None
    mcp_allow: Annotated[
        tuple[str, ...],
        Meta(description="Host that MCP tools may name: HOST, HOST:PORT or *.DOMAIN; may be repeated. None: no MCP."),
        Group.ACCESS,
    ] = ()
    insecure: Annotated[
        bool,
        Meta(description="Allow listening beyond loopback without API keys."),
        Group.ACCESS,
    ] = False
    log_level: Annotated[
        LogLevel,
        Meta(description="Least level to log."),
        Group.LOGGING,
    ] = "info"
    log_format: Annotated[
        LogFormat,
        Meta(description="How log lines look: text (shorter on a terminal) or json."),
        Group.LOGGING,
    ] = "text"
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if self.mode in tuple(Mode):  # a bare text would be equal to a mode, and yet not be one
            msgspec.structs.force_setattr(self, "mode", Mode(self.mode))

    def __repr__(self) -> str:
        shown = (f"{name}={_shown(name, getattr(self, name))}" for name in self.__struct_fields__)
        return f"Config({', '.join(shown)})"


def check(config: Config) -> None:
    """Refuse settings that no server should start with, also those that were built in Python without validation.

    Raises ``ConfigError`` whose ``option`` is the field's name (``keyfile``, ``limits.tool_seconds``).
    """
    if not isinstance(config, Config):  # callers without a type checker pass anything
        raise ConfigError("config", f"expected a Config, got {mistakes.shown(config)}; use Config(mode=…, …)")
    _check_values(config)
    if not config.host:
        raise ConfigError("host", "is empty; 127.0.0.1 listens for this machine only")
    if config.certfile is not None and config.keyfile is None:
        raise ConfigError("keyfile", "is missing: a certificate needs its private key")
    if config.keyfile is not None and config.certfile is None:
        raise ConfigError("certfile", "is missing: a private key needs its certificate")
    if any(not key for key in config.api_key):
        raise ConfigError("api_key", "is empty")
    if any(not is_key(key) for key in config.api_key):
        raise ConfigError("api_key", "a key is one or more visible ASCII characters without spaces")
    _check_origins("allow_origin", config.allow_origin)
    _check_origins("cors_origin", tuple(origin for origin in config.cors_origin if origin != ANY))
    for entry in config.mcp_allow:
        if read_pattern(entry) is None:
            raise ConfigError("mcp_allow", f"'{entry}' is no host: HOST, HOST:PORT, *.DOMAIN or *, and nothing more")
    if config.encryption_key is not None and len(config.encryption_key) < MIN_SECRET:
        raise ConfigError("encryption_key", f"has fewer than {MIN_SECRET} characters; 'openssl rand -hex 32' makes one")
    for index, classifier in enumerate(config.classifiers):
        if isinstance(classifier, HttpClassifierConfig) and not _names_a_host(classifier.url):
            raise ConfigError(f"classifiers[{index}].url", f"'{classifier.url}' names no host, or an impossible port")
    guarded = config.api_key or config.api_keys_file is not None
    if not guarded and not config.insecure and not is_loopback(config.host):
        raise ConfigError(
            "host",
            f"'{config.host}' can be reached from other machines, and no API keys are set. "
            "Set some (--api-key, --api-keys-file), or allow it with --insecure.",
        )


def expectation(annotation: Any) -> str:  # Any: an annotation
    """What a setting of this type must be, in words."""
    return "a file name" if Kind.FILE in get_args(annotation) else mistakes.expectation(annotation)


def take_anew(running: Config, fresh: Config) -> Config:
    """A running server's settings, with those of ``fresh`` that it can take without a restart."""
    limits = {name: getattr(fresh.limits, name) for name in LIMITS_TAKEN_ANEW}
    taken = {name: getattr(fresh, name) for name in TAKEN_ANEW}
    return msgspec.structs.replace(running, **taken, limits=msgspec.structs.replace(running.limits, **limits))


def differences(one: Config, other: Config) -> list[str]:
    """The names of the settings that differ (``tps``, ``limits.tool_seconds``)."""
    names = [name for name in _differing(one, other) if name != "limits"]
    return names + [f"limits.{name}" for name in _differing(one.limits, other.limits)]


def is_key(text: str) -> bool:
    """Whether a text can be sent as a bearer key: visible ASCII characters, at least one."""
    return bool(text) and all("!" <= character <= "~" for character in text)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address. A name other than ``localhost`` counts as beyond it."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_origins(option: str, origins: tuple[str, ...]) -> None:
    for origin in origins:
        if canonical(origin) is None:
            raise ConfigError(option, f"'{origin}' is no origin: scheme://host or scheme://host:port, and nothing more")


def _names_a_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port, or the brackets of an address
        return False


def _check_values(struct: msgspec.Struct, place: str = "") -> None:
    """Structs check types and bounds when they are decoded, not when they are constructed; so check field by field."""
    for field in _fields(type(struct)):
        value, name = getattr(struct, field.name), place + field.name
        is_list = isinstance(value, (list, tuple))
        for index, part in enumerate(value if is_list else [value]):
            where = f"{name}[{index}]" if is_list else name
            if isinstance(part, msgspec.Struct):
                _check_values(part, f"{where}.")
            elif isinstance(part, dict):  # which would do in a file
                raise ConfigError(where, f"expected {mistakes.struct_names(field.type)}, got dict")
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            got = mistakes.ABSENT if Kind.SECRET in get_args(field.type) else value
            raise ConfigError(name, mistakes.refusal(field.type, got, expectation(field.type))) from error


@functools.cache
def _fields(struct: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(struct)  # which reads all annotations anew each time


def _differing(one: msgspec.Struct, other: msgspec.Struct) -> list[str]:
    return [name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name)]


def _shown(name: str, value: object) -> str:
    return "'[hidden]'" if name in ("api_key", "encryption_key") and value else repr(value)
