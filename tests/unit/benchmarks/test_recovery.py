"""The recovery time after a worker is killed: the time until the last chain continues."""

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from benchmarks.limit_rows import recovery_time_s


def history_of(*ends: tuple[str, int]) -> list[HistoryEvent]:
    """Return a history of completed activities.

    Args:
        ends: the ID of each activity (`CHAIN-STEP`), and the second in which the activity completed.
    """
    events = []
    for number, (activity_id, end_s) in enumerate(ends):
        scheduled_event = HistoryEvent(event_id=2 * number, event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
        scheduled_event.activity_task_scheduled_event_attributes.activity_id = activity_id
        completed_event = HistoryEvent(event_id=2 * number + 1, event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
        completed_event.activity_task_completed_event_attributes.scheduled_event_id = 2 * number
        completed_event.event_time.FromSeconds(end_s)
        events += [scheduled_event, completed_event]
    return events


ENDS_BEFORE_KILL = (("c0-0", 90), ("c1-0", 91), ("c2-0", 92), ("c3-0", 93))


def test_recovery_ends_when_the_last_chain_continues() -> None:
    first_ends = [("c0-1", 101), ("c0-2", 102), ("c0-3", 103), ("c0-4", 104)]
    ends_after_kill = [*first_ends, ("c1-1", 105), ("c2-1", 106), ("c3-1", 109)]
    assert recovery_time_s(history_of(*ENDS_BEFORE_KILL, *ends_after_kill, ("c3-2", 110)), 100.0) == 9.0


def test_chain_that_does_not_continue_is_reported() -> None:
    with pytest.raises(RuntimeError, match=r"of 4 chains only \['c0', 'c1'\] continued after the kill"):
        recovery_time_s(history_of(*ENDS_BEFORE_KILL, ("c0-1", 101), ("c1-1", 102)), 100.0)


def test_node_that_is_scheduled_twice_is_reported() -> None:
    ends_after_kill = [(f"c{number}-1", 101 + number) for number in range(4)]
    with pytest.raises(RuntimeError, match=r"nodes were scheduled twice: \['c2-0'\]"):
        recovery_time_s(history_of(*ENDS_BEFORE_KILL, *ends_after_kill, ("c2-0", 106)), 100.0)
