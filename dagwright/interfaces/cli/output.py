"""Where a command writes: documents and words on stdout, what went wrong on stderr.

With `--json` stdout holds exactly the document, so words for people are dropped there.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from dagwright.core.boundary.text import cut_characters
from dagwright.interfaces.cli.streaming import Parts, write_object

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters with which a text could take over a terminal or turn its lines around; tab and newline stay."""


class Output:
    """Writes for one command.

    Args:
        is_json: whether stdout is for a program.
        has_color: whether colours are wanted, if stdout is a terminal.
    """

    def __init__(self, *, is_json: bool = False, has_color: bool = True) -> None:
        self.is_json = is_json
        self._has_color = has_color
        self._own: TextIO | None = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps stdout for the documents as long as the block lasts, if they go there.

        What else is printed, such as by a tool that runs here, goes to stderr.
        """
        if not self.is_json:
            yield
            return
        self._own = sys.stdout
        try:
            with redirect_stdout(sys.stderr):
                yield
        finally:
            self._own = None

    @property
    def _stdout(self) -> TextIO:
        return self._own or sys.stdout

    @property
    def is_terminal(self) -> bool:
        """Tells whether a person looks at stdout."""
        return not self.is_json and sys.stdout.isatty()

    @property
    def can_ask(self) -> bool:
        """Tells whether a person can be asked."""
        return self.is_terminal and sys.stdin.isatty()

    @cached_property
    def console(self) -> "Console":
        """The console of stdout."""
        from rich.console import Console  # noqa: PLC0415 -- a command that only writes JSON does not pay for rich

        # On something that is no terminal a table may be as wide as it needs to be: nothing may be cut off there.
        width = None if self.is_terminal else 200
        return Console(no_color=None if self._has_color else True, highlight=False, soft_wrap=False, width=width)

    def document(self, document: Any, *, is_line: bool = False) -> None:
        """Writes a JSON document to stdout; `is_line` puts it on one line."""
        text = json.dumps(document, ensure_ascii=False, indent=None if is_line else 2)
        self._stdout.write(f"{_encodable(text)}\n")
        self._stdout.flush()

    async def stream(self, parts: Parts) -> None:
        """Writes a JSON object to stdout that may be too large for the memory."""
        await write_object(parts, lambda text: self._stdout.write(_encodable(text)))
        self._stdout.write("\n")
        self._stdout.flush()

    def say(self, text: str) -> None:
        """Writes words for people to stdout; nothing with `--json`."""
        if not self.is_json:
            sys.stdout.write(f"{terminal_text(text)}\n")
            sys.stdout.flush()

    def show(self, renderable: "RenderableType") -> None:
        """Writes a table, a tree or a styled text to stdout; nothing with `--json`."""
        if not self.is_json:
            self.console.print(renderable)

    def answer(self, text: str) -> None:
        """Writes a text in Markdown to stdout: as it is meant on a terminal, and as it stands elsewhere."""
        if not self.is_terminal:
            self.say(text)
            return
        from rich.markdown import Markdown  # noqa: PLC0415 -- as for the console

        # An address stands as it is: what a model writes over it may be another one.
        self.show(Markdown(terminal_text(text), hyperlinks=False))

    def tell(self, text: str) -> None:
        """Writes one sentence to stderr."""
        sys.stderr.write(f"{terminal_text(text)}\n")
        sys.stderr.flush()

    def problem(self, sentence: str, *, status: str) -> None:
        """Says what went wrong: the sentence on stderr, and with `--json` a document on stdout too."""
        if self.is_json:
            self.document({"status": status, "message": sentence})
        self.tell(sentence)


def terminal_text(text: str) -> str:
    """Returns a text that is safe for a terminal: control characters and lone surrogates stand as escapes."""
    return _encodable(_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def one_line(text: str, *, limit: int = 300) -> str:
    """Returns a text on one line, safe for a terminal, at most `limit` characters long."""
    return cut_characters(terminal_text(" ".join(str(text).split())), limit)


def with_link(text: str, url: str | None) -> str:
    """Returns a text with an address on a line of its own, so that a terminal neither cuts nor breaks it."""
    return text if url is None else f"{text}\nTemporal UI: {url}"


def value_text(value: Any) -> str:
    """Returns a JSON value for people: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def acted(workflow_id: str, message: str, *, ok: bool = True) -> Mapping[str, Any]:
    """Returns the document of a command that acts; `ok` says whether it could."""
    return {"run_id": workflow_id, "ok": ok, "message": message}


def _encodable(text: str) -> str:
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
