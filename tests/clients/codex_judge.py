"""What a run of Codex must have shown. Called by the two ``codex_*_e2e.sh`` with what they recorded.

    codex_judge.py events FILE FINAL TOOL_OUTPUT    FILE: one turn's output of ``codex exec --json``
    codex_judge.py frames FILE MINOR TURNS          FILE: the relay's record; MINOR: the Codex version's second number

Ends with 0, or with 1 and a line that says what is missing. Needs nothing but Python.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

LAST_WITH_ECHO = 99
"""Up to this version (0.99) an append begins with the server's own items."""


def judge_events(events: list[dict[str, Any]], final: str, tool_output: str) -> str | None:
    """The fault of one turn, if any: it must run a command well, show a message last, and complete."""
    items = [event["item"] for event in events if event.get("type") == "item.completed"]
    commands = [item for item in items if item.get("type") == "command_execution"]
    messages = [item["text"] for item in items if item.get("type") == "agent_message" and item.get("text")]
    errors = [item.get("message", "") for item in items if item.get("type") == "error"]
    if not any(event.get("type") == "turn.completed" for event in events):
        return "no turn.completed"
    if not any(ran_well(command, tool_output) for command in commands):
        return f"no command ran with exit code 0 and the output {tool_output!r}: {commands}"
    if not messages or final not in messages[-1]:
        return f"the final message is {messages[-1:]}"
    return next((error for error in errors if "Falling back from WebSockets" in error), None)


def ran_well(command: dict[str, Any], tool_output: str) -> bool:
    """Whether a command was carried out and printed what it should."""
    is_over = command.get("status") == "completed" and command.get("exit_code") == 0
    return is_over and tool_output in (command.get("aggregated_output") or "")


def judge_frames(record: list[dict[str, Any]], minor: int, turns: int) -> str | None:
    """The fault of prototype rollouts, if any: each is one create, then appends, in the dialect of the version."""
    notes = [line["note"] for line in record if "note" in line]
    plain = [line["request"] for line in record if line.get("websocket") is False]
    frames = [line for line in record if "frame" in line]
    kinds = [frame["frame"] for frame in frames]
    if notes:
        return str(notes[0])
    if plain:
        return f"it sent a plain HTTP request: {plain[0]}"
    if not kinds or kinds[0] != "response.create":
        return f"the first frame is no response.create: {kinds}"
    if kinds.count("response.create") != turns or set(kinds) != {"response.create", "response.append"}:
        return f"{turns} rollouts did not go on by response.append alone: {kinds}"
    for frame in frames:
        if frame["frame"] == "response.create":
            continue
        outputs = [kind for kind in frame["input"] if kind.endswith("_output")]
        if not outputs:
            return f"an append holds no tool output: {frame}"
        if (len(outputs) < len(frame["input"])) != (minor <= LAST_WITH_ECHO):
            return f"this is not the dialect of 0.{minor}: {frame}"
    return None


def main() -> None:
    """Judge one recorded file and end the process."""
    kind, file, *rest = sys.argv[1:]
    lines = [json.loads(line) for line in Path(file).read_text("utf-8").splitlines() if line.startswith("{")]
    fault = judge_events(lines, *rest) if kind == "events" else judge_frames(lines, *map(int, rest))
    sys.exit(fault)


if __name__ == "__main__":
    main()
