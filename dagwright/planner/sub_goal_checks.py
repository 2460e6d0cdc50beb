"""Validate the sub-goals of one answer of the planner.

Known sub-goals are the sub-goals of earlier answers. A slot is a named output of a worker tool. An input of a sub-goal
refers to slots of sub-goals.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from dagwright.core.errors import Problem, pointer
from dagwright.core.model.argument_checks import SchemaOfTool
from dagwright.core.model.compiled import Binding
from dagwright.core.model.graph import levels_of
from dagwright.core.model.tools import WorkerCard
from dagwright.core.name_hints import suggestion
from dagwright.core.validation.worker_tools import (
    PRECONDITION_MISSING,
    WorkerTool,
    null_or_omitted_slots,
    wrong_slot_message,
)
from dagwright.planner.rounds_schema import MAX_SUB_GOALS_OF_RUN, MAX_SYNTHESIS_INPUTS
from dagwright.planner.sub_goal_fields import FieldParser
from dagwright.planning.rounds.rounds_spec import MAX_ATTEMPTS
from dagwright.planning.rounds.sub_goals import (
    DONE_STATUSES,
    Input,
    InputRef,
    KnownSubGoal,
    PlannedSubGoal,
    RoundContext,
    refs_of,
    work_digest,
)

REPEATED_WORK = "repeated"
"""Code of the problem that a planner repeats completed work."""
_MAX_ARGUMENT_PROBLEMS = 5


class RoundChecks:
    """Checks of one answer of a planner.

    Args:
        worker_tools: worker tools that the answer may use.
    """

    def __init__(self, round_context: RoundContext, worker_tools: Mapping[str, WorkerTool]) -> None:
        self.worker_tools = worker_tools
        self._known_sub_goals = {sub_goal.id: sub_goal for sub_goal in round_context.known}
        self._invalid_ids: Collection[int] = ()

    # Action `done`.

    def parse_synthesis_inputs(self, answer_part: Any) -> tuple[list[Problem], Mapping[str, Input]]:
        """Parse the inputs of the final answer; return their problems and the inputs."""
        parser = FieldParser()
        field_name = "synthesis_inputs"
        inputs = parser.parse_inputs(answer_part if answer_part is not None else {}, field_name)
        problems = parser.problems
        if not inputs and not problems:
            hint = "name slots of deliverables, start a deliverable, or answer with action 'failed' and the reason"
            problems.append(Problem("empty_plan", "'done' needs the slots for the answer", f"/{field_name}", hint=hint))
        if sum(len(refs_of(value)) for value in inputs.values()) > MAX_SYNTHESIS_INPUTS:
            problems.append(
                Problem("too_large", f"an answer may use at most {MAX_SYNTHESIS_INPUTS} slots", f"/{field_name}")
            )
        for name, ref, path in _each_ref(inputs):
            source = self._known_sub_goals.get(ref.from_sub_goal)
            location = pointer(field_name, name, *path)
            if (problem := self._problem_of_ref(ref, source, location)) is not None:
                problems.append(problem)
            elif source is not None and ref.slot not in source.slots:
                reason = (
                    f"it is {source.status}"
                    if source.status not in DONE_STATUSES
                    else f"its slots are {_name_list(source.slots)}"
                )
                message = f"sub-goal {ref.from_sub_goal} has no value in slot {ref.slot!r}: {reason}"
                problems.append(Problem("invalid_reference", message, location))
        has_deliverable = any(self._is_deliverable(ref) for _, ref, _ in _each_ref(inputs))
        if not problems and not has_deliverable:
            hint = "start a worker with goal_type deliverable, or answer with action 'failed' and the reason"
            problems.append(
                Problem("no_deliverable", "none of these slots belongs to a deliverable", f"/{field_name}", hint=hint)
            )
        return problems, inputs

    def _is_deliverable(self, ref: InputRef) -> bool:
        source = self._known_sub_goals.get(ref.from_sub_goal)
        worker = self.worker_tools.get(source.worker) if source is not None else None
        return worker is not None and worker.card.goal_type == "deliverable"

    def _problem_of_ref(
        self, ref: InputRef, source: KnownSubGoal | PlannedSubGoal | None, location: str
    ) -> Problem | None:
        """Return the problem of a reference, regardless of the status of its sub-goal."""
        if source is None:
            hint = f"there are {_name_list(sorted(self._known_sub_goals))}" if self._known_sub_goals else None
            message = f"there is no sub-goal {ref.from_sub_goal}"
            return Problem("invalid_reference", message, f"{location}/from_sub_goal", hint=hint)
        outputs = self._outputs(source)
        if ref.slot in outputs:
            return None
        slot_names = _name_list(outputs)
        message = f"{source.worker!r} of sub-goal {source.id} has no slot {ref.slot!r}; its slots are {slot_names}"
        return Problem("invalid_reference", message, f"{location}/slot", hint=suggestion(ref.slot, list(outputs)))

    # Action `continue`.

    def new_sub_goals(self, sub_goals: Sequence[PlannedSubGoal]) -> Sequence[PlannedSubGoal]:
        """Return the sub-goals that an answer adds or changes, without the pending sub-goals that it repeats."""
        return tuple(sub_goal for sub_goal in sub_goals if not self._repeats_pending_sub_goal(sub_goal))

    def _repeats_pending_sub_goal(self, sub_goal: PlannedSubGoal) -> bool:
        earlier_goal = self._known_sub_goals.get(sub_goal.id)
        return (
            earlier_goal is not None
            and earlier_goal.status == "pending"
            and earlier_goal.work == self._work_digest(sub_goal)
        )

    def problems_of(
        self, sub_goals: Sequence[PlannedSubGoal | None], invalid_goals: Mapping[int, tuple[int, Mapping[str, Input]]]
    ) -> Iterator[Problem]:
        """Yield the problems of the sub-goals of an answer.

        Args:
            sub_goals: sub-goals in their order, `None` for each with an invalid field.
            invalid_goals: sub-goals with an invalid field, as in `FieldParser.invalid_goals`; references to these
                sub-goals are not checked.
        """
        ids: set[int] = set()
        self._invalid_ids = invalid_goals.keys()
        new_goals = {
            sub_goal.id: sub_goal
            for sub_goal in self.new_sub_goals([sub_goal for sub_goal in sub_goals if sub_goal is not None])
        }
        problems: list[Problem] = []
        for index, sub_goal in enumerate(sub_goals):
            if sub_goal is None:
                continue
            at = ("sub_goals", index)
            if sub_goal.id in ids:
                message = f"two sub-goals have the id {sub_goal.id}"
                problems.append(Problem("duplicate_id", message, pointer(*at, "id"), sub_goal.node_id))
            ids.add(sub_goal.id)
            if sub_goal.id in new_goals:
                problems += self._problems_of_new_goal(sub_goal, at, new_goals)
        for index, inputs in invalid_goals.values():
            problems += self._problems_of_invalid_goal(index, inputs, new_goals)
        if not problems and not invalid_goals:
            problems += self._problems_of_graph(new_goals)
        yield from problems

    def _problems_of_invalid_goal(
        self, index: int, inputs: Mapping[str, Input], new_goals: Mapping[int, PlannedSubGoal]
    ) -> Iterator[Problem]:
        """Yield the invalid references of a sub-goal that has an invalid field."""
        for name, ref, position in _each_ref(inputs):
            if ref.from_sub_goal in self._invalid_ids:
                continue
            source = new_goals.get(ref.from_sub_goal) or self._known_sub_goals.get(ref.from_sub_goal)
            location = pointer("sub_goals", index, "inputs", name, *position)
            if (problem := self._problem_of_ref(ref, source, location)) is not None:
                yield problem

    def _problems_of_new_goal(
        self, sub_goal: PlannedSubGoal, at: tuple[str | int, ...], new_goals: Mapping[int, PlannedSubGoal]
    ) -> Iterator[Problem]:
        earlier_goal = self._known_sub_goals.get(sub_goal.id)
        if earlier_goal is not None and earlier_goal.status not in ("failed", "pending"):
            message = f"sub-goal {sub_goal.id} already exists: it is {earlier_goal.status}"
            hint = "use its slots, or give new work an unused id"
            yield Problem("duplicate_id", message, pointer(*at, "id"), sub_goal.node_id, hint)
        elif (message_and_hint := self._repetition_message(sub_goal)) is not None:
            yield Problem(REPEATED_WORK, message_and_hint[0], pointer(*at), sub_goal.node_id, message_and_hint[1])
        yield from self._problems_of_inputs(sub_goal, at, new_goals)
        yield from self._problems_of_arguments(sub_goal, at)

    def _repetition_message(self, sub_goal: PlannedSubGoal) -> tuple[str, str] | None:
        """Return the message and the hint for work that was done before."""
        work = self._work_digest(sub_goal)
        for earlier_goal in self._known_sub_goals.values():
            if earlier_goal.status not in (*DONE_STATUSES, "failed") or earlier_goal.work != work:
                continue
            if earlier_goal.id != sub_goal.id:
                hint = (
                    "use its slots"
                    if earlier_goal.status in DONE_STATUSES
                    else f"give it the id {earlier_goal.id} to retry it"
                )
                hint = f"{hint}, request different work, or answer with action 'done' or 'failed'"
                return (
                    f"the same work was done in sub-goal {earlier_goal.id}, whose status is {earlier_goal.status}",
                    hint,
                )
            if earlier_goal.attempts >= MAX_ATTEMPTS:
                message = f"sub-goal {sub_goal.id} failed in {earlier_goal.attempts} attempts with the same inputs"
                return message, "find another way, or answer with action 'done' or 'failed'"
        return None

    def _work_digest(self, sub_goal: PlannedSubGoal) -> str:
        return work_digest(sub_goal, self.worker_tools.get(sub_goal.worker))

    def _outputs(self, sub_goal: PlannedSubGoal | KnownSubGoal) -> Sequence[str]:
        worker = self.worker_tools.get(sub_goal.worker)
        return worker.card.outputs if worker is not None else ()

    def _problems_of_inputs(
        self, sub_goal: PlannedSubGoal, at: tuple[str | int, ...], new_goals: Mapping[int, PlannedSubGoal]
    ) -> Iterator[Problem]:
        card = self.worker_tools[sub_goal.worker].card
        yield from _problems_of_slots(sub_goal, card, at)
        for name, ref, path in _each_ref(sub_goal.inputs):
            if ref.from_sub_goal in self._invalid_ids:
                continue
            location = pointer(*at, "inputs", name, *path)
            earlier_goal = self._known_sub_goals.get(ref.from_sub_goal)
            source = new_goals.get(ref.from_sub_goal) or earlier_goal
            if (problem := self._problem_of_ref(ref, source, location)) is not None:
                yield problem
            elif (
                source is not None
                and (message_and_hint := self._wrong_slot_message(sub_goal, name, ref, source)) is not None
            ):
                yield Problem(
                    "invalid_reference", message_and_hint[0], f"{location}/slot", sub_goal.node_id, message_and_hint[1]
                )
            elif isinstance(source, KnownSubGoal) and source.status == "failed":
                message = f"sub-goal {ref.from_sub_goal} has failed, so {name!r} will never have a value"
                hint = f"retry sub-goal {ref.from_sub_goal} in this answer, or connect another slot"
                yield Problem(PRECONDITION_MISSING, message, location, sub_goal.node_id, hint)
            elif name in card.requires and isinstance(source, KnownSubGoal) and not _may_have_value(ref, source):
                message = f"{ref.slot!r} of sub-goal {ref.from_sub_goal} is null, and {sub_goal.worker!r} requires it"
                yield Problem(PRECONDITION_MISSING, message, location, sub_goal.node_id)

    def _wrong_slot_message(
        self, sub_goal: PlannedSubGoal, name: str, ref: InputRef, source: PlannedSubGoal | KnownSubGoal
    ) -> tuple[str, str] | None:
        """Return the message and the hint if an input references a slot that cannot fill the input."""
        producer = self.worker_tools.get(source.worker)
        message = producer and wrong_slot_message(self.worker_tools[sub_goal.worker], name, producer.card, ref.slot)
        if not message:
            return None
        slots = [
            f"{slot!r} of {worker.tool.name!r}"
            for worker in self.worker_tools.values()
            for slot in worker.card.outputs
            if worker.card.fills(slot, name)
        ]
        return message, f"connect {' or '.join(slots)}"

    def _problems_of_arguments(self, sub_goal: PlannedSubGoal, at: tuple[str | int, ...]) -> Iterator[Problem]:
        schema = self.worker_tools[sub_goal.worker].tool.input_schema
        if schema is None:
            return
        arguments: dict[str, Any] = dict(sub_goal.params)
        bindings: list[Binding] = []
        for name, value in sub_goal.inputs.items():
            arguments[name] = None if isinstance(value, InputRef) else [None] * len(value)
            paths = [(name,)] if isinstance(value, InputRef) else [(name, index) for index in range(len(value))]
            bindings += [(path, ()) for path in paths]
        try:
            argument_problems = [*SchemaOfTool(schema).problems_of(arguments, bindings)]
        except ValueError:
            # The schema of the worker tool is invalid; the worker tool validates the call itself.
            return
        for path, message, hint in argument_problems[:_MAX_ARGUMENT_PROBLEMS]:
            group = "inputs" if path and path[0] in sub_goal.inputs else "params"
            yield Problem("invalid_arguments", message, pointer(*at, group, *path), sub_goal.node_id, hint)

    def _problems_of_graph(self, new_goals: Mapping[int, PlannedSubGoal]) -> Iterator[Problem]:
        """Yield the problems of sub-goals that are valid individually: too many, a cycle, or none that can start."""
        if len(self._known_sub_goals.keys() | new_goals.keys()) > MAX_SUB_GOALS_OF_RUN:
            message = f"the question would have more than {MAX_SUB_GOALS_OF_RUN} sub-goals"
            yield Problem(
                "too_large",
                message,
                "/sub_goals",
                hint="answer with action 'done' and the existing slots, or with action 'failed'",
            )
            return
        sub_goals: dict[int, PlannedSubGoal | KnownSubGoal] = {**self._known_sub_goals, **new_goals}
        indices = {number: index for index, number in enumerate(sub_goals)}
        dependencies = [
            [indices[source] for source in sub_goal.sources if source in indices] for sub_goal in sub_goals.values()
        ]
        if any(index in sources for index, sources in enumerate(dependencies)) or levels_of(dependencies) is None:
            yield Problem(
                "cycle", "sub-goals form a dependency cycle", "/sub_goals", hint="remove a reference of the cycle"
            )
            return
        can_start_by_id: dict[int, bool] = {}
        if new_goals and not any(
            self._can_start(sub_goal, new_goals, can_start_by_id) for sub_goal in new_goals.values()
        ):
            hint = (
                "start a sub-goal that has all its inputs, retry a failed one, or answer with action 'done' or 'failed'"
            )
            yield Problem(
                PRECONDITION_MISSING, "no sub-goal can start: their inputs have failed", "/sub_goals", hint=hint
            )
        if not new_goals:
            hint = "start a new sub-goal, retry a failed one, or answer with action 'done' or 'failed'"
            yield Problem(
                "empty_plan", "all of these sub-goals are already pending, and none can start", "/sub_goals", hint=hint
            )

    def _can_start(
        self,
        sub_goal: PlannedSubGoal | KnownSubGoal,
        new_goals: Mapping[int, PlannedSubGoal],
        can_start_by_id: dict[int, bool],
    ) -> bool:
        """Return whether a sub-goal can start, in a graph without cycles; `can_start_by_id` caches results by ID."""
        if sub_goal.id not in can_start_by_id:
            can_start_by_id[sub_goal.id] = all(
                self._can_complete(source_id, new_goals, can_start_by_id) for source_id in sub_goal.sources
            )
        return can_start_by_id[sub_goal.id]

    def _can_complete(
        self, source_id: int, new_goals: Mapping[int, PlannedSubGoal], can_start_by_id: dict[int, bool]
    ) -> bool:
        if source_id in new_goals:
            return self._can_start(new_goals[source_id], new_goals, can_start_by_id)
        source = self._known_sub_goals.get(source_id)
        if source is None or source.status == "failed":
            return False
        return source.status in DONE_STATUSES or self._can_start(source, new_goals, can_start_by_id)


def _problems_of_slots(sub_goal: PlannedSubGoal, card: WorkerCard, at: tuple[str | int, ...]) -> Iterator[Problem]:
    """Yield the problems of the slots that a worker tool requires.

    No required slot may be missing. The planner may write the value of a slot that a `support` worker tool requires,
    because such a tool only looks the value up. A deliverable must not get a value from the planner: the person would
    read the value as if a worker tool had found it.
    """
    for slot in null_or_omitted_slots(card, {**sub_goal.params, **sub_goal.inputs}):
        message = f"{sub_goal.worker!r} requires {slot!r}, which is in neither inputs nor params"
        hint = f"connect it to a sub-goal with the slot {slot!r}"
        yield Problem(PRECONDITION_MISSING, message, pointer(*at, "inputs"), sub_goal.node_id, hint)
    for slot in card.requires if card.goal_type == "deliverable" else ():
        if sub_goal.params.get(slot) is not None:
            message = (
                f"{slot!r} is written in params, but {sub_goal.worker!r} makes a deliverable: its required slots must "
                "come from workers"
            )
            hint = f"connect it to a sub-goal with the slot {slot!r}"
            yield Problem(PRECONDITION_MISSING, message, pointer(*at, "params", slot), sub_goal.node_id, hint)


def _may_have_value(ref: InputRef, source: KnownSubGoal) -> bool:
    """Return whether a slot has a value or may still get a value."""
    return source.status not in DONE_STATUSES or ref.slot in source.slots


def _each_ref(inputs: Mapping[str, Input]) -> Iterator[tuple[str, InputRef, tuple[int, ...]]]:
    """Yield the name of each input, each reference in the input, and its path: `()`, or `(index,)` in a list."""
    for name, value in inputs.items():
        if isinstance(value, InputRef):
            yield name, value, ()
        else:
            yield from ((name, ref, (index,)) for index, ref in enumerate(value))


def _name_list(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values)) or "none"
