"""One WebSocket connection's life."""

from __future__ import annotations

from respserver.session.session import Session

__all__ = ["Session"]
