"""Where settings come from: command line, environment, TOML file, defaults, in this order of weight.

``OPTIONS`` is derived from ``Config`` and ``Limits``; the command line, the environment, the file and the
documentation are all made from it, so that a setting is written down once. The files that settings name are read or
looked at here before a server starts. Every mistake is a ``ConfigError`` that names the place as the user wrote it and
shows no secret. Modules that only some starts need are imported where they are used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, NoReturn, get_args, get_origin

import msgspec

from respserver import mistakes
from respserver.config import (
    ClassifierConfig,
    Config,
    Group,
    Kind,
    Limits,
    RouteConfig,
    TermsClassifierConfig,
    check,
    expectation,
)
from respserver.errors import ConfigError

VARIABLE_PREFIX = "RESPSERVER_"
CONFIG_VARIABLE = "RESPSERVER_CONFIG"
"""Names the settings file, as ``--config`` does."""

_SWITCH = {"on": True, "off": False, "true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One setting and its names: flag on the command line, key in the file, variable in the environment."""

    name: str
    table: str
    """The TOML table it stands in; empty at the top."""
    type: Any  # Any: whatever annotation msgspec.convert takes
    default: object
    help: str
    group: Group
    kind: Kind | None
    bounds: tuple[msgspec.Meta, ...]

    @property
    def flag(self) -> str:
        """``--message-bytes``."""
        return "--" + self.name.replace("_", "-")

    @property
    def key(self) -> str:
        """``limits.message_bytes``."""
        return f"{self.table}.{self.name}" if self.table else self.name

    @property
    def variable(self) -> str:
        """``RESPSERVER_MESSAGE_BYTES``."""
        return VARIABLE_PREFIX + self.name.upper()

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off."""
        return self.type is bool

    @property
    def is_repeated(self) -> bool:
        """Whether it holds several values."""
        return get_origin(self.type) is tuple

    @property
    def choices(self) -> tuple[str, ...]:
        """The words it may be, if it is one of a few."""
        return mistakes.choices(self.type)

    @property
    def expectation(self) -> str:
        """What a value must be, in words; switches are ``on`` or ``off`` where they are written as texts."""
        return "on or off" if self.is_switch else expectation(self.annotation)

    @property
    def annotation(self) -> Any:
        """Its type with its bounds."""
        return Annotated[self.type, *self.bounds, self.kind]

    @property
    def metavar(self) -> str:
        """The placeholder of its value in help and documentation."""
        if self.is_switch:
            return "on|off"
        if self.choices:
            return "|".join(self.choices)
        if self.kind is not None:
            if self.kind is Kind.SECRET:
                return "KEY"
            return "FOLDER" if self.name.endswith("_folder") else "FILE"
        return {int: "N", float: "X"}.get(self.type, "TEXT")

    @property
    def default_text(self) -> str:
        """Its default as the user would write it; empty if there is none."""
        if self.default is None or self.default == ():
            return ""
        if self.is_switch:
            return "on" if self.default else "off"
        return f"{self.default:.12g}" if isinstance(self.default, float) else str(self.default)


class Setting(NamedTuple):
    """A value and where it was written, for the error if it turns out not to fit the others."""

    value: object
    source: str


def _options(struct: type[msgspec.Struct], table: str, group: Group | None = None) -> list[Option]:
    options = []
    for field in msgspec.structs.fields(struct):
        if get_origin(field.type) is not Annotated:
            continue  # the table of limits itself
        bare, *marks = get_args(field.type)
        metas = tuple(mark for mark in marks if isinstance(mark, msgspec.Meta))
        options.append(
            Option(
                name=field.name,
                table=table,
                type=bare,
                default=field.default,
                help=next(meta.description for meta in metas if meta.description),
                group=group or next(mark for mark in marks if isinstance(mark, Group)),
                kind=next((mark for mark in marks if isinstance(mark, Kind)), None),
                bounds=metas,
            )
        )
    return options


_EVERY = _options(Config, "") + _options(Limits, "limits", Group.LIMITS)
_TABLES: dict[str, Any] = {"routes": tuple[RouteConfig, ...], "classifiers": tuple[ClassifierConfig, ...]}  # Any: types
"""Lists of tables; they stand in the file only."""
_TABLES_AS_WRITTEN = {"limits": "[limits]", **{name: f"[[{name}]]" for name in _TABLES}}
OPTIONS: tuple[Option, ...] = tuple(option for option in _EVERY if option.name not in _TABLES)
"""Every setting that has a flag and a variable."""
_BY_KEY = {option.key: option for option in OPTIONS}


def load(
    arguments: Mapping[str, Sequence[str]] | None = None,
    environment: Mapping[str, str] | None = None,
    file: str | None = None,
) -> Config:
    """The configuration of a server.

    ``arguments`` holds texts by option name, as written after the flags; ``environment`` is the process's;
    ``file`` is a TOML file (default: the one that ``RESPSERVER_CONFIG`` names). A heavier source replaces a lighter
    one's value as a whole, lists too. Raises ``ConfigError`` for the first thing that is wrong, files included.
    """
    environment = environment or {}
    source = CONFIG_VARIABLE if file is None else "--config"
    file = file or environment.get(CONFIG_VARIABLE) or None
    settings = read_toml(file, source) if file else {}
    settings |= from_environment(environment)
    settings |= from_arguments(arguments or {})
    limits = {key.removeprefix("limits."): value for key, (value, _) in settings.items() if key.startswith("limits.")}
    top = {key: value for key, (value, _) in settings.items() if not key.startswith("limits.")}
    config = msgspec.convert({**top, "limits": limits}, Config)
    try:
        check(config)
        check_files(config)
    except ConfigError as error:
        raise ConfigError(_as_written(error.option, settings), error.problem) from error
    return config


def from_arguments(arguments: Mapping[str, Sequence[str]]) -> dict[str, Setting]:
    """Settings by key, from the texts of the command line. Of a single-valued option the last one counts."""
    options = {option.name: option for option in OPTIONS}
    return {
        options[name].key: _from_texts(options[name], texts, options[name].flag) for name, texts in arguments.items()
    }


def from_environment(environment: Mapping[str, str]) -> dict[str, Setting]:
    """Settings by key, from ``RESPSERVER_…`` variables; lists are split at commas, an empty variable is no setting."""
    found = {}
    for option in OPTIONS:
        text = environment.get(option.variable, "").strip()
        if text:
            texts = [part.strip() for part in text.split(",")] if option.is_repeated else [text]
            found[option.key] = _from_texts(option, texts, option.variable)
    return found


def read_toml(file: str, source: str = "--config") -> dict[str, Setting]:
    """Settings by key, from a TOML file that ``source`` names. Raises ``ConfigError`` naming the file and the key."""
    import tomllib

    try:
        document = tomllib.loads(_read_text(file, source))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(file, f"not valid TOML: {error}") from error
    limits = document.pop("limits", {})
    if not isinstance(limits, dict):
        raise ConfigError(f"{file}: limits", "expected a table, [limits]")
    found = {}
    for key in document.keys() & _TABLES.keys():
        found[key] = _read_tables(key, document.pop(key), file)
    for key, value in [*document.items(), *((f"limits.{name}", value) for name, value in limits.items())]:
        found[key] = _from_toml(key, value, file)
    return found


def check_files(config: Config) -> None:
    """Read or look at every file that a configuration names, before anything is started with it.

    Raises ``ConfigError``: for lines of the keys file and of terms files it names file and line, else the field.
    """
    if config.script is not None:
        _readable("script", config.script)
    if config.search_folder is not None and not os.path.isdir(config.search_folder):
        raise ConfigError("search_folder", f"there is no folder '{config.search_folder}'")
    if config.ready_file is not None:
        folder = os.path.dirname(config.ready_file) or "."
        if not os.path.isdir(folder):
            raise ConfigError("ready_file", f"there is no folder '{folder}'")
    if config.certfile is not None and config.keyfile is not None:
        _check_certificate(config.certfile, config.keyfile)
    if config.api_keys_file is not None:
        from respserver.auth import KeyRing

        KeyRing.from_config(config, key_lines(config))
    if config.routes:
        from respserver.services import check_engines

        check_engines(config.routes)
    if config.mcp_allow:
        from respserver.tools.mcp import McpHost

        McpHost(config.mcp_allow, list_seconds=config.limits.mcp_list_seconds)
    if config.classifiers:
        from respserver.turn.safety import build_screening

        build_screening(config)


def key_lines(config: Config) -> list[str]:
    """The lines of ``api_keys_file``, for ``KeyRing.from_config``; none if there is no such file in the settings."""
    return _read_text(config.api_keys_file, "api_keys_file").splitlines() if config.api_keys_file is not None else []


def table_with(name: str) -> str | None:
    """The list of tables that has a key of this name, as it is written in the file."""
    holders = (table for table, kind in _TABLES.items() if name in mistakes.keys(kind))
    return next((_TABLES_AS_WRITTEN[table] for table in holders), None)


def _from_texts(option: Option, texts: Sequence[str], source: str) -> Setting:
    if option.is_repeated:
        return Setting(_convert(option, list(texts), source, option.expectation), source)
    text = texts[-1]
    if option.is_switch:
        return Setting(_convert(option, _SWITCH.get(text.lower(), text), source, option.expectation), source)
    is_text = option.type not in (int, float)
    return Setting(_convert(option, text, source, option.expectation, strict=is_text), source)


def _from_toml(key: str, value: object, file: str) -> Setting:
    source = f"{file}: {key}"
    option = _BY_KEY.get(key)
    if option is None:
        raise ConfigError(source, f"unknown key{_where_it_stands(key)}")
    value = _convert(option, value, source, expectation(option.annotation))
    if option.kind is Kind.FILE and isinstance(value, str):
        value = os.path.join(os.path.dirname(file), value)
    return Setting(value, source)


def _where_it_stands(key: str) -> str:
    if f"limits.{key}" in _BY_KEY:
        return "; it stands in the table [limits]"
    if key.removeprefix("limits.") in _BY_KEY:
        return "; it stands at the top of the file, before the first table"
    return mistakes.closest(key, {**dict(zip(_BY_KEY, _BY_KEY, strict=True)), **_TABLES_AS_WRITTEN})


def _convert(option: Option, value: object, source: str, expected: str, *, strict: bool = True) -> object:
    if option.kind is Kind.FILE and isinstance(value, str) and (not value or "\0" in value):
        _refuse(option, value, source, expected)
    try:
        return msgspec.convert(value, option.annotation, strict=strict)
    except msgspec.ValidationError as error:
        _refuse(option, value, source, expected, error)


def _refuse(option: Option, value: object, source: str, expected: str, cause: Exception | None = None) -> NoReturn:
    got = mistakes.ABSENT if option.kind is Kind.SECRET else value
    raise ConfigError(source, mistakes.refusal(option.annotation, got, expected)) from cause


def _read_tables(key: str, value: object, file: str) -> Setting:
    try:
        tables = msgspec.convert(value, _TABLES[key])
        return Setting(tuple(_from_folder(table, os.path.dirname(file)) for table in tables), f"{file}: {key}")
    except msgspec.ValidationError as error:
        place, problem = mistakes.explain(error, _TABLES[key], value, below=key)
        raise ConfigError(f"{file}: {place}", problem) from error


def _from_folder(table: msgspec.Struct, folder: str) -> msgspec.Struct:
    """File names in tables count from the settings file's folder too."""
    if isinstance(table, TermsClassifierConfig):
        return msgspec.structs.replace(table, file=os.path.join(folder, table.file))
    return table


def _read_text(file: str, option: str) -> str:
    try:
        with open(file, encoding="utf-8-sig") as text:
            return text.read()
    except OSError as error:
        raise ConfigError(option, f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(option, f"cannot read {file}: it is not UTF-8 text") from error


def _readable(option: str, file: str) -> None:
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise ConfigError(option, f"cannot read {file}: {error.strerror}") from error


def _check_certificate(certfile: str, keyfile: str) -> None:
    import ssl

    _readable("certfile", certfile)
    _readable("keyfile", keyfile)
    try:
        # The empty password keeps OpenSSL from asking for one on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certfile, keyfile, password="")
    except ssl.SSLError as error:
        reason = error.reason or "not PEM files"
        raise ConfigError("certfile", f"{certfile} and {keyfile} cannot be used together: {reason}") from error


def _as_written(name: str, settings: Mapping[str, Setting]) -> str:
    """A field's name, as the user wrote it; names that are no field's (a file and a line) stay."""
    if name in settings:
        return settings[name].source
    table, bracket, place = name.partition("[")
    if bracket and table in settings:
        return f"{settings[table].source}{bracket}{place}"
    return _BY_KEY[name].flag if name in _BY_KEY else name
