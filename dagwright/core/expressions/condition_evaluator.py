"""Asks the conditions of one run: reads each text once, measures each large value once, and counts the work."""

from collections.abc import Callable, Sequence
from typing import Any

from dagwright.core.expressions.compute_budget import TooMuchWork, WorkBudget
from dagwright.core.expressions.condition_parser import Read, Steps
from dagwright.core.expressions.conditions import (
    WORK_OF_EVALUATION,
    Condition,
    ConditionFailed,
    Values,
    holds,
    measure_value,
    read_condition,
    read_values,
    with_item,
    work_of,
)
from dagwright.core.expressions.resolution import Scope

_REMEMBERED_SIZE = 1_000
"""Larger values are measured once; measuring them again for each node that reads them would be work of its own."""


class ConditionAsker:
    """Asks the conditions of one run.

    Args:
        is_node: tells whether a text is the id of a node of the plan.
        budget: the work that is left for this moment.
    """

    def __init__(self, is_node: Callable[[str], bool], budget: WorkBudget) -> None:
        self._is_node = is_node
        self._budget = budget
        self._conditions: dict[str, Condition] = {}
        self._sizes: dict[tuple[str, str, Steps], tuple[int, int]] = {}

    def condition_of(self, text: str) -> Condition:
        """Returns the condition of a text, which is read once for each run.

        Raises:
            ConditionFailed: it is no condition, though a check let it pass.
        """
        condition = self._conditions.get(text)
        if condition is None:
            try:
                condition = self._conditions[text] = read_condition(text, self._is_node)
            except ValueError as error:
                raise ConditionFailed(str(error)) from None
        return condition

    def holds(self, condition: Condition, scope: Scope) -> bool:
        """Returns whether a condition holds that reads no item.

        Raises:
            ConditionFailed: it is neither true nor false, or an operation does not fit its values.
            TooMuchWork: the conditions of this moment would take too long.
        """
        values = self._values_of(condition, scope)
        self._spend(work_of(condition, values))
        return holds(condition, values)

    def hold_for_items(
        self, condition: Condition, scope: Scope, *, items: Sequence[Any], first_index: int = 0
    ) -> list[bool | ConditionFailed]:
        """Returns for each item whether a condition holds, or why it cannot be evaluated.

        Args:
            first_index: index of the first of the items.

        Raises:
            TooMuchWork: the conditions of this moment would take too long; none was evaluated.
        """
        # Before thousands of items are measured there must be room for them at all.
        self._spend(WORK_OF_EVALUATION * len(items))
        fixed = self._values_of(condition, scope)
        values = [with_item(condition, fixed, item=item, index=index) for index, item in enumerate(items, first_index)]
        self._spend(sum(work_of(condition, of_item) for of_item in values) - WORK_OF_EVALUATION * len(items))
        return [_holds_or_failed(condition, of_item) for of_item in values]

    def _values_of(self, condition: Condition, scope: Scope) -> Values:
        nodes = {
            name: {field_name: scope.node_value(name, field_name) for field_name in ("result", "status", "error")}
            for name in condition.nodes
        }
        return read_values(condition, {"nodes": nodes, "inputs": scope.inputs}, measure=self._measure)

    def _measure(self, read: Read, value: Any) -> tuple[int, int]:
        if not isinstance(value, list | dict):
            return measure_value(read, value)
        # What is there once stays as it is: results and inputs do not change.
        place = (read.source, read.node, read.steps)
        size = self._sizes.get(place)
        if size is None:
            size = measure_value(read, value)
            if size[0] > _REMEMBERED_SIZE:
                self._sizes[place] = size
        return size

    def _spend(self, work: int) -> None:
        try:
            self._budget.spend(work)
        except TooMuchWork as error:
            raise TooMuchWork(f"when: {error}") from None


def _holds_or_failed(condition: Condition, values: Values) -> bool | ConditionFailed:
    try:
        return holds(condition, values)
    except ConditionFailed as error:
        return error
