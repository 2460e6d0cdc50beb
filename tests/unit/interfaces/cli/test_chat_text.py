"""Hints, help and status lines of a chat, and the display of rounds."""

import asyncio
import shlex
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from dagwright.client.sessions import SessionView
from dagwright.interfaces.cli import chat_command
from dagwright.interfaces.cli.chat_command import Chat
from dagwright.interfaces.cli.chat_input import Interrupted
from dagwright.interfaces.cli.chat_text import (
    ChatInput,
    chat_options,
    command_hint,
    continue_hint,
    help_lines,
    parse_input,
    status_line,
    unknown_command_message,
)
from dagwright.interfaces.cli.command_loop import InterruptHandling
from dagwright.interfaces.cli.exit_codes import ExitCode
from dagwright.interfaces.cli.goal_commands import AskRequest, ChatArguments
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.process_exit import end_process_at_once
from dagwright.interfaces.cli.round_text import NO_CALL_TEXTS, final_round_lines, new_round_lines, reason_lines
from dagwright.interfaces.cli.rounds_display import rounds_table
from dagwright.interfaces.cli.session_command import turn_lines
from dagwright.protocol.sessions import SessionRecord, Turn
from dagwright.protocol.turns import TurnStart
from tests.support.eventually import eventually


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  Show it. ", ChatInput(None, "Show it.")),
        ("/Help", ChatInput("/help", "")),
        ("/new  my talk", ChatInput("/new", "my talk")),
        ("//etc is a folder", ChatInput(None, "/etc is a folder")),
        ("one\n/two", ChatInput(None, "one\n/two")),
        ("   ", ChatInput(None, "")),
    ],
)
def test_line_is_a_message_or_a_command(line: str, expected: ChatInput) -> None:
    assert parse_input(line) == expected


def test_line_of_a_turn_has_its_outcome_or_the_explanation_of_its_plan() -> None:
    turn = Turn(1, "r1", "Make it.", "completed", explanation="Makes Apex.", outcome="cbu.ensure: fund, Apex")
    turn_without_outcome = Turn(2, "r2", "Custody too.", "completed", explanation="It has custody.")
    first_lines = ["1. Make it.", "r1: completed: cbu.ensure: fund, Apex"]
    second_lines = ["2. Custody too.", "r2: completed: It has custody."]
    assert [line.strip() for line in turn_lines([turn, turn_without_outcome])] == [*first_lines, *second_lines]


@pytest.mark.parametrize("name", ["chat-1", "two words", "it's", "a;b", "-x"])
def test_command_that_resumes_a_session_quotes_its_name(name: str) -> None:
    assert shlex.split(continue_hint(name).partition(": ")[2]) == ["dagwright", "chat", "--session", name]


def test_command_that_resumes_a_chat_has_all_its_options() -> None:
    arguments = ChatArguments(
        session_id="s",
        profile="rounds",
        max_rounds=4,
        worker_timeout="5s",
        model="openai:small",
        deadline="2m",
        budget="1 USD",
    )
    hint = continue_hint("s", [*chat_options(arguments.ask_request()), "--tools", "my tools.py"])
    assert shlex.split(hint.partition(": ")[2]) == [
        *("dagwright", "chat", "--session", "s", "--profile", "rounds", "--max-rounds", "4", "--worker-timeout", "5s"),
        *("--model", "openai:small", "--budget", "1 USD", "--deadline", "2m", "--tools", "my tools.py"),
    ]
    assert chat_options(ChatArguments().ask_request()) == []


def test_help_lists_all_commands_and_a_mistyped_command_gets_a_hint() -> None:
    commands = [line.split()[0] for line in help_lines()[1:]]
    assert commands == ["/help", "/status", "/turns", "/profile", "/cancel", "/new", "/quit"]
    assert command_hint("Exit") == "/quit ends the chat; 'Exit' was not sent"
    assert command_hint("help") == "/help lists the commands; 'help' was not sent"
    assert command_hint("help me") is None
    assert unknown_command_message("/staus") == "unknown command /staus; did you mean /status?"
    assert unknown_command_message("/nonsense") == "unknown command /nonsense; /help lists the commands"


def test_status_reports_the_running_turn() -> None:
    session = SessionRecord("s")
    assert status_line(session, profile="plan") == "session s: idle, 0 turns; profile plan"
    session.start_turn(TurnStart("run-1", {}, "Show it."), at=1.0)
    assert status_line(session, profile="rounds") == (
        "session s: running, 1 turn; profile rounds; running: run-1 (Show it.)"
    )


MESSAGE = "found \x1b[2J three"
ESCAPED_MESSAGE = "found \\u001b[2J three"


def _sub_goal(number: int, status: str = "success", **fields: Any) -> dict[str, Any]:
    return {"id": number, "worker": "look", "description": "Looks.", "status": status, "error": None, **fields}


def _round(number: int) -> dict[str, Any]:
    results = [{"sub_goal_id": number, "status": "success", "error": None, "message": MESSAGE}]
    document = {"round": number, "reasoning": f"Because {number}.", "action": "continue"}
    return {**document, "sub_goals": [number], "results": results}


def _document(round_count: int) -> dict[str, Any]:
    numbers = range(1, round_count + 1)
    parts = {"sub_goals": [*map(_sub_goal, numbers)], "rounds": [*map(_round, numbers)]}
    return {"phase": "planning", "max_rounds": 10, "intention": "All of\nit.", **parts}


def _table_lines(
    document: dict[str, Any], *, max_rows: int, call_texts: Mapping[str, str] = NO_CALL_TEXTS
) -> list[str]:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(rounds_table(document, max_rows=max_rows, call_texts=call_texts))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_each_round_is_shown_with_its_reason_and_results() -> None:
    assert [line.strip() for line in _table_lines(_document(1), max_rows=20)] == [
        "Interpretation: All of it.",
        "Round 1 of 10: Because 1.",
        f"✓ sg1 look: Looks.  {ESCAPED_MESSAGE}",
        "the planner decides what to do next",
    ]
    last_lines = [line.strip() for line in _table_lines(_document(9), max_rows=5)]
    assert (len(last_lines), last_lines[:2]) == (5, ["16 earlier lines", f"✓ sg8 look: Looks.  {ESCAPED_MESSAGE}"])
    failed_rounds = {"phase": "failed", "question": "x", "planner_reasoning": "it is no answer"}
    assert [line.strip() for line in _table_lines(failed_rounds, max_rows=9)] == ["it is no answer"]
    assert [*reason_lines({"rounds": _document(1)})] == ["Interpretation: All of it.", "Round 1 (continue): Because 1."]
    assert [*reason_lines({"rounds": None}), *reason_lines({})] == []


def test_live_view_has_attempts_of_calls_and_the_phase() -> None:
    document = _document(1)
    document["sub_goals"].append(_sub_goal(2, "running"))
    document["rounds"][0]["sub_goals"].append(2)
    call_texts = {"sg1": "attempt 9", "sg2": "attempt 3, again in 4.0 s: no server runs"}
    sub_goal_lines = _table_lines({**document, "phase": "executing"}, max_rows=20, call_texts=call_texts)[2:4]
    assert sub_goal_lines[0] == f"✓ sg1 look: Looks.  {ESCAPED_MESSAGE}"
    assert sub_goal_lines[1] == "● sg2 look: Looks.  attempt 3, again in 4.0 s: no server runs"
    planning_line = _table_lines(_document(1), max_rows=20, call_texts={"plan": "attempt 2, no route"})[-1]
    assert planning_line.strip() == "the planner decides what to do next  attempt 2, no route"
    first_line = _table_lines({**_document(0), "intention": None}, max_rows=9)[-1]
    assert first_line.strip() == "the question is being interpreted"
    assert _table_lines({**_document(1), "phase": "done"}, max_rows=9)[-1].strip() == "the answer is being written"


def _with_rejected_last_round(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document whose last round is replaced by a rejected answer of the planner."""
    *earlier_rounds, last_round = document["rounds"]
    rejected_round = {**last_round, "reasoning": "No such worker.", "action": None, "sub_goals": [], "results": []}
    return {**document, "sub_goals": document["sub_goals"][:-1], "rounds": [*earlier_rounds, rejected_round]}


def test_each_line_is_written_once_and_a_rejected_answer_is_marked() -> None:
    written_keys: set[str] = set()
    assert new_round_lines(None, written_keys) == []
    assert new_round_lines(_document(1), written_keys) == [("question", "All of it."), ("round 1", "Because 1.")]
    rejected_document = _with_rejected_last_round(_document(2))
    assert new_round_lines(rejected_document, written_keys) == [("round 2", "rejected: No such worker.")]
    assert new_round_lines(rejected_document, written_keys) == []
    assert new_round_lines(_document(2), written_keys) == [("round 2", "Because 2.")]
    assert "Round 2 of 10, rejected: No such worker." in _table_lines(rejected_document, max_rows=20)[3]
    final_lines = [*final_round_lines({"rounds": rejected_document})]
    assert final_lines[3:] == ["Round 2 (no plan): No such worker."]


def test_open_sub_goals_and_omitted_results_are_in_their_round() -> None:
    document = _document(2)
    document["sub_goals"] += [_sub_goal(3, "pending", worker="show", description="Shows.")]
    document["rounds"][0] |= {"results": [], "omitted_results": 1}
    document["rounds"][1]["sub_goals"].append(3)
    assert [*final_round_lines({"rounds": document})] == [
        *("Interpretation: All of it.", "Round 1 (continue): Because 1.", "  results omitted: 1"),
        *("Round 2 (continue): Because 2.", f"  sg2 look: success: {ESCAPED_MESSAGE}", "  sg3 show: never started"),
    ]
    assert [line.strip() for line in _table_lines(document, max_rows=20)] == [
        *("Interpretation: All of it.", "Round 1 of 10: Because 1.", "… results omitted: 1"),
        *("Round 2 of 10: Because 2.", f"✓ sg2 look: Looks.  {ESCAPED_MESSAGE}"),
        *("· sg3 show: Shows.", "the planner decides what to do next"),
    ]


class _Terminal(Output):
    can_ask = True

    def __init__(self) -> None:
        super().__init__()
        self.printed_lines: list[str] = []

    def print(self, text: str) -> None:
        self.printed_lines.append(text)


class _HangingSessions:
    """Fake `Sessions` of a server that responds to `remaining_responses` requests, and then hangs."""

    def __init__(self, remaining_responses: int) -> None:
        self.remaining_responses = remaining_responses

    async def read(self, name: str) -> SessionView:
        self.remaining_responses -= 1
        if self.remaining_responses < 0:
            await asyncio.sleep(600)
        return SessionView(SessionRecord(name))

    async def with_full_answers(self, session: SessionRecord) -> SessionRecord:
        return session


class _TypedLines:
    """Input of a chat: one command, then Ctrl-C."""

    def __init__(self) -> None:
        self.lines = ["/status"]

    async def next(self) -> str | None:
        if self.lines:
            return self.lines.pop()
        raise Interrupted


def _next_interrupt_of(interrupt_handling: InterruptHandling) -> object:
    return interrupt_handling.on_next_interrupt


def _chat(sessions: Any, request: AskRequest, output: Output, interrupt_handling: InterruptHandling) -> Chat:
    resources: Any = SimpleNamespace(sessions=sessions, toolset=SimpleNamespace(references=()))
    return Chat(resources, cast("Any", _TypedLines()), request, output=output, interrupt_handling=interrupt_handling)


async def test_ctrl_c_ends_a_chat_whose_server_does_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_command, "ACTIVE_RUN_TIMEOUT_S", 0.2)
    output, interrupt_handling, sessions = _Terminal(), InterruptHandling(), _HangingSessions(remaining_responses=1)
    chat = _chat(sessions, AskRequest(text=""), output, interrupt_handling)
    chat_task = asyncio.create_task(chat.answer_messages("s", is_new=True))
    await eventually(lambda: sessions.remaining_responses == -1 and interrupt_handling.on_next_interrupt is not None)
    interrupt, interrupt_handling.on_next_interrupt = interrupt_handling.on_next_interrupt, None
    assert interrupt is not None
    interrupt()
    # While the chat waits for the server, a second Ctrl-C would end the process at once.
    await eventually(
        lambda: sessions.remaining_responses == -2 and _next_interrupt_of(interrupt_handling) is end_process_at_once
    )
    assert await chat_task == ExitCode.INTERRUPTED
    assert output.printed_lines[-1].startswith("the Temporal server does not respond; a started run continues")


def test_options_of_rounds_apply_only_to_the_profile_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[AskRequest] = []

    def prepare(request: AskRequest, *_: object) -> None:
        requests.append(request)

    monkeypatch.setattr(chat_command, "prepare_turn", prepare)
    request_of_rounds = AskRequest(text="", profile="rounds", max_rounds=4, worker_timeout="5s")
    chat = _chat(None, request_of_rounds, _Terminal(), InterruptHandling())
    for profile in ("plan", "rounds"):
        chat._choose_profile(profile)
    options = [(request.profile, request.max_rounds, request.worker_timeout) for request in requests]
    assert options == [("plan", None, None), ("rounds", 4, "5s")]
