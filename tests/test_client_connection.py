"""One WebSocket and the turns on it: how it opens, what goes over it, how it ends."""

from __future__ import annotations

import pytest
import trio
import trio_websocket

from respserver.client import Client, ConnectionLost
from respserver.errors import ApiError, InvalidJson
from respserver.schema.events import ResponseFailed
from tests.support.client_servers import (
    ANSWER,
    NOT_FOUND,
    Script,
    call,
    collect,
    completed,
    connected,
    created,
    delta,
    done,
    response,
    serving,
)


async def test_the_upgrade_carries_path_and_key():
    script = Script()
    async with connected(script, api_key="k1"):
        pass
    assert script.path == "/v1/responses"
    assert script.headers[b"authorization"] == b"Bearer k1"


async def test_without_a_key_none_is_sent():
    script = Script()
    async with connected(script):
        pass
    assert b"authorization" not in script.headers


async def test_a_refused_upgrade_is_the_error_in_its_body():
    async def refuse(request):
        body = b'{"error":{"message":"Incorrect API key provided.","type":"t","code":"invalid_api_key","param":null}}'
        await request.reject(401, extra_headers=[(b"retry-after", b"3")], body=body)

    async with serving(refuse) as url:
        with pytest.raises(ApiError, match="Incorrect API key") as caught:
            await _open_and_close(Client(url))
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert caught.value.headers["retry-after"] == "3"


async def test_nobody_listening_is_a_lost_connection():
    with pytest.raises(ConnectionLost, match=r"cannot connect to 127\.0\.0\.1:9"):
        await _open_and_close(Client("http://127.0.0.1:9/v1"))


async def test_a_server_that_never_answers_the_close_is_left_after_a_while(autojump_clock):
    async def deaf(request):
        ws = await request.accept()
        ws._reader_running = False
        await trio.sleep_forever()

    async with serving(deaf) as url:
        async with Client(url).connect() as ws:
            pass
        assert trio.current_time() > 1
        with pytest.raises(ConnectionLost):
            await ws.send({})


async def _open_and_close(client):
    async with client.connect():
        pass


async def test_a_server_that_does_not_answer_the_upgrade_is_a_lost_connection(autojump_clock):
    async def silent(stream):
        await stream.receive_some()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, silent, 0)
        port = listeners[0].socket.getsockname()[1]
        with pytest.raises(ConnectionLost, match="did not answer the upgrade"):
            await _open_and_close(Client(f"http://127.0.0.1:{port}/v1"))
        nursery.cancel_scope.cancel()


async def test_what_the_callers_block_raises_leaves_as_it_was():
    async with serving(Script().serve) as url:
        with pytest.raises(LookupError, match="mine") as caught:
            async with Client(url).connect():
                raise LookupError("mine") from ValueError("why")
        assert isinstance(caught.value.__cause__, ValueError)
        assert caught.value.__context__ is None
        with pytest.raises(ExceptionGroup) as caught:
            async with Client(url).connect():
                raise ExceptionGroup("mine", [LookupError()])
        assert caught.value.message == "mine"


async def test_a_cancelled_connection_closes_its_socket():
    left = trio.Event()

    async def note_leaving(request):
        ws = await request.accept()
        with pytest.raises(trio_websocket.ConnectionClosed):
            await ws.get_message()
        left.set()

    async with serving(note_leaving) as url:
        with trio.CancelScope() as scope:
            async with Client(url).connect() as ws:
                scope.cancel()
                await ws.receive()
        await left.wait()


async def test_iteration_gives_every_event_until_the_socket_closes():
    script = Script([created(), "{}", completed(ANSWER)], close=(1001, "going away"))
    async with connected(script) as ws:
        await ws.create(model="sim", input="hello")
        assert await collect(ws) == [created(), {}, completed(ANSWER)]
        assert (ws.close_code, ws.close_reason) == (1001, "going away")
    assert script.received == [{"type": "response.create", "model": "sim", "input": "hello"}]


async def test_a_closed_socket_takes_and_gives_nothing():
    async with connected(Script([], close=(1008, "policy"))) as ws:
        assert ws.close_code is None
        assert ws.close_reason is None
        await ws.send_text("{}")
        with pytest.raises(ConnectionLost, match="1008 policy") as caught:
            await ws.receive()
        assert caught.value.code == 1008
        with pytest.raises(ConnectionLost):
            await ws.send({"type": "response.create"})


async def test_the_caller_may_choose_the_close_code():
    codes = []

    async def note_close(request):
        ws = await request.accept()
        with pytest.raises(trio_websocket.ConnectionClosed) as caught:
            await ws.get_message()
        codes.append(caught.value.reason.code)

    async with serving(note_close) as url, Client(url).connect() as ws:
        await ws.aclose(4000, "enough")
    assert codes == [4000]


async def test_a_message_that_is_no_json_is_an_error():
    async with connected(Script(["{"])) as ws:
        await ws.send({})
        with pytest.raises(InvalidJson):
            await ws.receive()


async def test_large_messages_arrive_whole():
    text = "x" * (3 << 20)
    async with connected(Script([delta(text)])) as ws:
        await ws.send({})
        assert (await ws.receive()).delta == text


@pytest.mark.parametrize("end", [completed(ANSWER), ResponseFailed(response=response()), done(call("call_1"))])
async def test_a_turn_ends_with_the_event_after_which_the_server_waits(end):
    script = Script([created(), delta("Hi"), end], [completed(ANSWER, id="resp_2")])
    async with connected(script) as ws:
        turn = ws.turn(model="sim", input="hello")
        assert await collect(turn) == [created(), delta("Hi"), end]
        assert await collect(turn) == []
        assert await collect(ws.turn(model="sim", input="more")) == [completed(ANSWER, id="resp_2")]
    assert [message["input"] for message in script.received] == ["hello", "more"]


async def test_a_turn_that_is_not_iterated_sends_nothing():
    script = Script([completed()])
    async with connected(script) as ws:
        ws.turn(model="sim", input="never")
        await collect(ws.turn(model="sim", input="hello"))
    assert [message["input"] for message in script.received] == ["hello"]


async def test_an_error_frame_ends_the_turn_as_an_exception_with_its_facts():
    async with connected(Script([NOT_FOUND])) as ws:
        turn = ws.turn(model="sim", previous_response_id="resp_0")
        with pytest.raises(ApiError, match="'resp_0' not found") as caught:
            await anext(turn)
        assert await collect(turn) == []
    error = caught.value
    assert (error.status, error.type, error.code, error.param, error.headers) == (
        400,
        "invalid_request_error",
        "previous_response_not_found",
        "previous_response_id",
        {"retry-after": "1"},
    )


async def test_a_socket_that_closes_within_a_turn_is_lost():
    async with connected(Script([created()], close=(1011, "gone"))) as ws:
        turn = ws.turn(model="sim", input="hello")
        await anext(turn)
        with pytest.raises(ConnectionLost, match="1011 gone"):
            await anext(turn)


@pytest.mark.parametrize(("response_id", "named"), [(None, {}), ("resp_1", {"response_id": "resp_1"})])
async def test_resuming_appends_and_goes_on_to_the_next_pause(response_id, named):
    output = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
    script = Script([], [completed(ANSWER)])
    async with connected(script) as ws:
        await ws.append([output], response_id)
        assert await collect(ws.resume([output], response_id)) == [completed(ANSWER)]
    assert script.received == [{"type": "response.append", "input": [output], **named}] * 2
