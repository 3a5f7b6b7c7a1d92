from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.config import LogFormat, LogLevel, Mode
from respserver.log import PRIVATE_NAMES, configure, scrub
from respserver.logger import get_logger
from tests.support.command import FOREIGN, logging_as_before

log = get_logger("respserver.test")


class Request(msgspec.Struct):
    input: str


@pytest.fixture(autouse=True)
def leave_logging_alone() -> Iterator[None]:
    with logging_as_before():
        yield


class Terminal(io.StringIO):
    """A stream with a person behind it."""

    def isatty(self) -> bool:
        return True


def captured(format: LogFormat = "text", level: LogLevel = "info") -> io.StringIO:
    stream = io.StringIO()
    configure(level, format, stream)
    return stream


def shown(format: LogFormat = "text", level: LogLevel = "info") -> Terminal:
    stream = Terminal()
    configure(level, format, stream)
    return stream


def test_a_text_line_has_time_level_logger_event_and_fields():
    stream = captured()
    log.info("turn", response_id="resp_1", model="gpt 5", input_tokens=12, sample_ms=1.5, cached=True)
    time, rest = stream.getvalue().split(" ", 1)
    assert time.endswith("Z")
    assert (
        rest == 'info respserver.test turn response_id=resp_1 model="gpt 5" input_tokens=12 sample_ms=1.5 cached=true\n'
    )


def test_a_json_line_is_one_object_with_the_same_facts():
    stream = captured("json")
    log.warning("slow peer", waited_seconds=30.0)
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {"level": "warning", "logger": "respserver.test", "event": "slow peer", "waited_seconds": 30.0}


@pytest.mark.parametrize(("level", "shown"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_lines_below_the_level_are_not_shown(level, shown):
    stream = captured(level=level)
    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert len(stream.getvalue().splitlines()) == shown


@pytest.mark.parametrize("name", [*FOREIGN, "trio-websocket"])
def test_lines_of_other_libraries_come_once_and_in_the_same_shape(name):
    stand_in = logging.StreamHandler(io.StringIO())  # as hypercorn and Quart bring them along
    if name in FOREIGN:
        logging.getLogger(name).addHandler(stand_in)
    stream = captured("json")
    logging.getLogger(name).warning("peer %s went away", "10.0.0.7", extra={"authorization": "secret"})
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert (line["level"], line["logger"], line["event"]) == ("warning", name, "peer 10.0.0.7 went away")
    assert "secret" not in stream.getvalue()
    assert stand_in.stream.getvalue() == ""


def test_debug_lines_of_other_libraries_are_never_shown():
    stream = captured(level="debug")
    logging.getLogger("trio-websocket").debug("received what a client wrote")
    assert stream.getvalue() == ""


def test_a_second_configuration_replaces_the_first():
    first = captured()
    second = captured("json")
    log.info("once")
    logging.getLogger("hypercorn.error").error("twice")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 2


def test_handlers_that_others_put_at_the_root_stay():
    other = logging.NullHandler()
    logging.getLogger().addHandler(other)
    captured()
    assert other in logging.getLogger().handlers


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize("name", sorted(PRIVATE_NAMES))
@pytest.mark.parametrize("spelling", [str.lower, str.upper, lambda name: name.replace("_", "-")])
def test_private_fields_are_hidden_at_any_depth(format, name, spelling):
    stream = captured(format)
    field = spelling(name)
    log.info("x", **{field: "tell-nobody"}, a={"b": [{field: "tell-nobody"}]}, pairs=[(field, "tell-nobody")])
    assert "tell-nobody" not in stream.getvalue()
    assert stream.getvalue().count("[hidden]") == 3


@pytest.mark.parametrize("format", ["text", "json"])
@pytest.mark.parametrize(
    "text",
    [
        "sk-proj-Abc_123-secret",
        "Authorization: Bearer secret",
        "bearer secret",
        "x-codex-turn-metadata: {'workspaces': 'secret'}",
        '{"authorization": "secret"}',
        "api_key=secret",
        "X-API-Key: secret",
        "OPENAI_API_KEY=secret",
        "Proxy-Authorization: secret",
        "BEARER secret",
        "API_\N{KELVIN SIGN}EY=secret",
    ],
)
def test_what_looks_like_a_key_is_scrubbed_from_texts(format, text):
    stream = captured(format)
    log.info(text, detail=text, problem=ValueError(text), **{text: 1})
    logging.getLogger("quart.app").warning(text)
    assert "secret" not in stream.getvalue()


def test_a_key_in_an_exceptions_text_is_scrubbed_from_the_traceback():
    stream = captured("json")
    try:
        raise ValueError("sk-abc" + "def is not valid")
    except ValueError:
        log.exception("failed")
    line = json.loads(stream.getvalue())
    assert line["level"] == "error"
    assert line["exception"].endswith("ValueError: [hidden] is not valid")
    assert "sk-abcdef" not in stream.getvalue()


@pytest.mark.parametrize("format", ["text", "json"])
def test_objects_are_named_and_not_shown(format):
    stream = captured(format)
    log.info("x", request=Request(input="tell-nobody"), raw=b"tell-nobody", mode=Mode.SHIPPED)
    assert "tell-nobody" not in stream.getvalue()
    assert "<Request>" in stream.getvalue()
    assert "shipped" in stream.getvalue()


def test_a_traceback_stands_behind_a_bar_in_text():
    stream = captured()
    try:
        raise ValueError("first\n2026-01-01T00:00:00Z info respserver.turn forged\x1b[2J\u2028x")
    except ValueError:
        log.exception("failed")
    head, *rest = stream.getvalue().splitlines()
    assert head.endswith("error respserver.test failed")
    assert rest
    assert all(line.startswith("  | ") for line in rest)
    assert "\x1b" not in stream.getvalue()


def test_numbers_that_json_has_no_word_for_become_texts():
    stream = captured("json")
    log.info("x", wait=float("inf"), rate=float("nan"))
    line = json.loads(stream.getvalue(), parse_constant=pytest.fail)
    assert (line["wait"], line["rate"]) == ("inf", "nan")


def test_values_that_contain_themselves_end():
    stream = captured("json")
    loop: list[object] = []
    loop.append([loop, 1])
    log.info("x", loop=loop)
    assert "<list>" in stream.getvalue()


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


TURN = {
    "response_id": f"resp_d475b7{'e' * 42}",
    "connection_id": f"conn_183855{'1' * 42}",
    "transport": "websocket",
    "tenant": "default",
    "model": "gpt-5.2-codex",
    "status": "completed",
    "input_tokens": 48211,
    "cached_tokens": 47019,
    "output_tokens": 311,
    "reasoning_tokens": 64,
    "items_in": 3,
    "items_out": 2,
    "previous_response_id": f"resp_91df14{'5' * 42}",
    "render_ms": 1.25,
    "first_token_ms": 812.4,
    "total_ms": 5631.0,
}


def test_a_turn_fits_on_a_line_of_a_terminal():
    stream = shown()
    log.info("turn", **TURN)
    time, line = stream.getvalue().split(" ", 1)
    assert len(time) == len("19:57:20")
    assert line == (
        "turn completed websocket conn_183855 resp_d475b7 gpt-5.2-codex in=48211 cached=47019 out=311 first=812ms "
        "total=5.63s\n"
    )
    assert len(stream.getvalue()) <= 126


def test_a_terminal_shows_nothing_that_is_zero_or_empty_and_every_other_field():
    stream = shown()
    refused = {"response_id": "", "status": "refused", "input_tokens": 0, "model": "demo", "total_ms": 0.4}
    log.info("turn", **refused, error_code="previous_response_not_found", lost=0, kept=False, why="who knows")
    assert stream.getvalue().split(" ", 1)[1] == (
        'turn refused demo error=previous_response_not_found kept=false why="who knows"\n'
    )


def test_a_terminal_shows_levels_that_matter_and_the_names_of_other_libraries():
    stream = shown()
    log.warning("slow peer", waited_seconds=30.0)
    logging.getLogger("hypercorn.error").info("peer %s went away", "10.0.0.7")
    lines = [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()]
    assert lines == ["warning slow peer waited_seconds=30.0", "hypercorn.error peer 10.0.0.7 went away"]


def test_json_is_the_same_on_a_terminal():
    stream = shown("json")
    log.info("turn", **TURN)
    assert TURN.items() <= json.loads(stream.getvalue()).items()


def test_what_is_piped_is_complete():
    stream = captured()
    log.info("turn", **TURN)
    assert all(f" {name}={value}" in stream.getvalue() for name, value in TURN.items())


def test_secrets_are_hidden_and_tracebacks_barred_on_a_terminal_too():
    stream = shown()
    try:
        raise ValueError("sk-abcdef\n\x1b[2J")
    except ValueError:
        log.exception("failed sk-abcdef", authorization="tell-nobody", model="sk-abcdef")
    head, *rest = stream.getvalue().splitlines()
    assert head.split(" ", 1)[1] == "error failed [hidden] [hidden] authorization=[hidden]"
    assert rest
    assert all(line.startswith("  | ") for line in rest)
    assert not [secret for secret in ("tell-nobody", "sk-abcdef", "\x1b") if secret in stream.getvalue()]


def test_a_process_without_standard_error_can_log(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    configure("info", "text")
    log.info("into the void")


@pytest.mark.slow
@given(st.text(), st.text(), ANY, st.text(min_size=1))
def test_nothing_a_client_sends_can_break_a_line_on_a_terminal(event, name, value, foreign):
    stream = shown()
    log.info(event, model=value, **{f"f{name}": value})
    logging.getLogger("hypercorn.error").info("%s", foreign)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert all(line.replace("\t", " ").isprintable() for line in lines)


@pytest.mark.slow
@given(st.text(), st.text(), ANY, st.text(min_size=1))
def test_nothing_a_client_sends_can_break_or_forge_a_line(event, name, value, foreign):
    for format in ("text", "json"):
        stream = captured(format)
        log.info(event, **{f"f{name}": value})
        logging.getLogger("hypercorn.error").info("%s", foreign)
        lines = stream.getvalue().splitlines()  # splits at every Unicode line end, not only at \n
        assert len(lines) == 2
        assert all(line.isascii() and line.isprintable() for line in lines)
        if format == "json":
            assert [json.loads(line)["logger"] for line in lines] == ["respserver.test", "hypercorn.error"]


def test_a_bare_word_in_text_cannot_be_mistaken_for_a_field():
    stream = captured()
    log.info("turn status=completed", model="x status=failed")
    assert stream.getvalue().endswith('"turn status=completed" model="x status=failed"\n')


@pytest.mark.parametrize("text", ["", "task-force", "Skip this", "the bearer", "disk-usage sky-blue", "input_tokens=3"])
def test_harmless_texts_pass_the_scrubber(text):
    assert scrub(text) == text
