"""Cycles, levels and the critical path compared with brute force, for small random graphs."""

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright.core.model.graph import critical_path, cycles_of, dependents_of, levels_of
from tests.support.example_counts import example_count
from tests.support.plan_building import check, node, plan_of, problems_of


@st.composite
def graphs(draw: st.DrawFn, *, limit: int = 7) -> list[list[int]]:
    """Return the dependencies of up to `limit` nodes, with or without cycles."""
    numbers = range(draw(st.integers(1, limit)))
    others = [[other for other in numbers if other != number] for number in numbers]
    return [draw(st.lists(st.sampled_from(each), unique=True)) if each else [] for each in others]


@st.composite
def acyclic_graphs(draw: st.DrawFn) -> list[list[int]]:
    """Return dependencies without a cycle, of nodes in a random order."""
    count = draw(st.integers(1, 8))
    numbers = draw(st.permutations(range(count)))
    graph: list[list[int]] = [[] for _ in range(count)]
    for position, number in enumerate(numbers):
        graph[number] = draw(st.lists(st.sampled_from(numbers[:position]), unique=True)) if position else []
    return graph


def reachable(graph: list[list[int]], start: int) -> set[int]:
    reached: set[int] = set()
    stack = list(graph[start])
    while stack:
        current = stack.pop()
        if current not in reached:
            reached.add(current)
            stack += graph[current]
    return reached


def cyclic_components(graph: list[list[int]]) -> list[list[int]]:
    """Return the strongly connected components that have a cycle, by brute force."""
    numbers = range(len(graph))
    reached = [reachable(graph, number) for number in numbers]
    components = {
        tuple(other for other in numbers if other in reached[number] and number in reached[other])
        for number in numbers
        if number in reached[number]
    }
    return sorted(map(list, components))


def shortest_cycle_length(graph: list[list[int]], component: list[int]) -> int:
    for length in range(2, len(component) + 1):
        for nodes in permutations(component, length):
            if all(after in graph[before] for before, after in zip(nodes, (*nodes[1:], nodes[0]), strict=True)):
                return length
    raise AssertionError("the component has no cycle")


@settings(max_examples=example_count(80), deadline=None)
@given(graph=graphs(limit=6))
def test_each_cyclic_component_has_one_shortest_cycle_that_starts_at_the_first_node(graph: list[list[int]]) -> None:
    cycles = cycles_of(graph)
    components = cyclic_components(graph)
    assert sorted(cycles) == cycles
    components_of_cycles = [next(component for component in components if cycle[0] in component) for cycle in cycles]
    assert sorted(components_of_cycles) == components
    for cycle, component in zip(cycles, components_of_cycles, strict=True):
        assert len(set(cycle)) == len(cycle) == shortest_cycle_length(graph, component)
        assert all(after in graph[before] for before, after in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
        assert cycle[0] == min(cycle)


@settings(max_examples=example_count(100), deadline=None)
@given(graph=graphs())
def test_graph_has_levels_if_and_only_if_it_has_no_cycle(graph: list[list[int]]) -> None:
    assert (levels_of(graph) is None) == bool(cyclic_components(graph)) == bool(cycles_of(graph))


@settings(max_examples=example_count(80), deadline=None)
@given(graph=acyclic_graphs())
def test_levels_and_critical_path_come_from_the_longest_chains(graph: list[list[int]]) -> None:
    def chains_to(number: int) -> list[list[int]]:
        return [[*chain, number] for need in graph[number] for chain in chains_to(need)] or [[number]]

    levels = levels_of(graph)
    assert levels == [max(map(len, chains_to(number))) - 1 for number in range(len(graph))]
    chains = [chain for number in range(len(graph)) for chain in chains_to(number)]
    max_length = max(map(len, chains))
    assert critical_path(graph, levels) == min(chain for chain in chains if len(chain) == max_length)


@settings(deadline=None)
@given(graph=graphs())
def test_dependents_are_the_reversed_dependencies(graph: list[list[int]]) -> None:
    dependents = dependents_of(graph)
    assert sorted((number, need) for number, needs in enumerate(graph) for need in needs) == sorted(
        (number, need) for need, numbers in enumerate(dependents) for number in numbers
    )
    assert all(numbers == sorted(numbers) for numbers in dependents)


@settings(max_examples=example_count(80), deadline=None)
@given(graph=graphs(limit=6))
def test_check_reports_the_cycles_in_plan_order_and_no_other_problem(graph: list[list[int]]) -> None:
    raw = plan_of(*(node(f"n{number}", *(f"n{need}" for need in needs)) for number, needs in enumerate(graph)))
    expected = [" → ".join(f"n{number}" for number in (*cycle, cycle[0])) for cycle in cycles_of(graph)]
    assert [problem.message for problem in problems_of(raw)] == [
        f"CircularDependencyError: {path}" for path in expected
    ]
    if not expected:
        assert check(raw).edge_count == sum(map(len, graph))
