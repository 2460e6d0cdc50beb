"""Parsing of planner answers of the profile `rounds`: sub-goals that may start, and problems of invalid answers."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagwright.core.expressions.value_refs import encoded_size
from dagwright.core.model.tools import Effects, GoalType, ToolDeclaration, WorkerCard
from dagwright.core.validation.worker_tools import WorkerTool
from dagwright.planner.plan_parser import encode_tools
from dagwright.planner.rounds_parser import parse_round
from dagwright.planner.rounds_prompts import intention_messages
from dagwright.planner.rounds_schema import MAX_SUB_GOALS, MAX_SUB_GOALS_OF_RUN
from dagwright.planner.sub_goal_fields import MAX_DEPTH
from dagwright.planning.conversation import TurnSummary
from dagwright.planning.rounds.sub_goals import (
    ROUND_CONTEXTS,
    SUB_GOALS,
    KnownSubGoal,
    RoundContext,
    SubGoalStatus,
    work_digest,
)
from dagwright.tools.result_json import plain_json
from tests.support.rounds import continue_response, done_response, failed_response, ref, sub_goal


def worker_tool(
    name: str,
    *,
    argument_names: tuple[str, ...],
    outputs: tuple[str, ...],
    goal_type: GoalType = "support",
    **card_fields: Any,
) -> ToolDeclaration:
    """Return a worker tool. Its arguments have no types."""
    arguments: dict[str, Any] = {argument_name: {} for argument_name in argument_names}
    schema = {"type": "object", "properties": arguments, "additionalProperties": False}
    card = WorkerCard(description=name, outputs=outputs, goal_type=goal_type, **card_fields)
    return ToolDeclaration(name, Effects.READ, input_schema=schema, worker=card)


WORKER_TOOLS = {
    tool.name: tool
    for tool in (
        worker_tool("pick", argument_names=("name",), outputs=("numbers",), same_as={"numbers": "all_results"}),
        worker_tool(
            "add_up",
            argument_names=("numbers", "more"),
            outputs=("total", "rest"),
            requires=("numbers",),
            same_as={"rest": "numbers"},
        ),
        worker_tool("show", argument_names=("total",), outputs=("shown",), goal_type="deliverable"),
        worker_tool(
            "tell",
            argument_names=("all_results",),
            outputs=("statement",),
            goal_type="deliverable",
            requires=("all_results",),
        ),
        worker_tool(
            "think", argument_names=("about",), outputs=("thought",), goal_type="deliverable", takes_sub_goal=True
        ),
    )
}


def known_sub_goal(
    number: int,
    worker_name: str,
    status: SubGoalStatus = "success",
    /,
    *,
    slots: tuple[str, ...] | None = None,
    attempts: int = 1,
    **arguments: Any,
) -> KnownSubGoal:
    """Return a sub-goal of an earlier answer. `slots` names the slots that have values (default: all)."""
    document = sub_goal(number, worker_name, arguments.pop("description", ""), **arguments)
    card = WORKER_TOOLS[worker_name].worker
    assert card is not None
    decoded_sub_goal = SUB_GOALS.decode(
        {**document, "worker": worker_name, "outputs": card.outputs, "goal_type": card.goal_type}
    )
    digest = work_digest(decoded_sub_goal, WorkerTool(WORKER_TOOLS[worker_name], card))
    is_done = status in ("success", "partial")
    filled_slots = (card.outputs if is_done else ()) if slots is None else slots
    return KnownSubGoal(number, worker_name, decoded_sub_goal.sources, digest, status, filled_slots, attempts)


def parse(answer: str, *existing_sub_goals: KnownSubGoal) -> dict[str, Any]:
    """Parse an answer with a context that is encoded and decoded as JSON."""
    context = RoundContext(encode_tools(WORKER_TOOLS), existing_sub_goals)
    return parse_round(None, answer, ROUND_CONTEXTS.decode(json.loads(json.dumps(ROUND_CONTEXTS.encode(context)))))


def is_accepted(new_sub_goal: Any, *existing_sub_goals: KnownSubGoal) -> bool:
    return parse(continue_response(new_sub_goal), *existing_sub_goals)["valid"] is True


def problems_of(answer: str, *existing_sub_goals: KnownSubGoal) -> list[tuple[str, str]]:
    """Return the code and pointer of each problem of an answer."""
    actual = parse(answer, *existing_sub_goals)
    assert actual["valid"] is False
    assert actual["repair"].startswith("This answer is invalid:\n- ")
    return [(problem["code"], problem["pointer"]) for problem in actual["problems"]]


def problems_of_sub_goal(new_sub_goal: Any, *existing_sub_goals: KnownSubGoal) -> list[tuple[str, str]]:
    """Return the problems of an answer with one new sub-goal."""
    return problems_of(continue_response(new_sub_goal), *existing_sub_goals)


def test_parsed_sub_goals_include_the_outputs_of_their_worker_tools() -> None:
    actual = parse(
        continue_response(
            sub_goal(1, "pick", "the numbers", name="Maersk"),
            sub_goal(2, "add_up", numbers=[ref(1, "numbers"), ref(1, "numbers")], more=1),
            reasoning="Both.",
        )
    )
    assert (actual["valid"], actual["action"], actual["reasoning"]) == (True, "continue", "Both.")
    pick = {"id": 1, "worker": "pick", "description": "the numbers", "outputs": ["numbers"], "goal_type": "support"}
    add_up = {"id": 2, "worker": "add_up", "description": "", "outputs": ["total", "rest"], "goal_type": "support"}
    assert actual["sub_goals"] == [
        {**pick, "inputs": {}, "params": {"name": "Maersk"}},
        {**add_up, "inputs": {"numbers": [ref(1, "numbers"), ref(1, "numbers")]}, "params": {"more": 1}},
    ]


_ANSWER = '{"action": "continue", "sub_goals": [{"id": 1, "worker": "pick", "params": {"name": "M"}}]}'


@pytest.mark.parametrize(
    "answer",
    [
        f"Here it is:\n```json\n{_ANSWER[:-3]},}}]}}```",
        _ANSWER.replace("1", '"sg1"').replace('{"name": "M"}', json.dumps('{"name": "M"}')),
        json.dumps(
            {"action": "continue", "sub_goals": json.dumps([{"id": 1.0, "worker": "pick", "params": '{"name": "M"}'}])}
        ),
    ],
    ids=["fenced", "texts in fields", "sub-goals as a text"],
)
def test_unambiguous_answer_is_parsed_in_every_form(answer: str) -> None:
    (actual,) = parse(answer)["sub_goals"]
    assert (actual["id"], actual["params"]) == (1, {"name": "M"})


@pytest.mark.parametrize(
    ("answer", "code", "pointer"),
    [
        ("Nothing.", "empty_plan", ""),
        (" ", "empty_plan", ""),
        (_ANSWER.replace('"M"', "NaN"), "invalid_syntax", "/sub_goals/0/params/name"),
        (_ANSWER.replace("{", '{"action": "failed", ', 1), "invalid_syntax", ""),
        ("[]", "invalid_field", ""),
        ('{"action": "go"}', "invalid_field", "/action"),
        ('{"action": "continue", "sub_goals": []}', "empty_plan", "/sub_goals"),
        (done_response(), "empty_plan", "/synthesis_inputs"),
        (failed_response(" "), "invalid_field", "/reasoning"),
    ],
)
def test_invalid_answer_is_rejected_with_its_pointer(answer: str, code: str, pointer: str) -> None:
    assert (code, pointer) in problems_of(answer)


_PICK, _SHOW = {"id": 1, "worker": "pick"}, {"id": 1, "worker": "show"}
_CONFLICT = {"params": {"name": 1}, "inputs": {"name": ref(2, "total")}}


@pytest.mark.parametrize(
    ("sub_goals", "code", "pointer"),
    [
        ([sub_goal(n, "pick", name=str(n)) for n in range(MAX_SUB_GOALS + 1)], "too_large", ""),
        ([sub_goal(1, "fly")], "unknown_tool", "/0/worker"),
        ([{**_PICK, "id": "one"}], "invalid_field", "/0/id"),
        ([sub_goal(1, "pick", nam="x")], "invalid_arguments", "/0/params/nam"),
        ([{**_PICK, **_CONFLICT}], "invalid_field", "/0/inputs/name"),
        ([sub_goal(1, "show", total="x"), sub_goal(1, "show", total="y")], "duplicate_id", "/1/id"),
        ([{**_SHOW, "inputs": {"total": 7}}], "invalid_field", "/0/inputs/total"),
        ([sub_goal(1, "show", total=ref(9, "total"))], "invalid_reference", "/0/inputs/total/from_sub_goal"),
        (
            [sub_goal(1, "pick", name="x"), sub_goal(2, "add_up", numbers=[ref(1, "number")])],
            "invalid_reference",
            "/1/inputs/numbers/0/slot",
        ),
        ([sub_goal(1, "add_up", more=1)], "precondition_missing", "/0/inputs"),
        ([sub_goal(1, "add_up", numbers=None)], "precondition_missing", "/0/inputs"),
        ([sub_goal(number, "add_up", numbers=ref(3 - number, "rest")) for number in (1, 2)], "cycle", ""),
        ([{**sub_goal(1, "pick", name="x"), "input": {}}], "invalid_field", "/0/input"),
        ([sub_goal(1, "show", total={**ref(2, "total"), "path": "a"})], "invalid_field", "/0/inputs/total/path"),
        ([{**_PICK, "params": []}], "invalid_field", "/0/params"),
        ([{**_PICK, "params": False}], "invalid_field", "/0/params"),
        ([{**_PICK, "params": ""}], "invalid_field", "/0/params"),
        ([{**_PICK, "inputs": ""}], "invalid_field", "/0/inputs"),
        ([{**_PICK, "description": 0}], "invalid_field", "/0/description"),
        ([sub_goal(1, "show", total=[ref(2, "total")] * 51)], "too_large", "/0/inputs"),
    ],
)
def test_invalid_sub_goal_is_rejected_with_its_pointer(sub_goals: list[Any], code: str, pointer: str) -> None:
    assert (code, f"/sub_goals{pointer}") in problems_of(continue_response(*sub_goals))


def test_unknown_worker_tool_does_not_hide_other_problems_of_the_round() -> None:
    answer = continue_response(
        {**sub_goal(1, "nosuch"), "inputs": {"a": ref(8, "x")}},
        sub_goal(2, "add_up"),
        sub_goal(3, "show", total=ref(9, "total")),
        # The slots of an unknown worker tool are unknown, so a reference to such a slot is not a problem.
        sub_goal(4, "show", total=ref(1, "total")),
    )
    assert problems_of(answer) == [
        ("unknown_tool", "/sub_goals/0/worker"),
        ("precondition_missing", "/sub_goals/1/inputs"),
        ("invalid_reference", "/sub_goals/2/inputs/total/from_sub_goal"),
        ("invalid_reference", "/sub_goals/0/inputs/a/from_sub_goal"),
    ]


def test_deliverable_inputs_must_come_from_worker_tools() -> None:
    existing_sub_goal = known_sub_goal(1, "pick", name="x")
    values: list[Any] = [{"found": 7}, {}, [], ""]
    for value in values:
        new_sub_goal = {**sub_goal(2, "tell"), "params": {"all_results": value}}
        expected = [("precondition_missing", "/sub_goals/0/params/all_results")]
        assert problems_of_sub_goal(new_sub_goal, existing_sub_goal) == expected
    assert is_accepted(sub_goal(2, "tell", all_results=ref(1, "numbers")), existing_sub_goal)
    # A support worker tool accepts literal values, such as names from the request.
    assert is_accepted(sub_goal(2, "add_up", numbers=[1, 2]), existing_sub_goal)


def test_argument_names_are_normalized() -> None:
    existing_sub_goal = known_sub_goal(1, "pick", name="x")
    sub_goal_with_input = {**sub_goal(2, "tell"), "inputs": {"all-results": ref(1, "numbers")}}
    (actual,) = parse(continue_response(sub_goal_with_input), existing_sub_goal)["sub_goals"]
    assert actual["inputs"] == {"all_results": ref(1, "numbers")}
    inputs = {"all-results": ref(1, "numbers"), "all_results": ref(1, "numbers")}
    expected = [("invalid_field", "/sub_goals/0/inputs/all_results")]
    assert problems_of_sub_goal({**sub_goal_with_input, "inputs": inputs}, existing_sub_goal) == expected
    assert problems_of_sub_goal(sub_goal(2, "pick", name="x"), existing_sub_goal) == [("repeated", "/sub_goals/0")]


def test_slot_of_an_earlier_round_is_valid_unless_null_or_of_another_kind() -> None:
    picked = known_sub_goal(1, "pick", name="x")
    added = known_sub_goal(2, "add_up", "partial", slots=("total",), numbers=ref(1, "numbers"))
    assert is_accepted(sub_goal(3, "show", total=ref(2, "total")), picked, added)
    # A null slot is accepted for an argument that is not required.
    assert is_accepted(sub_goal(3, "show", total=ref(2, "rest")), picked, added)
    expected = [("precondition_missing", "/sub_goals/0/inputs/numbers")]
    assert problems_of_sub_goal(sub_goal(3, "add_up", numbers=ref(2, "rest")), picked, added) == expected
    added = known_sub_goal(2, "add_up", numbers=ref(1, "numbers"))
    for valid_input in (ref(1, "numbers"), ref(2, "rest"), [ref(1, "numbers"), ref(2, "rest")]):
        assert is_accepted(sub_goal(3, "add_up", numbers=valid_input, more=7), picked, added)
    # The planner may connect any slot to an argument that is not required.
    assert is_accepted(sub_goal(3, "add_up", numbers=ref(1, "numbers"), more=ref(2, "total")), picked, added)
    sub_goal_with_wrong_slot = sub_goal(3, "add_up", numbers=[ref(1, "numbers"), ref(2, "total")])
    rejected_answer = parse(continue_response(sub_goal_with_wrong_slot), picked, added)
    (problem,) = rejected_answer["problems"]
    assert problem["code"] == "invalid_reference"
    assert problem["pointer"] == "/sub_goals/0/inputs/numbers/1/slot"
    assert problem["message"] == "'add_up' requires 'numbers', but the reference is to the slot 'total'"
    assert problem["hint"] == "connect 'numbers' of 'pick' or 'rest' of 'add_up'"
    assert problem["message"] in rejected_answer["repair"]
    # The slots are also checked if both sub-goals start in the same answer.
    answer = continue_response(
        sub_goal(3, "pick", name="y"), sub_goal(4, "think"), sub_goal(5, "tell", all_results=ref(4, "thought"))
    )
    assert problems_of(answer, picked, added) == [("invalid_reference", "/sub_goals/2/inputs/all_results/slot")]


@pytest.mark.parametrize("status", ["success", "partial", "running"])
def test_id_of_a_completed_or_running_sub_goal_cannot_be_reused(status: SubGoalStatus) -> None:
    existing_sub_goal = known_sub_goal(1, "pick", status, name="x")
    expected = [("duplicate_id", "/sub_goals/0/id")]
    assert problems_of_sub_goal(sub_goal(1, "pick", name="other"), existing_sub_goal) == expected


def test_failed_and_pending_sub_goals_can_be_started_again() -> None:
    existing_sub_goals = (
        known_sub_goal(1, "pick", "failed", name="x"),
        known_sub_goal(2, "add_up", "pending", numbers=ref(1, "numbers")),
    )

    def started_ids(*new_sub_goals: Mapping[str, Any]) -> list[int]:
        return [each["id"] for each in parse(continue_response(*new_sub_goals), *existing_sub_goals)["sub_goals"]]

    failed, pending = sub_goal(1, "pick", name="x"), sub_goal(2, "add_up", numbers=ref(1, "numbers"))
    dependent = sub_goal(3, "add_up", numbers=ref(1, "numbers"), more=1)
    expected = ("precondition_missing", "/sub_goals/0/inputs/numbers")
    assert problems_of_sub_goal(dependent, *existing_sub_goals)[0] == expected
    assert started_ids(failed, dependent) == [1, 3]
    assert started_ids(failed, pending) == [1]
    assert problems_of_sub_goal(pending, *existing_sub_goals) == [("empty_plan", "/sub_goals")]
    assert started_ids(sub_goal(4, "pick", name="y"), sub_goal(2, "add_up", numbers=ref(4, "numbers"))) == [4, 2]
    dependent_on_pending = sub_goal(3, "show", total=ref(2, "total"))
    assert problems_of_sub_goal(dependent_on_pending, *existing_sub_goals) == [("precondition_missing", "/sub_goals")]


@pytest.mark.parametrize(
    ("existing_sub_goal", "new_sub_goal", "is_repeated"),
    [
        (known_sub_goal(1, "pick", name="x"), sub_goal(2, "pick", "other words", name="x"), True),
        (known_sub_goal(1, "pick", name="x"), sub_goal(2, "pick", name="y"), False),
        (known_sub_goal(1, "pick", "failed", name="x"), sub_goal(2, "pick", name="x"), True),
        (known_sub_goal(1, "pick", "failed", attempts=2, name="x"), sub_goal(1, "pick", name="x"), False),
        (known_sub_goal(1, "pick", "failed", attempts=3, name="x"), sub_goal(1, "pick", name="x"), True),
        (known_sub_goal(1, "pick", "failed", attempts=3, name="x"), sub_goal(1, "pick", name="y"), False),
        # A worker tool that reads the description does different work for a different description.
        (known_sub_goal(1, "think", about=1, description="trends"), sub_goal(2, "think", "shares", about=1), False),
        (
            known_sub_goal(1, "think", about=1, description="The trends."),
            sub_goal(2, "think", "the trends", about=1),
            True,
        ),
    ],
)
def test_sub_goal_with_the_same_work_is_a_repetition(
    existing_sub_goal: KnownSubGoal, new_sub_goal: Mapping[str, Any], *, is_repeated: bool
) -> None:
    actual = parse(continue_response(new_sub_goal), existing_sub_goal)
    assert (actual["valid"], actual.get("repeats", False)) == (not is_repeated, is_repeated)


def test_done_answer_needs_existing_slots_and_a_deliverable() -> None:
    existing_sub_goals = (
        known_sub_goal(1, "pick", name="x"),
        known_sub_goal(2, "show", total=1),
        known_sub_goal(3, "show", "failed", total=2),
        known_sub_goal(4, "add_up", "partial", slots=("total",), numbers=ref(1, "numbers")),
    )
    actual = parse(done_response(shown=ref(2, "shown"), all=[ref(1, "numbers"), ref(4, "total")]), *existing_sub_goals)
    assert actual["synthesis_inputs"] == {"shown": ref(2, "shown"), "all": [ref(1, "numbers"), ref(4, "total")]}
    invalid_inputs: list[tuple[dict[str, Any], str, str]] = [
        ({"numbers": ref(1, "numbers")}, "no_deliverable", ""),
        ({"shown": ref(3, "shown")}, "invalid_reference", "/shown"),
        ({"rest": ref(4, "rest")}, "invalid_reference", "/rest"),
        ({"shown": ref(2, "show")}, "invalid_reference", "/shown/slot"),
    ]
    for inputs, code, pointer in invalid_inputs:
        assert problems_of(done_response(**inputs), *existing_sub_goals) == [(code, f"/synthesis_inputs{pointer}")]


def test_excess_sub_goals_and_truncated_answers_are_rejected() -> None:
    existing_sub_goals = [known_sub_goal(number, "pick", name=str(number)) for number in range(MAX_SUB_GOALS_OF_RUN)]
    excess_sub_goal = sub_goal(500, "pick", name="one more")
    assert problems_of_sub_goal(excess_sub_goal, *existing_sub_goals) == [("too_large", "/sub_goals")]
    answer = continue_response(sub_goal(1, "pick", name="x"), sub_goal(2, "pick", name="yyyyyyyy"))
    assert problems_of(answer.rpartition("yyyyyyyy")[0])[0][0] == "truncated"


def _answer_with_params(params: str) -> dict[str, Any]:
    return {"action": "continue", "sub_goals": [{"id": 1, "worker": "pick", "description": "", "params": params}]}


def parse_as_value_and_text(answer: Any) -> list[dict[str, Any]]:
    """Parse an answer twice: as a JSON value and as text."""
    context = RoundContext(encode_tools(WORKER_TOOLS), (known_sub_goal(1, "pick"),))
    return [parse_round(answer, "", context), parse_round(None, json.dumps(answer), context)]


@pytest.mark.parametrize(
    ("params", "code"),
    [
        (r'{"name": "\ud800"}', "invalid_syntax"),
        (r'{"\udfff": 1}', "invalid_syntax"),
        ('{"name": NaN}', "invalid_syntax"),
        ('{"name": 1e400}', "invalid_syntax"),
        ('{"name": 1, "name": 2}', "invalid_field"),
        ('{"name": ' + "[" * 248 + "]" * 248 + "}", "too_large"),
        ('{"name": ' + "[" * 90 + "]" * 90 + "}", "too_large"),
        ('{"name": ' + "[" * 100_000, "too_large"),
        ('{"name": ', "invalid_syntax"),
    ],
)
def test_unstorable_json_text_in_an_answer_is_rejected(params: str, code: str) -> None:
    for actual in parse_as_value_and_text(_answer_with_params(params)):
        assert actual["valid"] is False
        assert actual["problems"][0]["code"] == code
        assert plain_json(actual) == actual


def test_too_deeply_nested_answer_is_rejected_in_every_form() -> None:
    deep_value: Any = 1
    for _ in range(MAX_DEPTH):
        deep_value = [deep_value]
    answer = {"action": "continue", "sub_goals": [sub_goal(1, "pick", name=deep_value)]}
    assert [actual["problems"][0]["code"] for actual in parse_as_value_and_text(answer)] == ["too_large"] * 2


_TEXTS = st.text(st.characters(codec=None, categories=None)) | st.sampled_from(
    ["continue", "done", "failed", "pick", "add_up", "show", "numbers", "sg1", '{"a": "\\ud800"}', "[NaN]", "{", ""]
)
_FIELDS = [
    *("action", "reasoning", "sub_goals", "synthesis_inputs", "id", "worker"),
    *("description", "inputs", "params", "from_sub_goal", "slot", "name"),
]
_NAMES = _TEXTS | st.sampled_from(_FIELDS)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=6) | inner.map(json.dumps),
    max_leaves=20,
)
_SUB_GOALS = st.fixed_dictionaries(
    {"id": st.integers(0, 3) | _VALUES, "worker": st.sampled_from([*WORKER_TOOLS]) | _VALUES},
    optional=dict.fromkeys(("description", "inputs", "params", "outputs", "more"), _VALUES),
)
_ANSWERS = _VALUES | st.fixed_dictionaries(
    {"action": st.sampled_from(["continue", "done", "failed"])},
    optional={"reasoning": _VALUES, "sub_goals": st.lists(_SUB_GOALS) | _VALUES, "synthesis_inputs": _VALUES},
)


@settings(deadline=None)
@given(_ANSWERS)
def test_any_answer_of_a_planner_is_parsed_or_rejected(answer: Any) -> None:
    for actual in parse_as_value_and_text(answer):
        assert actual["valid"] is True or actual["repair"]
        assert plain_json({"answer": actual}) == {"answer": actual}
        assert encoded_size(actual) > 0


@settings(deadline=None)
@given(_TEXTS)
def test_random_text_is_rejected(text: str) -> None:
    actual = parse_round(None, text, RoundContext(encode_tools(WORKER_TOOLS)))
    assert actual["valid"] is False
    assert plain_json(actual) == actual


def test_prompt_cuts_the_newest_response_at_10000_characters_and_earlier_ones_at_4000() -> None:
    def response_of(letter: str, length: int) -> str:
        return letter * length + "Which one?"

    turns = [TurnSummary(1, "q" * 5_000, response_of("a", 9_000)), TurnSummary(2, "And?", response_of("b", 9_000))]
    prompt = intention_messages("The first.", turns)[1].content or ""
    _, older_turn, newest_turn, *_ = prompt.splitlines()
    assert (older_turn.count("q") < 5_000, "Which one?" in older_turn, "[…cut]" in older_turn) == (True, True, True)
    assert 3_900 < older_turn.count("a") < 4_000
    assert response_of("b", 9_000) in newest_turn
    long_turn = TurnSummary(1, "Q", response_of("c", 20_000))
    text_of_long_turn = intention_messages("The first.", [long_turn])[1].content or ""
    assert 9_900 < text_of_long_turn.count("c") < 10_010
    assert "Which one?" in text_of_long_turn
