"""Output of commands: documents and text on stdout, problems on stderr.

With `--json`, stdout has only the document; text for users is not written.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from dagwright.core.text import cut_characters
from dagwright.interfaces.cli.json_streaming import Members, write_object

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters that could manipulate a terminal or reorder its text; tab and newline are allowed."""


class Output:
    """Output of a command.

    Args:
        is_json: stdout contains only JSON documents.
        has_color: use colours if stdout is a terminal.
    """

    def __init__(self, *, is_json: bool = False, has_color: bool = True) -> None:
        self.is_json = is_json
        self._has_color = has_color
        self._reserved_stdout: TextIO | None = None

    @contextmanager
    def reserve_stdout(self) -> Iterator[None]:
        """With `--json`, reserve stdout for documents while the block lasts.

        Other output, such as the output of a tool in this process, goes to stderr.
        """
        if not self.is_json:
            yield
            return
        self._reserved_stdout = sys.stdout
        try:
            with redirect_stdout(sys.stderr):
                yield
        finally:
            self._reserved_stdout = None

    @property
    def _stdout(self) -> TextIO:
        return self._reserved_stdout or sys.stdout

    @property
    def is_terminal(self) -> bool:
        """Whether stdout is a terminal."""
        return not self.is_json and sys.stdout.isatty()

    @property
    def can_ask(self) -> bool:
        """Whether a user can answer questions."""
        return self.is_terminal and sys.stdin.isatty()

    @cached_property
    def console(self) -> "Console":
        """The console of stdout."""
        from rich.console import Console  # noqa: PLC0415 -- commands that only write JSON do not load rich

        # Without a terminal a table may be wide, so that nothing is cut off.
        width = None if self.is_terminal else 200
        return Console(no_color=None if self._has_color else True, highlight=False, soft_wrap=False, width=width)

    def document(self, document: Any, *, is_single_line: bool = False) -> None:
        """Write a JSON document to stdout, indented unless `is_single_line`."""
        text = json.dumps(document, ensure_ascii=False, indent=None if is_single_line else 2)
        self._stdout.write(f"{_escape_unencodable(text)}\n")
        self._stdout.flush()

    async def stream(self, members: Members) -> None:
        """Write a JSON object to stdout part by part; the object may be larger than the memory."""
        await write_object(members, lambda text: self._stdout.write(_escape_unencodable(text)))
        self._stdout.write("\n")
        self._stdout.flush()

    def print(self, text: str) -> None:
        """Write text to stdout; nothing with `--json`."""
        if not self.is_json:
            sys.stdout.write(f"{terminal_text(text)}\n")
            sys.stdout.flush()

    def show(self, renderable: "RenderableType") -> None:
        """Write a table, tree or styled text to stdout; nothing with `--json`."""
        if not self.is_json:
            self.console.print(renderable)

    def answer(self, text: str) -> None:
        """Write Markdown to stdout, rendered if stdout is a terminal."""
        if not self.is_terminal:
            self.print(text)
            return
        from rich.markdown import Markdown  # noqa: PLC0415 -- commands that only write JSON do not load rich

        # Show URLs in full, because the text of a link that a model writes may hide the URL.
        self.show(Markdown(terminal_text(text), hyperlinks=False))

    def log(self, text: str) -> None:
        """Write a line to stderr."""
        sys.stderr.write(f"{terminal_text(text)}\n")
        sys.stderr.flush()

    def outcome(self, message: str, *, code: str | None = None, **subject: str) -> None:
        """Report the outcome of a command: a line, or with `--json` a document.

        Args:
            code: error code if the command had nothing to do; the line then goes to stderr.
            subject: field of the document that names the object of the command, such as `tool="pack"`.
        """
        if self.is_json:
            self.document({**subject, **_outcome_fields(message, code)})
        elif code is None:
            self.print(one_line(message, limit=1_000))
        else:
            self.log(message)

    def problem(self, message: str, *, code: str) -> None:
        """Report a problem: the message on stderr, and with `--json` a document on stdout too."""
        if self.is_json:
            self.document({"code": code, "message": message})
        self.log(message)


def terminal_text(text: str) -> str:
    """Return the text with control characters and lone surrogates escaped, safe for a terminal."""
    return _escape_unencodable(_CONTROL_CHARACTERS.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def one_line(text: str, *, limit: int = 300) -> str:
    """Return the text on one line, safe for a terminal, with at most `limit` characters."""
    return cut_characters(terminal_text(" ".join(str(text).split())), limit)


def append_link(text: str, url: str | None) -> str:
    """Append a URL on a separate line, so that a terminal neither cuts nor wraps the URL."""
    return text if url is None else f"{text}\nTemporal UI: {url}"


def indented_value_text(value: Any) -> str:
    """Return a string as it is, and any other JSON value as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def run_outcome(run_id: str, message: str, *, code: str | None = None) -> Mapping[str, Any]:
    """Return the document of a command that changes a run.

    Args:
        code: error code if the run rejected the change.
    """
    return {"run_id": run_id, **_outcome_fields(message, code)}


def _outcome_fields(message: str, code: str | None) -> dict[str, Any]:
    return {"ok": code is None, **({} if code is None else {"code": code}), "message": message}


def _escape_unencodable(text: str) -> str:
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
