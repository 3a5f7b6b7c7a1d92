"""Rate limits as clients meet them: over a socket, over HTTP, in both modes, and after a reload."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from respserver.config import Config, Limits, Mode
from respserver.embed import make_server
from respserver.engines.sim import Script, call, delay, reasoning
from tests.support.live import Frame, http, output, post, tool
from tests.support.steering import begun, heard, steer, turns
from tests.support.talk import Talk, services, settled

Clock = trio.testing.MockClock
"""Jumps on when nobody has anything to do: a minute takes no time."""
TOOLS = [tool("first")]


def error_of(frame: Frame) -> Frame:
    assert frame["type"] == "error", frame
    error: Frame = frame["error"]
    return error


def codex_wait(message: str) -> float:
    """How long a client waits that reads the hint out of the message, as Codex does."""
    found = re.search(r"(?i)try again in\s*(\d+(?:\.\d+)?)\s*(s|ms|seconds?)", message)
    assert found is not None
    return float(found[1]) / (1000 if found[2] == "ms" else 1)


# --------------------------------------------------------------------------------------------------------- socket


async def test_one_create_too_many_is_one_error_frame_with_hints_in_both_places(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    talk = Talk(nursery, services(requests_per_minute=2))
    for _ in range(2):
        assert (await talk.turn(input="hi"))["type"] == "response.completed"
    talk.create(input="hi")
    (frame,) = await talk.socket.hear_step()
    assert frame["status"] == 429
    error = error_of(frame)
    assert (error["type"], error["code"], error["param"]) == ("requests", "rate_limit_exceeded", None)
    assert error["message"] == (
        "Rate limit reached for sim in organization default on requests per min (RPM): Limit 2, Used 2, Requested 1. "
        "Please try again in 30s."
    )
    assert error["headers"] == frame["headers"]
    assert error["headers"] | {"retry-after": "30", "retry-after-ms": "30000"} == error["headers"]
    assert error["headers"]["x-ratelimit-remaining-requests"] == "0"


async def test_whoever_waits_as_it_is_told_is_served_on_the_same_socket(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    talk = Talk(nursery, services(requests_per_minute=2))
    for _ in range(2):
        await talk.turn(input="hi")
    error = error_of(await talk.turn(input="hi"))
    await trio.sleep(codex_wait(error["message"]) - 0.01)
    error = error_of(await talk.turn(input="hi"))
    assert codex_wait(error["message"]) == pytest.approx(0.01)
    await trio.sleep(codex_wait(error["message"]))
    assert (await talk.turn(input="hi"))["type"] == "response.completed"


async def test_a_refused_continuation_keeps_its_parent_and_can_be_sent_again(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    parts = services(requests_per_minute=1)
    talk = Talk(nursery, parts)
    first = (await talk.turn(input="hi", store=False))["response"]
    again = {"input": "go on", "previous_response_id": first["id"], "store": False}
    error = error_of(await talk.turn(**again))
    assert parts.metrics.tokens_extended == first["usage"]["input_tokens"]
    await trio.sleep(codex_wait(error["message"]))
    second = (await talk.turn(**again))["response"]
    assert second["previous_response_id"] == first["id"]
    assert second["usage"]["input_tokens_details"]["cached_tokens"] > 0


async def test_a_refusal_is_a_row_and_a_count_and_touches_nothing(nursery: trio.Nursery, autojump_clock: Clock) -> None:
    parts = services(requests_per_minute=1)
    talk = Talk(nursery, parts)
    await talk.turn(input="hi")
    error_of(await talk.turn(input="hi"))
    await settled()
    assert (parts.metrics.turns, parts.metrics.refused, parts.metrics.rate_limited) == (1, 1, 1)
    row = parts.post.tally.latest[-1]
    assert (row.status, row.error_code, row.model) == ("refused", "rate_limit_exceeded", "sim")
    assert row.usage.total_tokens == 0
    assert parts.slots.active == 0


async def test_a_create_that_waits_in_line_is_counted_when_its_turn_comes(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    talk = Talk(nursery, services(requests_per_minute=1))
    talk.create(input="hi")
    talk.create(input="hi")
    assert (await talk.socket.hear_step())[-1]["type"] == "response.completed"
    assert error_of((await talk.socket.hear_step())[-1])["code"] == "rate_limit_exceeded"


async def test_a_create_that_cannot_be_read_is_no_request(nursery: trio.Nursery, autojump_clock: Clock) -> None:
    talk = Talk(nursery, services(requests_per_minute=1))
    for _ in range(3):
        assert error_of(await talk.turn())["code"] == "missing_required_parameter"
        assert error_of(await talk.turn(input="hi", model=5))["code"] == "invalid_type"
    assert (await talk.turn(input="hi"))["type"] == "response.completed"


async def test_sockets_of_one_tenant_share_its_limit_and_another_has_its_own(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    parts = services(requests_per_minute=1)
    talk = Talk(nursery, parts, tenant="alice")
    await talk.turn(input="hi")
    beside = Talk(nursery, parts, tenant="alice", beside=talk)
    assert "organization alice" in error_of(await beside.turn(input="hi"))["message"]
    other = Talk(nursery, parts, tenant="bob", beside=talk)
    assert (await other.turn(input="hi"))["type"] == "response.completed"


# --------------------------------------------------------------------------------------------------------- tokens


async def test_a_turn_costs_what_its_usage_says_and_the_next_waits_until_that_has_run_off(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    talk = Talk(nursery, services(tokens_per_minute=10))
    used = (await talk.turn(input="hi"))["response"]["usage"]["total_tokens"]
    assert used > 10
    error = error_of(await talk.turn(input="hi"))
    assert error["type"] == "tokens"
    assert f"on tokens per min (TPM): Limit 10, Used {used}, Requested 1." in error["message"]
    assert codex_wait(error["message"]) == pytest.approx((used + 1 - 10) * 6)
    assert int(error["headers"]["retry-after-ms"]) == round(codex_wait(error["message"]) * 1000)
    for _ in range(5):
        error_of(await talk.turn(input="hi"))  # which costs nothing more
    await trio.sleep(codex_wait(error["message"]))
    assert (await talk.turn(input="hi"))["type"] == "response.completed"


async def test_a_turn_that_its_client_leaves_has_cost_what_it_took(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    parts = services(Script.of(["so far", delay(1000.0), " and on"]), tokens_per_minute=1000)
    talk = Talk(nursery, parts)
    talk.create(input="hi")
    while (await talk.socket.hear())["type"] != "response.output_text.delta":
        pass
    talk.socket.leave()
    await talk.over.wait()
    (row,) = parts.post.tally.latest
    assert (row.status, row.usage.output_tokens > 0) == ("cancelled", True)
    left = parts.rates.headers("default")["x-ratelimit-remaining-tokens"]
    assert left == str(1000 - row.usage.total_tokens)


@pytest.mark.parametrize("kind", ["requests", "tokens"])
async def test_a_rollout_is_one_request_and_pays_at_each_pause(
    nursery: trio.Nursery, autojump_clock: Clock, kind: str
) -> None:
    limits = {"requests_per_minute": 1} if kind == "requests" else {"tokens_per_minute": 50}
    parts = services(Script.of(call("first"), call("first"), "done"), mode=Mode.PROTOTYPE, **limits)
    talk = Talk(nursery, parts)
    talk.create(input="hi", tools=TOOLS)
    paid = []
    while (step := (await talk.socket.hear_step())[-1])["type"] == "response.done":
        await settled()
        used = step["response"]["usage"]["total_tokens"]
        if kind == "tokens":
            paid.append(parts.rates.headers("default")["x-ratelimit-reset-tokens"])
            assert int(parts.rates.headers("default")["x-ratelimit-remaining-tokens"]) == max(0, 50 - used)
        (pending,) = step["required_input"]
        talk.socket.say({"type": "response.append", "input": [output(pending)]})  # refused for no limit
    assert step["type"] == "response.completed"
    assert (parts.metrics.pauses, parts.metrics.rate_limited) == (2, 0)
    error = error_of(await talk.turn(input="hi"))
    assert error["type"] == kind
    if kind == "tokens":
        assert len(set(paid)) == 2
        assert f"Used {step['response']['usage']['total_tokens']}," in error["message"]  # each token once


async def test_a_successor_that_steering_asks_for_is_no_request(nursery: trio.Nursery, autojump_clock: Clock) -> None:
    parts = services(Script.of([reasoning("Hm."), delay(5.0), "on"], "steered"), requests_per_minute=1)
    talk = Talk(nursery, parts)
    target = await begun(talk)
    steer(talk, target)
    frames = await heard(talk, 10.0)
    assert turns(frames)[-1] == "completed"
    assert frames[-1]["response"]["previous_response_id"] == target
    assert (parts.metrics.turns, parts.metrics.rate_limited) == (2, 0)
    assert error_of(await talk.turn(input="hi"))["type"] == "requests"


# ----------------------------------------------------------------------------------------------------------- HTTP


RATE_HEADERS = {
    f"x-ratelimit-{what}-{kind}" for what in ("limit", "remaining", "reset") for kind in ("requests", "tokens")
}


@pytest.mark.parametrize("stream", [False, True])
async def test_over_http_one_too_many_is_a_429_with_the_headers_that_sdks_read(serve: Any, stream: bool) -> None:
    server = await serve(limits={"requests_per_minute": 1, "tokens_per_minute": 10_000})
    first = await post(server, input="hi", stream=stream)
    assert first.status_code == 200
    assert first.headers["x-ratelimit-limit-requests"] == "1"
    assert first.headers["x-ratelimit-remaining-requests"] == "0"
    answer = await post(server, input="hi", stream=stream)
    assert answer.status_code == 429
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert (error["type"], error["code"], set(error)) == (
        "requests", "rate_limit_exceeded", {"message", "type", "param", "code"},
    )  # fmt: skip
    assert 0 < int(answer.headers["retry-after-ms"]) <= 60_000
    assert int(answer.headers["retry-after"]) == -(-int(answer.headers["retry-after-ms"]) // 1000)
    assert {name for name in answer.headers if name.startswith("x-ratelimit-")} == RATE_HEADERS
    assert [row.status for row in server.turns()] == ["completed", "refused"]


async def test_every_answer_to_a_limited_key_tells_its_limits_and_no_other_answer_does(serve: Any) -> None:
    server = await serve(api_key=("k",), limits={"requests_per_minute": 5, "tokens_per_minute": 100})
    async with http(server, headers={"Authorization": "Bearer k"}) as client:
        for answer in [
            await client.get("/models"),
            await client.head("/models"),
            await client.get("/responses/resp_no"),
            await client.get("/nowhere"),
            await client.put("/responses"),
            await client.post("/responses", json={}),
        ]:
            assert answer.headers["x-ratelimit-remaining-requests"] == "5"
            assert answer.headers["x-ratelimit-reset-requests"] == "0s"
        for answer in [await client.get("/"), await client.options("/responses")]:
            assert not RATE_HEADERS & set(answer.headers)
    assert not RATE_HEADERS & set((await post(server, input="hi")).headers)  # no key, no tenant
    free = await serve()
    assert not RATE_HEADERS & set((await post(free, input="hi")).headers)


async def test_what_a_turn_has_used_shows_in_the_headers_of_its_own_answer(serve: Any) -> None:
    server = await serve(limits={"tokens_per_minute": 60})  # one runs off in a second
    answer = await post(server, input="hi")
    used = answer.json()["usage"]["total_tokens"]
    assert int(answer.headers["x-ratelimit-remaining-tokens"]) == 60 - used


# --------------------------------------------------------------------------------------------------------- reload


async def test_a_reload_changes_the_limits_and_asks_for_no_restart(caplog: pytest.LogCaptureFixture) -> None:
    server = make_server(config := Config(port=0, limits=Limits(requests_per_minute=1)))
    rates = server.services.rates
    rates.take_request("alice", "sim")
    with caplog.at_level("INFO", "respserver.server"):
        server.reload(msgspec.structs.replace(config, limits=Limits(requests_per_minute=2, tokens_per_minute=7)))
    rates.take_request("alice", "sim")
    assert rates.headers("alice")["x-ratelimit-limit-tokens"] == "7"
    assert [record.getMessage() for record in caplog.records] == ["reloaded"]
    assert server.services.config.limits == Limits(requests_per_minute=2, tokens_per_minute=7)
