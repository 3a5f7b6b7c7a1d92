"""Rates by themselves, on a clock that the test moves: what fits, how long the rest waits, and what is remembered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.errors import RateLimitExceeded
from respserver.limits import Limits
from respserver.metrics import Metrics
from respserver.turn.rates import Rates, duration


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def limited(requests: int = 0, tokens: int = 0) -> tuple[Rates, Clock]:
    clock = Clock()
    return Rates(Limits(requests_per_minute=requests, tokens_per_minute=tokens), clock, Metrics()), clock


def refused(rates: Rates, tenant: str = "alice", model: str = "sim") -> RateLimitExceeded:
    with pytest.raises(RateLimitExceeded) as caught:
        rates.take_request(tenant, model)
    return caught.value


def test_without_limits_nothing_is_counted_remembered_or_told() -> None:
    rates, _ = limited()
    for _ in range(1000):
        rates.take_request("alice", "sim")
        rates.charge("alice", 1_000_000)
    assert (len(rates), rates.headers("alice")) == (0, {})


def test_as_many_requests_as_the_limit_fit_at_once_and_the_next_has_to_wait_for_one() -> None:
    rates, clock = limited(requests=3)
    for _ in range(3):
        rates.take_request("alice", "sim")
    error = refused(rates)
    assert (error.status, error.code, error.type) == (429, "rate_limit_exceeded", "requests")
    assert error.message == (
        "Rate limit reached for sim in organization alice on requests per min (RPM): Limit 3, Used 3, Requested 1. "
        "Please try again in 20s."
    )
    clock.now += 19.9
    assert refused(rates).wait == pytest.approx(0.1)
    clock.now += 0.1
    rates.take_request("alice", "sim")
    assert refused(rates).wait == 20.0


def test_a_refused_request_is_not_counted() -> None:
    rates, clock = limited(requests=1)
    rates.take_request("alice", "sim")
    for _ in range(50):
        refused(rates)
    clock.now += 60
    rates.take_request("alice", "sim")


def test_tokens_are_counted_afterwards_and_who_went_over_waits_for_them_too() -> None:
    rates, clock = limited(tokens=30_000)
    rates.take_request("alice", "sim")
    rates.charge("alice", 29_999)
    rates.take_request("alice", "sim")  # nobody knows yet what it will cost
    rates.charge("alice", 5528)
    error = refused(rates)
    assert (error.type, error.wait) == ("tokens", 11.056)
    assert error.message.endswith(
        "on tokens per min (TPM): Limit 30000, Used 35527, Requested 1. Please try again in 11.056s."
    )
    clock.now += error.wait
    rates.take_request("alice", "sim")


def test_of_two_limits_the_one_is_told_that_takes_longer() -> None:
    rates, _ = limited(requests=60, tokens=60)
    for _ in range(60):
        rates.take_request("alice", "sim")
    assert refused(rates).type == "requests"
    rates.charge("alice", 90)
    assert refused(rates).type == "tokens"


def test_tenants_have_limits_of_their_own() -> None:
    rates, _ = limited(requests=1)
    rates.take_request("alice", "sim")
    rates.take_request("bob", "sim")
    refused(rates)


def test_the_hints_are_in_seconds_and_milliseconds_never_shorter_than_the_wait() -> None:
    rates, _ = limited(requests=7)
    for _ in range(7):
        rates.take_request("alice", "sim")
    error = refused(rates)  # a seventh of a minute: 8.571428… seconds
    assert error.headers == {
        "retry-after": "9",
        "retry-after-ms": "8572",
        "x-ratelimit-limit-requests": "7",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1m0s",
    }
    assert "try again in 8.572s." in error.message


def test_a_model_with_a_very_long_name_does_not_push_the_hint_out_of_the_message() -> None:
    rates, _ = limited(requests=1)
    rates.take_request("alice", "sim")
    assert refused(rates, model="x" * 5000).message.endswith("Please try again in 60s.")


def test_the_headers_tell_limit_rest_and_reset_of_each_limit_that_is_on() -> None:
    rates, clock = limited(requests=60, tokens=600)
    assert rates.headers("alice") == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "60",
        "x-ratelimit-reset-requests": "0s",
        "x-ratelimit-limit-tokens": "600",
        "x-ratelimit-remaining-tokens": "600",
        "x-ratelimit-reset-tokens": "0s",
    }
    rates.take_request("alice", "sim")
    rates.charge("alice", 700)
    told = rates.headers("alice")
    assert (told["x-ratelimit-remaining-requests"], told["x-ratelimit-reset-requests"]) == ("59", "1s")
    assert (told["x-ratelimit-remaining-tokens"], told["x-ratelimit-reset-tokens"]) == ("0", "1m10s")
    clock.now += 69.88
    assert rates.headers("alice")["x-ratelimit-reset-tokens"] == "120ms"
    assert set(limited(tokens=5)[0].headers("x")) == {
        f"x-ratelimit-{it}-tokens" for it in ("limit", "remaining", "reset")
    }


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (0.0001, "1ms"), (0.12, "120ms"), (0.9991, "1s"), (1, "1s"), (7.66, "7.66s"), (59.9999, "1m0s"),
        (360, "6m0s"), (90.5, "1m30.5s"), (3600, "1h0m0s"), (7325.25, "2h2m5.25s"),
    ],
)  # fmt: skip
def test_times_are_written_as_the_api_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("limit", [limit for limit in range(1, 2000) if 60_000 % limit == 0])
def test_no_rounding_makes_who_waited_to_the_millisecond_wait_again(limit: int) -> None:
    rates, clock = limited(requests=limit)
    clock.now += 123_456.789
    for _ in range(limit):
        rates.take_request("alice", "sim")
    for _ in range(50):
        error = refused(rates)
        assert error.wait == 60 / limit
        clock.now += error.wait
        rates.take_request("alice", "sim")


def test_a_tenant_whose_use_has_run_off_is_forgotten() -> None:
    rates, clock = limited(requests=60, tokens=60)
    for number in range(100):
        rates.take_request(f"tenant-{number}", "sim")
    rates.charge("tenant-3", 120)
    assert len(rates) == 100
    clock.now += 1
    rates.take_request("alice", "sim")
    assert len(rates) == 2  # and the one that still owes
    assert refused(rates, "tenant-3").wait == 60.0
    clock.now += 121
    rates.take_request("alice", "sim")
    assert len(rates) == 1


def test_new_limits_hold_at_once_and_what_was_used_stays_used() -> None:
    rates, clock = limited(requests=2)
    rates.take_request("alice", "sim")
    rates.take_request("alice", "sim")
    rates.replace(Limits(requests_per_minute=3))
    rates.take_request("alice", "sim")
    refused(rates)
    rates.replace(Limits())
    rates.take_request("alice", "sim")
    rates.replace(Limits(requests_per_minute=1, tokens_per_minute=1))
    assert refused(rates).wait == 180.0  # three are used, and one a minute runs off
    clock.now += 180
    rates.take_request("alice", "sim")


@given(
    limit=st.integers(1, 100_000),
    used=st.integers(0, 300_000),
    steps=st.lists(st.floats(0, 100, allow_nan=False), max_size=5),
)
def test_whoever_waits_as_long_as_it_is_told_gets_in_and_no_earlier(limit: int, used: int, steps: list[float]) -> None:
    rates, clock = limited(tokens=limit)
    rates.charge("alice", used)
    for step in steps:
        clock.now += step
        rates.headers("alice")
    try:
        rates.take_request("alice", "sim")
    except RateLimitExceeded as error:
        clock.now += max(0.0, error.wait - 0.002)
        if error.wait > 0.002:
            refused(rates)
        clock.now += 0.002
        rates.take_request("alice", "sim")
