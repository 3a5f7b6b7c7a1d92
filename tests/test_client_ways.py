"""One rollout, driven by the client in each way that there is: neither the model nor whoever reads the items can tell
them apart.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.ways import ANSWER, WAYS, play


@pytest.mark.slow
async def test_all_ways_of_a_rollout_of_thirty_calls_are_one_to_the_model_and_to_the_reader(serve: Any) -> None:
    played = {way: await play(serve, way) for way in WAYS}
    first = played["http full"]
    assert len(first.runs) == 30
    assert len(first.contexts) == 16
    assert len(first.history) == 1 + len(first.items) + 30
    assert first.text == ANSWER
    assert len({tuple(ids) for ids in first.contexts}) == 16
    for way, other in played.items():
        assert other.items == first.items, way
        assert other.history == first.history, way
        assert other.text == first.text, way
        assert other.contexts == first.contexts, way
        assert other.runs == first.runs, way
        assert other.together == 3, way
        assert other.server.metrics.connections == way.startswith("websocket"), way
    turns = {
        way: (one.kinds.count("response.created"), one.kinds.count("response.done")) for way, one in played.items()
    }
    assert turns.pop("websocket prototype") == (1, 15)
    assert set(turns.values()) == {(16, 0)}
