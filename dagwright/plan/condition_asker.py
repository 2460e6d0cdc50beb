"""Asks the conditions of one run: reads each text once, and lets no moment of the run take too long over them.

A workflow has about 2 s for everything that it does at one moment, or it is stuck for ever. All work of the
conditions at one moment is therefore counted, and what goes beyond the limit fails its node instead. The count comes
from the sizes of values and from the time that the driver tells, so it is the same at every replay.
"""

from collections.abc import Callable, Sequence
from typing import Any

from dagwright.plan.condition_text import Read, Steps
from dagwright.plan.conditions import (
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
from dagwright.plan.resolution import Scope

MAX_WORK = 1_500_000
"""Work of all conditions at one moment, in the units of `work_of`; about a second of CPU."""

_REMEMBERED_SIZE = 1_000
"""Larger values are measured once; measuring them again for each node that reads them would be work of its own."""


class TooMuchWork(Exception):
    """A condition was not evaluated, because it would take too long; the message says why."""


class ConditionAsker:
    """Asks the conditions of one run.

    Args:
        is_node: tells whether a text is the id of a node of the plan.
    """

    def __init__(self, is_node: Callable[[str], bool]) -> None:
        self._is_node = is_node
        self._conditions: dict[str, Condition] = {}
        self._sizes: dict[tuple[str, str, Steps], tuple[int, int]] = {}
        self._moment = 0.0
        self._work_left = MAX_WORK

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

    def holds(self, condition: Condition, scope: Scope, *, at: float) -> bool:
        """Returns whether a condition holds that reads no item.

        Raises:
            ConditionFailed: it is neither true nor false, or an operation does not fit its values.
            TooMuchWork: the conditions of this moment would take too long.
        """
        values = self._values_of(condition, scope)
        self._spend(work_of(condition, values), at)
        return holds(condition, values)

    def hold_for_items(
        self, condition: Condition, scope: Scope, *, items: Sequence[Any], at: float
    ) -> list[bool | ConditionFailed]:
        """Returns for each item whether a condition holds, or why it cannot be evaluated.

        Raises:
            TooMuchWork: the conditions of this moment would take too long; none was evaluated.
        """
        fixed = self._values_of(condition, scope)
        values = [with_item(condition, fixed, item=item, index=index) for index, item in enumerate(items)]
        self._spend(sum(work_of(condition, of_item) for of_item in values), at)
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

    def _spend(self, work: int, at: float) -> None:
        if at != self._moment:
            self._moment, self._work_left = at, MAX_WORK
        if work > self._work_left:
            raise TooMuchWork(
                f"it reads too much: about {work:,} units of work, and {self._work_left:,} of {MAX_WORK:,} are left "
                "for the conditions of this moment; let a tool work out the answer and read that"
            )
        self._work_left -= work


def _holds_or_failed(condition: Condition, values: Values) -> bool | ConditionFailed:
    try:
        return holds(condition, values)
    except ConditionFailed as error:
        return error
