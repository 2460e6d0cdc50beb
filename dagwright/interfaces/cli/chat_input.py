"""Input of a chat: a user at a terminal, or the lines of a pipe or file."""

import asyncio
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from dagwright.store.private_files import make_private_folder

_PROMPT = "> "
_CONTINUATION_PROMPT = "  "


class Interrupted(Exception):
    """The user pressed Ctrl-C at a prompt."""


class Messages(Protocol):
    """The messages of a chat."""

    async def next(self) -> str | None:
        """Return the next message; `None` at the end of the input.

        Raises:
            Interrupted: the user pressed Ctrl-C.
        """

    async def ask(self, question: str) -> str:
        """Ask the user a question and return the one-line answer.

        Raises:
            Interrupted: the user pressed Ctrl-C.
            EOFError: the input has ended.
        """


class TypedMessages:
    """Prompt at a terminal: Enter sends, Alt-Enter starts a new line, and pasted text keeps its lines.

    Args:
        history_file: file that stores the typed messages for later chats.
    """

    def __init__(self, history_file: Path) -> None:
        self._message_prompt: PromptSession[str] = PromptSession(
            history=_open_history(history_file),
            multiline=True,
            key_bindings=_key_bindings(),
            prompt_continuation=_CONTINUATION_PROMPT,
            interrupt_exception=Interrupted,
        )
        self._answer_prompt: PromptSession[str] = PromptSession(interrupt_exception=Interrupted)

    async def next(self) -> str | None:
        """Return the next message; see `Messages`."""
        try:
            # The command has its own handler for SIGINT, so the prompt reads Ctrl-C as a key.
            return await self._message_prompt.prompt_async(_PROMPT, handle_sigint=False)
        except EOFError:
            return None

    async def ask(self, question: str) -> str:
        """Return the answer of the user; see `Messages`."""
        return await self._answer_prompt.prompt_async(question, handle_sigint=False)


class PipedMessages:
    """Each line of the input is a message; questions get no answer."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        # A thread reads the lines, because the loop cannot wait for every kind of file. A daemon thread does not delay
        # the end of the process.
        threading.Thread(target=self._read, daemon=True).start()

    async def next(self) -> str | None:
        """Return the next message; see `Messages`."""
        return await self._lines.get()

    async def ask(self, question: str) -> str:  # noqa: ARG002 - a pipe answers no questions
        """Raise EOFError: requests stay open."""
        raise EOFError

    def _read(self) -> None:
        # The loop may have ended.
        with suppress(RuntimeError):
            for line in sys.stdin.buffer:
                self._put(line.decode(errors="surrogateescape").rstrip("\r\n"))
            self._put(None)

    def _put(self, line: str | None) -> None:
        self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


def _open_history(file: Path) -> History:
    try:
        make_private_folder(file.parent)
        # Messages are private to the user.
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


def _key_bindings() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
