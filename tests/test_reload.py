"""A running server takes another routing table and other keys; what runs, and what engines hold, goes on."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from respserver.auth import KeyRing
from respserver.config import Config, Mode, RouteConfig, differences, take_anew
from respserver.embed import RunningServer, start_server
from respserver.engines.sim import Script, Sim, call
from respserver.errors import ConfigError, InvalidApiKey, ModelNotFound
from respserver.limits import Limits
from respserver.metrics import Metrics
from respserver.server import Server
from respserver.services import build_services, bundled_template, make_routes
from respserver.turn.routing import KeptRoute, Route, Router
from tests.support.live import Wire, calls_of, http, output, text_of, tool
from tests.support.spy import Spy

STRICT = Config(port=0, strict_models=True, limits=Limits(grace_seconds=0.0))


def with_models(*names: str, **fields: Any) -> Config:
    return msgspec.structs.replace(STRICT, model=names, **fields)


def table(*patterns: str, engine: Sim | None = None) -> list[Route]:
    used = engine or Sim(bundled_template())
    return [Route(pattern=pattern, engine=used, template=bundled_template()) for pattern in patterns]


# ------------------------------------------------------------------------------------------------------ the table


def test_a_kept_route_is_asked_again_once_the_table_was_replaced() -> None:
    router = Router(table("a", "b"), metrics := Metrics())
    kept = KeptRoute(router)
    assert [kept.resolve("a") for _ in range(3)] == [router.routes[0]] * 3
    assert (metrics.routes_resolved, metrics.route_hits) == (1, 2)
    router.replace(table("a"))
    assert [kept.resolve("a") for _ in range(3)] == [router.routes[0]] * 3
    assert (metrics.routes_resolved, metrics.route_hits) == (2, 4)


def test_a_model_that_the_new_table_lacks_is_unknown_until_a_table_has_it_again() -> None:
    router = Router(old := table("a"), Metrics())
    kept = KeptRoute(router)
    kept.resolve("a")
    router.replace(table("b"))
    for _ in range(2):  # the remembered answer must not come back
        with pytest.raises(ModelNotFound):
            kept.resolve("a")
    router.replace(old)
    assert kept.resolve("a") is old[0]


def test_the_router_remembers_every_engine_that_a_table_led_to_once() -> None:
    first, second = Sim(bundled_template()), Sim(bundled_template())
    router = Router(table("a", "b", engine=first), Metrics())
    router.replace([*table("a", engine=second), *table("b", engine=first)])
    router.replace(table("a", engine=second))
    assert router.engines == [first, second]


def test_a_table_is_made_over_the_engines_that_are_there() -> None:
    engine = Spy()
    engine.name = "mine"
    assert [route.pattern for route in make_routes(STRICT, [engine])] == ["mine"]
    made = make_routes(with_models("a", strict_models=False), [engine, Sim(bundled_template())])
    assert [(route.pattern, route.engine.name) for route in made] == [("a", "mine"), ("*", "mine")]
    other = Config(routes=(RouteConfig(pattern="x", engine="mine"), RouteConfig(pattern="y", engine="vroom")))
    with pytest.raises(ConfigError, match=r"routes\[1\]\.engine: unknown engine 'vroom'; there is 'mine'"):
        make_routes(other, [engine])


# ------------------------------------------------------------------------------------------------------- settings


def test_the_table_and_the_keys_are_taken_anew_and_what_else_differs_is_named() -> None:
    running = Config(port=0, model=("a",))
    fresh = Config(
        port=1, tps=2.0, model=("b",), strict_models=True, api_key=("k",), routes=(RouteConfig(pattern="c"),),
        limits=Limits(grace_seconds=1.5, tool_seconds=9.0),
    )  # fmt: skip
    taken = take_anew(running, fresh)
    assert taken == Config(port=0, model=("b",), strict_models=True, api_key=("k",), routes=(RouteConfig(pattern="c"),))
    assert sorted(differences(taken, fresh)) == ["limits.grace_seconds", "limits.tool_seconds", "port", "tps"]
    assert differences(taken, taken) == []


def test_a_key_ring_takes_over_what_another_accepts() -> None:
    keys = KeyRing.from_config(Config(api_key=("old",)))
    keys.replace(KeyRing.from_config(Config(api_key=("new",))))
    assert keys.authenticate("Bearer new")
    with pytest.raises(InvalidApiKey):
        keys.authenticate("Bearer old")


REFUSED = {
    "an unknown engine": (Config(api_key=("other",), routes=(RouteConfig(pattern="x", engine="vroom"),)), "vroom"),
    "no keys any more": (Config(), "no keys are left"),
    "a key that is none": (Config(api_key=("two words",)), "visible ASCII"),
    "a keys file that is not there": (Config(api_keys_file="/nowhere/keys.txt"), "cannot read"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_are_refused_change_nothing(case: str) -> None:
    config = msgspec.structs.replace(with_models("a"), api_key=("key",))
    keys = KeyRing.from_config(config)
    server = Server(config, build_services(config), keys)
    before = server.services.router.routes
    fresh, problem = REFUSED[case]
    with pytest.raises(ConfigError, match=problem):
        server.reload(fresh)
    assert server.services.router.routes is before
    assert server.services.config is config
    assert keys.authenticate("Bearer key")


def test_a_server_that_others_reach_cannot_lose_its_keys_by_naming_another_host() -> None:
    """What counts is where it listens, not where the new settings would."""
    config = Config(host="0.0.0.0", api_key=("key",))
    server = Server(config, build_services(config), KeyRing.from_config(config))
    with pytest.raises(ConfigError, match="no API keys are set"):
        server.reload(Config(host="127.0.0.1"))


def test_what_needs_a_restart_is_logged_by_name(caplog: pytest.LogCaptureFixture) -> None:
    config = Config(port=0)
    server = Server(config, build_services(config), KeyRing({}))
    with caplog.at_level(logging.INFO, "respserver.server"):
        server.reload(Config(port=0, model=("a",)))
        server.reload(Config(port=0, tps=5.0, api_key=("secret-key",)))
    assert [record.getMessage() for record in caplog.records] == ["reloaded", "reloaded", "restart_needed"]
    assert caplog.records[2].settings == ["tps"]  # type: ignore[attr-defined]  # the record carries its fields
    assert "secret-key" not in str([vars(record) for record in caplog.records])


# ---------------------------------------------------------------------------------------------------- over sockets


@pytest.fixture
async def strict(serve: Any) -> RunningServer:
    """A server that knows the model ``a`` alone."""
    running: RunningServer = await serve(model=("a",), strict_models=True)
    return running


async def test_a_model_is_served_on_the_same_socket_once_the_table_has_it(strict: RunningServer, connect: Any) -> None:
    wire: Wire = await connect(strict)
    await wire.completed(model="a", input="hi")
    assert (await wire.refused(model="b", input="hi"))["error"]["code"] == "model_not_found"
    strict.reload(with_models("b"))
    assert text_of(await wire.completed(model="b", input="hi")) == "You said: hi"
    assert (await wire.refused(model="a", input="hi"))["error"]["code"] == "model_not_found"


async def test_http_and_the_list_of_models_follow_the_table(strict: RunningServer) -> None:
    strict.reload(with_models("b"))
    async with http(strict) as client:
        old, new = [await client.post("/responses", json={"model": name, "input": "hi"}) for name in "ab"]
        assert (old.status_code, old.json()["error"]["code"]) == (400, "model_not_found")
        assert new.status_code == 200
        assert [model["id"] for model in (await client.get("/models")).json()["data"]] == ["b"]


async def test_a_chain_goes_on_with_what_the_engine_has_of_it(serve: Any, connect: Any) -> None:
    """Same engine, same run: after a reload the model is given what is new, not the conversation again."""
    spy = Spy(Script.of("one", "two"))
    server = await serve(engine=spy)
    wire: Wire = await connect(server)
    first = await wire.completed(input="hi")
    server.reload(Config(port=0, routes=(RouteConfig(pattern="sim", context_window=1000),)))
    second = await wire.completed(input="and", previous_response_id=first["id"])
    assert text_of(second) == "two"
    assert second["usage"]["input_tokens_details"]["cached_tokens"] >= first["usage"]["total_tokens"]
    assert (server.metrics.sequences_opened, server.metrics.routes_resolved, server.metrics.route_hits) == (1, 2, 0)
    await wire.completed(input="once more")
    assert server.metrics.route_hits == 1


async def test_a_suspended_turn_keeps_its_route_and_the_next_one_finds_the_new_table(serve: Any, connect: Any) -> None:
    server = await serve(Script.of(call("first"), "word " * 40), mode=Mode.PROTOTYPE)
    wire: Wire = await connect(server)
    pause = (await wire.turn(input="hi", tools=[tool("first")]))[-1]
    small = (RouteConfig(pattern="*", context_window=30),)
    server.reload(Config(port=0, mode=Mode.PROTOTYPE, routes=small))
    await wire.append([output(made) for made in calls_of(pause["response"])])
    assert (await wire.frames())[-1]["type"] == "response.completed"  # its words do not fit the new window
    last = (await wire.turn(input="hi", tools=[tool("first")]))[-1]
    assert last["response"]["error"]["code"] == "context_length_exceeded"


async def test_new_keys_count_for_whoever_comes_and_open_sockets_stay(serve: Any, connect: Any, tmp_path: Any) -> None:
    file = tmp_path / "keys.txt"
    file.write_text("old-key alice\n")
    server = await serve(api_keys_file=str(file))
    wire: Wire = await connect(server, headers={"Authorization": "Bearer old-key"})
    file.write_text("new-key alice\n")
    server.reload(Config(port=0, api_keys_file=str(file)))
    await wire.completed(input="hi")
    async with http(server) as client:
        for key, status in (("old-key", 401), ("new-key", 200)):
            assert (await client.get("/models", headers={"Authorization": f"Bearer {key}"})).status_code == status


async def test_engines_without_a_route_live_until_the_server_ends(serve: Any, hold: Any) -> None:
    class Closing(Sim):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    engine = Closing(bundled_template())
    config = Config(port=0)
    server = Server(config, build_services(config, engine=engine), KeyRing({}))
    server.services.router.replace(table("*"))
    assert engine.closed == 0
    server.stop.set()
    await server.serve(lambda address: None)
    assert engine.closed == 1


def test_a_server_in_a_thread_is_reloaded_from_outside() -> None:
    with start_server(with_models("a")) as server:
        server.reload(with_models("b"))
        with pytest.raises(ConfigError, match="vroom"):
            server.reload(with_models("b", routes=(RouteConfig(pattern="x", engine="vroom"),)))
