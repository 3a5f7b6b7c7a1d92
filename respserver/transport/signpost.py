"""Where things are, for whoever does not know yet: the page at ``/``, and a word for those who ask in the wrong place.

It is shown without a key, so it tells nothing but what every client of the server has to know.
"""

from __future__ import annotations

import difflib
import re

import msgspec

from respserver import __version__
from respserver.config import Config, Mode
from respserver.errors import MethodNotAllowed, RouteNotFound
from respserver.schema.codec import encode

PATHS = ("/", "/v1")
"""Where the page is: people open the address, or paste the base URL."""
MAKES_RESPONSES = "POST /v1/responses"
ENDPOINTS = (
    MAKES_RESPONSES,
    "GET /v1/responses/ID",
    "DELETE /v1/responses/ID",
    "GET /v1/models",
    "GET /v1/models/NAME",
    "GET /healthz",
)
WEBSOCKET_ENDPOINT = "WebSocket /v1/responses"
_NOT_SERVED = re.compile(r"/responses/(compact|input_tokens|[^/]+/(cancel|input_items))/?$|^/v1/conversations(/|$)")
"""Endpoints that the API has and this server has not."""
LIKENESS = 0.6
"""From which a path counts as a slip for another one: ``difflib``'s measure and choice. So no long path is compared."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What stands at ``/``."""

    name: str = "respserver"
    version: str = __version__
    mode: Mode
    needs_key: bool
    hint: str = "A client's base URL is this server's address with /v1 behind it."
    endpoints: tuple[str, ...]


def page(config: Config, *, needs_key: bool) -> bytes:
    """The page as JSON that people can read."""
    endpoints = (WEBSOCKET_ENDPOINT, *ENDPOINTS) if config.websocket else ENDPOINTS
    made = Page(mode=config.mode, needs_key=needs_key, endpoints=endpoints)
    return msgspec.json.format(encode(made), indent=2) + b"\n"


def unknown(method: str, path: str) -> RouteNotFound:
    """The error for a request to nowhere, naming the endpoint that was probably meant."""
    if _NOT_SERVED.search(path):
        return RouteNotFound(method, path, "This endpoint of the API is not served here; GET / lists those that are.")
    by_path = {endpoint.partition(" ")[2]: endpoint for endpoint in reversed(ENDPOINTS)}
    near = difflib.get_close_matches(path.lower(), by_path, 1, LIKENESS)
    if near:
        return RouteNotFound(method, path, f"The nearest endpoint is {by_path[near[0]]}; GET / lists all.")
    if method == "POST":
        return RouteNotFound(method, path, f"Responses are made with {MAKES_RESPONSES}; GET / lists all endpoints.")
    return RouteNotFound(method, path, "GET / lists the endpoints.")


def wrong_method(method: str, path: str, *, is_endpoint: bool, websocket: bool) -> MethodNotAllowed:
    """The error for a method that a path does not have; whoever opens the endpoint itself is told what it is for."""
    use = "POST it, or open a WebSocket here." if websocket else "POST it."
    return MethodNotAllowed(method, path, use if is_endpoint and method == "GET" else "")


def unknown_socket(path: str) -> RouteNotFound:
    """The error for a WebSocket upgrade to nowhere."""
    return RouteNotFound("GET", path, f"The endpoint is {WEBSOCKET_ENDPOINT}.")
