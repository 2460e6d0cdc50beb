"""A brute-force model of the final statuses of a plan, independent of the scheduler.

The model has no time, queues or order. The final status of a node depends on the final statuses of its dependencies.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

FinalStatus = Literal["completed", "failed", "skipped", "blocked"]


@dataclass(frozen=True)
class Step:
    """One node: its fields in the plan, and the outcome of its task.

    Args:
        needs: IDs in `depends_on`.
        reads: IDs of the nodes whose results the arguments read, as a whole value and inside a text.
        items: items of `for_each`; `None` for a single task.
        failing_ids: IDs of the tasks of this node that fail.
        when: whether the node's condition is true; `None` if the node has no condition.
        reads_missing_key: whether an argument reads a key that no result has, so that the tasks fail before they start.
    """

    id: str
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    join: Literal["all", "any", "all_done"] | int = "all"
    on_error: Literal["block", "skip", "value"] = "block"
    items: tuple[str, ...] | None = None
    failing_ids: frozenset[str] = frozenset()
    when: bool | None = None
    priority: int = 3
    tool: str = "any"
    max_parallel: int | None = None
    reads_missing_key: bool = False

    @property
    def task_ids(self) -> list[str]:
        return [self.id] if self.items is None else [f"{self.id}[{item}]" for item in self.items]

    @property
    def dependencies(self) -> list[str]:
        return list(dict.fromkeys([*self.needs, *self.reads]))

    def to_json(self) -> dict[str, Any]:
        """Return the node as written in a plan."""
        raw_node: dict[str, Any] = {"id": self.id, "tool": self.tool, "priority": self.priority}
        raw_node["depends_on"] = list(self.needs)
        raw_node["arguments"] = {name: "{{" + name + ".result}}" for name in self.reads}
        raw_node["arguments"]["text"] = "".join("<{{" + name + ".result}}>" for name in self.reads)
        if self.reads_missing_key:
            raw_node["arguments"]["missing"] = "{{" + self.reads[0] + ".result.missing}}"
        raw_node["join"] = {"at_least": self.join} if isinstance(self.join, int) else self.join
        raw_node["on_error"] = {"value": f"{self.id}!"} if self.on_error == "value" else self.on_error
        if self.items is not None:
            raw_node |= {"for_each": list(self.items), "key": "{{item}}"}
        if self.max_parallel is not None:
            raw_node["max_parallel"] = self.max_parallel
        if self.when is not None:
            raw_node["when"] = "1 < 2" if self.when else "1 > 2"
        return raw_node


@dataclass
class PlanModel:
    """Model of a plan; `final_statuses` applies to a run that is not stopped."""

    steps: tuple[Step, ...]
    values: dict[str, Any] = field(default_factory=dict)
    """Node ID -> result of the node, or the list of the results of its items; `None` if the node has no result."""

    @cached_property
    def final_statuses(self) -> dict[str, FinalStatus]:
        """Node ID -> final status."""
        statuses: dict[str, FinalStatus] = {}
        by_id = {step.id: step for step in self.steps}

        def status_of(name: str) -> FinalStatus:
            if name not in statuses:
                step = by_id[name]
                statuses[name] = self._compute_status(step, {need: status_of(need) for need in step.dependencies})
            return statuses[name]

        return {step.id: status_of(step.id) for step in self.steps}

    def _compute_status(self, step: Step, dependency_statuses: dict[str, FinalStatus]) -> FinalStatus:
        by_id = {each.id: each for each in self.steps}
        successful_needs = [name for name, status in dependency_statuses.items() if status in ("completed", "skipped")]
        skipping_needs = [
            name
            for name, status in dependency_statuses.items()
            if status == "skipped" or (status == "failed" and by_id[name].on_error == "skip")
        ]
        blocking_needs = [
            name for name in dependency_statuses if name not in successful_needs and name not in skipping_needs
        ]
        count = len(dependency_statuses)
        required_count = {"all": count, "any": min(1, count), "all_done": 0}.get(str(step.join), step.join)
        assert isinstance(required_count, int)
        may_run = len(successful_needs) >= required_count and not (step.join == "all" and skipping_needs)
        if not may_run:
            return "blocked" if blocking_needs else "skipped"
        return self._run(step)

    def _run(self, step: Step) -> FinalStatus:
        """Store the result of a node that runs, and return its final status."""
        self.values[step.id] = None
        if step.when is False:
            return "skipped"
        failed_ids = set(step.task_ids) if step.reads_missing_key else step.failing_ids
        arguments = self.arguments_of(step)
        results = [
            f"{step.id}!" if task_id in failed_ids else result_of(task_id, arguments) for task_id in step.task_ids
        ]
        if (step.failing_ids or step.reads_missing_key) and step.task_ids and step.on_error != "value":
            return "failed"
        self.values[step.id] = results[0] if step.items is None else results
        return "completed"

    def arguments_of(self, step: Step) -> dict[str, Any]:
        """Return the arguments with the references replaced by values."""
        values = {name: self.values.get(name) for name in step.reads}
        return {**values, "text": "".join(f"<{as_text(value)}>" for value in values.values())}

    @property
    def blocked_by(self) -> dict[str, list[str]]:
        """ID of a blocked node -> IDs of the failed nodes that block this node, in plan order."""
        order = [step.id for step in self.steps]
        by_id = {step.id: step for step in self.steps}

        def failed_ancestors(name: str) -> set[str]:
            if self.final_statuses[name] == "failed":
                return {name} if by_id[name].on_error != "skip" else set()
            if self.final_statuses[name] != "blocked":
                return set()
            return set().union(*(failed_ancestors(need) for need in by_id[name].dependencies))

        return {
            name: sorted(failed_ancestors(name), key=order.index)
            for name, status in self.final_statuses.items()
            if status == "blocked"
        }


def result_of(task_id: str, arguments: dict[str, Any]) -> Any:
    """Return the result of a task: the arguments, and text that resembles references but must not be resolved."""
    return {"by": task_id, "given": arguments["text"], "trap": "{{" + task_id + ".result}} \\{{ $1 }}"}


def as_text(value: Any) -> str:
    """Format a value inside a text as templates do: strings unchanged, other values as compact JSON."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | int):
        return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))
    if isinstance(value, list):
        return "[" + ",".join(map(as_json, value)) + "]"
    return "{" + ",".join(f"{as_json(key)}:{as_json(part)}" for key, part in value.items()) + "}"


def as_json(value: Any) -> str:
    if not isinstance(value, str):
        return as_text(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
