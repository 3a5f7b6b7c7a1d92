"""Which browser pages may use HTTP: the headers that let a page read an answer (the Fetch standard's CORS protocol).

Only reading is decided here, by ``--cors-origin``; sockets are no part of CORS, and ``--allow-origin`` decides those.
"""

from __future__ import annotations

from werkzeug.datastructures import Headers

from respserver.origins import ANY, canonical

PREFLIGHT_SECONDS = 600
"""How long a browser may rely on a preflight's answer; browsers' own bounds are 600 s and more."""
RATE_FIELDS = tuple(
    f"x-ratelimit-{what}-{kind}" for kind in ("requests", "tokens") for what in ("limit", "remaining", "reset")
)
EXPOSED = ", ".join(
    ("x-request-id", "openai-version", "openai-processing-ms", "retry-after", "retry-after-ms", *RATE_FIELDS)
)


class Cors:
    """The rule of one server. Without origins it adds nothing to any answer."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._is_on = bool(origins)
        self._any = ANY in origins
        self._allowed = frozenset(canonical(origin) for origin in origins)

    def fields(self, asked: Headers, allow: str | None) -> dict[str, str]:
        """What to add to an answer. ``asked`` is the request's header, ``allow`` the answer's ``Allow``.

        A page that may not read the answer is not named, and that is all: its browser keeps the answer from it.
        """
        if not self._is_on:
            return {}
        fields = {} if self._any else {"Vary": "Origin"}  # also for those who send none: caches serve both
        origin = asked.get("Origin")
        if origin is None or not (self._any or canonical(origin) in self._allowed):
            return fields
        fields["Access-Control-Allow-Origin"] = ANY if self._any else origin
        if allow is None or "Access-Control-Request-Method" not in asked:
            return fields | {"Access-Control-Expose-Headers": EXPOSED}
        wanted = asked.get("Access-Control-Request-Headers")
        if wanted is not None:
            fields["Access-Control-Allow-Headers"] = wanted  # SDKs have many of their own
        return fields | {"Access-Control-Allow-Methods": allow, "Access-Control-Max-Age": str(PREFLIGHT_SECONDS)}
