"""Texts of a chat other than answers: commands, hints and the status line. The functions are pure."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dagwright.core.name_hints import find_nearest_names
from dagwright.core.text import format_count
from dagwright.interfaces.cli.goal_commands import AskRequest
from dagwright.interfaces.cli.output import one_line
from dagwright.protocol.sessions import SessionRecord

COMMANDS: Mapping[str, str] = {
    "/help": "list the commands",
    "/status": "show the session and its active run",
    "/turns": "list the turns and their outcomes",
    "/profile [NAME]": "show or choose the profile of the next messages: plan, intents or rounds",
    "/cancel": "cancel the active run",
    "/new [NAME]": "start another session",
    "/quit": "end the chat; the session stays open",
}
_HINT_OF_WORD: Mapping[str, str] = {
    **dict.fromkeys(("quit", "exit", "bye"), "/quit ends the chat"),
    **dict.fromkeys(("help", "?"), "/help lists the commands"),
}
"""Message that users type instead of a command -> hint."""
TURNS_SHOWN = 3
"""Number of last turns that a chat shows at its start."""
TURNS_LISTED = 20
"""Maximum number of turns that `/turns` lists."""
_MAX_COMMAND_CHARACTERS = 4_000


@dataclass(frozen=True, slots=True)
class ChatInput:
    """A message, or a command with its argument.

    Args:
        command: name of the command with its slash; `None` for a message.
        text: the message, or the argument of the command.
    """

    command: str | None
    text: str


def parse_input(line: str) -> ChatInput:
    """Parse a line of input. To send a message that starts with `/`, the user types two slashes."""
    text = line.strip()
    if text.startswith("//"):
        return ChatInput(None, text[1:])
    if not text.startswith("/"):
        return ChatInput(None, text)
    command, _, argument = text.partition(" ")
    return ChatInput(command.lower(), argument.strip())


def command_hint(text: str) -> str | None:
    """Return the hint for a message that is probably meant as a command; `None` for other messages."""
    hint = _HINT_OF_WORD.get(text.lower())
    return None if hint is None else f"{hint}; {text!r} was not sent"


def unknown_command_message(command: str) -> str:
    """Return the message for an unknown command, with the most similar command."""
    names = [name.partition(" ")[0] for name in COMMANDS]
    nearest_names = find_nearest_names(command, names, limit=1)
    hint = f"did you mean {nearest_names[0]}?" if nearest_names else "/help lists the commands"
    return f"unknown command {one_line(command)}; {hint}"


def help_lines() -> list[str]:
    """Return the lines of /help."""
    width = max(map(len, COMMANDS))
    return [
        "Enter sends the message, Alt-Enter starts a new line. Ctrl-C detaches from a run, Ctrl-D ends the chat.",
        *(f"{name:<{width}}  {message}" for name, message in COMMANDS.items()),
    ]


def continue_hint(name: str, options: Sequence[str] = ()) -> str:
    """Return a hint with the command that continues a session.

    Args:
        options: options of the chat. A session stores no options: without these options, the next message would use
            another planner and other tools.
    """
    command = shlex.join(["dagwright", "chat", "--session", name, *options])
    return f"continue it later: {one_line(command, limit=_MAX_COMMAND_CHARACTERS)}"


def chat_options(ask_request: AskRequest) -> list[str]:
    """Return the command-line options with which another chat has the same settings."""
    options = {
        "--profile": ask_request.profile if ask_request.profile != "plan" else None,
        "--max-rounds": ask_request.max_rounds,
        "--worker-timeout": ask_request.worker_timeout,
        "--synthesis": ask_request.synthesis,
        "--model": ask_request.model,
        "--policy": ask_request.policy_file,
        "--budget": ask_request.budget,
        "--deadline": ask_request.deadline,
    }
    return [word for name, value in options.items() if value is not None for word in (name, str(value))]


def status_line(session: SessionRecord, *, profile: str) -> str:
    """Return a line with the state of a session."""
    turns_text = format_count(session.omitted_turns + len(session.turns), "turn")
    running_turn = session.running_turn
    running_text = (
        f"; running: {one_line(running_turn.run_id)} ({one_line(running_turn.request, limit=60)})"
        if running_turn
        else ""
    )
    return f"session {one_line(session.name)}: {session.status}, {turns_text}; profile {profile}{running_text}"
