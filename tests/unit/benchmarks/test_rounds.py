"""The benchmark of rounds: the sub-goals of its script, and the measured gaps."""

from itertools import count

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from benchmarks.planning import round_worker_tools
from benchmarks.planning.rounds import ROUNDS, gaps_of, script
from dagwright.planner.plan_parser import encode_tools
from dagwright.planner.rounds_parser import parse_round
from dagwright.planning.rounds.sub_goals import RoundContext
from dagwright.testing import Completion
from dagwright.tools import load_tools


def _answers() -> list[str]:
    return [step.answer.text or "" for step in script()[1:-1] if isinstance(step.answer, Completion)]


def test_every_round_of_the_script_can_be_started() -> None:
    worker_tools = encode_tools(load_tools([round_worker_tools.__file__]).declarations())
    actual = [parse_round(None, text, RoundContext(worker_tools)) for text in _answers()[:-1]]
    assert [(each["valid"], len(each.get("sub_goals", ()))) for each in actual] == [(True, 7)] * ROUNDS


def test_gaps_around_the_planner_and_inside_the_chains_are_measured() -> None:
    events: list[HistoryEvent] = []
    ids = count(1)

    def add_call(activity_id: str, started_s: int, ended_s: int) -> None:
        scheduled_event = HistoryEvent(event_id=next(ids), event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
        scheduled_event.activity_task_scheduled_event_attributes.activity_id = activity_id
        started_event = HistoryEvent(event_id=next(ids), event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
        started_event.activity_task_started_event_attributes.scheduled_event_id = scheduled_event.event_id
        started_event.event_time.seconds = started_s
        completed_event = HistoryEvent(event_id=next(ids), event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
        completed_event.activity_task_completed_event_attributes.scheduled_event_id = scheduled_event.event_id
        completed_event.event_time.seconds = ended_s
        events.extend((scheduled_event, started_event, completed_event))

    for round_number in range(1, ROUNDS + 2):
        round_start_s = 1000 * round_number
        add_call("plan" if round_number == 1 else f"plan#{round_number}", round_start_s, round_start_s + 10)
        for chain in range(2):
            for position in range(3):
                started_s = round_start_s + 13 + 20 * position
                add_call(f"sg{100 * round_number + 10 * chain + position}", started_s, started_s + 16)
        add_call(f"sg{100 * round_number + 3}", round_start_s + 80, round_start_s + 995)
    gaps = gaps_of(events)
    assert (gaps.after_planner, gaps.before_planner) == ([3.0] * ROUNDS, [5.0] * ROUNDS)
    assert gaps.dispatch == [4.0, 4.0, 4.0, 4.0, 11.0] * ROUNDS
