"""Loggers for the rooms that log: structured calls that end in the standard library's ``logging``.

An embedded server thus logs wherever its host program does, and by default nowhere; only the command installs a
handler (``log.py``). Fields travel as attributes of the ``LogRecord``.
"""

from __future__ import annotations

import logging

import structlog

logging.getLogger("respserver").addHandler(logging.NullHandler())  # or warnings would go to stderr by themselves

Logger = structlog.stdlib.BoundLogger


def get_logger(name: str) -> Logger:
    """The logger ``respserver.<room>``: ``log.info("event", field=value)``, free of cost while its level is off."""
    lazy = structlog.wrap_logger(
        logging.getLogger(name),
        wrapper_class=structlog.stdlib.BoundLogger,
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
    )
    logger: Logger = lazy.bind()  # else every call would make one
    return logger
