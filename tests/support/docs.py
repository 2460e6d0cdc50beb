"""The fenced blocks of the documentation, and a folder like a clone in which they are run.

A block is a command (`bash`, `console`), a file (`yaml`, `json`, `python`) or neither (`mermaid`, `text`). A title, as
in ```yaml title="price.yaml", is a file name that readers see: the block is saved under it, for the commands after it.
The title of commands is text for readers. An HTML comment right before a block has instructions, separated by `;`:

    file: NAME          the same as the title, for a file name that readers do not have to see
    exits with N        the commands end with that exit code
    background          the command continues while the rest of the page runs
    invalid             the check rejects the plan
    not run: REASON     the commands need something that is not available
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.production import free_ports

ROOT = Path(__file__).parents[2]
COMMANDS = frozenset({"bash", "console"})
FILES = frozenset({"yaml", "json", "python"})
PICTURES = frozenset({"mermaid", "text"})

COMMAND_TIMEOUT_S = 300
"""A page's slowest command starts a server and runs a demo."""

_FENCE = re.compile(r'^```(\w*)(?: title="([^"\n]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!-- ([^>]*) -->\n\n?\Z")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_FIRST_LINE_NAME = re.compile(r"# ([\w.-]+\.py)\n")
_LINKED = ("starter.py", "worker.py", ".venv")
_COPIED = ("examples", "docs")
"""Names that commands use; other modules are imported from their installation. File tools follow no links."""

_GATEWAY_PORT = "8484"
"""Port in the pages; another gateway may listen there while tests run."""

_OF_REPOSITORY = ("make ", "python -m pytest ")
"""Commands that find their own folder: they run there, with the state of the clone."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `line` is that of its fence, `notes` are parts of the comment before it by first word."""

    page: str
    line: int
    language: str
    text: str
    title: str | None = None
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str | None:
        """The file name of the block for commands."""
        first_line = _FIRST_LINE_NAME.match(self.text) if self.language == "python" else None
        title = None if self.language in COMMANDS else self.title
        return title or self.notes.get("file") or (first_line[1] if first_line else None)

    @property
    def exit_code(self) -> int:
        """The expected exit code of its commands."""
        return next((int(note.split()[-1]) for note in self.notes if note.startswith("exits with ")), 0)

    @property
    def is_run(self) -> bool:
        """Whether its commands can be run here."""
        return "not run" not in self.notes

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return every page of the documentation."""
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *sorted(ROOT.glob("docs/**/*.md")),
        *sorted(ROOT.glob("apps/*/**/*.md")),
    ]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        comment = _COMMENT.search(text, 0, match.start())
        line = text.count("\n", 0, match.start()) + 1
        name = page.relative_to(ROOT).as_posix()
        found.append(Block(name, line, match[1], match[3], match[2], _notes(comment[1]) if comment else {}))
    return found


def _notes(comment: str) -> dict[str, str]:
    parts = (part.partition(":") for part in comment.split(";"))
    return {word.strip(): text.strip() for word, _, text in parts}


def links(page: Path) -> list[str]:
    return _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def state_of(folder: Path) -> Path:
    return folder / ".dagwright"


def environment(folder: Path, *programs: Path) -> dict[str, str]:
    """Return the environment of commands in a folder; `programs` come first in its path."""
    path = os.pathsep.join([*map(str, programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "DAGWRIGHT_STATE_DIR": str(state_of(folder))}


@dataclass(frozen=True, slots=True)
class Ended:
    """Outcome of the commands of a block."""

    exit_code: int
    output: str


class Clone:
    """A folder in which commands run as in a fresh clone, with a state folder of its own.

    Args:
        folder: an empty folder.
        address: address of a running server, which replaces localhost:7233 in a page.
        programs: a folder for the start of the path.
    """

    def __init__(self, folder: Path, *, address: str, programs: Path) -> None:
        self.folder = folder
        # Programs that `make` starts are forked, too.
        self._environment = {**environment(folder, programs), "MAKEFLAGS": f"BIN={programs}"}
        self._address = address
        self._port = str(free_ports(1)[0])
        self._background = ExitStack()
        for name in _LINKED:
            (folder / name).symlink_to(ROOT / name)
        for name in _COPIED:
            shutil.copytree(ROOT / name, folder / name)

    def save(self, block: Block) -> None:
        if block.name is not None:
            path = self.folder / block.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")

    def run(self, block: Block) -> Ended:
        script = _script(block).replace("localhost:7233", self._address).replace(_GATEWAY_PORT, self._port)
        if "background" in block.notes:
            self._background.enter_context(self._running(script))
            return Ended(0, "")
        ended = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=ROOT if script.startswith(_OF_REPOSITORY) else self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout.decode("utf-8", "replace"))

    def close(self) -> None:
        self._background.close()

    @contextmanager
    def _running(self, script: str) -> Iterator[None]:
        with (self.folder / "background.log").open("ab") as log:
            process = subprocess.Popen(
                ["bash", "-c", script],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=30)


def _script(block: Block) -> str:
    if block.language != "console":
        return block.text
    return "".join(line[2:] + "\n" for line in block.text.splitlines() if line.startswith("$ "))


def expected_output(block: Block) -> re.Pattern[str]:
    """Return a pattern for the output of a `console` block; `…` matches any text in a line, or any number of lines."""
    lines = [line for line in block.text.splitlines() if not line.startswith("$ ")]
    text = re.escape("\n".join(line.rstrip() for line in lines))
    return re.compile(text.replace("…", ".*?"), re.DOTALL)


def squeezed(output: str) -> str:
    return "\n".join(line.rstrip() for line in output.splitlines())
