"""Start of runs with the profile `rounds`: limits from the request and from the settings."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dagwright.client.requests import TextRequest, prepare_request
from dagwright.client.starts import RunStartOptions
from dagwright.core.errors import PlanInvalid
from dagwright.planner.rounds_start import rounds_from_document
from dagwright.planning.rounds.rounds_spec import RoundsLimits, rounds_from_json
from dagwright.settings import Settings
from dagwright.toolset.toolset import Toolset, load_toolset
from tests.support.rounds import WorkerTools

DEFAULT_LIMITS = RoundsLimits(7, 30.0, 600.0)


def limits_of(**fields: Any) -> RoundsLimits:
    document = {"goal": "How many?", "profile": "rounds", **fields}
    plan = rounds_from_document(document, WorkerTools().registry().declarations(), limits=DEFAULT_LIMITS)
    assert plan.extender is not None
    rounds = rounds_from_json(plan.extender)
    return RoundsLimits(rounds.max_rounds, rounds.worker_timeout_s, plan.deadline_s)


def test_limits_of_a_rounds_run_default_to_the_settings(toolset: Toolset) -> None:
    assert limits_of() == DEFAULT_LIMITS
    assert limits_of(max_rounds=2, worker_timeout="2m", deadline="1h") == RoundsLimits(2, 120.0, 3_600.0)
    assert _prepared_limits(toolset) == (7, 30.0, 600.0)
    options = RunStartOptions(5_000.0)
    assert _prepared_limits(toolset, options=options, max_rounds=3, worker_timeout_s=2.0) == (3, 2.0, 5_000.0)


@pytest.mark.parametrize(
    ("name", "value"), [("max_rounds", 0), ("max_rounds", "3"), ("worker_timeout", 5), ("deadline", "soon")]
)
def test_invalid_limit_is_reported_with_its_location(name: str, value: Any) -> None:
    with pytest.raises(PlanInvalid) as error:
        limits_of(**{name: value})
    (problem,) = error.value.problems
    assert (problem.code, problem.pointer) == ("invalid_field", f"/{name}")
    assert problem.message.startswith(f"{name}: ")


@pytest.fixture
def toolset(tmp_path: Path) -> Toolset:
    """Return a toolset with limits for rounds in its settings."""
    settings = Settings(state_dir=tmp_path, max_rounds=7, worker_timeout_s=30, question_timeout_s=600)
    return replace(load_toolset(settings), user_tools=WorkerTools().registry())


def _prepared_limits(toolset: Toolset, **fields: Any) -> tuple[Any, float, float | None]:
    start = prepare_request(TextRequest("How many?", profile="rounds", **fields), toolset).start
    assert start.plan.extender is not None
    return start.source["max_rounds"], rounds_from_json(start.plan.extender).worker_timeout_s, start.plan.deadline_s
