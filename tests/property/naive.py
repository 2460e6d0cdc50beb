"""A brute-force model of how a plan ends, which implements the contract independently of the scheduler.

It has no time, queues or order: it computes the end of a node from the ends of its dependencies.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

Ending = Literal["completed", "failed", "skipped", "blocked"]


@dataclass(frozen=True)
class Step:
    """One node: its fields in the plan, and the outcome of its task.

    Args:
        needs: ids in `depends_on`.
        reads: ids whose results the arguments read, as a whole value and inside a text.
        items: `None` for a single task; else the items, each with its own outcome in `fails`.
        fails: ids of the tasks of this node that fail.
        when: `None`, or whether the node's condition holds.
        reads_missing_key: an argument reads a key that no result has, so its tasks fail before they start.
    """

    id: str
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    join: Literal["all", "any", "all_done"] | int = "all"
    on_error: Literal["block", "skip", "value"] = "block"
    items: tuple[str, ...] | None = None
    fails: frozenset[str] = frozenset()
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
        """Return the node as a plan has it."""
        written: dict[str, Any] = {"id": self.id, "tool": self.tool, "priority": self.priority}
        written["depends_on"] = list(self.needs)
        written["arguments"] = {name: "{{" + name + ".result}}" for name in self.reads}
        written["arguments"]["text"] = "".join("<{{" + name + ".result}}>" for name in self.reads)
        if self.reads_missing_key:
            written["arguments"]["gone"] = "{{" + self.reads[0] + ".result.gone}}"
        written["join"] = {"at_least": self.join} if isinstance(self.join, int) else self.join
        written["on_error"] = {"value": f"{self.id}!"} if self.on_error == "value" else self.on_error
        if self.items is not None:
            written |= {"for_each": list(self.items), "key": "{{item}}"}
        if self.max_parallel is not None:
            written["max_parallel"] = self.max_parallel
        if self.when is not None:
            written["when"] = "1 < 2" if self.when else "1 > 2"
        return written


@dataclass
class Model:
    """The whole plan; `ends` says how every node ends if nothing stops the run."""

    steps: tuple[Step, ...]
    values: dict[str, Any] = field(default_factory=dict)
    """Result of every task of a node, by node id; null if the task has no result."""

    @cached_property
    def ends(self) -> dict[str, Ending]:
        known: dict[str, Ending] = {}
        by_id = {step.id: step for step in self.steps}

        def end_of(name: str) -> Ending:
            if name not in known:
                known[name] = self._end(by_id[name], {need: end_of(need) for need in by_id[name].dependencies})
            return known[name]

        return {step.id: end_of(step.id) for step in self.steps}

    def _end(self, step: Step, needs: dict[str, Ending]) -> Ending:
        by_id = {other.id: other for other in self.steps}
        done = [name for name, end in needs.items() if end in ("completed", "skipped")]
        passes_skip = [
            name
            for name, end in needs.items()
            if end == "skipped" or (end == "failed" and by_id[name].on_error == "skip")
        ]
        passes_failure = [name for name in needs if name not in done and name not in passes_skip]
        expected = {"all": len(needs), "any": min(1, len(needs)), "all_done": 0}.get(str(step.join), step.join)
        assert isinstance(expected, int)
        runs = len(done) >= expected and not (step.join == "all" and passes_skip)
        if not runs:
            return "blocked" if passes_failure else "skipped"
        return self._end_of_running(step)

    def _end_of_running(self, step: Step) -> Ending:
        self.values[step.id] = None
        if step.when is False:
            return "skipped"
        arguments = self.arguments_of(step)
        results: list[Any] = []
        for task in step.task_ids:
            failed = task in step.fails or step.reads_missing_key
            results.append(f"{step.id}!" if failed else result_of(task, arguments))
        if (step.fails or step.reads_missing_key) and step.task_ids and step.on_error != "value":
            return "failed"
        self.values[step.id] = results[0] if step.items is None else results
        return "completed"

    def arguments_of(self, step: Step) -> dict[str, Any]:
        """Return the arguments by textual substitution of the references."""
        values = {name: self.values.get(name) for name in step.reads}
        return {**values, "text": "".join(f"<{as_text(value)}>" for value in values.values())}

    @property
    def blocked_by(self) -> dict[str, list[str]]:
        """Id of a blocked node -> ids of the failed nodes that block it, in plan order."""
        order = [step.id for step in self.steps]
        by_id = {step.id: step for step in self.steps}

        def roots(name: str) -> set[str]:
            if self.ends[name] == "failed":
                return {name} if by_id[name].on_error != "skip" else set()
            if self.ends[name] != "blocked":
                return set()
            return set().union(*(roots(need) for need in by_id[name].dependencies))

        return {name: sorted(roots(name), key=order.index) for name, end in self.ends.items() if end == "blocked"}


def result_of(task: str, arguments: dict[str, Any]) -> Any:
    """Return the result of the tools of the tests: text that looks like references, and the arguments."""
    return {"by": task, "given": arguments["text"], "trap": "{{" + task + ".result}} \\{{ $1 }}"}


def as_text(value: Any) -> str:
    """Format a value inside a text as the contract requires: strings unchanged, other values as compact JSON."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool | int):
        return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))
    if isinstance(value, list):
        return "[" + ",".join(map(quote, value)) + "]"
    return "{" + ",".join(f"{quote(key)}:{quote(part)}" for key, part in value.items()) + "}"


def quote(value: Any) -> str:
    if not isinstance(value, str):
        return as_text(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
