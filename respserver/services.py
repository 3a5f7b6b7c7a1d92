"""Makes the parts that all turns of a process share, from its settings."""

from __future__ import annotations

import functools
import importlib.resources
import os
import secrets
import string
import time
from collections.abc import Collection, Sequence

import trio

from respserver.config import Config, RouteConfig
from respserver.engines.base import Engine
from respserver.engines.sim import Script, Sim, load_script
from respserver.errors import ConfigError
from respserver.ledger.base import Ledger
from respserver.ledger.memory import MemoryLedger
from respserver.ledger.sqlite import SqliteLedger
from respserver.metrics import Metrics
from respserver.store.base import Store
from respserver.store.memory import MemoryStore
from respserver.tokens.render import Template
from respserver.tokens.tokenizer import DATA_FILE, Tokenizer
from respserver.tools.base import Host
from respserver.tools.mcp import McpHost
from respserver.tools.search import FolderSearch, SearchHost
from respserver.turn.kept import KeptContexts
from respserver.turn.postinference import PostInference
from respserver.turn.rates import Rates
from respserver.turn.routing import Route, Router
from respserver.turn.safety import build_screening
from respserver.turn.sealing import Sealer
from respserver.turn.services import Services
from respserver.turn.slots import Suspensions, TurnSlots
from respserver.turn.tokencache import TokenCache

TOKENISE_THREADS = 2
"""More would only compete for the same cores; the tokenizer has threads of its own."""
ENGINES = (Sim.name,)
"""Names that a route's ``engine`` may have, unless the server is given an engine of its own."""
_ID_BYTES = {"call": 12, "steer": 16}
"""Random bytes of ids that are shorter than the others (protocol.md sections 2.3 and 3.5)."""
_PADDING = string.ascii_letters + string.digits


def build_services(
    config: Config,
    *,
    script: Script | None = None,
    engine: Engine | None = None,
    store: Store | None = None,
    hosts: Sequence[Host] = (),
) -> Services:
    """Everything that turns share. Raises ``ConfigError`` for a bad script, ledger or engine.

    ``script``, ``engine`` and ``hosts`` replace what the settings name, for servers that are embedded in tests.
    """
    metrics = Metrics()
    template = bundled_template()
    limits = config.limits
    post = PostInference(
        limits.post_queue,
        _ledger(config),
        max_tallied=limits.ledger_records,
        max_unwritten=limits.ledger_waiting,
        end_seconds=limits.end_seconds,
    )
    return Services(
        config=config,
        store=store
        or MemoryStore(
            max_responses=limits.store_responses,
            max_bytes=limits.store_bytes,
            max_idle_seconds=limits.store_seconds,
            now=time.monotonic,
        ),
        router=Router(make_routes(config, [engine or _sim(config, template, script)]), metrics),
        post=post,
        metrics=metrics,
        token_cache=TokenCache(limits.token_cache_bytes, metrics),
        kept=KeptContexts(limits.kept_contexts, limits.kept_context_bytes, post.runs.close_soon),
        screening=build_screening(config),
        sealer=Sealer(config.encryption_key),
        hosts={host.kind: host for host in [*_hosts(config), *hosts]},
        rates=Rates(limits, trio.current_time, metrics),
        slots=TurnSlots(limits.active_turns, limits.waiting_turns, metrics),
        suspensions=Suspensions(limits.suspended_rollouts, "server"),
        new_id=new_id,
        now=time.time,
        clock=time.perf_counter,
        padding=_random_padding,
        tokenise_limiter=trio.CapacityLimiter(TOKENISE_THREADS),
    )


def make_routes(config: Config, engines: Sequence[Engine]) -> list[Route]:
    """The routing table of a configuration, over engines that are there; the first serves where none is named.

    Raises ``ConfigError`` for a route to an engine that is not.
    """
    by_name = {engine.name: engine for engine in engines}
    default = engines[0].name
    check_engines(config.routes, by_name)
    entries = [*config.routes, *(RouteConfig(pattern=name, engine=default) for name in config.model)]
    if not config.strict_models:
        entries.append(RouteConfig(pattern="*", engine=default))
    elif not entries:
        entries.append(RouteConfig(pattern=default, engine=default))
    template = bundled_template()
    return [
        Route(
            pattern=entry.pattern,
            engine=by_name[entry.engine],
            template=template,
            context_window=entry.context_window,
            steering=entry.steering,
        )
        for entry in entries
    ]


def check_engines(routes: Sequence[RouteConfig], known: Collection[str] = ENGINES) -> None:
    """Raises ``ConfigError`` for the first route to an engine that is not ``known``."""
    for index, entry in enumerate(routes):
        if entry.engine not in known:
            there = " and ".join(f"'{name}'" for name in known)
            raise ConfigError(f"routes[{index}].engine", f"unknown engine '{entry.engine}'; there is {there}.")


def new_id(prefix: str) -> str:
    """A fresh id: the prefix and 128 random bits or more, as clients know them."""
    return f"{prefix}_{os.urandom(_ID_BYTES.get(prefix, 24)).hex()}"


@functools.cache
def bundled_template() -> Template:
    """The template on the bundled tokenizer: read once a process, never changed."""
    return Template(Tokenizer(importlib.resources.files("respserver.tokens").joinpath(DATA_FILE).read_bytes()))


def _ledger(config: Config) -> Ledger:
    if config.ledger is None:
        return MemoryLedger(0)  # rows are for files; the tally keeps the latest turns anyway
    return SqliteLedger(config.ledger)


def _hosts(config: Config) -> list[Host]:
    hosts: list[Host] = [McpHost(config.mcp_allow, list_seconds=config.limits.mcp_list_seconds)]
    if config.search_folder is not None:
        hosts.append(SearchHost(FolderSearch(config.search_folder)))
    return hosts


def _sim(config: Config, template: Template, script: Script | None) -> Sim:
    if script is None and config.script is not None:
        script = load_script(config.script)
    return Sim(
        template, script=script, rehearse=config.rehearse, tps=config.tps, ttft=config.ttft, jitter=config.jitter
    )


def _random_padding(length: int) -> str:
    return "".join(secrets.choice(_PADDING) for _ in range(length))
