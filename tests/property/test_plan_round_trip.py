"""Plans, messages and deadlines survive a round trip."""

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
from tests.property.naive import Step
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
def test_yaml_keeps_every_value(value: Any) -> None:
    actual = read_yaml(write_yaml(value), name="the value")
    assert repr(actual) == repr(value)


@given(steps(), _VALUES)
def test_generated_plans_read_back(made: tuple[Step, ...], value: Any) -> None:
    metadata: Mapping[str, Any] = {"value": value}
    plan = Plan.parse(plan_of(*(step.to_json() for step in made), metadata=metadata))
    assert Plan.parse(plan.to_yaml()) == plan
    assert Plan.parse(plan.to_dict()) == plan
    assert [handle.id for handle in plan.nodes] == [step.id for step in made]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_examples_read_back(path: Path) -> None:
    try:
        plan = Plan.load(path)
    except PlanInvalid:
        assert path.name in {"agents.yaml", "script.yaml"} or path.parent.name == "maritime", "every plan can be read"
        return
    assert Plan.parse(plan.to_yaml()) == plan
    assert Plan.parse(plan.document, dialect=plan.dialect) == plan


_PARTS = st.sampled_from(["", ".5", ".05", ".001", ".999", ".123"])


@st.composite
def _durations(draw: st.DrawFn) -> str:
    unit, most = draw(
        st.sampled_from([("ms", 999_999_999), ("s", 315_359_999), ("m", 5_255_999), ("h", 87_599), ("d", 3_649)])
    )
    return f"{draw(st.integers(1, most))}{draw(_PARTS)}{unit}"


@settings(deadline=None)
@given(_durations())
@example("30d")
@example("3650d")
@example("0.001ms")
@example("999999999.999ms")
def test_every_deadline_comes_back_the_same(duration: str) -> None:
    sent_run_input = RunInput(plan={}, deadline_s=parse_duration(duration).total_seconds())

    assert run_input_from_json(run_input_to_json(sent_run_input)) == sent_run_input
