"""`chat`: a conversation on a terminal and from a pipe, with the scripted model."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from dagwright.testing import ModelServer, step
from tests.e2e.command import CommandLine, Terminal, with_model
from tests.support.answer_texts import held_model_answer
from tests.support.eventually import eventually
from tests.support.goals import call_node, plan_text
from tests.support.rounds import continue_response, done_response, ref, sub_goal

pytestmark = pytest.mark.server

ENTER, CTRL_C, CTRL_D = "\r", "\x03", "\x04"
PROMPT = "\x1b[?2004h"
"""Sequence that turns on bracketed paste; it is sent when the prompt is ready."""
StartChat = Callable[..., Awaitable[Terminal]]
_SELECTION = {"type": "SELECTION", "prompt": "Which Acme?", "options": ["Acme Co", "Acme LLC"]}
_SELECTION_NODE = {"id": "ask", "human": _SELECTION}


def _calculation_plan(expression: str = "1") -> str:
    return plan_text(call_node("a", "calculator", expression=expression))


@pytest.fixture
async def start_chat(commands: CommandLine) -> AsyncIterator[StartChat]:
    """Start chats that are ready for input; chats that are still open after the test are killed."""
    chats: list[Terminal] = []

    async def start(commands: CommandLine, *arguments: str) -> Terminal:
        chats.append(await commands.open_terminal("chat", *arguments))
        await chats[-1].wait_for_text(PROMPT)
        return chats[-1]

    yield start
    for chat in chats:
        if chat.process.returncode is None:
            chat.process.kill()
            await chat.wait_for_exit()


async def send_message(chat: Terminal, message: str, *expected_texts: str) -> None:
    """Type a message, then wait until the expected texts are shown in this order and the next message can be typed."""
    chat.type_text(f"{message}{ENTER}")
    await wait_for_texts(chat, *expected_texts, PROMPT)


async def wait_for_texts(chat: Terminal, *expected_texts: str) -> None:
    """Wait until the texts are shown in this order."""
    for expected_text in expected_texts:
        await chat.wait_for_text(expected_text)


async def exit_chat(chat: Terminal, *expected_texts: str, key: str = CTRL_D) -> None:
    chat.type_text(key)
    await wait_for_texts(chat, *expected_texts)
    assert await chat.wait_for_exit() == 0


async def _read_turns(commands: CommandLine, session_id: str) -> list[dict[str, Any]]:
    return list((await commands("session", session_id, "--json")).document["turns"])


async def test_each_line_from_a_pipe_is_answered_in_the_context_of_earlier_lines(commands: CommandLine) -> None:
    clarification = "I found two companies:\n\n1. Acme LLC\n2. Acme Co\n\nWhich one did you mean?"
    async with ModelServer(_calculation_plan(), clarification, _calculation_plan("2"), "Seven.") as model_server:
        model_commands = with_model(commands, model_server)
        lines = "Show Acme.\n\n/turns\n/nonsense\nAcme LLC\n"
        result = await model_commands("chat", "--session", "piped", "--json", stdin_text=lines)
        turns = await _read_turns(model_commands, "piped")
    first_document, second_document = (json.loads(line) for line in result.stdout.splitlines())
    assert result.code == 0
    assert first_document["session_id"] == "piped"
    assert first_document["request"] == "Show Acme."
    assert first_document["output"] == clarification
    assert second_document["request"] == "Acme LLC"
    assert second_document["output"] == "Seven."
    assert second_document["status"] == "completed"
    assert result.stderr == "unknown command /nonsense; /help lists the commands\n"
    assert json.dumps(clarification)[1:-1].replace("\\", "\\\\") in json.dumps(model_server.calls[2].text)[1:-1]
    assert [(turn["request"], turn["response"] or turn["outcome"]) for turn in turns] == [
        ("Show Acme.", clarification),
        ("Acme LLC", "Seven."),
    ]


async def test_failed_turn_is_reported_and_the_chat_continues(commands: CommandLine) -> None:
    invalid_plan = plan_text({"id": "a", "tool": "unknown"})
    async with ModelServer(*[invalid_plan] * 4, _calculation_plan(), "One.") as model_server:
        result = await with_model(commands, model_server)("chat", "--session", "failing", stdin_text="Bad.\nGood.\n")
    assert result.code == 1
    assert "the model wrote 4 plans, and none can be run" in result.stdout
    assert "One." in result.stdout.splitlines()
    assert "dagwright chat --session failing" in result.stdout.splitlines()[-1]


async def test_chat_shows_its_session_and_a_second_chat_continues_the_session(
    commands: CommandLine, start_chat: StartChat
) -> None:
    script = (_calculation_plan(), "It is **one**.\n\n- and no more", _calculation_plan(), "Two.")
    async with ModelServer(*script) as model_server:
        model_commands = with_model(commands, model_server)
        chat = await start_chat(model_commands)
        session_id = f"chat-{chat.screen.partition('session chat-')[2].partition(';')[0]}"
        # The message contains a line break.
        await send_message(chat, f"How much\x1b{ENTER}is it?", "one", "and no more", "completed")
        await send_message(chat, "/status", f"session {session_id}: idle, 1 turn; profile plan")
        await send_message(chat, "/turns", "1. How much is it?")
        await send_message(chat, "/profile missing", "unknown profile missing")
        await send_message(chat, "/help", "/cancel")
        await exit_chat(chat, f"dagwright chat --session {session_id}")
        second_chat = await start_chat(model_commands, "--session", session_id)
        assert re.search(r"1 turn.*> How much is it\?.*and no more", second_chat.screen, re.DOTALL)
        await send_message(second_chat, "And now?", "Two.")
        await exit_chat(second_chat, key="/quit\r")
        turns = await _read_turns(model_commands, session_id)
    assert [turn["request"] for turn in turns] == ["How much is it?", "And now?"]
    assert "\x1b[1mone" in chat.screen


async def test_question_of_a_run_is_answered_in_the_chat(commands: CommandLine, start_chat: StartChat) -> None:
    async with ModelServer(plan_text(_SELECTION_NODE), "Done.") as model_server:
        model_commands = with_model(commands, model_server)
        chat = await start_chat(model_commands, "--session", "question")
        chat.type_text(f"Show it.{ENTER}")
        await chat.wait_for_text("Which? (number or name):")
        chat.type_text(f"3{ENTER}")
        await wait_for_texts(chat, "is not one of the 2 options", "Which? (number or name):")
        await send_message(chat, "2", "Done.")
        await exit_chat(chat)
        assert '["Acme LLC"]' in model_server.calls[1].text


async def test_ctrl_c_detaches_from_a_run_and_two_ctrl_c_at_the_prompt_end_the_chat(
    commands: CommandLine, start_chat: StartChat
) -> None:
    release_event = asyncio.Event()
    async with ModelServer(
        _calculation_plan(), step("One.", release_event=release_event), _calculation_plan(), "Two."
    ) as model_server:
        model_commands = with_model(commands, model_server)
        chat = await start_chat(model_commands, "--session", "detached-chat")
        chat.type_text(f"First.{ENTER}")
        await eventually(lambda: len(model_server.calls) == 2)
        chat.type_text(CTRL_C)
        await wait_for_texts(chat, "continues, and the next message waits for it", PROMPT)
        chat.type_text(f"Second.{ENTER}")
        await chat.wait_for_text("this message waits for the end of that run")
        release_event.set()
        await wait_for_texts(chat, "One.", "Two.", PROMPT)
        chat.type_text(CTRL_C)
        await wait_for_texts(chat, "Ctrl-C again ends the chat", PROMPT)
        chat.type_text(CTRL_C)
        assert await chat.wait_for_exit() == 130
        turns = await _read_turns(model_commands, "detached-chat")
    assert [(turn["request"], turn["outcome"]) for turn in turns] == [("First.", "One."), ("Second.", "Two.")]


async def test_interrupted_turn_is_cancelled_from_the_chat(commands: CommandLine, start_chat: StartChat) -> None:
    async with ModelServer(plan_text(_SELECTION_NODE)) as model_server:
        model_commands = with_model(commands, model_server)
        chat = await start_chat(model_commands, "--session", "cancelled-chat")
        chat.type_text(f"Show it.{ENTER}")
        await chat.wait_for_text("Which? (number or name):")
        chat.type_text(CTRL_C)
        await wait_for_texts(chat, "continues, and the next message waits for it", PROMPT)
        await send_message(chat, "/cancel", "cancelled")
        await send_message(chat, "/new other", "session other: idle, 0 turns")
        await exit_chat(chat, "dagwright chat --session other")
        assert [turn["status"] for turn in await _read_turns(model_commands, "cancelled-chat")] == ["cancelled"]


def _kill_server(commands: CommandLine) -> None:
    record = json.loads((commands.folder / "state" / "server.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)


async def test_chat_continues_after_kills_of_the_server(
    commands_with_private_server: CommandLine, start_chat: StartChat
) -> None:
    release_event = asyncio.Event()
    async with ModelServer(
        _calculation_plan(), step("One.", release_event=release_event), _calculation_plan(), "Two."
    ) as model_server:
        commands = with_model(commands_with_private_server, model_server)
        (await commands("up", "--json")).check_success()
        chat = await start_chat(commands, "--session", "killed-server")
        chat.type_text(f"First.{ENTER}")
        await eventually(lambda: len(model_server.calls) == 2)
        _kill_server(commands_with_private_server)
        release_event.set()
        assert (await commands("up", "--json")).code == 0
        await wait_for_texts(chat, "One.", PROMPT)
        _kill_server(commands_with_private_server)
        # This time the test does not call `up`: the chat restarts the server.
        await send_message(chat, "Second.", "the Temporal server does not respond", "Two.")
        await exit_chat(chat)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--session", " "], "invalid_session_id"),
        (["--profile", "rounds"], "no_tools"),
        (["--max-rounds", "3"], "invalid_value"),
    ],
)
async def test_chat_rejects_invalid_options(commands: CommandLine, arguments: list[str], code: str) -> None:
    async with ModelServer() as model_server:
        result = await with_model(commands, model_server)("chat", *arguments, "--json", stdin_text="Hello.\n")
    assert (result.code, result.document["code"]) == (2, code)


_WORKER_TOOLS = '''
from dagwright.tools import worker_tool

@worker_tool(outputs=["clarification"], goal_type="deliverable")
def clarify(question: str) -> dict:
    """Asks the person a question."""
    return {"clarification": question}

@worker_tool(outputs=["table"], goal_type="deliverable")
def show(company: str) -> dict:
    """Shows shipments."""
    return {"table": f"| {company} |"}
'''
_CLARIFICATION = "I found three:\n\n1. Acme Corp LLC\n2. Acme Corporation\n3. Acme Co\n\nWhich one did you mean?"
_CLARIFICATION_SCRIPT = (
    "Shipments from Acme Corp to Houston.",
    continue_response(sub_goal(1, "clarify", question=_CLARIFICATION), reasoning="There are three."),
    done_response(reasoning="Only the person can say.", answer=ref(1, "clarification")),
)
_TABLE_SCRIPT = (
    "Shipments from Acme Corp LLC to Houston.",
    continue_response(sub_goal(1, "show", company="Acme Corp LLC"), reasoning="It is clear."),
    done_response(reasoning="There it is.", answer=ref(1, "table")),
)


async def test_clarification_with_the_profile_rounds_is_answered_by_the_next_turn(commands: CommandLine) -> None:
    (commands.folder / "workers.py").write_text(_WORKER_TOOLS, encoding="utf-8")
    options = ("--session", "acme", "--profile", "rounds", "--tools", "workers.py", "--json")
    async with ModelServer(*_CLARIFICATION_SCRIPT, *_TABLE_SCRIPT, _calculation_plan(), "Three.") as model_server:
        model_commands = with_model(commands, model_server)
        first_result = await model_commands("ask", "Show shipments from Acme Corp to Houston", *options)
        chat_result = await model_commands("chat", *options, "--max-rounds", "5", stdin_text="Acme Corp LLC\n")
        third_result = await model_commands("ask", "How many were there?", "--session", "acme", "--json")
    chat_document = json.loads(chat_result.stdout)
    assert (first_result.code, first_result.document["output"]) == (0, _CLARIFICATION)
    assert chat_result.code == 0
    assert chat_document["output"] == "| Acme Corp LLC |"
    assert chat_document["rounds"]["max_rounds"] == 5
    prompt = model_server.calls[len(_CLARIFICATION_SCRIPT)].text
    turn = {"human": "Show shipments from Acme Corp to Houston", "answer": _CLARIFICATION}
    assert f"- {json.dumps(turn, ensure_ascii=False)}" in prompt
    # The prompt of a turn with another profile also contains the turns of the profile `rounds`.
    third_result.check_success()
    assert "Result: completed: | Acme Corp LLC |" in model_server.calls[-2].text


async def test_answer_is_streamed_to_the_terminal(commands: CommandLine, start_chat: StartChat) -> None:
    release_event = asyncio.Event()
    answer_text = "Oslo has rain today. Bergen has more of it."
    answer = held_model_answer(answer_text, release_event)
    async with ModelServer(_calculation_plan(), answer) as model_server:
        chat = await start_chat(with_model(commands, model_server))
        chat.type_text(f"What is the weather?{ENTER}")
        await chat.wait_for_text(answer_text[:20])
        assert "more of it" not in chat.screen
        release_event.set()
        await wait_for_texts(chat, "more of it", PROMPT)
        await exit_chat(chat)
