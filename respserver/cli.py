"""The command ``respserver``: options in, one server, an exit code out. ``respserver usage`` is told in ``usage.py``.

Options are made from ``settings.OPTIONS``; what they mean stands there and in ``config.py``. This file takes the
arguments apart and turns what happens into messages and exit codes; ``announce.py`` tells where the server is,
``signals.py`` ends it, or has it take its settings anew. It imports what a run needs when it needs it, so that
``--version`` and mistakes answer at once. Nothing printed here ever shows a key.
"""

from __future__ import annotations

import argparse
import errno
import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from respserver import __version__, mistakes, settings
from respserver.config import Config, Group
from respserver.errors import ConfigError

if TYPE_CHECKING:
    from respserver.signals import Serve

EXIT_OK = 0
EXIT_FAILED = 1
"""The address could not be taken, or the server broke."""
EXIT_USAGE = 2
"""An option, variable or file is wrong."""
EXIT_INTERRUPTED = 130
"""Ctrl-C before the server ran (128 + SIGINT, as shells count)."""

_DESCRIPTION = "A server for the Responses API over WebSocket (shipped and prototype mode) and HTTP."
_LISTEN_ERRORS = {
    errno.EADDRINUSE: "it is already in use; stop the other server, or take a free port with --port 0",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "it needs more rights than this user has; try a port above 1023",
}


def main(argv: Sequence[str] | None = None, serve: Serve | None = None) -> int:
    """Run the command and return its exit code.

    ``argv`` are the arguments without the program's name (default: the process's). ``serve`` replaces the server, for
    tests.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments[:1] == ["usage"]:
            return report_usage(arguments[1:])
        options = parse(arguments)
        if options.pop("help"):
            build_parser().print_help()
            return EXIT_OK
        if options.pop("version"):
            print(f"respserver {__version__}")
            return EXIT_OK
        files = options.pop("config")
        return run(functools.partial(settings.load, options, os.environ, files[-1] if files else None), serve)
    except ConfigError as error:
        _complain_of(error, "respserver")
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def report_usage(argv: Sequence[str]) -> int:
    """Run ``respserver usage`` on its own arguments and return the exit code."""
    from respserver import usage

    try:
        print(usage.report(argv, os.environ), end="")
        return EXIT_OK
    except ConfigError as error:
        _complain_of(error, "respserver usage")
        return EXIT_USAGE


def parse(argv: Sequence[str]) -> dict[str, Any]:  # Any: lists of texts, and booleans for help and version
    """The options given, by name, as lists of texts in the order they were written. Raises ``ConfigError``.

    Beside the settings: ``config`` (list, perhaps empty), ``help`` and ``version`` (booleans).
    """
    try:
        known, rest = build_parser().parse_known_args(list(argv))
    except argparse.ArgumentError as error:
        raise ConfigError(error.argument_name or "options", error.message) from error
    if rest:
        raise _unknown(rest[0], list(argv))
    return vars(known)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all options; it only takes texts apart, values are ``settings``' business."""
    parser = argparse.ArgumentParser(
        prog="respserver",
        usage="respserver [options]\n       respserver usage [options]   (totals of a ledger; respserver usage --help)",
        description=_DESCRIPTION,
        epilog="Each option is also a key of the TOML file and an environment variable RESPSERVER_NAME; "
        "the command line weighs most, then the environment, then the file.",
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    general = parser.add_argument_group("General")
    general.add_argument("-h", "--help", action="store_true", help="Show this text and exit.")
    general.add_argument("--version", action="store_true", help="Show the version and exit.")
    general.add_argument("--config", action="append", default=[], metavar="FILE", help="TOML file with settings.")
    for group in Group:
        section = parser.add_argument_group(group)
        for option in settings.OPTIONS:
            if option.group is group:
                _add(section, option)
    return parser


def run(load: Callable[[], Config], serve: Serve | None = None) -> int:
    """Serve until a signal ends it, and return the exit code. Raises ``ConfigError``.

    ``load`` reads the settings: now, and again whenever a signal asks for it.
    """
    config = load()  # before the imports: a mistake need not wait for them

    from respserver import log
    from respserver.announce import Announcement
    from respserver.logger import get_logger
    from respserver.signals import run_until_signal

    if serve is None:
        from respserver import server

        serve = server.serve
    log.configure(config.log_level, config.log_format)
    announcement = Announcement(config)
    try:
        run_until_signal(serve, config, announcement, load)
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - the last frame: it is told by log line and exit code, without keys
        if isinstance(error, OSError) and not announcement.made:
            _complain(_cannot_start(config, error))
        else:
            get_logger("respserver.cli").exception("the server broke")
        return EXIT_FAILED
    finally:
        announcement.withdraw()
    return EXIT_OK


def _add(section: argparse._ArgumentGroup, option: settings.Option) -> None:
    text = f"{option.help} (default: {option.default_text})" if option.default_text else option.help
    section.add_argument(
        option.flag,
        action="append",
        default=argparse.SUPPRESS,
        metavar=option.metavar,
        nargs="?" if option.is_switch else None,
        const="on" if option.is_switch else None,
        help=text.replace("%", "%%"),
    )


def _unknown(argument: str, argv: list[str]) -> ConfigError:
    """The error for an argument that no option takes. Only an option's name is shown: the rest could be a key."""
    if argument.startswith("-") and argument != "--":
        name = argument.partition("=")[0]
        table = settings.table_with(name.removeprefix("--"))
        if table is not None:
            return ConfigError(name, f"is no option; it is a key of {table}, in the file that --config names")
        return ConfigError(name, f"unknown option{mistakes.closest(name, [o.flag for o in settings.OPTIONS])}")
    place = argv.index(argument)
    if place == 0:
        return ConfigError("argument 1", "is no command; respserver alone serves, and usage is the only other one")
    after = f" (after {argv[place - 1].partition('=')[0]})" if place and argv[place - 1].startswith("--") else ""
    return ConfigError(f"argument {place + 1}{after}", "is not an option; respserver takes options only")


def _cannot_start(config: Config, error: OSError) -> str:
    import socket

    place = f"cannot listen on {config.host} port {config.port}"
    if isinstance(error, socket.gaierror):
        return f"{place}: there is no such host"
    if error.errno in _LISTEN_ERRORS:
        return f"{place}: {_LISTEN_ERRORS[error.errno]}"
    return f"cannot start: {error}"


def _complain_of(error: ConfigError, command: str) -> None:
    """Say what is wrong, and where to look if it is an option; one whose file is not there was right itself."""
    _complain(error.problem, error.option)
    if error.option.startswith(("-", "argument")) and not error.problem.startswith(("cannot", "there is no")):
        print(f"{command} --help lists the options.", file=sys.stderr)


def _complain(problem: str, option: str = "") -> None:
    """The option's name and the problem are scrubbed by themselves: a name such as --api-key would hide the rest."""
    from respserver.log import scrub

    print(f"respserver: {scrub(option)}{': ' if option else ''}{scrub(problem)}", file=sys.stderr)
