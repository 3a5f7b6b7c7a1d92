"""Who may open a WebSocket: decided on the upgrade request alone, before it is answered (protocol.md section 1.2)."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, unquote

import msgspec

from respserver.auth import KeyRing
from respserver.config import Config
from respserver.errors import ApiError, OriginNotAllowed, ShuttingDown, WebSocketDisabled
from respserver.origins import canonical, is_same_host
from respserver.transport.app import RESPONSES_PATHS
from respserver.transport.head import check_handshake, origin_form
from respserver.transport.lifetime import Headers
from respserver.transport.refusals import log_refusal
from respserver.transport.signpost import unknown_socket


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """What the upgrade request told."""

    tenant: str
    default_model: str | None
    """``?model=`` of the URL, for frames without one."""


class Admission:
    """The rules of one server. ``is_stopping`` tells whether it takes no more connections."""

    def __init__(self, config: Config, keys: KeyRing, is_stopping: Callable[[], bool]) -> None:
        self._config = config
        self._keys = keys
        self._is_stopping = is_stopping
        self._allowed = frozenset(map(canonical, config.allow_origin))

    def admit(self, target: str, headers: Headers) -> Admitted | ApiError:
        """Admit an upgrade, or give the error that refuses it."""
        try:
            return self._admit(target, headers)
        except ApiError as error:
            return _refused(error, target)

    def admit_late(self, target: str, headers: Headers) -> Admitted | ApiError:
        """The same for an upgrade on a connection that has already carried requests."""
        return self.admit(target, headers) if self._config.late_upgrade else _refused(WebSocketDisabled(), target)

    def _admit(self, target: str, headers: Headers) -> Admitted:
        raw_path, _, query = origin_form(target).partition("?")
        path = unquote(raw_path)
        if path.removesuffix("/") not in RESPONSES_PATHS:
            raise unknown_socket(path)
        if not self._config.websocket:
            raise WebSocketDisabled
        if self._is_stopping():
            raise ShuttingDown
        _check_origin(headers, self._allowed)
        tenant = self._keys.authenticate(_header(headers, "authorization"))
        check_handshake(headers)
        return Admitted(tenant=tenant, default_model=parse_qs(query).get("model", [None])[0])


def _refused(error: ApiError, target: str) -> ApiError:
    log_refusal(error, "GET", target)
    return error


def _check_origin(headers: Headers, allowed: frozenset[str | None]) -> None:
    """Browsers send ``Origin``, other clients do not: a foreign page must not use a local server (F25)."""
    host = _header(headers, "host")
    for origin in (value for name, value in headers if name == "origin"):  # there is no more than one, if all is well
        page = canonical(origin)
        if page is None or not (page in allowed or is_same_host(page, host)):
            raise OriginNotAllowed(f"Origin '{origin}' is not allowed.")


def _header(headers: Headers, name: str) -> str | None:
    return next((value for key, value in headers if key == name), None)
