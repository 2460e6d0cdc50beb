"""Checks of a set of worker tools, of the nodes that call them, and of the slots that a call requires.

A worker tool is a tool with a card, which declares the slots that the tool requires and outputs. A slot is a named
output of a worker tool; a worker tool that requires the slot receives it in the argument of the same name.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dagwright.core.error_codes import FailureCode
from dagwright.core.expressions.references import ResultOf, UnresolvedReference
from dagwright.core.expressions.stored_values import BindingPath
from dagwright.core.model.compiled import Binding, CompiledNode
from dagwright.core.model.plan import Node
from dagwright.core.model.states import Task
from dagwright.core.model.tools import SUB_GOAL, ToolDeclaration, WorkerCard, parameter_name
from dagwright.core.model.worker_results import sub_goal_id_of
from dagwright.core.name_hints import suggestion

PRECONDITION_MISSING = "precondition_missing"
"""Code of the problem if no argument fills a slot that a worker tool requires."""


@dataclass(frozen=True, slots=True)
class WorkerTool:
    """A worker tool with its card."""

    tool: ToolDeclaration
    card: WorkerCard


class WorkerToolsRejected(ValueError):
    """A set of worker tools that no planner could use; the message lists all problems."""


class PreconditionMissing(UnresolvedReference):
    """A slot that a worker tool requires is missing."""

    code = FailureCode.PRECONDITION_MISSING.value


def worker_tools_among(tools: Mapping[str, ToolDeclaration]) -> dict[str, WorkerTool]:
    """Return name -> worker tool, in the order of the tools."""
    return {name: WorkerTool(tool, tool.worker) for name, tool in tools.items() if tool.worker is not None}


def check_worker_tools(worker_tools: Mapping[str, WorkerTool]) -> None:
    """Check a set of worker tools as a whole; an empty set is valid.

    Raises:
        WorkerToolsRejected: the set has problems.
    """
    problems = [*_set_problems({name: worker_tool.card for name, worker_tool in worker_tools.items()})]
    if problems:
        raise WorkerToolsRejected("; ".join(problems))


def _set_problems(cards: Mapping[str, WorkerCard]) -> Iterator[str]:
    names_by_normal_name: dict[str, str] = {}
    owners: dict[str, str] = {}
    for name, card in cards.items():
        first_name = names_by_normal_name.setdefault(name.casefold().replace("-", "_"), name)
        if first_name != name:
            yield f"the worker tools {first_name!r} and {name!r} have the same name except for case and '-' or '_'"
        for slot in card.outputs:
            owner = owners.setdefault(slot, name)
            if owner != name:
                message = f"the worker tools {owner!r} and {name!r} both output {slot!r}"
                yield f"{message}; only one worker tool may output a slot"
    slots_with_substitute = {slot for card in cards.values() for slot in card.same_as.values()}
    for name, card in cards.items():
        for slot in card.requires:
            if slot not in owners and slot not in slots_with_substitute:
                hint = suggestion(slot, list(owners))
                message = f"the worker tool {name!r} requires {slot!r}, which no worker tool outputs"
                yield message + (f"; {hint}" if hint else "")
    if cards and not any(card.goal_type == "deliverable" for card in cards.values()):
        names_text = ", ".join(map(repr, cards))
        yield f"none of the worker tools makes a deliverable ({names_text}), so no question could be answered"


# Checks of a plan before it runs.

WorkerCallProblem = tuple[str, Sequence[str | int], str, str | None]
"""Code, path in the node, message and hint."""


def problems_of_worker_call(
    node: Node,
    worker_tool: WorkerTool,
    bindings: Sequence[Binding],
    *,
    producers: Mapping[str, ToolDeclaration],
    is_sub_goal: bool,
) -> Iterator[WorkerCallProblem]:
    """Yield the problems of a node that calls a worker tool, except for the schema of its arguments.

    Args:
        bindings: bindings in the arguments.
        producers: node id -> tool that produces the node's result.
        is_sub_goal: whether the node was written as a sub-goal, which declares the outputs of its worker tool.
    """
    card, tool_name = worker_tool.card, worker_tool.tool.name
    properties = (worker_tool.tool.input_schema or {}).get("properties", {})
    keys = {parameter_name(key, properties): key for key in node.arguments}
    for slot in null_or_omitted_slots(card, node.arguments):
        key = keys.get(slot)
        hint = _producer_hint(slot, producers)
        message = f"{tool_name!r} requires the slot {slot!r}, but the arguments do not have it"
        yield PRECONDITION_MISSING, ("arguments", key) if key is not None else (), message, hint
    yield from _unknown_slots(bindings, producers)
    yield from _wrong_slots(bindings, worker_tool, producers)
    if is_sub_goal:
        yield from _card_mismatches(node, tool_name, card)


def _unknown_slots(
    bindings: Sequence[Binding], producers: Mapping[str, ToolDeclaration]
) -> Iterator[WorkerCallProblem]:
    """Yield a problem for each reference to a slot that the referenced worker tool does not output."""
    for path, template in bindings:
        for part in template:
            if not isinstance(part, ResultOf) or part.field != "result" or not part.path or isinstance(part.path, str):
                continue
            producer = producers.get(part.node_id)
            slot = part.path[0]
            if producer is not None and producer.worker is not None and slot not in producer.worker.outputs:
                message = (
                    f"Invalid reference: {part}: {producer.name!r} does not output {slot!r}; it outputs "
                    f"{', '.join(producer.worker.outputs)}"
                )
                hint = suggestion(str(slot), producer.worker.outputs)
                yield "invalid_reference", ("arguments", *path), message, hint


def _wrong_slots(
    bindings: Sequence[Binding], worker_tool: WorkerTool, producers: Mapping[str, ToolDeclaration]
) -> Iterator[WorkerCallProblem]:
    """Yield a problem for each reference to a slot other than the required slot."""
    properties = (worker_tool.tool.input_schema or {}).get("properties", {})
    for path, template in bindings:
        part = template[0] if len(template) == 1 and len(path) <= 2 else None
        if not isinstance(part, ResultOf) or part.field != "result" or isinstance(part.path, str):
            continue
        if len(part.path) != 1:
            continue
        producer, name = producers.get(part.node_id), parameter_name(str(path[0]), properties)
        if producer is not None and producer.worker is not None and part.path[0] in producer.worker.outputs:
            message = wrong_slot_message(worker_tool, name, producer.worker, str(part.path[0]))
            if message is not None:
                yield "invalid_reference", ("arguments", *path), message, _producer_hint(name, producers)


def _producer_hint(slot: str, producers: Mapping[str, ToolDeclaration]) -> str:
    node_ids = [node_id for node_id, tool in producers.items() if tool.worker and slot in tool.worker.outputs]
    return f"{node_ids[0]!r} outputs it" if node_ids else f"no node outputs {slot!r}"


def wrong_slot_message(worker_tool: WorkerTool, name: str, producer: WorkerCard, slot: str) -> str | None:
    """Return why a slot cannot fill an argument; `None` if it can, or if the argument is not a required slot.

    Args:
        name: name of the argument.
        producer: card of the worker tool that outputs the slot.
    """
    if name not in worker_tool.card.requires or producer.fills(slot, name):
        return None
    return f"{worker_tool.tool.name!r} requires {name!r}, but the reference is to the slot {slot!r}"


def _card_mismatches(node: Node, tool_name: str, card: WorkerCard) -> Iterator[WorkerCallProblem]:
    """Yield the differences between the declarations of a sub-goal and the card of its worker tool."""
    outputs, goal_type = node.metadata.get("outputs", []), node.metadata.get("goal_type")
    unknown_slots = [slot for slot in outputs if slot not in card.outputs]
    if unknown_slots:
        message = (
            f"{tool_name!r} does not output {', '.join(map(repr, unknown_slots))}; it outputs {', '.join(card.outputs)}"
        )
        yield "invalid_field", ("metadata", "outputs"), message, suggestion(str(unknown_slots[0]), card.outputs)
    if goal_type is not None and goal_type != card.goal_type:
        message = f"the goal_type of {tool_name!r} is {card.goal_type!r}, not {goal_type!r:.50}"
        yield "invalid_field", ("metadata", "goal_type"), message, None


# Checks during a run.


def null_or_omitted_slots(card: WorkerCard, arguments: Mapping[str, Any]) -> list[str]:
    """Return the required slots of a worker tool that are missing or null in the arguments.

    Args:
        arguments: arguments of a call in any form: literals, references or resolved values.
    """
    keys = [key for key, value in arguments.items() if value is not None]
    return [slot for slot in card.requires if not any(_is_argument_of((key,), slot) for key in keys)]


def slots_rejection(task_id: str, result: Any, tool: ToolDeclaration) -> str | None:
    """Return why a result that a person has set is rejected; `None` if the result is accepted.

    The result of a worker tool must have exactly the slots of the tool.

    Args:
        tool: tool of the node; a tool that is not a worker tool may have any result.
    """
    if tool.worker is None:
        return None
    slots = ", ".join(tool.worker.outputs)
    if not isinstance(result, Mapping):
        return f"the result of {task_id!r} must be an object with the output slots of {tool.name!r}: {slots}"
    problem = tool.worker.slots_problem([*result], is_partial=False)
    return problem and f"the result of {task_id!r} must have exactly these slots (some may be null): {slots}; {problem}"


def missing_slots(
    card: WorkerCard, arguments: Mapping[str, Any], bindings: Sequence[Binding] = ()
) -> list[tuple[str, str | None]]:
    """Return the missing required slots of a call, each with the reference that resolved to null, if any.

    A slot is missing if its argument is omitted or null, or if a reference in the argument resolved to null.

    Args:
        arguments: resolved arguments of the call.
        bindings: bindings of the arguments.
    """
    slots_and_references: list[tuple[str, str | None]] = []
    unset_slots = null_or_omitted_slots(card, arguments)
    for slot in card.requires:
        slot_bindings = [binding for binding in bindings if _is_argument_of(binding[0], slot)]
        null_template = next((template for path, template in slot_bindings if _value_at(arguments, path) is None), None)
        if null_template is not None:
            slots_and_references.append((slot, "".join(map(str, null_template))))
        elif slot in unset_slots:
            slots_and_references.append((slot, None))
    return slots_and_references


def prepare_call(task: Task, tools: Mapping[str, ToolDeclaration]) -> Task:
    """Check the required slots of a task that calls a worker tool, and add the sub-goal to the arguments of the task.

    Tasks of other tools are returned unchanged.

    Raises:
        PreconditionMissing: a slot that the worker tool requires is missing.
    """
    tool = tools.get(task.node.tool)
    if tool is None or tool.worker is None or task.map_batch is not None:
        return task
    card = tool.worker
    if slots_and_references := missing_slots(card, task.arguments, task.node.bindings):
        slots = ", ".join(f"{slot!r}" + (f" ({text} is null)" if text else "") for slot, text in slots_and_references)
        raise PreconditionMissing(f"{tool.name!r} was not called: it requires {slots}")
    if not card.takes_sub_goal:
        return task
    return replace(task, arguments={**task.arguments, SUB_GOAL: _sub_goal_argument(task.node, tool.name, card)})


def _sub_goal_argument(node: CompiledNode, tool_name: str, card: WorkerCard) -> dict[str, Any]:
    return {
        "id": sub_goal_id_of(node.id),
        "worker": tool_name,
        "description": node.title or "",
        "inputs": _inputs_from_sub_goals(node.bindings),
        "outputs": list(card.outputs),
        "goal_type": card.goal_type,
    }


def _inputs_from_sub_goals(bindings: Sequence[Binding]) -> dict[str, Any]:
    """Return the arguments that reference slots of other sub-goals: argument -> `{"from_sub_goal", "slot"}`.

    Several references in one argument become a list.
    """
    inputs: dict[str, Any] = {}
    for path, template in bindings:
        part = template[0] if len(template) == 1 else None
        if not isinstance(part, ResultOf) or part.field != "result" or isinstance(part.path, str):
            continue
        if len(part.path) != 1 or len(path) > 2:
            continue
        ref = {"from_sub_goal": sub_goal_id_of(part.node_id), "slot": part.path[0]}
        name = str(path[0])
        inputs[name] = ref if len(path) == 1 else [*inputs.get(name, ()), ref]
    return inputs


def _is_argument_of(path: BindingPath, slot: str) -> bool:
    """Return whether a path in the arguments belongs to a slot, which may be written with `-` for `_`."""
    return bool(path) and (path[0] == slot or str(path[0]).replace("-", "_") == slot)


def _value_at(value: Any, path: BindingPath) -> Any:
    """Return the value at a path. If a value on the path lacks the next step (a value reference), return that value."""
    for step in path:
        is_key = isinstance(value, Mapping) and step in value
        is_index = isinstance(value, list) and isinstance(step, int) and step < len(value)
        if not (is_key or is_index):
            break
        value = value[step]
    return value
