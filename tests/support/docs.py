"""Read the fenced blocks of the documentation, and run their commands in a folder that resembles a fresh clone.

A block is a command (`bash`, `console`), a file (`yaml`, `json`, `python`) or neither (`mermaid`, `text`). A title, as
in ```yaml title="price.yaml", is a file name: the block is saved in that file, for the commands after the block.
The title of commands is text for readers. The commands of a page share their folder and exported variables, as in one
shell. An HTML comment right before a block has instructions, separated by `;`:

    exits with N        the commands end with that exit code
    background          the command continues while the rest of the page runs
    any order           the nodes can end in any order
    invalid             the check rejects the plan
    not run: REASON     the commands need something that is not available
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.ports import free_ports

ROOT = Path(__file__).parents[2]
COMMAND_LANGUAGES = frozenset({"bash", "console"})
FILE_LANGUAGES = frozenset({"yaml", "json", "python"})
OTHER_LANGUAGES = frozenset({"mermaid", "text"})

COMMAND_TIMEOUT_S = 300
"""The slowest command of the pages starts a server and runs a demo."""

_FENCE = re.compile(r'^```(\w*)(?: title="([^"\n]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!-- ([^>]*) -->\n\n?\Z")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_LINKED_NAMES = ("starter.py", "worker.py", ".venv")
"""Files and folders that commands use through links."""
_COPIED_FOLDERS = ("examples", "docs")
"""Folders that commands use. They are copied, because file tools do not follow links."""

_TRANSIENT_LINE = re.compile(r"^(\d\d:\d\d:\d\d  (running|waiting|pending|retrying) |Temporal UI: )")
_REPLACEMENTS = (
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "HH:MM:SS"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s|min|h|d)\b( \d+ (s|min|h)\b)?"), "N s"),
    (re.compile(r"\brun-[0-9a-f]{12}\b"), "run-ID"),
    (re.compile(r"\bworker-[0-9a-f]{12}\b"), "worker-ID"),
    (re.compile(r"\bdw1_\w+"), "dw1_KEY"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"(?<=dagwright:shop-)[a-z2-7]{6}\b"), "DIGEST"),
    (re.compile(r"[^\s`]*/(?=lamp-shop/|\.dagwright/workers/)"), "FOLDER/"),
    (re.compile(r"\bkill -9 \d+"), "kill -9 PID"),
    (re.compile(r"\b[\d,]+ tokens\b"), "N tokens"),
    # Columns are padded.
    (re.compile(r" {2,}"), "  "),
    # Only the first line of a node names its tool, and `normalize` may remove this line.
    (re.compile(r"^(HH:MM:SS  (?:completed|failed)  \S+)  .*?N s", re.MULTILINE), r"\1  N s"),
    (re.compile(r"\b(127\.0\.0\.1|localhost):\d+"), "HOST:PORT"),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "DATE"),
)
"""Patterns of text that differs between runs, each with its replacement."""
_NODE_LINES = re.compile(r"^HH:MM:SS  .*(?:\nHH:MM:SS  .*)+", re.MULTILINE)

_PAGE_PORTS = ("8081", "8484")
"""Ports of servers in the pages. Tests replace them by free ports."""

_REPOSITORY_COMMANDS = ("make ", "python -m pytest ")
"""Commands that run in the root of the repository, with the state folder of the clone."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Args:
        line: line number of the opening fence.
        notes: instructions of the comment before the block: text before the colon -> text after it.
    """

    page: str
    line: int
    language: str
    text: str
    title: str | None = None
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def file_name(self) -> str | None:
        """The file in which the block is saved for commands."""
        return None if self.language in COMMAND_LANGUAGES else self.title

    @property
    def exit_code(self) -> int:
        return next((int(note.split()[-1]) for note in self.notes if note.startswith("exits with ")), 0)

    @property
    def is_runnable(self) -> bool:
        """Whether tests can run the commands of the block."""
        return "not run" not in self.notes

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def documentation_pages() -> list[Path]:
    """Return every page of the documentation."""
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *sorted(ROOT.glob("docs/**/*.md")),
        *sorted(ROOT.glob("apps/*/**/*.md")),
    ]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    blocks = []
    for match in _FENCE.finditer(text):
        comment = _COMMENT.search(text, 0, match.start())
        line = text.count("\n", 0, match.start()) + 1
        name = page.relative_to(ROOT).as_posix()
        blocks.append(Block(name, line, match[1], match[3], match[2], _notes(comment[1]) if comment else {}))
    return blocks


def _notes(comment: str) -> dict[str, str]:
    parts = (part.partition(":") for part in comment.split(";"))
    return {word.strip(): text.strip() for word, _, text in parts}


def links_of(page: Path) -> list[str]:
    return _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def state_folder_of(folder: Path) -> Path:
    return folder / ".dagwright"


def environment(folder: Path, *program_folders: Path) -> dict[str, str]:
    """Return the environment of commands in a folder; `program_folders` come first in its `PATH`."""
    path = os.pathsep.join([*map(str, program_folders), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "DAGWRIGHT_STATE_DIR": str(state_folder_of(folder))}


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """Outcome of the commands of a block."""

    exit_code: int
    output: str


class Clone:
    """A folder in which commands run as in a fresh clone, with a separate state folder.

    Args:
        folder: an empty folder.
        address: address of a running server, which replaces localhost:7233 in a page.
        program_folder: a folder that comes first in `PATH`.
    """

    def __init__(self, folder: Path, *, address: str, program_folder: Path) -> None:
        self.folder = folder
        # `make` uses the programs in `program_folder`, too.
        self._environment = {**environment(folder, program_folder), "MAKEFLAGS": f"BIN={program_folder}"}
        self._address = address
        self._ports = dict(zip(_PAGE_PORTS, map(str, free_ports(len(_PAGE_PORTS))), strict=True))
        self._background = ExitStack()
        self._session_folder = folder.parent / f"{folder.name}-session"
        for name in _LINKED_NAMES:
            (folder / name).symlink_to(ROOT / name)
        for name in _COPIED_FOLDERS:
            shutil.copytree(ROOT / name, folder / name)

    def save(self, block: Block) -> None:
        if block.file_name is not None:
            path = self._working_folder() / block.file_name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")

    def run(self, block: Block) -> CommandOutput:
        script = _script(block).replace("localhost:7233", self._address)
        for port, free_port in self._ports.items():
            script = script.replace(port, free_port)
        if self._session_folder.exists():
            script = f"source {shlex.quote(str(self._session_folder / 'variables'))}\n{script}"
        if "background" in block.notes:
            self._background.enter_context(self._run_in_background(script))
            return CommandOutput(0, "")
        is_repository_command = block.text.removeprefix("$ ").startswith(_REPOSITORY_COMMANDS)
        result = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script if is_repository_command else self._with_session(script)],
            cwd=ROOT if is_repository_command else self._working_folder(),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        return CommandOutput(result.returncode, result.stdout.decode("utf-8", "replace"))

    def close(self) -> None:
        self._background.close()

    def _working_folder(self) -> Path:
        folder_file = self._session_folder / "folder"
        return Path(folder_file.read_text(encoding="utf-8").strip()) if folder_file.exists() else self.folder

    def _with_session(self, script: str) -> str:
        """Return a script that saves its folder and variables when it ends, but not `PATH`, which tests set."""
        self._session_folder.mkdir(exist_ok=True)
        session_folder = shlex.quote(str(self._session_folder))
        save_command = (
            f"export -p | grep -v '^declare -x PATH=' > {session_folder}/variables; pwd > {session_folder}/folder"
        )
        return f"trap {shlex.quote(save_command)} EXIT\n{script}"

    @contextmanager
    def _run_in_background(self, script: str) -> Iterator[None]:
        with (self.folder / "background.log").open("ab") as log:
            process = subprocess.Popen(
                ["bash", "-c", script],
                cwd=self._working_folder(),
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


def prints_expected_output(block: Block, output: str) -> bool:
    """Compare the output of a `console` block; in the block, `…` matches any text, including line breaks."""
    lines = [line for line in block.text.splitlines() if not line.startswith("$ ")]
    expected, actual = normalize("\n".join(lines)), normalize(output)
    if "any order" in block.notes:
        expected, actual = _sort_node_lines(expected), _sort_node_lines(actual)
    return re.search(re.escape(expected).replace("…", ".*?"), actual, re.DOTALL) is not None


def normalize(output: str) -> str:
    """Return output without the text that differs between runs: times, generated IDs, addresses and transient states.

    Views of a run are polled, so a line of a state such as `running` may be missing or at another position.
    """
    lines = [line.rstrip() for line in output.splitlines() if not _TRANSIENT_LINE.search(line)]
    text = "\n".join(lines)
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text


def _sort_node_lines(text: str) -> str:
    """Sort the consecutive lines of nodes in normalized output."""
    return _NODE_LINES.sub(lambda lines: "\n".join(sorted(lines[0].split("\n"))), text)
