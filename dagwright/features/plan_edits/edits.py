"""Nodes as somebody writes them for a plan that runs: checked against what is there, and made an extension of it.

Whoever sends them checks them with all that is known of the tools; the run checks them again with what it is told.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unicodedata import normalize

from dagwright.core.compiler.compilation import compile_plan, compile_planned
from dagwright.core.compiler.projections import with_projections
from dagwright.core.compiler.regions import contract
from dagwright.core.expressions.references import HINT_BUDGET
from dagwright.core.expressions.stored_values import Path, StoredValue
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, inline_tools
from dagwright.core.model.document import Document
from dagwright.core.model.errors import PlanInvalid, Problem, pointer
from dagwright.core.model.policy import INLINE_HINT, INLINE_REFUSED, Policy
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.run_state import RunState
from dagwright.core.validation.validation import check_document

MOST_NODES = 200
"""Nodes added at once: a run checks them itself, in some hundredths of a second."""
_THERE = "\0a node of the run"
"""The tool of the nodes that stand for those of the run."""
MOST_STAND_INS = 1_000
"""Nodes of a run that all stand in, for the sake of hints; of more only those whose ids occur in the new ones."""
_WORD = re.compile(r"\w+")
_WORDS = 6
"""Words in an id; the few nodes of a large run whose ids have more all stand in."""
_PROBLEMS_TOLD = 5


def extension_of(
    nodes: Sequence[Any],
    state: RunState,
    *,
    tools: Mapping[str, ToolDeclaration],
    most_compared: int = HINT_BUDGET,
) -> Extension:
    """Returns what a plan that runs grows by.

    Args:
        nodes: as in a plan, as JSON.
        tools: those that they may name beside the ones of the plan, which stand above them.
        most_compared: budget of all hints (see `NameHints`).

    Raises:
        PlanInvalid: something is wrong with them, with pointers into `{"nodes": […]}`.
    """
    if len(nodes) > MOST_NODES:
        message = f"there are {len(nodes):,} nodes; at most {MOST_NODES} can be added at once"
        raise PlanInvalid([Problem("too_large", message, "/nodes")])
    known = {**tools, **state.plan.tools}
    stubs = [{"id": node_id, "tool": _THERE} for node_id in _mentioned(nodes, state)]
    try:
        checked = check_document(
            Document(
                {"plan": 1, "inputs": dict(state.plan.inputs), "nodes": [*stubs, *nodes]},
                pointers={pointer("nodes", len(stubs) + place): pointer("nodes", place) for place in range(len(nodes))},
            ),
            tools={**known, _THERE: ToolDeclaration(_THERE)},
            most_compared=most_compared,
        )
    except PlanInvalid as invalid:
        there = {stub["id"] for stub in stubs}
        raise PlanInvalid([_told_of_new(problem, nodes, there=there) for problem in invalid.problems]) from None
    strange = [name for name in checked.inputs if name not in state.inputs]
    if strange:
        message = f"the run has no value of the input {strange[0]!r}"
        raise PlanInvalid([Problem("missing_input", message, "/nodes", hint="write the value itself")])
    made = compile_planned(checked) if state.plan.has_planner else compile_plan(checked)
    # Who sends an agent tells its tools in the words that its model reads, which no compiled plan has.
    compiled = state.options.with_agents(made, {**checked.tools, **tools})
    if problems := [*_refused(compiled.nodes[len(stubs) :], state.policy)]:
        raise PlanInvalid(problems)
    if problems := [*_unreadable(compiled, state, count=len(stubs))]:
        raise PlanInvalid(problems)
    numbers = _numbers_of(stubs, state, count=len(nodes))
    new = [_renumbered(node, numbers) for node in compiled.nodes[len(stubs) :]]
    named = {node.tool for node in new if node.kind == "tool"}
    return Extension(
        state.plan.written_count,
        tuple(new),
        {name: tool for name, tool in known.items() if name in named},
        {state.newest_id(node.id): node.wanted for node in compiled.nodes[: len(stubs)] if node.wanted},
    )


def _told_of_new(problem: Problem, nodes: Sequence[Any], *, there: Collection[str]) -> Problem:
    """Returns a problem in words that count the new nodes alone, as whoever sends them does."""
    if problem.code != "duplicate_id":
        return problem
    if problem.node in there:
        return replace(problem, message=f"the run has a node {problem.node!r} already", hint="choose another id")
    ids = [str(node.get("id")) if isinstance(node, Mapping) else "" for node in nodes]
    places = [str(place) for place, name in enumerate(ids) if normalize("NFC", name) == problem.node]
    return replace(problem, message=f"duplicate node id {problem.node!r} (nodes {' and '.join(places)})")


def _refused(nodes: Sequence[CompiledNode], policy: Policy, *, within: str | None = None) -> Iterator[Problem]:
    """Yields the agents that stand in nodes themselves, where the policy of the run refuses them.

    Args:
        within: id of the node whose sub-plan has these nodes.
    """
    for place, node in enumerate(nodes):
        inside = inline_tools(node)
        if inside is not None and policy.verdict_on_inline(inside) == "refuse":
            at = pointer("nodes", place, "agent") if within is None else "/nodes"
            yield Problem("refused", INLINE_REFUSED, at, within or node.id, INLINE_HINT)
        elif inside is None and node.sub_plan is not None:
            yield from _refused(node.sub_plan.nodes, policy, within=within or node.id)


def _unreadable(compiled: CompiledPlan, state: RunState, *, count: int) -> Iterator[Problem]:
    """Yields what the run itself would have to read of results that lie in the payload store already.

    Args:
        count: how many of the nodes stand for those of the run.
    """
    stored: dict[int, StoredValue] = {}
    for number, stub in enumerate(compiled.nodes[:count]):
        record = state.record_of(state.newest_id(stub.id))
        if record is not None and record.status is NodeStatus.COMPLETED and isinstance(record.result, StoredValue):
            stored[number] = record.result
    for place, node in enumerate(compiled.nodes[count:]):
        # What only its arguments name is read where they are used.
        alone = node if node.kind == "human" else replace(node, holes=(), item_holes=(), sub_plan=None)
        needed = [CompiledNode(compiled.nodes[number].id) for number in node.dependencies]
        looked_at = with_projections(replace(compiled, nodes=(*needed, replace(alone, dependencies=()))))
        for number, stub in zip(node.dependencies, looked_at.nodes, strict=False):
            if number not in stored:
                continue
            for path, _ in stub.wanted:
                if not _is_told(path, stored[number]):
                    yield Problem(
                        "too_large",
                        f"{stub.id}.result{_words_of(path)} lies in the payload store, where the run cannot read it",
                        pointer("nodes", place),
                        hint="let a tool read it, whose arguments may name any part, and use the result of that",
                    )


def _words_of(path: Path) -> str:
    if isinstance(path, str):
        return path
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _is_told(path: Path, result: StoredValue) -> bool:
    if isinstance(path, str) or result.paths:
        return path in result.parts
    return not path or any(path[:length] in result.parts for length in range(1, len(path) + 1))


def _mentioned(nodes: Sequence[Any], state: RunState) -> Iterator[str]:
    """Yields the ids of the nodes of the run that the new ones may mean."""
    is_large = state.plan.written_count > MOST_STAND_INS
    named = {piece for text in _texts_of(list(nodes)) for piece in _pieces_of(text)} if is_large else set()
    for node, _ in state.shown():
        if not is_large or node.id in named or not _is_piece(node.id):
            yield node.id


def _is_piece(node_id: str) -> bool:
    """Tells whether `_pieces_of` finds an id wherever it stands."""
    words = [match.span() for match in _WORD.finditer(node_id)]
    return 0 < len(words) <= _WORDS and (words[0][0], words[-1][1]) == (0, len(node_id))


def _pieces_of(text: str) -> Iterator[str]:
    """Yields the text, and what stands in it of up to so many words: any of it may be the id of a node."""
    yield text
    words = [match.span() for match in _WORD.finditer(text)]
    for first, (start, _) in enumerate(words):
        for _, end in words[first : first + _WORDS]:
            yield text[start:end]


def _texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield str(name)
            yield from _texts_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts_of(part)


def _numbers_of(stubs: Sequence[Mapping[str, str]], state: RunState, *, count: int) -> list[int]:
    """Returns the number in the run of each node that was checked: of a superseded one that of the newest."""
    base = state.plan.written_count
    there = [state.number_of(state.newest_id(stub["id"])) for stub in stubs]
    return [*(number for number in there if number is not None), *range(base, base + count)]


def _renumbered(node: CompiledNode, numbers: Sequence[int]) -> CompiledNode:
    dependencies = tuple(dict.fromkeys(numbers[number] for number in node.dependencies))
    below = contract(node.sub_plan) if node.sub_plan is not None else None
    return replace(node, dependencies=dependencies, sub_plan=below)


def told(invalid: PlanInvalid) -> str:
    """Returns what is wrong with nodes in one sentence for each of the first problems."""
    words = []
    for problem in invalid.problems[:_PROBLEMS_TOLD]:
        words.append(f"{problem.code} at {problem.pointer}: {problem.text}")
    left = len(invalid.problems) - _PROBLEMS_TOLD
    return "; ".join([*words, *([f"and {left} more"] if left > 0 else [])])
