"""Rules that apply to every dialect; `kit` writes a graph in each dialect."""

import copy
import re

import pytest

from dagwright.core.errors import PlanInvalid, pointer
from dagwright.core.model.dialect import TEXT_DIALECTS
from dagwright.core.model.dialect import Dialect as DialectName
from dagwright.core.validation.validation import check_document
from dagwright.dialects import detect_dialect, to_document
from tests.conformance.kit import DIALECTS, Dialect, check, problems_of

pytestmark = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)

DIAMOND = {1: [], 2: [1], 3: [1], 4: [2, 3]}


def entry_at(dialect: Dialect, index: int, *keys: str | int) -> str:
    return "" if dialect.is_text else pointer(*dialect.list_payloads, index, *keys)


def test_documented_shape_has_the_keys_of_the_dialect(dialect: Dialect) -> None:
    assert [known.name for known in DIALECTS] == list(DialectName)
    assert dialect.is_text == (dialect.name in TEXT_DIALECTS)
    shape = DialectName[dialect.name.upper()].shape
    entry = re.search(r"\[\{(.*?)\}\]", shape)
    keys = {*re.findall(r'"(\w+)"', entry[1] if entry else "")}
    assert {*dialect.required} <= keys <= {*dialect.keys}
    assert all(f'"{name}": [' in shape for name in dialect.list_payloads)


def test_diamond_is_detected_and_has_its_levels_edges_and_critical_path(dialect: Dialect) -> None:
    raw = dialect.write(DIAMOND)
    before = copy.deepcopy(raw)
    assert (detect_dialect(raw), check(raw, dialect=dialect.name).dialect) == (dialect.name, dialect.name)
    checked, names = check(raw), [dialect.id_of(number) for number in DIAMOND]
    assert [node.id for node in checked.nodes] == names
    assert (checked.levels, checked.edges) == ([names[:1], names[1:3], names[3:]], 4)
    assert checked.critical_path == [names[0], names[1], names[3]]
    assert raw == before


def test_forward_references_are_reordered_and_cycles_reported_once(dialect: Dialect) -> None:
    checked = check(dialect.write({1: [3], 2: [1], 3: []}))
    assert checked.levels == [[dialect.id_of(number)] for number in (3, 1, 2)]
    (problem,) = problems_of(dialect.write({1: [3], 2: [1], 3: [2], 4: [3]}))
    names = [dialect.id_of(number) for number in (1, 3, 2, 1)]
    assert (problem.code, problem.node) == ("cycle", names[0])
    assert problem.message == f"CircularDependencyError: {' → '.join(names)}"


def test_dependency_on_itself_or_an_unknown_node_is_reported_with_its_place(dialect: Dialect) -> None:
    (problem,) = problems_of(dialect.write({1: [], 2: [2]}))
    assert (problem.code, problem.node) == ("self_dependency", dialect.id_of(2))
    assert problem.pointer.startswith(entry_at(dialect, 1))
    (problem,) = problems_of(dialect.write({1: [], 2: [1, 9]}))
    assert (problem.code, problem.node) == (dialect.unknown_code, dialect.id_of(2))
    assert problem.pointer.startswith(entry_at(dialect, 1))


def test_unknown_tool_is_reported_where_it_is_named(dialect: Dialect) -> None:
    with pytest.raises(PlanInvalid) as caught:
        check_document(to_document(dialect.write({1: []})), tools={})
    (problem,) = caught.value.problems
    assert problem.code == ("unknown_agent" if dialect.name == "agents" else "unknown_tool")
    assert problem.pointer == entry_at(dialect, 0, dialect.tool_key)


def test_document_of_another_shape_is_refused_in_one_sentence(dialect: Dialect) -> None:
    for raw in (None, True, 7, "plan", 0.5, "" if dialect.list_payloads else {"dag": [7]}):
        (problem,) = (found for found in problems_of(raw, dialect=dialect.name) if found.pointer == "")
        assert problem.code == "invalid_field"
