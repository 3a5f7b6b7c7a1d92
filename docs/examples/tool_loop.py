"""A tool loop over one WebSocket with OpenAI's SDK. Run a server, then: python tool_loop.py [BASE_URL]"""

import json
import os
import sys

from openai import OpenAI

ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
TOOL = {
    "type": "function",
    "name": "get_tide",
    "parameters": {"type": "object", "properties": {"harbour": {"type": "string"}}, "required": ["harbour"]},
}


def get_tide(harbour: str) -> str:
    """Stands for real work, such as a look-up in a tide table."""
    return f"high water at {harbour or 'the harbour'}: 12:04"


def main(base_url: str) -> None:
    client = OpenAI(base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY", "any"))
    with client.responses.connect() as connection:
        news, parent = "When is high water?", None
        while news:
            # Each create names its parent and brings only what is new; tools are not inherited.
            connection.response.create(model="demo", input=news, previous_response_id=parent, tools=[TOOL])
            event = next(event for event in connection if event.type in ENDS)
            if event.type != "response.completed":
                sys.exit(str(event))
            parent, news = event.response.id, []
            for item in event.response.output:
                if item.type == "function_call":
                    result = get_tide(**json.loads(item.arguments))
                    print(f"{item.name}({item.arguments}) -> {result}")
                    news.append({"type": "function_call_output", "call_id": item.call_id, "output": result})
        print(event.response.output_text)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1")
