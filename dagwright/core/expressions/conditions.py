"""`when`: a condition in CEL over results, inputs and the item (docs/reference/plan.md).

Conditions are evaluated in workflow code, so they must be fast and deterministic at every replay. Comprehensions
therefore must not nest, and `map` and `filter` are rejected: the library iterates over objects in random order, and
the results of these two macros would show this order. The cost of an evaluation is estimated before it starts, from the
sizes of the values and never from a clock. The caller can therefore reject expensive evaluations.

Conditions are null-safe: a condition that needs a null or missing value is false.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dagwright.core.expressions.compute_budget import ComputeBudget, ComputeBudgetExceeded, TooLargeForRun
from dagwright.core.expressions.condition_parser import (
    ParsedCondition,
    Read,
    Steps,
    compile_cel,
    parse_checked_condition,
)
from dagwright.core.expressions.paths import MissingValue, describe_type, format_path, get_value
from dagwright.core.expressions.references import Scope
from dagwright.core.expressions.stored_values import DeferredText, StoredValue

WORK_OF_EVALUATION = 10
"""Work of the smallest condition."""
_WORK_OF_ITERATION = 2
_WORK_OF_PATTERN = 100
_WORK_OF_CHARACTER_CLASS = 1_000
"""Work of a character class such as `\\w` in a pattern; its tables for Unicode take half a millisecond."""

Measure = Callable[[Read, Any], tuple[int, int]]
"""Function that returns the cost of passing a value to the library, and the length of the longest list or object in the
value."""
_CHARACTER_CLASS = re.compile(r"\\+")
"""A character class starts with one backslash in a raw text, and with two in other texts."""

_MISSING = object()


class ConditionFailed(Exception):
    """A condition cannot be evaluated to true or false; the message has the reason."""


@dataclass(slots=True)
class ConditionValues:
    """The values that a condition reads.

    Args:
        variables: variables of the program; a missing value has no variable, so that a program that reads it fails.
        has_missing: whether a value is null or missing.
        unsized_type: type of a value whose size is read although it has no size, such as `a number`.
        cost, total_length: sums of the two results of a `Measure` over all values.
        loop_cost: sum of `cost` of the values inside comprehensions.
    """

    variables: dict[str, Any] = field(default_factory=dict)
    has_missing: bool = False
    unsized_type: str = ""
    cost: int = 0
    total_length: int = 0
    loop_cost: int = 0

    def add(self, read: Read, root_value: Any, *, measure: Measure) -> None:
        """Add the value of one read. `root_value` is the value at which the path of the read starts."""
        if read.aspect == "presence":
            self._add_presence(read, root_value)
            return
        value = _walk(root_value, read.steps)
        if value is _MISSING or value is None:
            self.has_missing = True
        if isinstance(value, StoredValue | DeferredText):
            value = _projected_value(value, read)
        elif read.aspect == "size":
            if isinstance(value, str):
                value = value.encode(errors="replace")
            elif value is not _MISSING and value is not None and not isinstance(value, list | dict):
                self.unsized_type = describe_type(value)
            value = len(value) if isinstance(value, list | dict | bytes) else _MISSING
        if value is _MISSING:
            return
        self.variables[read.variable] = value
        cost, max_length = measure(read, value)
        self.cost += cost
        self.total_length += max_length
        self.loop_cost += cost if read.is_in_loop else 0

    def _add_presence(self, read: Read, root_value: Any) -> None:
        parent = _walk(root_value, read.steps[:-1])
        if _is_object(parent) or not read.steps:
            value = _walk(root_value, read.steps)
            self.variables[read.variable] = value is not _MISSING
            self.has_missing = self.has_missing or value is _MISSING or value is None
        else:
            self.has_missing = True
        self.cost += 1
        self.loop_cost += read.is_in_loop


def _walk(value: Any, steps: Steps) -> Any:
    for number, step in enumerate(steps):
        if isinstance(value, StoredValue):
            try:
                return get_value(value, steps[number:], name="")
            except MissingValue:
                return _MISSING
        if isinstance(value, dict):
            value = value.get(step, _MISSING)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return _MISSING
    return value


def _is_object(value: Any) -> bool:
    if isinstance(value, StoredValue):
        return value.shape is not None and value.shape.type == "object"
    return isinstance(value, dict)


def _projected_value(value: StoredValue | DeferredText, read: Read) -> Any:
    """Return the value or the size of a stored value for a condition."""
    part = value.root_part if isinstance(value, StoredValue) else None
    shape = part.shape if part is not None else None
    if part is not None and read.aspect == "size" and shape is not None:
        return shape.length
    if part is not None and part.state == "whole":
        return part.value
    name = read.source if read.source != "nodes" else read.node_id
    raise TooLargeForRun(f"when: {name}{format_path(read.steps)}", shape.size_bytes if shape is not None else None)


def measure_value(_: Read, value: Any) -> tuple[int, int]:
    """Return the cost of passing a value to the library, and the length of the longest list or object in it."""
    if not isinstance(value, list | dict):
        return (4 + len(value) // 100 if isinstance(value, str) else 1), 0
    work, max_length = 0, 0
    stack: list[Any] = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, StoredValue | DeferredText):
            raise TooLargeForRun("when: a part of a value that the condition reads", None)
        if isinstance(part, str):
            work += 4 + len(part) // 100
        elif isinstance(part, list | dict):
            work += 4
            max_length = max(max_length, len(part))
            if isinstance(part, dict):
                work += 4 * len(part)
                stack += part.values()
            else:
                stack += part
        else:
            work += 1
    return work, max_length


def read_values(
    condition: ParsedCondition, scope: Mapping[str, Any], *, measure: Measure = measure_value
) -> ConditionValues:
    """Return the values that a condition reads, except `item` and `index`.

    Args:
        condition: as returned by `parse_checked_condition`.
        scope: `nodes` (id -> `{"result", "status", "error"}`) with the ids that the condition reads, and `inputs`.
        measure: may cache its results, because the values do not change.
    """
    values = ConditionValues()
    for read in condition.analysis.reads:
        if read.source == "nodes":
            values.add(read, scope["nodes"][read.node_id], measure=measure)
        elif read.source == "inputs":
            values.add(read, scope["inputs"], measure=measure)
    return values


def missing_reads(condition: ParsedCondition, get_root_value: Callable[[Read], Any]) -> list[str]:
    """Return the missing or null values that a condition reads, such as `a.result.x is missing`.

    Values that the condition itself checks with `has()`, and the item of a `for_each`, are omitted.

    Args:
        get_root_value: returns the value at which the path of a read starts: a node's fields by name, or the inputs.
    """
    reads = [read for read in condition.analysis.reads if read.source in ("nodes", "inputs")]
    checked_paths = {(read.source, read.node_id, read.steps) for read in reads if read.aspect == "presence"}
    missing_texts: dict[str, None] = {}
    for read in reads:
        paths = [read.steps[:end] for end in range(len(read.steps) + 1)]
        if any((read.source, read.node_id, path) in checked_paths for path in paths):
            continue
        root_value = get_root_value(read)
        name = read.node_id if read.source == "nodes" else read.source
        if read.source == "nodes" and _walk(root_value, read.steps[:1]) is None:
            missing_texts[f"{name}{format_path(read.steps[:1])} is null"] = None
            continue
        value = _walk(root_value, read.steps)
        if value is _MISSING or value is None:
            missing_texts[f"{name}{format_path(read.steps)} is {'missing' if value is _MISSING else 'null'}"] = None
    return [*missing_texts]


def values_for_item(
    condition: ParsedCondition, shared_values: ConditionValues, *, item: Any, index: int
) -> ConditionValues:
    """Return the values for one item of a `for_each`: the shared values, and the values of the item."""
    values = replace(shared_values, variables=dict(shared_values.variables))
    for read in condition.analysis.reads:
        if read.source == "item":
            values.add(read, item, measure=measure_value)
        elif read.source == "index":
            values.add(read, index, measure=measure_value)
    return values


def estimate_work(condition: ParsedCondition, values: ConditionValues) -> int:
    """Return an upper estimate of the cost of an evaluation, in units of `ComputeBudget`."""
    analysis = condition.analysis
    pattern_work = sum(
        _WORK_OF_PATTERN + _WORK_OF_CHARACTER_CLASS * len(_CHARACTER_CLASS.findall(pattern))
        for pattern in analysis.patterns
    )
    # Each `+` may copy all of its operands again.
    work = WORK_OF_EVALUATION + values.cost * (1 + analysis.signs.count("+")) + pattern_work
    if analysis.loop_count:
        # A comprehension iterates over a value that is read, or over a literal list with commas.
        iterations = values.total_length + analysis.signs.count(",")
        work += (
            iterations * (_WORK_OF_ITERATION + values.loop_cost + pattern_work)
            + values.cost * analysis.element_read_count
        )
    return work


def evaluate_condition(condition: ParsedCondition, values: ConditionValues) -> bool:
    """Evaluate a condition for the values that it reads.

    Raises:
        ConditionFailed: the value is not a boolean, or an operation does not fit its operands.
    """
    try:
        value = compile_cel(condition.analysis.program).execute(values.variables)
    except (KeyError, IndexError):
        return False
    # The library raises many types of exceptions, depending on the operation.
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        if values.has_missing:
            return False
        reason = f"{values.unsized_type} has no size" if values.unsized_type else str(error).splitlines()[0]
        raise ConditionFailed(f"{condition.text!r} cannot be evaluated: {reason}") from None
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ConditionFailed(f"{condition.text!r} is neither true nor false but {value!r:.60}")
    return value


_MIN_CACHED_COST = 1_000
"""The measurement of a value with a higher cost is cached: measuring the value for each node would take too long."""


class ConditionEvaluator:
    """Evaluates the conditions of one run.

    Args:
        is_node: returns whether a text is the id of a node of the plan.
        budget: work that is left in this activation.
    """

    def __init__(self, is_node: Callable[[str], bool], budget: ComputeBudget) -> None:
        self._is_node = is_node
        self._budget = budget
        self._conditions: dict[str, ParsedCondition] = {}
        self._measurements: dict[tuple[str, str, Steps], tuple[int, int]] = {}

    def condition_of(self, text: str) -> ParsedCondition:
        """Return the parsed condition of a text; each text is parsed once per run.

        Raises:
            ConditionFailed: the text is not a condition; the compiler checks this before the run.
        """
        condition = self._conditions.get(text)
        if condition is None:
            try:
                condition = self._conditions[text] = parse_checked_condition(text, self._is_node)
            except ValueError as error:
                raise ConditionFailed(str(error)) from None
        return condition

    def evaluate(self, condition: ParsedCondition, scope: Scope) -> bool:
        """Evaluate a condition that does not read `item`.

        Raises:
            ConditionFailed: the value is not a boolean, or an operation does not fit its operands.
            ComputeBudgetExceeded: the conditions of this activation would take too long.
        """
        values = self._values_of(condition, scope)
        self._spend(estimate_work(condition, values))
        return evaluate_condition(condition, values)

    def evaluate_items(
        self, condition: ParsedCondition, scope: Scope, *, items: Sequence[Any], first_index: int = 0
    ) -> list[bool | ConditionFailed]:
        """Evaluate a condition for each item. Return whether it is true for each item, or the error of the evaluation.

        Args:
            first_index: index of the first of the items.

        Raises:
            ComputeBudgetExceeded: the conditions of this activation would take too long; no condition was evaluated.
        """
        # Measuring thousands of items is work too: check the budget first.
        self._spend(WORK_OF_EVALUATION * len(items))
        shared_values = self._values_of(condition, scope)
        values = [
            values_for_item(condition, shared_values, item=item, index=index)
            for index, item in enumerate(items, first_index)
        ]
        self._spend(
            sum(estimate_work(condition, item_values) for item_values in values) - WORK_OF_EVALUATION * len(items)
        )
        return [_value_or_error(condition, item_values) for item_values in values]

    def _values_of(self, condition: ParsedCondition, scope: Scope) -> ConditionValues:
        nodes = {
            name: {field_name: scope.get_node_value(name, field_name) for field_name in ("result", "status", "error")}
            for name in condition.nodes
        }
        return read_values(condition, {"nodes": nodes, "inputs": scope.inputs}, measure=self._measure)

    def _measure(self, read: Read, value: Any) -> tuple[int, int]:
        if not isinstance(value, list | dict):
            return measure_value(read, value)
        # Results and inputs never change, so a measurement stays valid.
        path = (read.source, read.node_id, read.steps)
        measurement = self._measurements.get(path)
        if measurement is None:
            measurement = measure_value(read, value)
            if measurement[0] > _MIN_CACHED_COST:
                self._measurements[path] = measurement
        return measurement

    def _spend(self, work: int) -> None:
        try:
            self._budget.spend(work)
        except ComputeBudgetExceeded as error:
            raise ComputeBudgetExceeded(f"when: {error}") from None


def _value_or_error(condition: ParsedCondition, values: ConditionValues) -> bool | ConditionFailed:
    try:
        return evaluate_condition(condition, values)
    except ConditionFailed as error:
        return error
