"""What every dialect has to do in the same way; `kit` says how each of them writes a graph."""

import copy

import pytest

from dagwright.core.compiler.compilation import compile_plan
from dagwright.core.model.errors import PlanInvalid, pointer
from dagwright.core.validation.validation import check_document
from dagwright.dialects import DIALECTS as NAMES
from dagwright.dialects import detect_dialect, to_document
from tests.conformance.kit import DIALECTS, Dialect, check, problems_of

pytestmark = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)

DIAMOND = {1: [], 2: [1], 3: [1], 4: [2, 3]}


def entry_at(dialect: Dialect, index: int, *keys: str | int) -> str:
    return "" if dialect.is_text else pointer(*dialect.entries, index, *keys)


def test_kit_covers_the_dialect(dialect: Dialect) -> None:
    assert [known.name for known in DIALECTS] == list(NAMES)
    assert dialect.name in NAMES


def test_dialect_is_told_from_the_shape(dialect: Dialect) -> None:
    assert detect_dialect(dialect.write(DIAMOND)) == dialect.name


def test_named_dialect_is_read_as_that(dialect: Dialect) -> None:
    assert check(dialect.write(DIAMOND), dialect=dialect.name).dialect == dialect.name


def test_diamond_has_its_levels_edges_and_critical_path(dialect: Dialect) -> None:
    checked = check(dialect.write(DIAMOND))
    names = [dialect.id_of(number) for number in DIAMOND]
    assert checked.levels == [names[:1], names[1:3], names[3:]]
    assert checked.edges == 4
    assert checked.critical_path == [names[0], names[1], names[3]]
    assert [node.id for node in checked.nodes] == names


def test_forward_references_are_reordered(dialect: Dialect) -> None:
    checked = check(dialect.write({1: [3], 2: [1], 3: []}))
    assert checked.levels == [[dialect.id_of(number)] for number in (3, 1, 2)]


def test_reading_changes_nothing_of_the_document(dialect: Dialect) -> None:
    raw = dialect.write(DIAMOND)
    before = copy.deepcopy(raw)
    check(raw)
    assert raw == before


def test_cycle_is_told_once_as_the_list_of_its_nodes(dialect: Dialect) -> None:
    (problem,) = problems_of(dialect.write({1: [3], 2: [1], 3: [2], 4: [3]}))
    names = [dialect.id_of(number) for number in (1, 3, 2, 1)]
    assert problem.code == "cycle"
    assert problem.message == f"CircularDependencyError: {' → '.join(names)}"
    assert problem.node == names[0]


def test_cycle_of_260_nodes_is_told_whole(dialect: Dialect) -> None:
    (problem,) = problems_of(dialect.write({number: [number % 260 + 1] for number in range(1, 261)}))
    assert problem.message.count(" → ") == 260


def test_1500_edges_on_40_nodes_are_one_cycle(dialect: Dialect) -> None:
    pairs = [(one, other) for one in range(1, 41) for other in range(1, 41) if one != other][:1500]
    graph = {number: [other for one, other in pairs if one == number] for number in range(1, 41)}
    (problem,) = problems_of(dialect.write(graph))
    first, second = dialect.id_of(1), dialect.id_of(2)
    assert problem.message == f"CircularDependencyError: {first} → {second} → {first}"


def test_node_that_needs_itself_is_no_cycle(dialect: Dialect) -> None:
    (problem,) = problems_of(dialect.write({1: [], 2: [2]}))
    assert (problem.code, problem.node) == ("self_dependency", dialect.id_of(2))
    assert problem.pointer.startswith(entry_at(dialect, 1))


def test_dependency_on_nothing_is_told_with_its_place(dialect: Dialect) -> None:
    (problem,) = problems_of(dialect.write({1: [], 2: [1, 9]}))
    assert problem.code == dialect.unknown_code
    assert problem.node == dialect.id_of(2)
    assert problem.pointer.startswith(entry_at(dialect, 1))


def test_unknown_tool_is_told_where_it_is_named(dialect: Dialect) -> None:
    raw = dialect.write({1: []})
    with pytest.raises(PlanInvalid) as caught:
        compile_plan(check_document(to_document(raw), tools={}))
    (problem,) = caught.value.problems
    assert problem.code == ("unknown_agent" if dialect.name == "agents" else "unknown_tool")
    assert problem.pointer == entry_at(dialect, 0, dialect.tool_key)


def test_document_of_another_shape_is_refused_in_one_sentence(dialect: Dialect) -> None:
    for raw in (None, True, 7, "plan", 0.5, "" if dialect.entries else {"dag": [7]}):
        (problem,) = (found for found in problems_of(raw, dialect=dialect.name) if found.pointer == "")
        assert problem.code == "invalid_field"
