"""Parse a model's answer into nodes of a run, or into a list of all problems.

The answer is untrusted. The plan is validated like any plan, may use only the tools of the prompt, and cannot exempt
itself from approval.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dagwright.core.boundary.limits import MAX_NOTES
from dagwright.core.compiler.compilation import compile_with_planner
from dagwright.core.compiler.plan_text import changing_node_count, summary_and_described_ids
from dagwright.core.compiler.regions import with_regions
from dagwright.core.errors import Note, PlanInvalid, Problem, pointer
from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.agents import DECLARATION_ADAPTER, agent_cards
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.policy import ASK_FOR_CHANGES
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.dialects.json_reader import depth_of
from dagwright.dialects.written_values import TRUNCATED, Repair, summarize_repairs
from dagwright.features.plan_edits.sent_tools import with_tools_for_answers
from dagwright.planner.prompts import accepted_message, repair_message
from dagwright.planner.reserved_ids import rename_reserved_ids
from dagwright.planner.schema import MAX_PLANNED_NODES
from dagwright.planning.agent_loop.agent_nodes import with_agent_sub_plans
from dagwright.planning.plan_and_execute.goal_spec import (
    RESERVED_IDS,
    PlannedNodes,
    Profile,
    is_reserved,
    may_start_early,
)
from dagwright.planning.plan_and_execute.replan_context import EXISTING_NODE, ReplanContext
from dagwright.plans.preparation import check_plan, check_written_plan, policy_problems
from dagwright.protocol.plan_limits import PlanTooLarge, reject_too_large

PARSED_PLAN_LIMIT_BYTES = 192 * 1024
"""Limit for the JSON of a parsed plan. The history and the state of the run contain it."""
_MAX_PROBLEMS = 200
_MAX_PROBLEMS_CHARACTERS = 48 * 1024
_IGNORED_FIELDS = ("output", "deadline", "on_failure")
"""Fields of a plan that are ignored, because the run sets them."""


_MAX_EARLY_DEPTH = 80
"""Maximum nesting depth of a node that starts early. The limit for documents that contain the node is 100."""
TOOLS_BYTES = 128 * 1024
"""Limit for the JSON of the tools for the plan parser. If the JSON is larger, the largest schemas are dropped. A tool
without a schema validates its arguments when it is called.
"""


def encode_tools(tools: Mapping[str, ToolDeclaration], *, allows_inline_agents: bool = False) -> list[dict[str, Any]]:
    """Serialize the tools for the plan parser.

    Descriptions are included only for tools of agents, because the models of the agents read the descriptions.

    Args:
        allows_inline_agents: whether a plan may define inline agents, which may use any of the tools.
    """
    described_tools = {*tools} if allows_inline_agents else {name for card in agent_cards(tools) for name in card.tools}
    entries = [
        DECLARATION_ADAPTER.dump_python(
            tool if tool.name in described_tools else replace(tool, description=""), mode="json", exclude_defaults=True
        )
        for tool in tools.values()
    ]
    for tool in sorted(entries, key=encoded_size, reverse=True):
        if encoded_size(entries) <= TOOLS_BYTES:
            break
        tool.pop("input_schema", None)
    return entries


@dataclass(frozen=True, slots=True)
class ParsedPlan:
    """A valid plan written by a model.

    Args:
        planned_nodes: nodes of the plan, ready to run.
        document: the plan document, for people.
        summary: summary of the plan for a person, one or more lines.
        described_ids: ids of the nodes that the summary describes completely.
        notes: repairs and ignored fields.
        change_count: number of nodes that change something.
        model_fields: the model's `explanation` and `confidence`, if the profile has them.
    """

    planned_nodes: PlannedNodes
    document: Mapping[str, Any]
    summary: str
    described_ids: Sequence[str] = ()
    notes: Sequence[Note] = ()
    change_count: int = 0
    model_fields: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Serialize the plan as the result of the activity."""
        return {
            "valid": True,
            "plan": dict(self.document),
            "summary": self.summary,
            "described": list(self.described_ids),
            "notes": [note.to_json() for note in self.notes[:MAX_NOTES]],
            "changes": self.change_count,
            **self.model_fields,
            **self.planned_nodes.to_json(),
        }


def parse_plan(
    plan: Any,
    text: str,
    tools: Mapping[str, ToolDeclaration],
    *,
    accepted_nodes: Sequence[Any] = (),
    allows_inline_agents: bool = False,
    replan_context: ReplanContext | None = None,
) -> ParsedPlan:
    """Parse a plan from a model, or from a person who edited it.

    A replan may be empty if no work remains. A replan may refer to existing nodes of the run: each is represented by a
    stand-in, a node with the tool `EXISTING_NODE`, after the nodes of the plan.

    Args:
        plan: the plan, if it fits the response format or comes from a person; `None` to extract it from the text.
        text: the whole text of the model's answer.
        tools: tools that the plan may use.
        accepted_nodes: nodes that have already started, as written; they belong to the plan even if the answer does not
            repeat them.
        allows_inline_agents: whether the policy of the run allows agents that the plan defines.
        replan_context: state of the run, for a replan.

    Raises:
        PlanInvalid: lists all errors and ambiguities.
    """
    referable_ids = replan_context.referable_ids if replan_context is not None else ()
    try:
        checked_plan, repairs = _check_answer(
            plan,
            text,
            _with_tool_of_stand_ins(tools, replan_context),
            accepted_nodes=_with_stand_ins(accepted_nodes, replan_context),
        )
        checked_plan, repairs = _with_unreserved_ids(
            checked_plan,
            repairs,
            _with_tool_of_stand_ins(tools, replan_context),
            accepted_nodes=_with_stand_ins(accepted_nodes, replan_context),
        )
    except PlanInvalid as invalid:
        if replan_context is None or not _only_lacks_nodes(invalid):
            raise
        return ParsedPlan(PlannedNodes((), {}), {"nodes": []}, "The plan has no nodes.")
    truncation_problems = [
        Problem(TRUNCATED, f"a part of the plan is missing: {repair.message}")
        for repair in repairs
        if repair.code == TRUNCATED
    ]
    inline_agent_problems = [] if allows_inline_agents else _inline_agent_problems(checked_plan)
    if problems := [
        *truncation_problems,
        *problems_of(checked_plan, referable_ids=referable_ids),
        *inline_agent_problems,
    ]:
        raise PlanInvalid(problems)
    parsed_plan = build_parsed_plan(checked_plan, repairs, referable_ids=referable_ids)
    reject_oversized_plan(parsed_plan)
    return parsed_plan


def build_parsed_plan(
    checked_plan: CheckedPlan, repairs: Sequence[Repair], *, referable_ids: Sequence[str] = ()
) -> ParsedPlan:
    """Build the result for a valid plan.

    Args:
        referable_ids: ids of the stand-ins for existing nodes of the run.

    Raises:
        PlanInvalid: the plan uses something that cannot run, or a part of the plan is too large.
    """
    compiled_plan = compile_with_planner(checked_plan)
    restricted_plan = with_policy_approval(
        replace(compiled_plan, output=None, output_bindings=(), deadline_s=None, on_failure="continue")
    )
    plan = with_tools_for_answers(with_agent_sub_plans(restricted_plan, checked_plan.tools), checked_plan.tools)
    try:
        reject_too_large(plan)
    except PlanTooLarge as error:
        raise PlanInvalid([Problem("too_large", str(error), node_id=error.node_id)]) from None
    new_nodes = tuple(node for node in restricted_plan.nodes if node.id not in referable_ids)
    return ParsedPlan(
        PlannedNodes(
            _with_nested_regions(plan), {name: tool for name, tool in plan.tools.items() if name != EXISTING_NODE.name}
        ),
        _without_stand_ins(checked_plan.document.plan, referable_ids=referable_ids),
        *summary_and_described_ids(restricted_plan, ended_ids=frozenset(referable_ids)),
        [*(repair.to_note() for repair in summarize_repairs(repairs)), *_notes_of(checked_plan)],
        changing_node_count(replace(restricted_plan, nodes=new_nodes)),
    )


def reject_oversized_plan(parsed_plan: ParsedPlan) -> None:
    """Reject a plan that would take up too much of the history.

    Raises:
        PlanInvalid: the plan is too large.
    """
    if (size := encoded_size(parsed_plan.to_json())) > PARSED_PLAN_LIMIT_BYTES:
        message = f"the parsed plan has {size:,} bytes; at most {PARSED_PLAN_LIMIT_BYTES:,} are allowed"
        hint = "let tools load long values, and plan fewer nodes"
        raise PlanInvalid([Problem("too_large", message, hint=hint)])


def _check_answer(
    plan: Any, text: str, tools: Mapping[str, ToolDeclaration], *, accepted_nodes: Sequence[Any]
) -> tuple[CheckedPlan, Sequence[Repair]]:
    if plan is None:
        return check_written_plan(text, tools, accepted_nodes=accepted_nodes)
    if isinstance(plan, str):
        return check_written_plan(plan, tools, accepted_nodes=accepted_nodes)
    dialect = "plan" if isinstance(plan, dict) and "nodes" in plan else None
    try:
        return check_plan(plan, tools, dialect=dialect, accepted_nodes=accepted_nodes), ()
    except PlanInvalid as invalid:
        # Models misspell tool names in structured answers too. A repair that leaves a problem is discarded.
        try:
            return check_written_plan(json.dumps(plan), tools, dialect="plan", accepted_nodes=accepted_nodes)
        except PlanInvalid:
            raise invalid from None


def _with_tool_of_stand_ins(
    tools: Mapping[str, ToolDeclaration], replan_context: ReplanContext | None
) -> Mapping[str, ToolDeclaration]:
    return tools if replan_context is None else {**tools, EXISTING_NODE.name: EXISTING_NODE}


def _with_stand_ins(accepted_nodes: Sequence[Any], replan_context: ReplanContext | None) -> Sequence[Any]:
    return accepted_nodes if replan_context is None else [*accepted_nodes, *replan_context.stand_ins()]


def _only_lacks_nodes(invalid: PlanInvalid) -> bool:
    """Return whether the only problem of a plan is that it has no nodes."""
    return all((problem.code, problem.pointer) == ("empty_plan", "/nodes") for problem in invalid.problems)


def _without_stand_ins(document: Mapping[str, Any], *, referable_ids: Sequence[str]) -> Mapping[str, Any]:
    """Return a plan without the stand-ins for existing nodes of the run."""
    if not referable_ids:
        return document
    return {**document, "nodes": [node for node in document["nodes"] if node.get("tool") != EXISTING_NODE.name]}


def _with_unreserved_ids(
    checked_plan: CheckedPlan,
    repairs: Sequence[Repair],
    tools: Mapping[str, ToolDeclaration],
    *,
    accepted_nodes: Sequence[Any],
) -> tuple[CheckedPlan, Sequence[Repair]]:
    """Rename nodes whose ids are reserved for the run, if the change is unambiguous."""
    renaming = (
        rename_reserved_ids(checked_plan.document) if any(is_reserved(node.id) for node in checked_plan.nodes) else None
    )
    if renaming is None:
        return checked_plan, repairs
    plan, id_repairs = renaming
    try:
        return check_plan(plan, tools, dialect="plan", accepted_nodes=accepted_nodes), [*repairs, *id_repairs]
    except PlanInvalid:
        return checked_plan, repairs


def can_start_early(
    nodes: Sequence[Any], tools: Mapping[str, ToolDeclaration], *, replan_context: ReplanContext | None = None
) -> bool:
    """Return whether the last node may start while the model is still writing the rest of the plan.

    Mistakes in the nodes are not repaired here, because the rest of the plan may show a different meaning.

    Args:
        nodes: nodes as written; all but the last one have been accepted already.
        replan_context: state of the run, for a replan; a node that replaces an existing node never starts early.
    """
    referable_ids = replan_context.referable_ids if replan_context is not None else ()
    if replan_context is not None and nodes[-1].get("id") in replan_context.not_referable_ids:
        return False
    if depth_of(nodes[-1]) > _MAX_EARLY_DEPTH:
        return False
    try:
        checked_plan = check_plan(
            {"nodes": [*_with_stand_ins((), replan_context), *nodes]},
            _with_tool_of_stand_ins(tools, replan_context),
            dialect="plan",
        )
        if any(True for _ in problems_of(checked_plan, referable_ids=referable_ids)):
            return False
        return may_start_early(compile_with_planner(checked_plan).nodes[-1], tools)
    except PlanInvalid:
        return False


def serialize_rejection(
    invalid: PlanInvalid, *, accepted_nodes: Sequence[Any] = (), profile: Profile = "plan"
) -> dict[str, Any]:
    """Serialize the problems of a plan as the result of the activity, with the repair message for the model.

    Args:
        accepted_nodes: nodes that have started already.
        profile: selects the wording of the message.
    """
    entries = [problem.to_json() for problem in invalid.problems[:_MAX_PROBLEMS]]
    while len(entries) > 1 and len(json.dumps(entries)) > _MAX_PROBLEMS_CHARACTERS:
        entries = entries[: len(entries) // 2]
    repair = repair_message(invalid.problems, profile=profile)
    return {
        "valid": False,
        "problems": entries,
        "problem_count": len(invalid.problems),
        "repair": "\n\n".join([repair, *([accepted_message(accepted_nodes)] if accepted_nodes else [])]),
    }


def problems_of(checked_plan: CheckedPlan, *, referable_ids: Sequence[str] = ()) -> Iterator[Problem]:
    """Yield the problems of a valid plan that prevent adding its nodes to a run.

    Args:
        referable_ids: ids of the stand-ins for existing nodes of the run.
    """
    if (count := len(checked_plan.nodes) - len(referable_ids)) > MAX_PLANNED_NODES:
        message = f"the plan has {count:,} nodes; at most {MAX_PLANNED_NODES} are allowed"
        yield Problem("too_large", message, pointer("nodes"), hint="use for_each instead of many nodes")
    for index, node in enumerate(checked_plan.nodes):
        if node.tool == EXISTING_NODE.name and node.id not in referable_ids:
            at = checked_plan.document.written_pointer(pointer("nodes", index, "tool"))
            yield Problem("unknown_tool", f"the run has no node {node.id!r}", at, node.id)
        if is_reserved(node.id):
            at = checked_plan.document.written_pointer(pointer("nodes", index, "id"))
            reserved_ids = ", ".join(sorted(RESERVED_IDS))
            message = f"the id {node.id!r} is reserved for the run; reserved ids are {reserved_ids}"
            yield Problem("reserved_id", message, at, node.id, "choose another id, and change the references to it")
    for name in checked_plan.inputs:
        message = f"the plan has an input {name!r}, but a planned run has no inputs"
        hint = "write the value itself, or ask for it with a human node and refer to its result"
        yield Problem("missing_input", message, pointer("inputs", name), hint=hint)
    yield from _secret_problems(checked_plan)


def _secret_problems(checked_plan: CheckedPlan) -> Iterator[Problem]:
    """Yield a problem for each node that uses a secret: a prompt injection could send the secret anywhere."""
    for index, (node, references) in enumerate(zip(checked_plan.nodes, checked_plan.references, strict=True)):
        if references.has_secrets:
            at = checked_plan.document.written_pointer(pointer("nodes", index))
            message = "a plan that a model wrote cannot name secrets"
            yield Problem("invalid_reference", message, at, node.id, "omit it: tools have their own secrets")
        if index in checked_plan.sub_plans:
            yield from _secret_problems(checked_plan.sub_plans[index])


def _inline_agent_problems(checked_plan: CheckedPlan) -> Iterator[Problem]:
    """Yield a problem for each agent that the plan defines, for a policy that allows only existing agents."""
    for problem in policy_problems(checked_plan, ASK_FOR_CHANGES):
        yield replace(problem, hint="use a listed agent, or tools")


def _notes_of(checked_plan: CheckedPlan) -> Iterator[Note]:
    plan_document = checked_plan.document.plan
    for name in _IGNORED_FIELDS:
        if plan_document.get(name) is not None:
            yield Note("ignored", f"{name!r} is ignored in a plan that a model wrote")
    for node in checked_plan.nodes:
        if node.approval == "never":
            yield Note("ignored", "approval: never is ignored in a plan that a model wrote", node.id)
        if node.effects is not None:
            yield Note("ignored", "effects are ignored in a plan that a model wrote", node.id)


def with_policy_approval(plan: CompiledPlan) -> CompiledPlan:
    """Remove `approval: never` and the effects `idempotent`, with which a node would exempt itself from approval."""
    return replace(plan, nodes=tuple(_node_with_policy_approval(node) for node in plan.nodes))


def _node_with_policy_approval(node: CompiledNode) -> CompiledNode:
    sub_plan = None if node.sub_plan is None else with_policy_approval(node.sub_plan)
    approval = "policy" if node.approval == "never" else node.approval
    # A model must not declare a call idempotent. `read` is kept, because it follows from the arguments of the call.
    effects = None if node.effects == Effects.IDEMPOTENT else node.effects
    return replace(node, approval=approval, effects=effects, sub_plan=sub_plan)


def _with_nested_regions(plan: CompiledPlan) -> Sequence[CompiledNode]:
    """Return the nodes of a plan; pure nodes of its sub-plans are contracted into regions."""
    return tuple(
        node if node.sub_plan is None else replace(node, sub_plan=with_regions(node.sub_plan)) for node in plan.nodes
    )
