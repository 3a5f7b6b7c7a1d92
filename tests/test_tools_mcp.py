"""MCP servers as hosts of tools, against a real server in a process of its own, of both ages of the protocol."""

from __future__ import annotations

import gc
import importlib.util
import logging
import subprocess
import sys
from typing import Any

import pytest
import trio

from respserver import settings
from respserver.errors import ConfigError, InvalidField
from respserver.tools.base import Result
from tests.support.mcp_kit import define, host_for, open_box
from tests.support.mcp_server import TOO_BIG, McpProcess

pytestmark = pytest.mark.slow  # the first test of each server waits for it to start
# Any in this file: JSON.

NAMES = ["add", "tide", "slow", "failing", "needs_args", "big", "picture", "count"]
OLD_BEGIN = ["server/discover", "initialize", "notifications/initialized", "tools/list"]


async def test_tools_are_listed_under_qualified_names_with_all_that_the_model_needs(harbour: McpProcess) -> None:
    async with open_box(harbour.url) as box:
        assert [tool.name for tool in box.tools] == [f"harbour.{name}" for name in NAMES]
        tide = box.tools[1]
    assert (box.kind, box.label) == ("mcp", "harbour")
    assert tide.description == "Tell the tide."
    assert tide.parameters["properties"]["place"]["type"] == "string"
    assert tide.annotations == {"readOnlyHint": True}
    assert not tide.needs_approval


async def test_allowed_tools_and_approval_are_the_definitions(new_harbour: McpProcess) -> None:
    rules: dict[str, Any] = {
        "allowed_tools": ["tide", "add", "none"],
        "require_approval": {"never": {"read_only": True}},
    }
    async with open_box(new_harbour.url, **rules) as box:
        assert {tool.name: tool.needs_approval for tool in box.tools} == {"harbour.add": True, "harbour.tide": False}
        refused = await box.call("harbour.count", "{}")
    assert refused.error == "there is no tool 'harbour.count'"


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("add", '{"a": 1, "b": 2}', "3"),
        ("tide", '{"place": "Oslo"}', "High water at Oslo: 06:12."),
        ("needs_args", '{"text": "é\\n", "times": 2}', "é\né\n"),
        ("needs_args", '{"text": ""}', ""),
        ("big", '{"characters": 200000}', "x" * 200_000),
        ("picture", "", 'a boat\n{"type":"image","data":"AAAA","mimeType":"image/png"}'),
    ],
)
async def test_a_call_comes_back_as_text(harbour: McpProcess, name: str, arguments: str, text: str) -> None:
    async with open_box(harbour.url) as box:
        assert await box.call(f"harbour.{name}", arguments) == Result(text=text)


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("harbour.failing", "{}", "Error executing tool failing"),
        ("harbour.needs_args", "{}", "Field required"),
        ("harbour.needs_args", '{"text": 5}', "valid string"),
        ("harbour.add", '{"a": 1', "the arguments are not a JSON object"),
        ("harbour.add", "[1, 2]", "the arguments are not a JSON object"),
        ("harbour.add", '{"a": 1, "b": "\\ud800"}', "the arguments are not a JSON object"),
        ("harbour.unknown", "{}", "there is no tool 'harbour.unknown'"),
        ("add", "{}", "there is no tool 'add'"),
        ("harbour.big", f'{{"characters": {TOO_BIG}}}', "larger than"),
    ],
)
async def test_a_failure_is_a_result_that_says_why(
    harbour: McpProcess, name: str, arguments: str, problem: str
) -> None:
    async with open_box(harbour.url) as box:
        failed = await box.call(name, arguments)
        assert failed.error is not None
        assert problem in failed.error
        assert await box.call("harbour.add", '{"a": 1, "b": 2}') == Result(text="3")


async def test_a_call_is_one_request_and_the_session_stays_the_same(old_harbour: McpProcess) -> None:
    old_harbour.log()
    async with open_box(old_harbour.url, authorization="t0ken") as box:
        assert [await box.call("harbour.count", "{}") for _ in range(3)] == [Result(text=str(n)) for n in (1, 2, 3)]
    asked = old_harbour.log()
    assert [method or http for http, method, _ in asked] == [*OLD_BEGIN, *["tools/call"] * 3, "DELETE"]
    assert {authorization for *_, authorization in asked} == {"Bearer t0ken"}


async def test_the_newer_protocol_has_no_session_to_begin_or_to_end(new_harbour: McpProcess) -> None:
    new_harbour.log()
    async with open_box(new_harbour.url) as box:
        await box.call("harbour.tide", '{"place": "Oslo"}')
    assert [method for _, method, _ in new_harbour.log()] == ["server/discover", "tools/list", "tools/call"]


async def test_calls_run_side_by_side(harbour: McpProcess) -> None:
    async with open_box(harbour.url) as box, trio.open_nursery() as nursery:
        harbour.log()
        for _ in range(3):
            nursery.start_soon(box.call, "harbour.slow", '{"seconds": 30}')
        begun = 0
        with trio.fail_after(10):
            while begun < 3:
                begun += [method for _, method, _ in harbour.log()].count("tools/call")
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


async def test_a_cancellation_comes_out_and_leaves_nothing(harbour: McpProcess) -> None:
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with open_box(harbour.url) as box:
        with trio.move_on_after(0.1) as scope:
            await box.call("harbour.slow", '{"seconds": 30}')
        assert scope.cancelled_caught
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert await box.call("harbour.add", '{"a": 1, "b": 2}') == Result(text="3")
    gc.collect()  # a generator that was left warns, which is an error here


@pytest.mark.parametrize("ticks", range(1, 40, 3))
async def test_a_cancellation_at_any_step_of_opening_leaves_nothing(old_harbour: McpProcess, ticks: int) -> None:
    tasks = trio.lowlevel.current_statistics().tasks_living

    async def cancel() -> None:
        for _ in range(ticks):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel)
        async with open_box(old_harbour.url):
            pass
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    gc.collect()


async def test_nothing_is_logged_of_what_is_asked(old_harbour: McpProcess, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_box(f"{old_harbour.url}?key=quiet", authorization="t0ken", headers={"x-key": "hush"}) as box:
        await box.call("harbour.needs_args", '{"text": "whisper"}')
        await box.call("harbour.failing", "{}")
    assert not caplog.records


async def test_what_is_said_elsewhere_is_still_logged(
    new_harbour: McpProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_box(new_harbour.url):
        pass
    logging.getLogger("mcp.client.streamable_http").warning("somebody else's")
    assert [record.getMessage() for record in caplog.records] == ["somebody else's"]


def test_allowed_hosts_without_the_package_are_a_mistake_in_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"respserver\[mcp\]") as caught:
        host_for("mcp.test")
    assert caught.value.option == "mcp_allow"
    with pytest.raises(ConfigError) as caught:
        settings.load({"mcp_allow": ["mcp.test"]})
    assert caught.value.option == "--mcp-allow"
    with pytest.raises(InvalidField):  # and without any, there is nothing to miss
        host_for().check(define("https://mcp.test"), "tools[0]")


def test_nothing_of_the_package_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, respserver.cli, respserver.server; from respserver.tools.mcp import McpHost;"
        "McpHost(['mcp.test'], list_seconds=1);"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'mcp', 'mcp_types', 'httpx2', 'pydantic'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
