"""Check new nodes of a running plan, and compile the nodes into an extension of the plan.

The sender checks the nodes with the full tool declarations; the run checks them again with the declarations that it
has, within a compute budget. After an outage, hundreds of messages may arrive in one activation, and a workflow has
about 2 s for an activation. Therefore the cost of a check is estimated from the size of the nodes and charged to a
budget before the check. The checks do not change the run.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import pydantic_core

from dagwright.core.compiler.compilation import compile_plan, compile_with_planner
from dagwright.core.compiler.projections import with_projections
from dagwright.core.compiler.regions import with_regions
from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.core.expressions.compute_budget import CHECK_BUDGET, ComputeBudget
from dagwright.core.expressions.stored_values import Path, StoredValue
from dagwright.core.model.compiled import CompiledNode, CompiledPlan, inline_tools
from dagwright.core.model.document import Document
from dagwright.core.model.plan import NODE_FIELDS, PLAN_FIELDS
from dagwright.core.model.policy import INLINE_AGENT_HINT, INLINE_AGENT_NOT_ALLOWED, Policy
from dagwright.core.model.states import NodeStatus
from dagwright.core.model.tools import AGENT_PREFIX, ToolDeclaration
from dagwright.core.name_hints import DEFAULT_HINT_COST
from dagwright.core.scheduler.extension import Extension
from dagwright.core.text import join_first
from dagwright.core.validation.validation import check_document
from dagwright.features.plan_edits.extension_checks import rejection_of_extension, rejection_of_reserved_ids

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState

MAX_ADDED_NODES = 200
"""Maximum number of nodes in one addition. The workflow checks them, which takes some hundredths of a second."""
_STUB_TOOL = "\0a node of the run"
"""Tool of the stubs, which represent existing nodes of the run during the check."""
MAX_STUBS = 1_000
"""A check of new nodes represents existing nodes by stubs. In a run with up to this number of nodes, every node gets a
stub. In a larger run, only nodes whose ids occur in the new nodes get a stub."""
_WORD = re.compile(r"\w+")
_MAX_WORDS = 6
"""Maximum number of words of an id that is searched in the new nodes; nodes with longer ids always get a stub."""
_MAX_PROBLEMS_REPORTED = 5


def extension_of(
    nodes: Sequence[Any],
    state: "RunState",
    *,
    tools: Mapping[str, ToolDeclaration],
    max_hint_cost: int = DEFAULT_HINT_COST,
) -> Extension:
    """Check nodes and return the extension that adds them to a running plan.

    Args:
        nodes: nodes as JSON, as in a plan.
        tools: tools that the nodes may use in addition to those of the plan; the tools of the plan take precedence.
        max_hint_cost: maximum cost of all hints (see `HintBudget`).

    Raises:
        PlanInvalid: the nodes are invalid; pointers refer to `{"nodes": […]}`.
    """
    if len(nodes) > MAX_ADDED_NODES:
        message = f"there are {len(nodes):,} nodes; at most {MAX_ADDED_NODES} can be added at once"
        raise PlanInvalid([Problem("too_large", message, "/nodes")])
    known_tools = {**tools, **state.plan.tools}
    stubs = [{"id": node_id, "tool": _STUB_TOOL} for node_id in _mentioned_ids(nodes, state)]
    try:
        checked_plan = check_document(
            Document(
                {"plan": 1, "inputs": dict(state.plan.inputs), "nodes": [*stubs, *nodes]},
                pointers={pointer("nodes", len(stubs) + index): pointer("nodes", index) for index in range(len(nodes))},
            ),
            tools={**known_tools, _STUB_TOOL: ToolDeclaration(_STUB_TOOL)},
            max_hint_cost=max_hint_cost,
        )
    except PlanInvalid as error:
        stub_ids = {stub["id"] for stub in stubs}
        raise PlanInvalid(
            [_renumber_problem(problem, nodes, existing_ids=stub_ids) for problem in error.problems]
        ) from None
    missing_inputs = [name for name in checked_plan.inputs if name not in state.inputs]
    if missing_inputs:
        message = f"the run has no value for the input {missing_inputs[0]!r}"
        raise PlanInvalid([Problem("missing_input", message, "/nodes", hint="write the value itself")])
    plan_with_agent_nodes = compile_with_planner(checked_plan) if state.plan.has_planner else compile_plan(checked_plan)
    # Tools that were sent with an agent have descriptions for the model; the tools of a compiled plan have no
    # descriptions.
    compiled_plan = state.options.with_agent_sub_plans(plan_with_agent_nodes, {**checked_plan.tools, **tools})
    if problems := [*_policy_problems(compiled_plan.nodes[len(stubs) :], state.policy)]:
        raise PlanInvalid(problems)
    if problems := [*_unreadable_parts(compiled_plan, state, stub_count=len(stubs))]:
        raise PlanInvalid(problems)
    numbers = _numbers_of(stubs, state, count=len(nodes))
    new_nodes = [_renumber(node, numbers) for node in compiled_plan.nodes[len(stubs) :]]
    tool_names = {node.tool for node in new_nodes if node.kind == "tool"}
    return Extension(
        state.plan.visible_count,
        tuple(new_nodes),
        {name: tool for name, tool in known_tools.items() if name in tool_names},
        {state.newest_id(node.id): node.projections for node in compiled_plan.nodes[: len(stubs)] if node.projections},
    )


def _renumber_problem(problem: Problem, nodes: Sequence[Any], *, existing_ids: Collection[str]) -> Problem:
    """Return a problem with indices that count only the new nodes, because the sender does not know the stubs."""
    if problem.code != "duplicate_id":
        return problem
    if problem.node_id in existing_ids:
        return replace(problem, message=f"the run has a node {problem.node_id!r} already", hint="choose another id")
    ids = [str(node.get("id")) if isinstance(node, Mapping) else "" for node in nodes]
    indices = [str(index) for index, node_id in enumerate(ids) if normalize("NFC", node_id) == problem.node_id]
    return replace(problem, message=f"duplicate node id {problem.node_id!r} (nodes {' and '.join(indices)})")


def _policy_problems(
    nodes: Sequence[CompiledNode], policy: Policy, *, outer_id: str | None = None
) -> Iterator[Problem]:
    """Yield a problem for each inline agent that the policy of the run denies.

    Args:
        outer_id: id of the node whose sub-plan has these nodes.
    """
    for index, node in enumerate(nodes):
        agent_tools = inline_tools(node)
        if agent_tools is not None and policy.verdict_on_inline_agent(agent_tools) == "deny":
            agent_pointer = pointer("nodes", index, "agent") if outer_id is None else "/nodes"
            yield Problem(
                "not_allowed", INLINE_AGENT_NOT_ALLOWED, agent_pointer, outer_id or node.id, INLINE_AGENT_HINT
            )
        elif agent_tools is None and node.sub_plan is not None:
            yield from _policy_problems(node.sub_plan.nodes, policy, outer_id=outer_id or node.id)


def _unreadable_parts(compiled_plan: CompiledPlan, state: "RunState", *, stub_count: int) -> Iterator[Problem]:
    """Yield a problem for each part of a stored result that the workflow would need, but cannot read.

    Args:
        stub_count: number of stubs, which come first.
    """
    stored_results: dict[int, StoredValue] = {}
    for number, stub in enumerate(compiled_plan.nodes[:stub_count]):
        record = state.record_of(state.newest_id(stub.id))
        if record is not None and record.status is NodeStatus.COMPLETED and isinstance(record.result, StoredValue):
            stored_results[number] = record.result
    for index, node in enumerate(compiled_plan.nodes[stub_count:]):
        # References in arguments are resolved by the worker, which can read the store.
        reduced_node = node if node.kind == "human" else replace(node, bindings=(), item_bindings=(), sub_plan=None)
        stub_nodes = [CompiledNode(compiled_plan.nodes[number].id) for number in node.dependencies]
        plan_with_reads = with_projections(
            replace(compiled_plan, nodes=(*stub_nodes, replace(reduced_node, dependencies=())))
        )
        for number, stub in zip(node.dependencies, plan_with_reads.nodes, strict=False):
            if number not in stored_results:
                continue
            for path, _ in stub.projections:
                if not _has_projection(path, stored_results[number]):
                    yield Problem(
                        "too_large",
                        f"{stub.id}.result{_path_text(path)} is in the payload store, where the run cannot read it",
                        pointer("nodes", index),
                        hint="pass it to a tool, which can read any part, and use the result of the tool",
                    )


def _path_text(path: Path) -> str:
    if isinstance(path, str):
        return path
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def _has_projection(path: Path, result: StoredValue) -> bool:
    if isinstance(path, str) or result.paths:
        return path in result.parts
    return not path or any(path[:length] in result.parts for length in range(1, len(path) + 1))


def _mentioned_ids(nodes: Sequence[Any], state: "RunState") -> Iterator[str]:
    """Yield the ids of the existing nodes to which the new nodes may refer."""
    is_large = state.plan.visible_count > MAX_STUBS
    pieces = {piece for text in _texts_of(list(nodes)) for piece in _pieces_of(text)} if is_large else set()
    for node, _ in state.visible_nodes():
        if not is_large or node.id in pieces or not _is_piece(node.id):
            yield node.id


def _is_piece(node_id: str) -> bool:
    """Return whether `_pieces_of` finds this id in every text that contains the id."""
    words = [match.span() for match in _WORD.finditer(node_id)]
    return 0 < len(words) <= _MAX_WORDS and (words[0][0], words[-1][1]) == (0, len(node_id))


def _pieces_of(text: str) -> Iterator[str]:
    """Yield the text and all its parts of up to `_MAX_WORDS` words, each of which may be a node id."""
    yield text
    words = [match.span() for match in _WORD.finditer(text)]
    for first, (start, _) in enumerate(words):
        for _, end in words[first : first + _MAX_WORDS]:
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


def _numbers_of(stubs: Sequence[Mapping[str, str]], state: "RunState", *, count: int) -> list[int]:
    """Return the number in the run for each checked node; a superseded node has the number of its replacement."""
    base = state.plan.visible_count
    numbers = [state.number_of(state.newest_id(stub["id"])) for stub in stubs]
    return [*(number for number in numbers if number is not None), *range(base, base + count)]


def _renumber(node: CompiledNode, numbers: Sequence[int]) -> CompiledNode:
    dependencies = tuple(dict.fromkeys(numbers[number] for number in node.dependencies))
    sub_plan = with_regions(node.sub_plan) if node.sub_plan is not None else None
    return replace(node, dependencies=dependencies, sub_plan=sub_plan)


def format_problems(error: PlanInvalid) -> str:
    """Format the first problems of nodes, one sentence each."""
    lines = []
    for problem in error.problems[:_MAX_PROBLEMS_REPORTED]:
        lines.append(f"{problem.code} at {problem.pointer}: {problem.text}")
    omitted_count = len(error.problems) - _MAX_PROBLEMS_REPORTED
    return "; ".join([*lines, *([f"and {omitted_count} more"] if omitted_count > 0 else [])])


_MAX_TOOLS_LISTED = 20
_MAX_HINT_COST = 20_000
"""Budget of all hints of one check, about 5 ms. The command line shows all hints before it sends nodes."""

# Costs in units of the compute budget, each measured with the most expensive input of its kind.
_COST_OF_CHECK = 600
_COST_OF_NODE = 100
_COST_OF_BYTE = 2
_COST_OF_CONDITION = 15
"""Cost of each character of a `when`."""
_COST_OF_BRACES = 12
"""Cost of each `{{`, the start of a reference."""
_COST_OF_HINTS = _MAX_HINT_COST // 2
"""Cost of all hints of a check. It is charged only after the check has found problems, because hints cost more than
most checks."""
_COST_OF_FIELD = 200
"""Cost of an unknown field, which is compared with all known fields."""
_COST_OF_STUB = 50
_COST_OF_EXISTING_NODE = 5


def checked_extension(
    nodes: Sequence[Any], state: "RunState", *, tools: Mapping[str, ToolDeclaration], budget: ComputeBudget
) -> Extension | str:
    """Check nodes, and return the extension that adds them to a running plan, or why they are rejected.

    Args:
        nodes: nodes as JSON, as in a plan.
        tools: tools that the nodes may use in addition to those of the plan.
        budget: compute budget of the current activation.

    Raises:
        ComputeBudgetExceeded: the remaining budget is too small.
    """
    if (rejection := state.rebuild_problem()) is not None:
        return rejection
    if len(nodes) <= MAX_ADDED_NODES:
        cost = cost_of_nodes(nodes, existing_count=len(state.plan.nodes))
        if cost > CHECK_BUDGET:
            return "checking these nodes would take too long: send fewer or smaller nodes at once"
        budget.spend(cost)
    try:
        extension = extension_of(nodes, state, tools=tools, max_hint_cost=_MAX_HINT_COST)
    except PlanInvalid as error:
        budget.remaining = max(0, budget.remaining - _COST_OF_HINTS)
        return format_problems(PlanInvalid([_with_hint(problem, state, tools) for problem in error.problems]))
    return rejection_of_reserved_ids(state, extension) or rejection_of_extension(state, extension) or extension


def _with_hint(problem: Problem, state: "RunState", tools: Mapping[str, ToolDeclaration]) -> Problem:
    """Add a hint to a problem of nodes that are sent to a run, where the usual hints about options do not apply."""
    if problem.code != "unknown_tool" or (problem.hint or "").startswith("did you mean"):
        return problem
    known_tools = sorted(name for name in {**state.plan.tools, **tools} if not name.startswith(AGENT_PREFIX))
    names = join_first(known_tools, _MAX_TOOLS_LISTED)
    hint = (
        f"the run knows {names or 'no tool'}; to use other tools, pass --tools to `dagwright feedback` or "
        "`dagwright add-nodes`, or in Python pass them to Worker(client, tools=[...])"
    )
    return replace(problem, hint=hint)


def cost_of_nodes(nodes: Sequence[Any], *, existing_count: int) -> int:
    """Return a conservative estimate of the cost to check nodes, in units of `ComputeBudget`.

    Args:
        existing_count: number of nodes of the plan.
    """
    text = pydantic_core.to_json(nodes)
    cost = _COST_OF_CHECK + _COST_OF_BYTE * len(text) + _COST_OF_BRACES * text.count(b"{{")
    cost += _COST_OF_STUB * min(existing_count, MAX_STUBS) + _COST_OF_EXISTING_NODE * existing_count
    for node in _all_nodes(nodes):
        condition, sub_plan = node.get("when"), node.get("plan")
        unknown_count = len(node.keys() - NODE_FIELDS)
        if isinstance(sub_plan, Mapping):
            unknown_count += len(sub_plan.keys() - PLAN_FIELDS)
        cost += _COST_OF_NODE + _COST_OF_FIELD * unknown_count
        cost += _COST_OF_CONDITION * len(condition) if isinstance(condition, str) else 0
    return cost


def _all_nodes(nodes: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the nodes and the nodes of their sub-plans."""
    unvisited_lists = [nodes]
    while unvisited_lists:
        for node in unvisited_lists.pop():
            if isinstance(node, Mapping):
                yield node
                sub_plan = node.get("plan")
                inner_nodes = sub_plan.get("nodes") if isinstance(sub_plan, Mapping) else None
                if isinstance(inner_nodes, list):
                    unvisited_lists.append(inner_nodes)
