"""One log line for each request that is refused before a turn: whoever runs the server sees why a client gets nowhere.

Turns have lines of their own, refused ones too. A line never holds a key, a query or a header.
"""

from __future__ import annotations

from respserver.errors import ApiError
from respserver.logger import get_logger

log = get_logger("respserver.transport")

MAX_PATH = 200
"""How much of a path is logged; it is the client's text."""


def log_refusal(error: ApiError, method: str = "", target: str = "", request_id: str = "") -> None:
    """Log an answer that refuses. What is not known of the request, because it could not be read, is left out."""
    known = {"method": method, "path": target.partition("?")[0][:MAX_PATH], "request_id": request_id}
    log.info("refused", status=error.status, code=error.code, **{name: text for name, text in known.items() if text})
