"""What an interim result has a client bring back."""

import json

import mcp_types as types
import pytest

from dagwright.interfaces.mcp.asking import CallState, StateUnreadable, state_in


def brought(text: str | None) -> CallState | None:
    return state_in(types.CallToolRequestParams(name="run_plan", request_state=text))


def test_state_comes_back_as_it_was_given() -> None:
    state = CallState("run-1", ("check",), 2)
    assert (brought(state.to_text()), brought(None)) == (state, None)


@pytest.mark.parametrize("rounds", ["Infinity", "-Infinity", "NaN", "1e999", "-1", '"many"', "null", "[]"])
def test_state_with_a_number_of_rounds_that_nobody_counts_is_refused(rounds: str) -> None:
    given = json.dumps({"workflow_id": "run-1", "left": []})
    with pytest.raises(StateUnreadable, match="make the call anew"):
        brought(f'{given[:-1]}, "rounds": {rounds}}}')
