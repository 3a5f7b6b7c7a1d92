"""A server inside a test: scripted answers, an injected fault, and counters that prove what was not done twice.

Run it as it is (``python embedded.py``), or let pytest collect it: there is no Trio and no fixture in here.
"""

from __future__ import annotations

import openai
from openai.types.responses import ResponseInputItemParam

from respserver import Config, Limits, Script, start_server
from respserver.engines.sim import call, fault, step

SCRIPT = Script.of(
    call("get_tide", harbour="Brest"),
    "High water at {last_tool_output}.",
    step("The next one is", fault=fault("The model broke."), fault_after_tokens=6),
)
FAST_END = Config(port=0, limits=Limits(grace_seconds=0.0))
"""Port 0 takes a free one; without a grace time the end of the block waits for nobody."""


def test_an_agent_gets_through_a_tool_call_and_sees_the_fault() -> None:
    with start_server(FAST_END, script=SCRIPT) as server, openai.OpenAI(base_url=server.base_url, api_key="any") as sdk:
        asked = sdk.responses.create(model="demo", input="When is high water?")
        called = asked.output[0]
        assert called.type == "function_call"
        assert called.arguments == '{"harbour":"Brest"}'

        output: ResponseInputItemParam = {
            "type": "function_call_output",
            "call_id": called.call_id,
            "output": "12:04",
        }
        answered = sdk.responses.create(model="demo", input=[output], previous_response_id=asked.id)
        assert answered.output_text == "High water at 12:04."

        failed = False
        try:
            sdk.with_options(max_retries=0).responses.create(
                model="demo", input="And then?", previous_response_id=answered.id
            )
        except openai.InternalServerError as error:
            failed = error.code == "server_error"
        assert failed

        assert server.metrics.turns == 3
        assert server.metrics.failed == 1
        assert server.metrics.contexts_reused == 2
        assert server.metrics.chains_hydrated == 0


if __name__ == "__main__":
    test_an_agent_gets_through_a_tool_call_and_sees_the_fault()
    print("one call, one answer, one fault: as scripted")
