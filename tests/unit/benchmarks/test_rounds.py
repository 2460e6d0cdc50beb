"""The measurement of rounds: the sub-goals of its script, and the gaps that it measures."""

from itertools import count
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from benchmarks.planning import round_workers
from benchmarks.planning.rounds import (
    ANSWER,
    ROUNDS,
    AtOnce,
    Gaps,
    _sub_goals,
    figures_of,
    gaps_of,
    problem_with,
    script,
)
from dagwright.planner.plan_parser import encode_tools
from dagwright.planner.rounds_parser import parse_round
from dagwright.planning.rounds.sub_goals import RoundContext
from dagwright.testing import Completion
from dagwright.tools import load_tools


def _answers() -> list[str]:
    return [step.answer.text or "" for step in script()[1:-1] if isinstance(step.answer, Completion)]


def test_every_round_of_the_script_can_be_started() -> None:
    workers = encode_tools(load_tools([round_workers.__file__]).declarations())
    found = [parse_round(None, text, RoundContext(workers)) for text in _answers()[:-1]]
    assert [(each["valid"], len(each.get("sub_goals", ()))) for each in found] == [(True, 7)] * ROUNDS


def test_gaps_are_those_around_the_planner_and_inside_of_the_chains() -> None:
    events: list[HistoryEvent] = []
    ids = count(1)

    def call(name: str, first: int, ended: int) -> None:
        scheduled = HistoryEvent(event_id=next(ids), event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
        scheduled.activity_task_scheduled_event_attributes.activity_id = name
        started = HistoryEvent(event_id=next(ids), event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
        started.activity_task_started_event_attributes.scheduled_event_id = scheduled.event_id
        started.event_time.seconds = first
        done = HistoryEvent(event_id=next(ids), event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
        done.activity_task_completed_event_attributes.scheduled_event_id = scheduled.event_id
        done.event_time.seconds = ended
        events.extend((scheduled, started, done))

    for number in range(1, ROUNDS + 2):
        at = 1000 * number
        call("plan" if number == 1 else f"plan#{number}", at, at + 10)
        for chain in range(2):
            for place in range(3):
                first = at + 13 + 20 * place
                call(f"sg{100 * number + 10 * chain + place}", first, first + 16)
        call(f"sg{100 * number + 3}", at + 80, at + 995)
    gaps = gaps_of(events)
    assert (gaps.after_answer, gaps.before_planner) == ([3.0] * ROUNDS, [5.0] * ROUNDS)
    assert gaps.ordinary == [4.0, 4.0, 4.0, 4.0, 11.0] * ROUNDS


def _document(**changed: Any) -> dict[str, Any]:
    sub_goals = [[each["id"] for each in _sub_goals(number)] for number in range(1, ROUNDS + 1)]
    node = {"status": "completed", "attempts": 1}
    return {
        "status": "completed",
        "output": ANSWER,
        "error": None,
        "rounds": {"rounds": [*({"sub_goals": ids} for ids in sub_goals), {"sub_goals": []}]},
        "nodes": {"intention": node, **{f"sg{number}": node for ids in sub_goals for number in ids}},
        **changed,
    }


def test_every_answer_is_looked_at() -> None:
    assert problem_with(_document()) is None
    assert "'It is not.'" in str(problem_with(_document(output="It is not.")))
    assert "failed" in str(problem_with(_document(status="failed", error={"code": "max_rounds"})))
    assert "1 rounds" in str(problem_with(_document(rounds={"rounds": [{"sub_goals": [1]}]})))
    again = {"sg100": {"status": "completed", "attempts": 2}, "sg101": {"status": "completed", "attempts": 1}}
    assert problem_with(_document(nodes=again)) == "sg100 did not complete in one attempt"


def test_questions_at_once_are_held_to_speed_fairness_and_memory() -> None:
    gaps = Gaps(after_answer=[0.02], before_planner=[0.01], ordinary=[0.02])
    first = AtOnce(whole_s=30.0, each_s=[20.0, 24.0, 30.0], cpu_s=0.9, peak_gb=0.20)
    second = AtOnce(whole_s=40.0, each_s=[20.0, 26.0, 40.0], cpu_s=0.9, peak_gb=0.40)
    found = figures_of([gaps], 0.25, [first, second])
    assert [(round(figure.value, 3), figure.goal, figure.verdict) for figure in found] == [
        (1.0, 2.0, "reached"),
        (0.5, 2.0, "reached"),
        (35.0, None, "reported"),
        (1.2, 1.3, "reached"),
        (1.4, 1.5, "reached"),
        (2.0, 1.2, "lost"),
    ]
    assert [figure.name for figure in found[2:]] == [
        "3 questions of 6 rounds at once on one worker",
        "3 questions of 6 rounds at once on one worker, CPU of the worker for one : alone, s",
        "3 questions of 6 rounds at once on one worker, slowest : median",
        "3 questions of 6 rounds at once on one worker, memory after twice as many, GB",
    ]
