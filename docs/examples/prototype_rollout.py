"""A rollout in prototype mode: one response, suspended at each tool call and resumed by what the client appends.

Run ``respserver --mode prototype``, then: python prototype_rollout.py [BASE_URL]
"""

from __future__ import annotations

import sys
from typing import Any

import trio

from respserver import Client
from respserver.schema.events import ResponseCompleted, ResponseCreated, ResponseDone


async def get_tide(arguments: dict[str, Any]) -> str:
    """When high water is."""
    return f"high water at {arguments.get('harbour', 'the harbour')}: 12:04"


async def main(base_url: str) -> None:
    tools = {"get_tide": get_tide}
    async with Client(base_url) as client:
        async for event in client.rollout("When is high water?", model="demo", tools=tools):
            match event:
                case ResponseCreated(sequence_number=number, response=response):
                    print(f"{number}: {response.id} begins")
                case ResponseDone(sequence_number=number, response=response, required_input=owed):
                    print(f"{number}: {response.id} is suspended and waits for {len(owed)} output")
                case ResponseCompleted(sequence_number=number, response=response):
                    print(f"{number}: {response.id} ends with {len(response.output)} items")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1")
