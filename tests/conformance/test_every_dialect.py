"""Rules that apply to every dialect. The module `kit` writes the documents."""

import copy
import re

import pytest

from dagwright.core.errors import PlanInvalid
from dagwright.core.model.dialect import TEXT_DIALECTS
from dagwright.core.model.dialect import Dialect as DialectName
from dagwright.core.validation.validation import check_document
from dagwright.dialects import detect_dialect, to_document
from tests.conformance.kit import DIALECTS, Dialect, check, problems_of

pytestmark = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)

DIAMOND = {1: [], 2: [1], 3: [1], 4: [2, 3]}


def test_documented_shape_has_the_keys_of_the_dialect(dialect: Dialect) -> None:
    assert [each.name for each in DIALECTS] == list(DialectName)
    assert dialect.is_text == (dialect.name in TEXT_DIALECTS)
    shape = DialectName[dialect.name.upper()].shape
    entry_match = re.search(r"\[\{(.*?)\}\]", shape)
    keys = {*re.findall(r'"(\w+)"', entry_match[1] if entry_match else "")}
    assert {*dialect.required_keys} <= keys <= {*dialect.keys}
    assert all(f'"{name}": [' in shape for name in dialect.entries_path)


def test_dialect_of_a_diamond_is_detected_and_its_levels_are_computed(dialect: Dialect) -> None:
    raw = dialect.write(DIAMOND)
    raw_before = copy.deepcopy(raw)
    assert (detect_dialect(raw), check(raw, dialect=dialect.name).dialect) == (dialect.name, dialect.name)
    checked_plan, node_ids = check(raw), [dialect.node_id_of(number) for number in DIAMOND]
    assert [node.id for node in checked_plan.nodes] == node_ids
    assert (checked_plan.levels, checked_plan.edge_count) == ([node_ids[:1], node_ids[1:3], node_ids[3:]], 4)
    assert checked_plan.critical_path == [node_ids[0], node_ids[1], node_ids[3]]
    assert raw == raw_before


def test_nodes_with_forward_references_are_reordered_and_a_cycle_is_reported_once(dialect: Dialect) -> None:
    assert check(dialect.write({1: [3], 2: [1], 3: []})).levels == [
        [dialect.node_id_of(number)] for number in (3, 1, 2)
    ]
    (problem,) = problems_of(dialect.write({1: [3], 2: [1], 3: [2], 4: [3]}))
    node_ids = [dialect.node_id_of(number) for number in (1, 3, 2, 1)]
    assert (problem.code, problem.node_id) == ("cycle", node_ids[0])
    assert problem.message == f"CircularDependencyError: {' → '.join(node_ids)}"


def test_self_dependency_and_unknown_dependency_are_reported_at_the_entry(dialect: Dialect) -> None:
    (problem,) = problems_of(dialect.write({1: [], 2: [2]}))
    assert (problem.code, problem.node_id) == ("self_dependency", dialect.node_id_of(2))
    assert problem.pointer.startswith(dialect.entry_pointer(1))
    (problem,) = problems_of(dialect.write({1: [], 2: [1, 9]}))
    assert (problem.code, problem.node_id) == (dialect.unknown_dependency_code, dialect.node_id_of(2))
    assert problem.pointer.startswith(dialect.entry_pointer(1))


def test_unknown_tool_is_reported_at_its_key(dialect: Dialect) -> None:
    with pytest.raises(PlanInvalid) as error:
        check_document(to_document(dialect.write({1: []})), tools={})
    (problem,) = error.value.problems
    assert problem.code == ("unknown_agent" if dialect.name == "agents" else "unknown_tool")
    assert problem.pointer == dialect.entry_pointer(0, dialect.tool_key)


def test_document_of_the_wrong_type_is_reported_as_one_invalid_field(dialect: Dialect) -> None:
    for raw in (None, True, 7, "plan", 0.5, "" if dialect.entries_path else {"dag": [7]}):
        (problem,) = (each for each in problems_of(raw, dialect=dialect.name) if each.pointer == "")
        assert problem.code == "invalid_field"
