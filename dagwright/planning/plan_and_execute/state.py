"""How far a run has come with a request, and what it adds next: calls that plan, nodes of plans, the answer.

Replay: ids, order and content of the nodes are part of the history of a run.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property
from typing import Any

from dagwright.core.boundary.limits import MESSAGE_LIMIT_BYTES
from dagwright.core.boundary.text import cut_bytes
from dagwright.core.expressions.references import ResultOf
from dagwright.core.expressions.stored_values import Projection
from dagwright.core.model.compiled import HIDDEN_KINDS, Binding, CompiledNode
from dagwright.core.model.errors import NodeError
from dagwright.core.model.states import NodeStatus, Record
from dagwright.core.model.tools import PURPOSE_ANSWER
from dagwright.core.scheduler.extension import Extension
from dagwright.core.scheduler.run_state import RunState
from dagwright.core.scheduler.task_creation import task_of_call
from dagwright.features.plan_edits.extension_checks import free_id
from dagwright.features.plan_extension.extender import GoalUnreachable
from dagwright.planning.model_calls.calls import CallLabels, ModelCall, ModelRequest, OutputSchema, system, user
from dagwright.planning.model_calls.nodes import CALL_MODEL, model_node
from dagwright.planning.model_calls.responses import (
    ANSWER_FIELD,
    ANSWER_PROJECTIONS,
    has_text_in_output,
    missing_information,
)
from dagwright.planning.plan_and_execute.goals import (
    ANSWER,
    APPROVE,
    LOW_CONFIDENCE,
    PLAN,
    PLAN_INVALID,
    READ,
    READ_MODEL_PLAN,
    REPAIR,
    REPLAN,
    Goal,
    PlannedNodes,
    is_own,
    own_id,
    planned_nodes_from_json,
)
from dagwright.planning.plan_and_execute.nodes import (
    output_of_plan,
    plan_request,
    read_as,
    read_node,
    with_accepted_projection,
)
from dagwright.planning.plan_and_execute.replan_context import (
    EXISTING_NODE,
    REPLACEABLE,
    REPLAN_CONTEXTS,
    ReplanContext,
)
from dagwright.planning.plan_and_execute.replans import (
    Reason,
    is_replan,
    reason_of_gaps,
    reasons_of,
    replan_context_of,
    replan_messages,
    title_of,
    unreachable_nodes,
)
from dagwright.planning.plan_and_execute.steps import Step, step_messages

Output = tuple[Any, Sequence[Binding]]
"""What a run gives out: JSON with null at every binding, and its bindings."""
_PROBLEMS_TOLD = 5
_PROBLEMS_BYTES = 1_500
"""Of those that stand in a question, above the words of a plan."""


class Stage(Enum):
    """How far the newest plan has come, where nothing is to be added for it now."""

    OPEN = "something of it goes on"
    OVER = "its nodes are in the run, or it came to nothing"


class GoalState:
    """How far a run has come with a request."""

    def __init__(self, state: RunState, goal: Goal) -> None:
        self._state = state
        self._goal = goal

    def last(self, name: str) -> int | None:
        """Returns the number of the newest node that the run has added under an id of its own."""
        return max(self._own(name), default=None)

    def _own(self, name: str) -> Iterator[int]:
        """Yields the numbers of the nodes that the run has added under an id of its own, oldest first."""
        written = self._state.plan.nodes[: self._state.plan.written_count]
        return (number for number, node in enumerate(written) if own_id(node.id) == name)

    def _planned(self) -> Iterator[tuple[CompiledNode, Record]]:
        """Yields the nodes of the plan, and what people have added to it, as far as nothing stands for them."""
        for node, record in self._state.shown():
            if not is_own(node.id) and record.status is not NodeStatus.SUPERSEDED:
                yield node, record

    def read_by(self, number: int) -> Mapping[str, Any] | None:
        """Returns what was read of a plan; `None` as long as, or if, nothing is."""
        record = self._state.records[number]
        if record.status is not NodeStatus.COMPLETED:
            return None
        found = record.result
        if not isinstance(found, Mapping) or not isinstance(found.get("valid"), bool):
            name = self._state.plan.nodes[number].id
            raise GoalUnreachable(NodeError("invalid_result", f"the result of {name!r} is not what was read of a plan"))
        return found

    def refuse_to_end_without_plan(self, read: int) -> None:
        """Looks whether a run is about to end as if it had reached something, though no plan was read.

        Raises:
            GoalUnreachable: it is.
        """
        records = [record for _, record in self._state.shown()]
        if not all(record.status.is_final for record in records):
            return
        last = self.last(PLAN)
        number = read if last is None or self._state.records[last].status is NodeStatus.COMPLETED else last
        record, node_id = self._state.records[number], self._state.plan.nodes[number].id
        if record.status is NodeStatus.FAILED and not any(each.status is NodeStatus.COMPLETED for each in records):
            # A run in which nothing was done fails by itself.
            return
        message = f"there is no plan to go on with: {node_id!r} was {record.status.value}"
        raise GoalUnreachable(
            record.error or NodeError("no_plan", f"{message}{f': {record.reason}' if record.reason else ''}")
        )

    # Planning again.

    @cached_property
    def _since(self) -> int:
        """Number of the call with which the newest round of planning began."""
        plans = list(self._own(PLAN))
        return next((number for number in reversed(plans) if self._is_replan(number)), plans[0])

    def _is_replan(self, number: int) -> bool:
        return is_replan(self._state.plan.nodes[number])

    @cached_property
    def _replan_context(self) -> ReplanContext | None:
        """What the run had come to when the newest round began; `None` in the first one."""
        return self._replan_context_at(self._since) if self._is_replan(self._since) else None

    def _replan_context_at(self, number: int) -> ReplanContext | None:
        nodes = self._state.plan.nodes
        reader = next((nodes[read] for read in self._own(READ) if number in nodes[read].dependencies), None)
        return REPLAN_CONTEXTS.decode(reader.arguments.get("replan_context")) if reader is not None else None

    def without_plan(self, read: int) -> Stage:
        """Returns how far a plan has come that was not read; one that was made again comes to nothing.

        Raises:
            GoalUnreachable: the run is about to end without any plan.
        """
        if self._replan_context is not None:
            return Stage.OVER if self._state.records[read].status.is_final else Stage.OPEN
        self.refuse_to_end_without_plan(read)
        return Stage.OPEN

    def without_approval(self, asked: int) -> Stage:
        """Returns how far a plan has come that was not approved; one that was made again comes to nothing."""
        is_turned_down = self._replan_context is not None and self._state.records[asked].status.is_final
        return Stage.OVER if is_turned_down else Stage.OPEN

    def stage_of_reasons(self) -> Stage | None:
        """Returns how far a plan has come that was made again, if what it was made for has changed since.

        Somebody may have tried again what failed: that is waited for, and if it went well the plan is not needed.
        """
        replan_context = self._replan_context
        if replan_context is None:
            return None
        state = self._state
        numbers = [number for node_id in replan_context.because if (number := state.number_of(node_id)) is not None]
        if not all(state.records[number].status.is_final for number in numbers):
            return Stage.OPEN
        is_needed = any(
            state.records[number].status is NodeStatus.FAILED
            or state.plan.nodes[number].kind == "human"
            or is_own(state.plan.nodes[number].id)
            for number in numbers
        )
        return None if is_needed else Stage.OVER

    def plan_again(self, reasons: Sequence[Reason]) -> Extension:
        """Returns the call in which the planner is asked again, with what the run has come to, and what reads it."""
        steps = list(self._planned())
        replan_context = replan_context_of(self._state, steps, reasons)
        told = replan_messages(self._goal, steps, reasons)
        done = [read for read in self._own(READ) if self._state.records[read].status is NodeStatus.COMPLETED]
        # What was said before lies in the store.
        asked = replace(
            plan_request(self._goal, told.messages, purpose=REPLAN, replan_context=replan_context),
            before="",
            cuts=dict(told.cuts),
        )
        before = self._state.plan.nodes[self._state.plan.nodes[done[-1]].dependencies[0]].id
        bindings: list[Binding] = [(("before",), (ResultOf(before, "result", ("conversation",)),)), *told.bindings]
        title = title_of(reasons, count=self._replans() + 1, most=self._goal.replans)
        # Nothing ever takes the place of a node that has completed, so these edges never lead in a circle.
        told_of = self._ends_of([step for step in steps if step[1].status is NodeStatus.COMPLETED])
        return self._asking(
            asked, title=title, dependencies=[done[-1], *told_of], bindings=bindings, replan_context=replan_context
        )

    def _replans(self) -> int:
        return sum(
            is_replan(node) and record.status is not NodeStatus.SUPERSEDED for node, record in self._state.shown()
        )

    def conclude(self) -> Extension | None:
        """Returns what is to be done once nothing is to be done for the newest plan: more of it, or the answer."""
        steps = list(self._planned())
        if self._goal.profile == "intents":
            # What they have made is what the run gives out; where there was nothing to do, nothing.
            return None if steps or self._state.plan.output is not None else self._extension(output=({}, ()))
        last = self.last(ANSWER)
        if not all(record.status.is_final for _, record in steps):
            return None
        if last is not None and not self._state.records[last].status.is_final:
            return None
        told = {
            node_id
            for plan in self._own(PLAN)
            if self._is_replan(plan) and (replan_context := self._replan_context_at(plan)) is not None
            for node_id in replan_context.because
        }
        newest = max((self._number(node) for node, _ in steps), default=0)
        answer = None if last is None or last < newest else last
        if answer is not None and (output := self._output_in(answer)) is not None:
            return self._extension(output=output)
        reasons = reasons_of(steps, told=told)
        if answer is not None and self._state.plan.nodes[answer].id not in told:
            node, record = self._state.plan.nodes[answer], self._state.records[answer]
            can_tell = record.status is NodeStatus.COMPLETED and not self._goal.output_schema
            gaps = missing_information(record.result) if can_tell else ()
            reasons += [reason_of_gaps(node, gaps)] if gaps else []
        if reasons and self._can_plan_again():
            return self.plan_again(reasons)
        return self.answer() if answer is None else None

    def _can_plan_again(self) -> bool:
        return self._replans() < self._goal.replans

    def _output_in(self, answer: int) -> Output | None:
        """Returns what the run is to give out, if its answer stands in another place than is said so far."""
        record = self._state.records[answer]
        if self._goal.output_schema:
            return None
        if record.status is not NodeStatus.COMPLETED or not has_text_in_output(record.result):
            return None
        output = _output_at(*ANSWER_PROJECTIONS[0][0])
        return None if tuple(self._state.plan.output_bindings) == tuple(output[1]) else output

    def _ends_of(self, steps: Sequence[Step]) -> list[int]:
        """Returns the numbers of the nodes for which no other one of them waits."""
        needed = {number for node, _ in steps for number in node.dependencies}
        return [number for node, _ in steps if (number := self._number(node)) not in needed]

    def _number(self, node: CompiledNode) -> int:
        number = self._state.number_of(node.id)
        assert number is not None
        return number

    # The nodes of a plan.

    def clash_with(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns what is wrong with a plan that names nodes as others are named that the run has; or nothing."""
        nodes = [node for node in _planned_nodes(found).nodes if not _is_stand_in(node)]
        ids = Counter(self._new_id(node) for node in nodes)
        taken = [
            node.id
            for node in nodes
            if not self.is_there(node) and (self._is_taken(node.id) or ids[self._new_id(node)] > 1)
        ]
        problems = [
            {"code": "duplicate_id", "message": f"the run has another node {node_id!r} already: choose another id"}
            for node_id in taken
        ]
        return {"problems": problems, "problem_count": len(problems)} if problems else {}

    def _is_taken(self, node_id: str) -> bool:
        """Tells whether an id is one of the run, and not that of a node whose place can be taken."""
        number = self._state.number_of(self._state.newest_id(node_id))
        if number is None or number > self._since:
            return self._state.find(node_id) is not None or task_of_call(self._state, node_id) is not None
        return self._state.records[number].status not in (*REPLACEABLE, NodeStatus.SUPERSEDED)

    def _new_id(self, node: CompiledNode) -> str:
        """Returns the id of a node of a plan in the run: a new one if it takes the place of another."""
        number = self._state.number_of(self._state.newest_id(node.id))
        return node.id if number is None or self.is_there(node) else free_id(self._state, number)

    def is_empty(self, found: Mapping[str, Any]) -> bool:
        """Tells whether a plan has no nodes of its own: there is nothing more to do."""
        return all(node.get("tool") == EXISTING_NODE.name for node in found["nodes"])

    def has_nodes(self, found: Mapping[str, Any]) -> bool:
        """Tells whether all nodes of a plan are in the run; some may be before it was whole."""
        ids = [str(node["id"]) for node in found["nodes"] if node.get("tool") != EXISTING_NODE.name]
        newest = {node_id: self._state.newest_id(node_id) for node_id in ids}
        if any((self._state.number_of(newest[node_id]) or 0) <= self._since for node_id in ids):
            return False
        # Those that people have added are others, unless they do the same.
        added = {node_id for node_id in ids if self._state.is_added_by_person(newest[node_id])}
        return not added or all(self._is_same(node) for node in _planned_nodes(found).nodes if node.id in added)

    def is_there(self, node: CompiledNode) -> bool:
        """Tells whether a node of a plan was taken before the plan was whole, or stands for one of before."""
        number = self._state.number_of(self._state.newest_id(node.id))
        if _is_stand_in(node) or node.kind == "lookup":
            return number is not None
        return number is not None and number > self._since and self._goal.streams and self._is_same(node)

    def _is_same(self, node: CompiledNode) -> bool:
        number = self._state.number_of(self._state.newest_id(node.id))
        assert number is not None
        there = self._state.plan.nodes[number]
        return (there.tool, there.arguments, there.bindings) == (node.tool, node.arguments, node.bindings)

    def _free(self, name: str) -> str:
        number = self._state.number_of(name)
        assert number is not None
        return free_id(self._state, number)

    def _extension(self, *nodes: CompiledNode, output: Output | None = None) -> Extension:
        tools = {tool.name: tool for tool in (CALL_MODEL, READ_MODEL_PLAN)}
        named = {node.tool for node in nodes}
        return Extension(
            self._state.plan.written_count,
            nodes,
            {name: tool for name, tool in tools.items() if name in named},
            output=output,
        )

    # The plan.

    def next_plan(self, read: int, found: Mapping[str, Any]) -> Extension | Stage:
        """Returns the call in which the model is shown what is wrong with its plan, and what reads the next one.

        Raises:
            GoalUnreachable: it has written as many as it may, and the run has no other.
        """
        last = self.last(PLAN)
        assert last is not None
        since, replan_context = self._since, self._replan_context
        written = sum(read > since for read in self._own(READ))
        if written >= self._goal.plans and replan_context is not None:
            return Stage.OVER
        if written >= self._goal.plans:
            told = f"the model wrote {written} plan{'s' if written > 1 else ''}, and none can be run"
            raise GoalUnreachable(
                NodeError(PLAN_INVALID, cut_bytes(f"{told}; {_problems(found)}", max_bytes=MESSAGE_LIMIT_BYTES))
            )
        messages = [user("" if "repair" in found else _clash_words(found))]
        # What was said before lies in the store, and is not said again in each call.
        call = replace(plan_request(self._goal, messages, purpose=REPAIR, replan_context=replan_context), before="")
        bindings: list[Binding] = [
            (("before",), (ResultOf(self._state.plan.nodes[last].id, "result", ("conversation",)),)),
        ]
        if "repair" in found:
            repair = ResultOf(self._state.plan.nodes[read].id, "result", ("repair",))
            bindings.append((("messages", 0, "content"), (repair,)))
        # What clashes was not taken, so it must not be told as if it stood.
        if self._goal.streams and "repair" in found:
            bindings.append(
                (("planning", "accepted"), (ResultOf(self._state.plan.nodes[last].id, "result", ("accepted",)),))
            )
        return self._asking(
            call, title="repairing the plan", dependencies=[read], bindings=bindings, replan_context=replan_context
        )

    def _asking(
        self,
        request: ModelRequest,
        *,
        title: str,
        dependencies: Sequence[int],
        bindings: Sequence[Binding],
        replan_context: ReplanContext | None,
    ) -> Extension:
        plan_id, read_id = self._free(PLAN), self._free(READ)
        plan = model_node(plan_id, request, title=title, dependencies=dependencies, bindings=bindings)
        number = self._state.plan.written_count
        return self._extension(
            with_accepted_projection(plan, self._goal),
            read_node(read_id, plan_id, self._goal, number=number, replan_context=replan_context),
            output=output_of_plan(self._goal, read_id),
        )

    def approve_plan(self, found: Mapping[str, Any]) -> bool:
        """Tells whether somebody has to approve a plan that was read before any of it runs.

        Raises:
            GoalUnreachable: the model is not sure enough of it, and nobody is asked in this run.
        """
        if self.is_empty(found):
            return False
        if self._goal.approve_plan or (self._state.policy.approves_changes and found.get("changes", 0) > 0):
            return True
        # What says nothing of how sure it is counts as not sure at all.
        least, sure = self._goal.confidence, found.get("confidence", 0)
        if least is None or sure >= least:
            return False
        if not self._state.options.interactive:
            words = (
                f"the model gives its intents a confidence of {sure:.4g}, {least:.4g} is wanted, and nobody is asked "
                "in this run, so nothing was done; ask again with --approve-plan, or with a lower --confidence"
            )
            raise GoalUnreachable(NodeError(LOW_CONFIDENCE, words))
        return True

    def approval(self, read: int, found: Mapping[str, Any], *, problems: Mapping[str, Any] | None = None) -> Extension:
        """Returns the node that asks whether a plan may run; whoever says so may give another plan instead."""
        last = self.last(APPROVE)
        node_id = APPROVE if last is None else self._free(APPROVE)
        words = str(found.get("words", ""))
        if problems is not None:
            told = cut_bytes(_problems(problems), max_bytes=_PROBLEMS_BYTES)
            words = f"The plan that was given instead cannot be run: {told}\n\n{words}"
        own = [
            node
            for node in found["nodes"]
            if node.get("tool") != EXISTING_NODE.name and node.get("kind") not in HIDDEN_KINDS
        ]
        if unseen := len(own) - len(_shown(found)):
            words = f"{words}\n\nOf {unseen:,} of its nodes not all is shown; the policy decides on each of them."
        prompt = f"May this plan run?\n\n{words}"
        node = CompiledNode(
            node_id,
            title="asking whether the plan may run",
            tool=READ_MODEL_PLAN.name,
            arguments={
                "plan": found["plan"],
                "tools": list(self._goal.tools),
                **read_as(self._goal),
                **_encoded_replan_context(self._replan_context),
            },
            dependencies=(read if last is None else max(read, last),),
            approval={"type": "APPROVAL", "prompt": prompt},
            cache_s=0.0,
        )
        return self._extension(node)

    def planned(self, read: int, found: Mapping[str, Any]) -> Extension:
        """Returns the nodes of a plan that the run does not have; those that wait for nothing wait for what read it.

        Of a plan that was made again, one with the id of a node that can no longer run takes its place.
        """
        base = self._state.plan.written_count
        planned = _planned_nodes(found)
        numbers = self._numbers_of(planned, base=base)
        shown, is_approved = _shown(found), own_id(self._state.plan.nodes[read].id) == APPROVE
        nodes = []
        wanted: dict[str, Sequence[Projection]] = {}
        for node in planned.nodes:
            if self.is_there(node):
                there = self._state.newest_id(node.id)
                wanted |= {there: node.wanted} if node.wanted else {}
                continue
            needed = tuple(numbers[number] for number in node.dependencies)
            if all(planned.nodes[number].kind == "lookup" for number in node.dependencies):
                needed = (*needed, read)
            # Somebody has seen it. What the policy refuses is refused all the same.
            is_seen = is_approved and node.id in shown
            approval = "never" if is_seen and node.approval == "policy" else node.approval
            is_new = self._state.number_of(node.id) is None
            instead = None if is_new else self._state.newest_id(node.id)
            nodes.append(
                replace(node, id=self._new_id(node), dependencies=needed, approval=approval, supersedes=instead)
            )
        replaced = [node.supersedes for node in nodes if node.supersedes is not None]
        return Extension(base, tuple(nodes), planned.tools, wanted, given_up=self._unreachable(replaced))

    def left_behind(self, found: Mapping[str, Any]) -> Extension | None:
        """Returns what leaves out the nodes that can no longer run, of a plan whose nodes all came before it was whole.

        As soon as it is done, nothing is left any more that had failed before the plan.
        """
        replan_context = self._replan_context
        if replan_context is None or self.is_empty(found):
            return None
        failed = replan_context.ended.get(NodeStatus.FAILED.value, ())
        is_left = any(
            node.id in failed and record.status is NodeStatus.FAILED and node.on_error != "skip"
            for node, record in self._planned()
        )
        return replace(self._extension(), given_up=self._unreachable(())) if is_left else None

    def _unreachable(self, replaced: Sequence[str]) -> tuple[str, ...]:
        """Returns the ids of the nodes that a plan which was made again leaves behind."""
        replan_context = self._replan_context
        if replan_context is None:
            return ()
        ended = frozenset(replan_context.left)
        return unreachable_nodes(self._state, [step for step in self._planned() if step[0].id in ended], replaced)

    def _numbers_of(self, planned: PlannedNodes, *, base: int) -> list[int]:
        """Returns the number that each node of a plan has in the run, or gets."""
        numbers: list[int] = []
        following = base
        for node in planned.nodes:
            there = self._state.number_of(self._state.newest_id(node.id)) if self.is_there(node) else None
            numbers.append(following if there is None else there)
            following += there is None
        # Those that nobody wrote stand behind all that is added.
        return [
            number + following - base if number >= base and self.is_there(node) else number
            for node, number in zip(planned.nodes, numbers, strict=True)
        ]

    # The answer.

    def answer(self) -> Extension:
        steps = list(self._planned())
        begun = [system(self._goal.answer_prompt), user(f"Request:\n{self._goal.words}")]
        told = step_messages(steps, first=len(begun))
        labels = CallLabels(purpose=PURPOSE_ANSWER)
        # Where it cannot be planned again, the text alone names what is missing.
        schema = self._goal.answer_schema if self._can_plan_again() else {}
        output = OutputSchema("answer", schema, is_binding=False) if schema else None
        tells: str | None = "" if output is None else ANSWER_FIELD
        if self._goal.output_schema:
            # JSON is for a program, which needs all of it.
            output, tells = OutputSchema("answer", self._goal.output_schema), None
        call = ModelCall((*begun, *told.messages), config=self._goal.config, output=output, labels=labels)
        request = ModelRequest(call, cuts=told.cuts, tells=tells)
        last = self._ends_of(steps)
        node_id = ANSWER if self.last(ANSWER) is None else self._free(ANSWER)
        node = model_node(node_id, request, title="answering the request", dependencies=last, bindings=told.bindings)
        before = None if node_id == ANSWER else self._state.newest_id(ANSWER)
        wanted = (*node.wanted, *ANSWER_PROJECTIONS) if output is not None else node.wanted
        place = _output_at("message", "content")
        if self._goal.output_schema:
            wanted, place = (*node.wanted, _STRUCTURED), _output_at(*_STRUCTURED[0])
        whatever = replace(node, join=("all_done", 0), supersedes=before, wanted=wanted)
        return self._extension(whatever, output=place)


_STRUCTURED: Projection = (("output",), "value")
"""Of an answer with a schema: its value."""


def _output_at(*path: str) -> Output:
    return None, (((), (ResultOf(ANSWER, "result", path),)),)


def _is_stand_in(node: CompiledNode) -> bool:
    return node.tool == EXISTING_NODE.name


def _encoded_replan_context(replan_context: ReplanContext | None) -> dict[str, Any]:
    return {} if replan_context is None else {"replan_context": REPLAN_CONTEXTS.encode(replan_context)}


def _planned_nodes(found: Mapping[str, Any]) -> PlannedNodes:
    """Returns the nodes of a plan that was read.

    Raises:
        GoalUnreachable: there are none.
    """
    try:
        return planned_nodes_from_json(found)
    except ValueError as error:
        raise GoalUnreachable(NodeError("invalid_result", str(error))) from None


def _clash_words(found: Mapping[str, Any]) -> str:
    return (
        f"This plan cannot be run: {_problems(found)}.\n"
        "Give these nodes other ids.\n"
        "Write the whole plan again as one JSON object."
    )


def _shown(found: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(found.get("shown", ()))


def _problems(found: Mapping[str, Any]) -> str:
    problems = [problem for problem in found.get("problems", ()) if isinstance(problem, Mapping)]
    told = [
        f"{problem.get('code')}{f' at {place}' if (place := problem.get('pointer')) else ''}: {problem.get('message')}"
        for problem in problems[:_PROBLEMS_TOLD]
    ]
    count = found.get("problem_count", len(problems))
    more = count - len(told) if type(count) is int else 0
    return "; ".join([*told, *([f"and {more} more"] if more > 0 else [])])
