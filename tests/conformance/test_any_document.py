"""Any document is accepted or rejected with `PlanInvalid`, and every reported pointer exists."""

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright.core.errors import PlanInvalid
from dagwright.core.model.dialect import Dialect
from dagwright.core.model.document import Document
from dagwright.dialects import to_document
from tests.conformance.kit import DIALECTS, problems_of, value_at
from tests.support.example_counts import example_count
from tests.support.json_paths import paths_of, replace_at

ROOT_KEYS = ("plan", "nodes", "dag", "intents", "sub_goals", "steps", "action", "metadata")
KEYS = sorted({*ROOT_KEYS, *(key for dialect in DIALECTS for key in dialect.keys)})
TEXTS = ("@result_1", "@result_0", "@cbu", "{{a.result}}", "{{", "a", "sg1", "continue", "~/", "")
scalars = st.none() | st.booleans() | st.integers(-2, 3) | st.floats(allow_nan=False, allow_infinity=False)
leaves = scalars | st.sampled_from(TEXTS) | st.text(max_size=6)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=25,
)


@settings(max_examples=example_count(300), deadline=None)
@given(raw=values, dialect=st.sampled_from((None, *Dialect)))
def test_any_json_value_becomes_a_document_or_problems_with_existing_pointers(raw: Any, dialect: str | None) -> None:
    with suppress(PlanInvalid):
        assert isinstance(to_document(raw, dialect=dialect), Document)
    for problem in problems_of(raw, dialect=dialect):
        value_at(raw, problem.pointer)


@settings(max_examples=example_count(300), deadline=None)
@given(st.data())
def test_problems_of_a_changed_document_have_messages_and_existing_pointers(data: st.DataObject) -> None:
    dialect = data.draw(st.sampled_from(DIALECTS))
    raw = dialect.write({1: [], 2: [1], 3: [1, 2]})
    for _ in range(data.draw(st.integers(1, 3))):
        raw = replace_at(raw, data.draw(st.sampled_from(paths_of(raw))), data.draw(values))
    for problem in problems_of(raw, dialect=data.draw(st.sampled_from((None, dialect.name)))):
        value_at(raw, problem.pointer)
        assert problem.message


@settings(max_examples=example_count(100), deadline=None)
@given(raw=values)
def test_problems_of_any_sub_plan_have_existing_pointers(raw: Any) -> None:
    plan = {"plan": 1, "nodes": [{"id": "sub", "plan": raw}]}
    for problem in problems_of(plan):
        value_at(plan, problem.pointer)
