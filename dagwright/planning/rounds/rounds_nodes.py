"""Nodes of a run in rounds: calls of the planner, of worker tools, and of the model that answers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagwright.core.expressions.references import Placeholder, ResultOf, TemplatePart
from dagwright.core.expressions.stored_values import Projection, StoredValue
from dagwright.core.model.compiled import Binding, CompiledNode, CompiledPlan, Join, default_retry
from dagwright.core.model.policy import POLICY, model_policy
from dagwright.core.model.tools import PURPOSE_ANSWER, ROUNDS_KIND, ToolDeclaration
from dagwright.core.model.worker_results import SUB_GOAL_PREFIX
from dagwright.planning.model_calls.model_requests import (
    CALL_MODEL,
    CallLabels,
    Message,
    ModelCall,
    ModelRequest,
    OutputSchema,
    model_node,
    system,
    user,
)
from dagwright.planning.model_calls.response_summary import PARSED_ROUND_PROJECTION
from dagwright.planning.rounds.rounds_spec import ANSWER, INTENTION, PLAN, PLANNER, REPAIR, RoundsSpec, is_reserved
from dagwright.planning.rounds.sub_goals import Input, InputRef, KnownSubGoal, PlannedSubGoal, RoundContext, refs_of

if TYPE_CHECKING:
    from dagwright.core.scheduler.run_state import RunState
    from dagwright.planning.rounds.rounds_state import PlannerCall, RoundsState

INTENTION_CHARACTERS = 4_000
"""Limit for the intention in prompts."""
SLOTS_CHARACTERS = 120_000
"""Limit for all slots in the prompt of the answer, in characters."""
MAX_SLOT_CHARACTERS = 40_000
MIN_SLOT_CHARACTERS = 1_000
_INTENTION_INDEX = 2
"""Index of the message with the intention, in the calls of the planner and of the answer."""
_WORKER_FIELDS = ("status", "outputs", "error", "message")
"""Fields of a WorkerResult that the run reads."""

Output = tuple[Any, Sequence[Binding]]
"""Output of a run: JSON with null at each place that is filled in at the end, and the references for these places."""
UNANSWERED_OUTPUT: Output = (None, (((), (Placeholder(ANSWER),)),))
"""Output of a run without an answer. The output refers to an input that no client sets, so the output is null."""


def rounds_plan(spec: RoundsSpec, messages: Sequence[Message], *, title: str) -> CompiledPlan:
    """Create the initial plan of a run for a question: the intention node, and the first call of the planner.

    Args:
        messages: prompt of the intention node.
        title: title of the run.
    """
    call = ModelCall(tuple(messages), config=spec.config, labels=CallLabels(purpose=INTENTION))
    intention = model_node(INTENTION, ModelRequest(call), title="clarifying the question")
    text = f"This is round 1 of {spec.max_rounds}.\nNo sub-goal exists yet."
    planner = planner_node(spec, PLAN, text, round_number=1, known_sub_goals=(), dependencies=(0,))
    return CompiledPlan(
        nodes=(intention, planner),
        tools={CALL_MODEL.name: CALL_MODEL},
        title=title,
        output=UNANSWERED_OUTPUT[0],
        output_bindings=UNANSWERED_OUTPUT[1],
        extender=spec.to_json() | {POLICY: model_policy(spec.question).to_json()},
    )


def planner_node(
    spec: RoundsSpec,
    node_id: str,
    text: str,
    *,
    round_number: int,
    known_sub_goals: Sequence[KnownSubGoal],
    dependencies: Sequence[int],
) -> CompiledNode:
    """Create the call in which the planner plans a round.

    Args:
        text: state of the run, as text.
        round_number: number of the round.
        known_sub_goals: sub-goals against which the answer of the planner is checked.
        dependencies: numbers of the nodes that must end first.
    """
    head = f"{spec.registry}\n\nQuestion:\n{spec.question}"
    messages = [system(spec.planner_prompt), user(head), user(""), user(text)]
    bindings: list[Binding] = [(("messages", _INTENTION_INDEX, "content"), _intention_parts())]
    request = _planner_request(spec, messages, purpose=PLANNER, known_sub_goals=known_sub_goals)
    request = replace(request, cuts={_INTENTION_INDEX: INTENTION_CHARACTERS})
    title = f"round {round_number}: planning"
    return _planner_call(node_id, request, title=title, dependencies=dependencies, bindings=bindings)


def repair_node(
    spec: RoundsSpec, node_id: str, call: "PlannerCall", *, text: str, known_sub_goals: Sequence[KnownSubGoal]
) -> CompiledNode:
    """Create the call in which the planner repairs an invalid answer.

    Args:
        call: the call with the invalid answer.
        known_sub_goals: sub-goals against which the next answer of the planner is checked.
    """
    # The store holds the conversation so far, so the call does not repeat it.
    request = replace(
        _planner_request(spec, [user(text)], purpose=REPAIR, known_sub_goals=known_sub_goals), previous_conversation=""
    )
    bindings: list[Binding] = [(("previous_conversation",), (ResultOf(call.node.id, "result", ("conversation",)),))]
    title = f"round {call.round}: repairing the plan"
    return _planner_call(node_id, request, title=title, dependencies=(call.number,), bindings=bindings)


def _planner_request(
    spec: RoundsSpec, messages: Sequence[Message], *, purpose: str, known_sub_goals: Sequence[KnownSubGoal]
) -> ModelRequest:
    call = ModelCall(
        tuple(messages),
        config=spec.config,
        # Not enforced: the parser also accepts common deviations from the schema.
        output=OutputSchema(ROUNDS_KIND, spec.schema, is_enforced=False),
        labels=CallLabels(purpose=purpose),
    )
    return ModelRequest(
        call, stores_conversation=True, round_context=RoundContext(spec.workers, tuple(known_sub_goals))
    )


def _planner_call(
    node_id: str, request: ModelRequest, *, title: str, dependencies: Sequence[int], bindings: Sequence[Binding]
) -> CompiledNode:
    node = model_node(node_id, request, title=title, dependencies=dependencies, bindings=bindings)
    # The state message reports the dependencies as text, so any final status of a dependency is sufficient.
    join: Join = ("all_done", 0) if request.previous_conversation is None and node_id != PLAN else ("all", 0)
    return replace(node, projections=(*node.projections, PARSED_ROUND_PROJECTION), join=join)


def _intention_parts() -> tuple[TemplatePart, ...]:
    return "Meaning:\n", ResultOf(INTENTION, "result", ("message", "content"))


def worker_node(
    sub_goal: PlannedSubGoal,
    tool: ToolDeclaration,
    *,
    node_id: str,
    dependencies: Sequence[int],
    timeout_s: float,
    supersedes: str | None = None,
) -> CompiledNode:
    """Create the node of a sub-goal: a call of its worker tool, which starts as soon as its input slots are available.

    Args:
        timeout_s: seconds per call, if the worker tool declares no timeout.
        dependencies: numbers of the nodes that provide the slots, and of the planner call that requested the sub-goal.
        supersedes: id of the node that this node replaces.
    """
    arguments: dict[str, Any] = dict(sub_goal.params)
    bindings: list[Binding] = []
    for name, value in sub_goal.inputs.items():
        arguments[name] = None if isinstance(value, InputRef) else [None] * len(value)
        bindings += _bindings_of(name, value)
    slots: list[Projection] = [(("outputs", slot), "value") for slot in sub_goal.outputs]
    return CompiledNode(
        id=node_id,
        title=sub_goal.description or None,
        tool=tool.name,
        arguments=arguments,
        bindings=tuple(bindings),
        dependencies=tuple(dependencies),
        retry=default_retry(tool.effects, tool.max_attempts),
        timeout_s=tool.timeout_s or timeout_s,
        is_worker=True,
        projections=(*slots, *(((name,), "value") for name in _WORKER_FIELDS)),
        supersedes=supersedes,
    )


def _bindings_of(name: str, value: Input) -> list[Binding]:
    if isinstance(value, InputRef):
        return [((name,), (_slot_reference(value),))]
    return [((name, index), (_slot_reference(ref),)) for index, ref in enumerate(value)]


def _slot_reference(ref: InputRef) -> ResultOf:
    return ResultOf(f"{SUB_GOAL_PREFIX}{ref.from_sub_goal}", "result", (ref.slot,))


def answer_node(
    spec: RoundsSpec, inputs: Mapping[str, Input], caveats: str, *, dependencies: Sequence[int]
) -> CompiledNode:
    """Create the call in which a model answers the question from slots. Long slots are cut to fit into the prompt.

    Args:
        inputs: name -> slots that have this name in the prompt.
        caveats: missing information, for the model; empty if nothing is missing.
        dependencies: numbers of the nodes that must end first.
    """
    named_refs = [(name, ref) for name, value in inputs.items() for ref in refs_of(value)]
    limit = max(MIN_SLOT_CHARACTERS, min(MAX_SLOT_CHARACTERS, SLOTS_CHARACTERS // max(1, len(named_refs))))
    messages = [system(spec.answer_prompt), user(f"Question:\n{spec.question}"), user("")]
    bindings: list[Binding] = [(("messages", _INTENTION_INDEX, "content"), _intention_parts())]
    cuts = {_INTENTION_INDEX: INTENTION_CHARACTERS}
    for name, ref in named_refs:
        index = len(messages)
        messages.append(user(""))
        bindings.append(
            (("messages", index, "content"), (f"{name} (from sub-goal {ref.from_sub_goal}):\n", _slot_reference(ref)))
        )
        cuts[index] = limit
    if caveats:
        messages.append(user(caveats))
    call = ModelCall(tuple(messages), config=spec.config, labels=CallLabels(purpose=PURPOSE_ANSWER))
    node = model_node(
        ANSWER,
        ModelRequest(call, cuts=cuts, streamed_field=""),
        title="answering the question",
        dependencies=dependencies,
        bindings=bindings,
    )
    return replace(node, join=("all_done", 0))


def output_of_answer() -> Output:
    """Return the output of a run whose answer a model writes."""
    return None, (((), (ResultOf(ANSWER, "result", ("message", "content")),)),)


def assembled_output(inputs: Mapping[str, Input], rounds_state: "RoundsState", missing_lines: Sequence[str]) -> Output:
    """Return the output of a run whose answer is assembled: the slots in order, followed by missing information.

    A single slot is the output itself. With several slots, texts stay as they are, and each other value is preceded by
    its name.

    Args:
        missing_lines: lines of Markdown about missing results.
    """
    named_refs = [(name, ref) for name, value in inputs.items() for ref in refs_of(value)]
    if len(named_refs) == 1 and not missing_lines:
        return None, (((), (_slot_reference(named_refs[0][1]),)),)
    parts: list[TemplatePart] = []
    for name, ref in named_refs:
        if parts:
            parts.append("\n\n")
        parts += _slot_parts(name, ref, rounds_state)
    if missing_lines:
        parts.append("\n\nIncomplete:\n" + "\n".join(f"- {line}" for line in missing_lines))
    return None, (((), _join_texts(parts)),)


def _slot_parts(name: str, ref: InputRef, rounds_state: "RoundsState") -> Sequence[TemplatePart]:
    source = rounds_state.sub_goals.get(ref.from_sub_goal)
    value = source.value_of(ref.slot) if source is not None else None
    shape = value.shape.type if isinstance(value, StoredValue) and value.shape is not None else None
    if isinstance(value, str) or shape == "text":
        return (_slot_reference(ref),)
    if isinstance(value, bool | int | float):
        return f"{name}: ", _slot_reference(ref)
    return f"{name}:\n\n```json\n", _slot_reference(ref), "\n```"


def _join_texts(parts: Sequence[TemplatePart]) -> tuple[TemplatePart, ...]:
    """Join neighbouring texts in the parts of a template, as the template parser does."""
    joined_parts: list[TemplatePart] = []
    for part in parts:
        if isinstance(part, str) and joined_parts and isinstance(joined_parts[-1], str):
            joined_parts[-1] += part
        else:
            joined_parts.append(part)
    return tuple(joined_parts)


def has_started_answer(state: "RunState") -> bool:
    """Return whether the answer of a run was assembled, or the node that writes the answer was added."""
    return state.number_of(ANSWER) is not None or tuple(state.plan.output_bindings) != tuple(UNANSWERED_OUTPUT[1])


def output_without_answer(inputs: Mapping[str, Input]) -> Output:
    """Return the output of a run whose answer could not be written: the slots that the answer would have used."""
    parts: list[TemplatePart] = []
    for value in inputs.values():
        for ref in refs_of(value):
            parts += ["\n\n" if parts else "", _slot_reference(ref)]
    return None, (((), tuple(parts)),)


def without_later_rounds(plan: CompiledPlan, rerun_ids: Collection[str]) -> CompiledPlan:
    """Return the plan without the planner calls after the nodes to rerun, and without the nodes after those calls.

    Args:
        plan: plan of a run with all its extensions; a plan without rounds is returned unchanged.
        rerun_ids: ids of the nodes that a fork runs again.
    """
    if not plan.has_rounds:
        return plan
    reserved_names = [node.id.partition("#")[0] if is_reserved(node.id) else None for node in plan.nodes]
    rerun_numbers = [
        number for number, node in enumerate(plan.nodes) if node.id in rerun_ids and reserved_names[number] is not None
    ]
    if not rerun_numbers:
        return plan
    call_numbers = [number for number, name in enumerate(reserved_names) if name == PLAN]
    # A planner call to rerun is kept. If the intention is rerun, the first planner call is kept.
    first_number = 1 if reserved_names[rerun_numbers[0]] == INTENTION else rerun_numbers[0]
    node_count = (
        first_number + 1
        if reserved_names[first_number] == PLAN
        else next((number for number in call_numbers if number > first_number), len(plan.nodes))
    )
    output, bindings = UNANSWERED_OUTPUT
    return replace(plan, nodes=plan.nodes[:node_count], output=output, output_bindings=bindings)
