"""Evaluation of the conditions of one run: parses each text once, measures each large value once, counts the work."""

from collections.abc import Callable, Sequence
from typing import Any

from dagwright.core.expressions.compute_budget import ComputeBudget, ComputeBudgetExceeded
from dagwright.core.expressions.condition_parser import Read, Steps
from dagwright.core.expressions.conditions import (
    WORK_OF_EVALUATION,
    ConditionFailed,
    ParsedCondition,
    Values,
    evaluate_condition,
    measure_value,
    read_condition,
    read_values,
    with_item,
    work_of,
)
from dagwright.core.expressions.reference_resolution import Scope

_REMEMBERED_SIZE = 1_000
"""Larger values are measured only once, because measuring them again for each node would cost too much."""


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
        self._sizes: dict[tuple[str, str, Steps], tuple[int, int]] = {}

    def condition_of(self, text: str) -> ParsedCondition:
        """Return the parsed condition of a text; each text is parsed once per run.

        Raises:
            ConditionFailed: the text is not a condition, although a check accepted it.
        """
        condition = self._conditions.get(text)
        if condition is None:
            try:
                condition = self._conditions[text] = read_condition(text, self._is_node)
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
        self._spend(work_of(condition, values))
        return evaluate_condition(condition, values)

    def evaluate_items(
        self, condition: ParsedCondition, scope: Scope, *, items: Sequence[Any], first_index: int = 0
    ) -> list[bool | ConditionFailed]:
        """Evaluate a condition for each item; return for each item its value, or the error.

        Args:
            first_index: index of the first of the items.

        Raises:
            ComputeBudgetExceeded: the conditions of this activation would take too long; none was evaluated.
        """
        # Measuring thousands of items is work too: check the budget first.
        self._spend(WORK_OF_EVALUATION * len(items))
        fixed = self._values_of(condition, scope)
        values = [with_item(condition, fixed, item=item, index=index) for index, item in enumerate(items, first_index)]
        self._spend(sum(work_of(condition, of_item) for of_item in values) - WORK_OF_EVALUATION * len(items))
        return [_value_or_error(condition, of_item) for of_item in values]

    def _values_of(self, condition: ParsedCondition, scope: Scope) -> Values:
        nodes = {
            name: {field_name: scope.node_value(name, field_name) for field_name in ("result", "status", "error")}
            for name in condition.nodes
        }
        return read_values(condition, {"nodes": nodes, "inputs": scope.inputs}, measure=self._measure)

    def _measure(self, read: Read, value: Any) -> tuple[int, int]:
        if not isinstance(value, list | dict):
            return measure_value(read, value)
        # Results and inputs never change, so a size stays valid.
        path = (read.source, read.node, read.steps)
        size = self._sizes.get(path)
        if size is None:
            size = measure_value(read, value)
            if size[0] > _REMEMBERED_SIZE:
                self._sizes[path] = size
        return size

    def _spend(self, work: int) -> None:
        try:
            self._budget.spend(work)
        except ComputeBudgetExceeded as error:
            raise ComputeBudgetExceeded(f"when: {error}") from None


def _value_or_error(condition: ParsedCondition, values: Values) -> bool | ConditionFailed:
    try:
        return evaluate_condition(condition, values)
    except ConditionFailed as error:
        return error
