"""How tools that the server runs itself end when their turn does: with the client, the server or the request."""

from __future__ import annotations

import pytest
import trio

from respserver.config import Config, Limits, TermsClassifierConfig
from respserver.engines.sim import Script, call
from respserver.message_socket import SocketClosed
from respserver.services import build_services
from respserver.tools.search import SearchHost
from respserver.turn.hosted import side_by_side
from tests.support.hosts import FakeHost, Library, mcp
from tests.support.live import Wire, http, post
from tests.support.replay import Replay
from tests.support.spy import Spy
from tests.support.talk import Talk, settled


async def test_a_client_that_leaves_ends_the_tools_and_leaves_nothing_behind(serve, connect) -> None:
    host = FakeHost()
    host.gates["srv.look"] = trio.Event()
    spy = Spy(Script.of(call("srv.look"), "end"))
    server = await serve(engine=spy, hosts=[host])
    wire: Wire = await connect(server)
    await wire.create(input="go", tools=[mcp()])
    with trio.fail_after(5):
        while not host.running:
            await trio.sleep(0.001)
        await wire.socket.aclose()
        while host.running or host.closed < host.opened or spy.sequences_open:
            await trio.sleep(0.001)
    assert (host.opened, host.closed) == (1, 1)


async def test_a_shutdown_ends_the_tools_and_the_response_says_so() -> None:
    host, spy = FakeHost(), Spy(Script.of([call("srv.look"), call("web_search", query="x")], "end"))
    host.gates["srv.look"] = trio.Event()
    shared = build_services(Config(limits=Limits(grace_seconds=0.0)), engine=spy, hosts=[host, SearchHost(Library())])
    async with trio.open_nursery() as nursery:
        talk = Talk(nursery, shared)
        talk.create(input="go", tools=[mcp(), {"type": "web_search"}])
        await settled()
        assert host.running
        talk.stop.set()
        frames = await talk.socket.hear_step()
        await talk.over.wait()
        shared.post.close()
        nursery.cancel_scope.cancel()
    replay = Replay()
    for frame in frames:
        replay.feed(frame)
    response = frames[-1]["response"]
    assert response["error"]["code"] == "server_shutting_down"
    assert [item.get("status") for item in response["output"]] == [None, "incomplete", "incomplete"]
    assert (host.running, host.closed, spy.sequences_open) == (set(), 1, 0)


async def test_a_stream_that_is_left_ends_its_tools(serve) -> None:
    host = FakeHost()
    host.gates["srv.look"] = trio.Event()
    server = await serve(Script.of(call("srv.look"), "end"), hosts=[host])
    body = {"model": "sim", "input": "go", "stream": True, "tools": [mcp()]}
    with trio.fail_after(5):
        async with http(server) as client, client.stream("POST", "/responses", json=body):
            while not host.running:
                await trio.sleep(0.001)
        while host.running or not host.closed:
            await trio.sleep(0.001)


async def test_http_opens_and_closes_its_tools_with_each_request(serve) -> None:
    host = FakeHost()
    server = await serve(Script.of("one"), hosts=[host])
    for _ in range(2):
        assert (await post(server, input="go", tools=[mcp()])).status_code == 200
    assert (host.opened, host.closed) == (2, 2)


@pytest.mark.parametrize("when", ["before", "beside"])
@pytest.mark.parametrize("approved", [False, True])
async def test_what_tools_return_is_screened(serve, connect, tmp_path, when: str, approved: bool) -> None:
    terms = tmp_path / "terms.txt"
    terms.write_text("got\n")
    screening = TermsClassifierConfig(file=str(terms), when=when)
    server = await serve(Script.of(call("srv.look"), "never"), hosts=[FakeHost()], classifiers=(screening,))
    wire = await connect(server)
    tools = [mcp(require_approval="always" if approved else "never")]
    frames = await wire.turn(input="go", tools=tools)
    if approved:
        first = frames[-1]["response"]
        word = {
            "type": "mcp_approval_response",
            "approval_request_id": first["output"][-1]["id"],
            "approve": True,
        }
        frames = await wire.turn(input=[word], tools=tools, previous_response_id=first["id"])
    failed = frames[-1]
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"]["code"] == "content_policy_violation"
    assert failed["response"]["output"][-1]["output"] == "srv.look got {}"


async def test_jobs_end_with_whoever_takes_their_results() -> None:
    """A client that is gone is met where events are sent: what still runs then ends, and no group hides the reason."""
    ended: list[str] = []

    async def quick() -> str:
        await trio.lowlevel.checkpoint()
        return "quick"

    async def slow() -> str:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("slow")

    async def take(index: int, result: str) -> None:
        raise SocketClosed(1000 + index, result)

    with pytest.raises(SocketClosed):
        await side_by_side([quick, slow], take)
    assert ended == ["slow"]


async def test_results_are_taken_in_order_however_they_come() -> None:
    gate = trio.Event()
    taken: list[tuple[int, str]] = []

    async def first() -> str:
        await gate.wait()
        return "first"

    async def second() -> str:
        await trio.lowlevel.checkpoint()
        gate.set()
        return "second"

    async def take(index: int, result: str) -> None:
        taken.append((index, result))

    await side_by_side([first, second], take)
    assert taken == [(0, "first"), (1, "second")]


async def test_a_fault_of_a_host_is_a_list_that_failed(serve, connect, caplog) -> None:
    host = FakeHost()
    host.down = "!"
    wire = await connect(await serve(Script.of("end"), hosts=[host]))
    response = await wire.completed(input="go", tools=[mcp()])
    assert response["output"][0]["error"] == "The tools could not be listed."
    assert "toolbox_fault" in caplog.text
