"""What is said in a chat beside the answers: its commands, what it was about so far, how to go on. Pure."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dagwright.core.expressions.references import nearest
from dagwright.interfaces.cli.output import one_line
from dagwright.interfaces.cli.requests import AskRequest
from dagwright.protocol.sessions import Session

COMMANDS: Mapping[str, str] = {
    "/help": "what can be typed here",
    "/status": "the session, and the run that goes on in it",
    "/turns": "what was asked so far, and what came of it",
    "/profile [NAME]": "how the next messages are answered: plan, intents or rounds",
    "/cancel": "ask the run that goes on to stop",
    "/new [NAME]": "begin another session",
    "/quit": "end the chat; the session stays",
}
_WITHOUT_SLASH: Mapping[str, str] = {
    **dict.fromkeys(("quit", "exit", "bye"), "/quit ends the chat"),
    **dict.fromkeys(("help", "?"), "/help lists the commands"),
}
"""Message that people type in place of a command -> what to type."""
TURNS_SHOWN = 3
"""Earlier turns that a chat begins with."""
TURNS_LISTED = 20
_COMMAND = 4_000


@dataclass(frozen=True, slots=True)
class Typed:
    """A message, or a command with what stands behind it.

    Args:
        command: with its slash; `None` of a message.
        text: the message, or what stands behind the command.
    """

    command: str | None
    text: str


def typed(line: str) -> Typed:
    """Returns what somebody typed; two slashes begin a message that begins with one."""
    text = line.strip()
    if text.startswith("//"):
        return Typed(None, text[1:])
    if not text.startswith("/"):
        return Typed(None, text)
    command, _, rest = text.partition(" ")
    return Typed(command.lower(), rest.strip())


def command_hint(text: str) -> str | None:
    """Return what to type in place of a message that probably means a command; `None` for other messages."""
    hint = _WITHOUT_SLASH.get(text.lower())
    return None if hint is None else f"{hint}; {text!r} was not sent"


def unknown_command(command: str) -> str:
    """Return the message for a command that does not exist, with the nearest one that does."""
    names = [name.partition(" ")[0] for name in COMMANDS]
    near = nearest(command, names, most=1)
    hint = f"did you mean {near[0]}?" if near else "/help lists the commands"
    return f"there is no {one_line(command)}; {hint}"


def help_lines() -> list[str]:
    """Returns what can be typed."""
    width = max(map(len, COMMANDS))
    return [
        "Enter sends what you have typed, Alt-Enter begins a new line. Ctrl-C leaves a run as it is, Ctrl-D ends the "
        "chat.",
        *(f"{name:<{width}}  {words}" for name, words in COMMANDS.items()),
    ]


def going_on(name: str, options: Sequence[str] = ()) -> str:
    """Returns how a session is gone on with.

    Args:
        options: of the chat, which a session does not keep: without them the next message has another planner and
            other tools.
    """
    command = shlex.join(["dagwright", "chat", "--session", name, *options])
    return f"go on with it later: {one_line(command, limit=_COMMAND)}"


def asking_options(asking: AskRequest) -> list[str]:
    """Returns the options by which another chat asks in the same way."""
    given = {
        "--profile": asking.profile if asking.profile != "plan" else None,
        "--max-rounds": asking.rounds,
        "--worker-timeout": asking.worker_timeout,
        "--synthesis": asking.synthesis,
        "--model": asking.model,
        "--policy": asking.policy_file,
        "--budget": asking.budget,
        "--deadline": asking.timeout,
    }
    return [word for name, value in given.items() if value is not None for word in (name, str(value))]


def status_line(session: Session, *, profile: str) -> str:
    """Returns one line about a session."""
    count = session.omitted_turns + len(session.turns)
    turns = f"{count:,} turn{'' if count == 1 else 's'}"
    running = session.running
    told = f"; at work on the run {one_line(running.run)} ({one_line(running.request, limit=60)})" if running else ""
    return f"session {one_line(session.name)}: {session.status}, {turns}; profile {profile}{told}"
