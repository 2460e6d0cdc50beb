"""What is made of a model's answer: nodes that a run can take, or every reason why it cannot.

Nothing that a model writes is trusted: its plan is checked as any plan is, it may use only what it was told of, and it
cannot let itself off an approval.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dagwright.core.boundary.limits import NOTES
from dagwright.core.compiler.compilation import compile_planned
from dagwright.core.compiler.regions import contract
from dagwright.core.model.agents import agent_cards
from dagwright.core.model.compiled import CompiledNode, CompiledPlan
from dagwright.core.model.errors import Note, PlanInvalid, Problem, pointer
from dagwright.core.model.policy import CHANGES_ASK
from dagwright.core.model.tools import Effects, ToolDeclaration
from dagwright.core.validation.checked_plan import Checked
from dagwright.dialects.json_reader import depth_of
from dagwright.dialects.written_values import CUT_OFF, Repair, folded
from dagwright.features.feedback.plan_text import changes_of, words_and_shown
from dagwright.features.plan_edits.sent_tools import with_tools_for_answers
from dagwright.planner.prompts import accepted_message, repair_message
from dagwright.planner.reserved_ids import rename_reserved_ids
from dagwright.planner.schema import MAX_PLANNED_NODES
from dagwright.planning.agent_loop.nodes import with_agents
from dagwright.planning.plan_and_execute.goals import (
    DECLARATION,
    OWN_IDS,
    PlannedNodes,
    Profile,
    is_own,
    may_start_early,
)
from dagwright.planning.plan_and_execute.replan_context import EXISTING_NODE, ReplanContext
from dagwright.plans.preparation import check_plan, check_written_plan, policy_problems
from dagwright.protocol.documents import encoded_size
from dagwright.protocol.plan_limits import PlanTooLarge, refuse_too_large

PLANNED_BYTES = 192 * 1024
"""JSON of all that is told of a plan: it stands in the history, and in the state of the run from then on."""
_PROBLEMS_TOLD = 200
_PROBLEMS_CHARACTERS = 48 * 1024
_IGNORED = ("output", "deadline", "on_failure")
"""What a plan may say that does not count here: the run itself has it."""


_EARLY_DEPTH = 80
"""Lists and objects inside one another of a node that starts early: it travels in others, which have a limit of 100."""
TOOLS_BYTES = 128 * 1024
"""JSON of the tools as they travel to whoever reads the plan; schemas beyond that are left to the tools themselves."""


def encode_tools(tools: Mapping[str, ToolDeclaration], *, inline_agents: bool = False) -> list[dict[str, Any]]:
    """Returns what is told of the tools to whoever reads a plan: all but what only people and models read.

    The tools of agents are told to the models of these.

    Args:
        inline_agents: a plan may make agents itself, with any of the tools.
    """
    named = {*tools} if inline_agents else {name for card in agent_cards(tools) for name in card.tools}
    told = [
        DECLARATION.dump_python(
            tool if tool.name in named else replace(tool, description=""), mode="json", exclude_defaults=True
        )
        for tool in tools.values()
    ]
    for tool in sorted(told, key=encoded_size, reverse=True):
        if encoded_size(told) <= TOOLS_BYTES:
            break
        tool.pop("input_schema", None)
    return told


@dataclass(frozen=True, slots=True)
class ParsedPlan:
    """A plan that can be run.

    Args:
        planned: its nodes as a run takes them.
        written: the plan itself, for people.
        words: what it does, in lines.
        shown: ids of its nodes of which all stands in these lines.
        notes: what was repaired, and what does not count.
        changes: how many of its nodes change something.
        said: what the model says of it: `explanation` and `confidence`, as far as it was asked for them.
    """

    planned: PlannedNodes
    written: Mapping[str, Any]
    words: str
    shown: Sequence[str] = ()
    notes: Sequence[Note] = ()
    changes: int = 0
    said: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the plan as the activity tells it."""
        return {
            "valid": True,
            "plan": dict(self.written),
            "words": self.words,
            "shown": list(self.shown),
            "notes": [note.to_json() for note in self.notes[:NOTES]],
            "changes": self.changes,
            **self.said,
            **self.planned.to_json(),
        }


def parse_plan(
    plan: Any,
    text: str,
    tools: Mapping[str, ToolDeclaration],
    *,
    accepted: Sequence[Any] = (),
    inline_agents: bool = False,
    replan_context: ReplanContext | None = None,
) -> ParsedPlan:
    """Returns the plan that a model wrote, or somebody who changed it.

    One that is made again may be empty: then there is nothing more to do. The nodes that it may refer to stand in it
    behind its own, as tool `EXISTING_NODE`.

    Args:
        plan: it, if it fits the response format or somebody gave it; null if it has to be found in the text.
        text: all that the model said.
        tools: what the plan may use.
        accepted: nodes that stand already, as they were written; they are of the plan, whether it repeats them or not.
        inline_agents: the policy of the run takes agents that the plan makes itself.
        replan_context: what the run has come to, of a plan that is made again.

    Raises:
        PlanInvalid: with everything that is wrong or ambiguous.
    """
    there = replan_context.referable if replan_context is not None else ()
    try:
        checked, repairs = _checked(
            plan, text, _known(tools, replan_context), accepted=_standing(accepted, replan_context)
        )
        checked, repairs = _with_free_ids(
            checked, repairs, _known(tools, replan_context), accepted=_standing(accepted, replan_context)
        )
    except PlanInvalid as invalid:
        if replan_context is None or not _is_empty(invalid):
            raise
        return ParsedPlan(PlannedNodes((), {}), {"nodes": []}, "The plan has no nodes.")
    cut = [
        Problem(CUT_OFF, f"a part of the plan is missing: {repair.message}")
        for repair in repairs
        if repair.code == CUT_OFF
    ]
    inside = [] if inline_agents else _inline_agents_of(checked)
    if problems := [*cut, *problems_of(checked, there=there), *inside]:
        raise PlanInvalid(problems)
    read = build_parsed_plan(checked, repairs, there=there)
    reject_oversized(read)
    return read


def build_parsed_plan(checked: Checked, repairs: Sequence[Repair], *, there: Sequence[str] = ()) -> ParsedPlan:
    """Returns what is made of a plan that can be run.

    Args:
        there: ids of the nodes that stand for those of the run.

    Raises:
        PlanInvalid: it uses what cannot run, or a part of it is too large.
    """
    compiled = compile_planned(checked)
    asked = with_policy_approval(
        replace(compiled, output=None, output_bindings=(), deadline_s=None, on_failure="continue")
    )
    plan = with_tools_for_answers(with_agents(asked, checked.tools), checked.tools)
    try:
        refuse_too_large(plan)
    except PlanTooLarge as error:
        raise PlanInvalid([Problem("too_large", str(error), node=error.node)]) from None
    own = replace(asked, nodes=tuple(node for node in asked.nodes if node.id not in there))
    return ParsedPlan(
        PlannedNodes(_with_regions_below(plan), {n: tool for n, tool in plan.tools.items() if n != EXISTING_NODE.name}),
        _own_of(checked.document.plan, there=there),
        *words_and_shown(asked, there=frozenset(there)),
        [*(repair.to_note() for repair in folded(repairs)), *_notes_of(checked)],
        changes_of(own),
    )


def reject_oversized(read: ParsedPlan) -> None:
    """Refuses a plan of which too much would stand in the history.

    Raises:
        PlanInvalid: it is one.
    """
    if (size := encoded_size(read.to_json())) > PLANNED_BYTES:
        message = f"the plan has {size:,} bytes with all that is made of it; at most {PLANNED_BYTES:,} are taken"
        hint = "let tools bring what is long, and plan fewer nodes"
        raise PlanInvalid([Problem("too_large", message, hint=hint)])


def _checked(
    plan: Any, text: str, tools: Mapping[str, ToolDeclaration], *, accepted: Sequence[Any]
) -> tuple[Checked, Sequence[Repair]]:
    if plan is None:
        return check_written_plan(text, tools, accepted=accepted)
    if isinstance(plan, str):
        return check_written_plan(plan, tools, accepted=accepted)
    dialect = "plan" if isinstance(plan, dict) and "nodes" in plan else None
    try:
        return check_plan(plan, tools, dialect=dialect, accepted=accepted), ()
    except PlanInvalid as invalid:
        # Models name tools by near misses here too; a repair that leaves a problem is of no use.
        try:
            return check_written_plan(json.dumps(plan), tools, dialect="plan", accepted=accepted)
        except PlanInvalid:
            raise invalid from None


def _known(tools: Mapping[str, ToolDeclaration], replan_context: ReplanContext | None) -> Mapping[str, ToolDeclaration]:
    return tools if replan_context is None else {**tools, EXISTING_NODE.name: EXISTING_NODE}


def _standing(accepted: Sequence[Any], replan_context: ReplanContext | None) -> Sequence[Any]:
    return accepted if replan_context is None else [*accepted, *replan_context.stand_ins()]


def _is_empty(invalid: PlanInvalid) -> bool:
    """Tells whether nothing is wrong with a plan but that it has no nodes."""
    return all((problem.code, problem.pointer) == ("empty_plan", "/nodes") for problem in invalid.problems)


def _own_of(written: Mapping[str, Any], *, there: Sequence[str]) -> Mapping[str, Any]:
    """Returns a plan without the nodes that stand for those of the run."""
    if not there:
        return written
    return {**written, "nodes": [node for node in written["nodes"] if node.get("tool") != EXISTING_NODE.name]}


def _with_free_ids(
    checked: Checked, repairs: Sequence[Repair], tools: Mapping[str, ToolDeclaration], *, accepted: Sequence[Any]
) -> tuple[Checked, Sequence[Repair]]:
    """Returns a plan with other ids for nodes that have those of the run, if it is clear what changes with them."""
    found = rename_reserved_ids(checked.document) if any(is_own(node.id) for node in checked.nodes) else None
    if found is None:
        return checked, repairs
    plan, more = found
    try:
        return check_plan(plan, tools, dialect="plan", accepted=accepted), [*repairs, *more]
    except PlanInvalid:
        return checked, repairs


def can_start_early(
    nodes: Sequence[Any], tools: Mapping[str, ToolDeclaration], *, replan_context: ReplanContext | None = None
) -> bool:
    """Tells whether the last of some nodes may start while the rest of their plan is still being written.

    Nothing is repaired here, for what follows may show that something else was meant.

    Args:
        nodes: as written; all but the last one stand already.
        replan_context: what the run has come to, of a plan that is made again; what takes the place of a node waits.
    """
    there = replan_context.referable if replan_context is not None else ()
    if replan_context is not None and nodes[-1].get("id") in replan_context.left:
        return False
    if depth_of(nodes[-1]) > _EARLY_DEPTH:
        return False
    try:
        checked = check_plan(
            {"nodes": [*_standing((), replan_context), *nodes]}, _known(tools, replan_context), dialect="plan"
        )
        if any(True for _ in problems_of(checked, there=there)):
            return False
        return may_start_early(compile_planned(checked).nodes[-1], tools)
    except PlanInvalid:
        return False


def rejected_plan(invalid: PlanInvalid, *, accepted: Sequence[Any] = (), profile: Profile = "plan") -> dict[str, Any]:
    """Returns what is wrong with a plan as the activity tells it, with what the model is to be told.

    Args:
        accepted: nodes that stand already.
        profile: in whose words.
    """
    told = [problem.to_json() for problem in invalid.problems[:_PROBLEMS_TOLD]]
    while len(told) > 1 and len(json.dumps(told)) > _PROBLEMS_CHARACTERS:
        told = told[: len(told) // 2]
    repair = repair_message(invalid.problems, profile=profile)
    return {
        "valid": False,
        "problems": told,
        "problem_count": len(invalid.problems),
        "repair": "\n\n".join([repair, *([accepted_message(accepted)] if accepted else [])]),
    }


def problems_of(checked: Checked, *, there: Sequence[str] = ()) -> Iterator[Problem]:
    """Yields what a valid plan has that a run cannot take which goes on already.

    Args:
        there: ids of the nodes that stand for those of the run.
    """
    if (count := len(checked.nodes) - len(there)) > MAX_PLANNED_NODES:
        message = f"the plan has {count:,} nodes; at most {MAX_PLANNED_NODES} are taken"
        yield Problem("too_large", message, pointer("nodes"), hint="use for_each instead of many nodes")
    for index, node in enumerate(checked.nodes):
        if node.tool == EXISTING_NODE.name and node.id not in there:
            at = checked.document.written_pointer(pointer("nodes", index, "tool"))
            yield Problem("unknown_tool", f"{node.id!r} is no node of the run", at, node.id)
        if is_own(node.id):
            at = checked.document.written_pointer(pointer("nodes", index, "id"))
            taken = ", ".join(sorted(OWN_IDS))
            message = f"the id {node.id!r} is taken by the run itself, as are {taken}"
            yield Problem("reserved_id", message, at, node.id, "choose another id, in its references too")
    for name in checked.inputs:
        message = f"the plan has an input {name!r}, which nobody can be asked for before"
        hint = "write the value itself, or ask with a human node and use its result"
        yield Problem("missing_input", message, pointer("inputs", name), hint=hint)
    yield from _secrets_of(checked)


def _secrets_of(checked: Checked) -> Iterator[Problem]:
    """Yields the nodes that want a secret: whoever talks a model into a plan could have it sent anywhere."""
    for index, (node, references) in enumerate(zip(checked.nodes, checked.references, strict=True)):
        if references.has_secrets:
            at = checked.document.written_pointer(pointer("nodes", index))
            message = "a plan that a model wrote cannot name secrets"
            yield Problem("invalid_reference", message, at, node.id, "leave it out: a tool knows its own secrets")
        if index in checked.sub_plans:
            yield from _secrets_of(checked.sub_plans[index])


def _inline_agents_of(checked: Checked) -> Iterator[Problem]:
    """Yields the agents that the plan makes itself, where only those may be used that there are."""
    for problem in policy_problems(checked, CHANGES_ASK):
        yield replace(problem, hint="name an agent that is listed, or use tools")


def _notes_of(checked: Checked) -> Iterator[Note]:
    written = checked.document.plan
    for name in _IGNORED:
        if written.get(name) is not None:
            yield Note("ignored", f"{name!r} of a plan that a model wrote does not count")
    for node in checked.nodes:
        if node.approval == "never":
            yield Note("ignored", "approval: never of a plan that a model wrote does not count", node.id)
        if node.effects is not None:
            yield Note("ignored", "effects of a plan that a model wrote do not count", node.id)


def with_policy_approval(plan: CompiledPlan) -> CompiledPlan:
    """Return a plan in which no node excludes itself from approval, by `approval: never` or by effects it declares."""
    return replace(plan, nodes=tuple(_asked(node) for node in plan.nodes))


def _asked(node: CompiledNode) -> CompiledNode:
    below = None if node.sub_plan is None else with_policy_approval(node.sub_plan)
    approval = "policy" if node.approval == "never" else node.approval
    # Only an author declares a call idempotent; its arguments show whether a request only reads.
    effects = None if node.effects == Effects.IDEMPOTENT else node.effects
    return replace(node, approval=approval, effects=effects, sub_plan=below)


def _with_regions_below(plan: CompiledPlan) -> Sequence[CompiledNode]:
    """Returns the nodes of a plan; those of its sub-plans that are pure run together."""
    return tuple(
        node if node.sub_plan is None else replace(node, sub_plan=contract(node.sub_plan)) for node in plan.nodes
    )
