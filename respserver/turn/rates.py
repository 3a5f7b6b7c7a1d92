"""How much each tenant asks for: requests and tokens per minute, and when it has to wait.

What a tenant has used runs off continuously, a whole limit a minute, so that no minute begins or ends. A turn is
admitted while there is room for one more request and one more token; what it cost is only known at its end and counted
then, so that the last one may go over and whoever comes next waits longer. One clock reading a call, no task and no
wait; a tenant whose use has run off is forgotten.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

from respserver.errors import RateLimitExceeded
from respserver.limits import Limits
from respserver.metrics import Metrics

Kind: TypeAlias = Literal["requests", "tokens"]
"""What is counted; errors have it as their type."""
MINUTE = 60.0
ROUNDING = 1e-6
"""Who has waited as long as it was told gets in, whatever the arithmetic makes of it."""
HOUR_MINUTES = 60


class Gauge:
    """How much one tenant has used of one limit, as of the last look. ``limit`` is per minute; 0 is none."""

    def __init__(self) -> None:
        self._used = 0.0
        self._at = 0.0

    def used(self, limit: int, now: float) -> float:
        """What has not run off yet."""
        if limit:
            self._used = max(0.0, self._used - (now - self._at) * limit / MINUTE)
        else:
            self._used = 0.0
        self._at = now
        return self._used

    def add(self, amount: int, limit: int, now: float) -> None:
        """Use so much, also beyond the limit."""
        self._used = self.used(limit, now) + amount


class Rates:
    """The rate limits of a server, by tenant. ``clock`` tells seconds since whenever."""

    def __init__(self, limits: Limits, clock: Callable[[], float], metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._tenants: OrderedDict[str, dict[Kind, Gauge]] = OrderedDict()
        self.replace(limits)

    def __len__(self) -> int:
        """How many tenants are remembered."""
        return len(self._tenants)

    def replace(self, limits: Limits) -> None:
        """Take other limits from now on; what was used stays used. May be called from any thread."""
        self._limits: dict[Kind, int] = {"requests": limits.requests_per_minute, "tokens": limits.tokens_per_minute}
        self.are_on = any(self._limits.values())

    def take_request(self, tenant: str, model: str) -> None:
        """Count one request. Raises ``RateLimitExceeded``, and then it does not count."""
        if not self.are_on:
            return
        now = self._clock()
        self._forget_idle(now)
        gauges = self._tenants.get(tenant, {})
        waits = {kind: _wait(gauges[kind].used(limit, now), limit) for kind, limit in self._on() if kind in gauges}
        kind = max(waits, key=waits.__getitem__, default=None)
        if kind is not None and waits[kind] > 0.0:
            self._metrics.rate_limited += 1
            limit, used = self._limits[kind], math.ceil(gauges[kind].used(self._limits[kind], now))
            raise RateLimitExceeded(
                kind, model=model, tenant=tenant, limit=limit, used=used, wait=waits[kind], headers=self.headers(tenant)
            )
        self._add(tenant, "requests", 1, now)

    def charge(self, tenant: str, tokens: int) -> None:
        """Count tokens that a turn has used."""
        if tokens and self._limits["tokens"]:
            self._add(tenant, "tokens", tokens, self._clock())

    def headers(self, tenant: str) -> dict[str, str]:
        """``x-ratelimit-…`` for an answer to this tenant: each limit that is on, what is left, when all of it is."""
        if not self.are_on:
            return {}
        now, gauges, fields = self._clock(), self._tenants.get(tenant, {}), {}
        for kind, limit in self._on():
            used = gauges[kind].used(limit, now) if kind in gauges else 0.0
            fields[f"x-ratelimit-limit-{kind}"] = str(limit)
            fields[f"x-ratelimit-remaining-{kind}"] = str(max(0, math.floor(limit - used + ROUNDING)))
            fields[f"x-ratelimit-reset-{kind}"] = duration(used * MINUTE / limit)
        return fields

    def _on(self) -> Iterator[tuple[Kind, int]]:
        return ((kind, limit) for kind, limit in self._limits.items() if limit)

    def _add(self, tenant: str, kind: Kind, amount: int, now: float) -> None:
        gauges = self._tenants.setdefault(tenant, {"requests": Gauge(), "tokens": Gauge()})
        self._tenants.move_to_end(tenant)
        gauges[kind].add(amount, self._limits[kind], now)

    def _forget_idle(self, now: float) -> None:
        """Whoever has used nothing for longest stands first."""
        while self._tenants:
            tenant, gauges = next(iter(self._tenants.items()))
            if any(gauge.used(self._limits[kind], now) for kind, gauge in gauges.items()):
                return
            del self._tenants[tenant]


def duration(seconds: float) -> str:
    """A time as the API writes it: ``120ms``, ``1s``, ``7.66s``, ``6m0s``, ``1h0m0s``."""
    milliseconds = math.ceil(round(seconds * 1000, 3))
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, int(MINUTE) * 1000)
    shown = f"{rest / 1000:g}s"
    if not minutes:
        return shown
    hours, minutes = divmod(minutes, HOUR_MINUTES)
    return f"{hours}h{minutes}m{shown}" if hours else f"{minutes}m{shown}"


def _wait(used: float, limit: int) -> float:
    """Seconds until one more fits."""
    over = used + 1 - limit
    return over * MINUTE / limit if over > ROUNDING else 0.0
