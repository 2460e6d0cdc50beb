"""YAML values, plans and deadlines are unchanged after a round trip."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagwright.core.errors import PlanInvalid
from dagwright.core.model.times import parse_duration
from dagwright.dialects.yaml_reader import read_yaml
from dagwright.plans.plan import Plan
from dagwright.plans.yaml_writer import write_yaml
from dagwright.protocol.run_input import RunInput, run_input_from_json, run_input_to_json
from tests.property.plan_model import Step
from tests.property.plans import steps
from tests.support.plan_building import plan_of

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(path for kind in ("*.json", "*.yaml") for path in EXAMPLES.rglob(kind))

_ODD_TEXTS = (
    "", "yes", "No", "~", "1e3", "0o17", ".5", "1_000", "2001-01-01", "a: b", "- a", "#", "a\nb\n", "a\n", "\ta\n", "é",
    "{{a.result}}", "\\{{", "x ", "null", "90s", "=", "<<", "!x", "&a", "*a", "a\n\n\nb\n", "a \nb\n", "\ufeff",
    "\x85", " a\nb\n", "a\n b\n", "a\r\nb\n",
)  # fmt: skip
_TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(_ODD_TEXTS)
_NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXTS,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(_TEXTS, part, max_size=3),
    max_leaves=8,
)


@given(_VALUES)
def test_value_is_unchanged_after_a_round_trip_through_yaml(value: Any) -> None:
    assert repr(read_yaml(write_yaml(value), name="the value")) == repr(value)


@given(steps(), _VALUES)
def test_generated_plan_is_unchanged_after_a_round_trip(plan_steps: tuple[Step, ...], value: Any) -> None:
    metadata: Mapping[str, Any] = {"value": value}
    plan = Plan.parse(plan_of(*(step.to_json() for step in plan_steps), metadata=metadata))
    assert Plan.parse(plan.to_yaml()) == plan
    assert Plan.parse(plan.to_dict()) == plan
    assert [handle.id for handle in plan.nodes] == [step.id for step in plan_steps]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_example_is_unchanged_after_a_round_trip(path: Path) -> None:
    try:
        plan = Plan.load(path)
    except PlanInvalid:
        assert path.name in {"agents.yaml", "script.yaml"} or path.parent.name == "maritime", (
            "the plan of the example is invalid"
        )
        return
    assert Plan.parse(plan.to_yaml()) == plan
    assert Plan.parse(plan.document, dialect=plan.dialect) == plan


_FRACTIONS = st.sampled_from(["", ".5", ".05", ".001", ".999", ".123"])


@st.composite
def _durations(draw: st.DrawFn) -> str:
    unit, max_number = draw(
        st.sampled_from([("ms", 999_999_999), ("s", 315_359_999), ("m", 5_255_999), ("h", 87_599), ("d", 3_649)])
    )
    return f"{draw(st.integers(1, max_number))}{draw(_FRACTIONS)}{unit}"


@settings(deadline=None)
@given(_durations())
@example("30d")
@example("3650d")
@example("0.001ms")
@example("999999999.999ms")
def test_deadline_is_unchanged_after_a_round_trip(duration: str) -> None:
    run_input = RunInput(plan={}, deadline_s=parse_duration(duration).total_seconds())
    assert run_input_from_json(run_input_to_json(run_input)) == run_input
