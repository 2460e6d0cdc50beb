"""A chat without a server: Ctrl-C while the server hangs, and the options of rounds."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dagwright.client.sessions import SessionView
from dagwright.interfaces.cli import chat_command
from dagwright.interfaces.cli.async_runs import InterruptHandling
from dagwright.interfaces.cli.chat_command import Chat, ChatResources
from dagwright.interfaces.cli.chat_input import Interrupted
from dagwright.interfaces.cli.command_arguments import AskRequest
from dagwright.interfaces.cli.exit_codes import ExitCode
from dagwright.interfaces.cli.output import Output
from dagwright.interfaces.cli.process_exit import leave_at_once
from dagwright.protocol.sessions import SessionRecord
from tests.support.eventually import eventually


class _Terminal(Output):
    can_ask = True

    def __init__(self) -> None:
        super().__init__()
        self.printed: list[str] = []

    def print(self, text: str) -> None:
        self.printed.append(text)


class _Hanging:
    """The sessions of a server that hangs after a few requests."""

    def __init__(self, answers: int) -> None:
        self.answers = answers

    async def read(self, name: str) -> SessionView:
        self.answers -= 1
        if self.answers < 0:
            await asyncio.sleep(600)
        return SessionView(SessionRecord(name))

    async def with_full_answers(self, session: SessionRecord) -> SessionRecord:
        return session


class _Typed:
    """One command, then Ctrl-C."""

    def __init__(self) -> None:
        self.lines = ["/status"]

    async def next(self) -> str | None:
        if self.lines:
            return self.lines.pop()
        raise Interrupted


def _next_of(interrupt_handling: InterruptHandling) -> object:
    return interrupt_handling.instead


async def test_second_ctrl_c_ends_a_chat_whose_server_does_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_command, "LOOK_S", 0.2)
    output, interrupt_handling, sessions = _Terminal(), InterruptHandling(), _Hanging(answers=1)
    desk = cast("ChatResources", SimpleNamespace(sessions=sessions, toolset=SimpleNamespace(references=())))
    chat = Chat(desk, cast("Any", _Typed()), AskRequest(text=""), output=output, interrupt_handling=interrupt_handling)
    talking = asyncio.create_task(chat.continue_session("s", is_new=True))
    await eventually(lambda: sessions.answers == -1 and interrupt_handling.instead is not None)
    interrupt, interrupt_handling.instead = interrupt_handling.instead, None
    assert interrupt is not None
    interrupt()
    # A second Ctrl-C does not wait for the server.
    await eventually(lambda: sessions.answers == -2 and _next_of(interrupt_handling) is leave_at_once)
    assert await talking == ExitCode.INTERRUPTED
    assert output.printed[-1].startswith("the Temporal server does not answer; a started run continues")


def test_options_of_rounds_apply_to_the_profile_rounds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[AskRequest] = []

    def prepare(request: AskRequest, *_: object) -> None:
        asked.append(request)

    monkeypatch.setattr(chat_command, "prepare_turn", prepare)
    asking = AskRequest(text="", profile="rounds", max_rounds=4, worker_timeout="5s")
    desk = cast("ChatResources", SimpleNamespace(toolset=None))
    chat = Chat(desk, cast("Any", _Typed()), asking, output=_Terminal(), interrupt_handling=InterruptHandling())
    for profile in ("plan", "rounds"):
        chat._choose_profile(profile)
    options = [(each.profile, each.max_rounds, each.worker_timeout) for each in asked]
    assert options == [("plan", None, None), ("rounds", 4, "5s")]
