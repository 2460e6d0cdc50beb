"""Fairness keys and weights of runs."""

from typing import Any

import pytest

from dagwright.core.boundary import wire
from dagwright.protocol.fairness import Fairness, FairnessInvalid, fairness_of, fairness_of_owner
from dagwright.protocol.messages import MessageInvalid
from dagwright.protocol.turns import TurnStart, turn_start_from_json


def test_key_and_weight_within_the_limits_of_the_server_are_accepted() -> None:
    assert fairness_of(None, None) is None
    assert fairness_of("ä" * 32, None) == Fairness("ä" * 32, 1.0)
    assert [fairness_of("a", weight) for weight in (0.001, 1000)] == [Fairness("a", 0.001), Fairness("a", 1000.0)]


@pytest.mark.parametrize(
    ("key", "weight"),
    [(None, 2), ("", None), ("ä" * 33, None), ("a\n", None), ("a\ud800", None), (3, None)]
    + [("a", weight) for weight in (0, -1, 1001, float("nan"), float("inf"), True, "2")],
)
def test_other_keys_and_weights_are_rejected_with_the_limits(key: Any, weight: Any) -> None:
    with pytest.raises(FairnessInvalid, match=r"1 to 64 bytes|from 0\.001 to 1000|needs a fairness key"):
        fairness_of(key, weight)


def test_runs_of_an_owner_share_its_name_as_key() -> None:
    assert fairness_of_owner("ann", 2.0) == Fairness("ann", 2.0)
    assert fairness_of_owner("*") == Fairness("*")
    # The memo of a run that another client starts may have any owner.
    assert [fairness_of_owner(owner) for owner in (None, "", "x" * 65)] == [None] * 3


def test_turn_of_a_session_has_the_fairness_of_its_request() -> None:
    turn = TurnStart("r", {"goal": "x"}, "x", workflow=wire.WORKFLOW_PLAN_AND_EXECUTE, fairness=Fairness("a", 3.0))
    assert turn_start_from_json(turn.to_json()) == turn
    with pytest.raises(MessageInvalid, match="'fairness' is invalid: a fairness weight"):
        turn_start_from_json({**turn.to_json(), "fairness": {"key": "a", "weight": "no"}})
