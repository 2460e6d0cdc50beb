"""From bytes to JSON values: files, standard input, lines of a `.jsonl` file, sub-plans in files.

Whatever is wrong is told as a `PlanInvalid`, one sentence for each problem; nothing is repaired in silence.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from pydantic import JsonValue

from dagwright.core.model.errors import PlanInvalid, Problem, pointer
from dagwright.dialects import text_dialect
from dagwright.dialects.json_reader import printable, read_json
from dagwright.dialects.yaml_reader import read_yaml

MAX_FILE_BYTES = 200_000_000
"""A plan of 1,000,000 nodes has about 150 MB; more is another kind of file."""

MAX_INLINED_FILES = 1_000
"""Files put into one document: some files that name each other twice can stand for millions."""

FileStamp = tuple[int, int, int] | None
"""Change time, size and inode of a file, which differ once it is another one; `None` if there is no such file."""

MAX_NESTED_PLANS = 20
"""Plans inside one another; each level is a workflow that waits for the next."""

_DATA_SUFFIXES = (".json", ".yaml", ".yml")

_BEGINS_TEXT_PLAN = re.compile(r"\s*(?:Thought:|Plan[ 0-9]*:|[0-9]+\.[ \t]*[A-Za-z_]|#E[0-9])")
_LOOKS_LIKE_JSON = re.compile(r'\s*[\[{][\[{\s]*["\]}]')


def read_text(text: str | bytes, *, name: str) -> JsonValue:
    """Returns the value of a JSON or YAML text, or the text itself if it is a plan in one of the text dialects.

    Args:
        text: bytes are UTF-8, with or without a byte order mark.
        name: name of the file, `-` for standard input. `.json` is JSON, `.yaml` and `.yml` are YAML; any
            other name is JSON if the text starts like JSON, a text dialect if it starts like one, and YAML if not.

    Raises:
        PlanInvalid: `unreadable`, `empty_plan`, `invalid_syntax` (line and column in the message),
            `invalid_field` (a key twice in one object), `too_large`.
    """
    called = "standard input" if name == "-" else printable(name)
    content = decoded(text, name=called)
    if not content.strip():
        raise PlanInvalid([Problem("empty_plan", f"{called} is empty")])
    suffix = Path(name).suffix.lower()
    looks_like_json = _LOOKS_LIKE_JSON.match(content) is not None
    if suffix == ".json" or looks_like_json:
        try:
            return read_json(content, name=called)
        except PlanInvalid:
            # Flow style YAML may look like JSON; JSON may hold escaped surrogate pairs, which YAML has not.
            if suffix not in (".yaml", ".yml"):
                raise
    elif suffix not in _DATA_SUFFIXES and _BEGINS_TEXT_PLAN.match(content) and text_dialect(content) is not None:
        return content
    value = read_yaml(content, name=called)
    if value is None:
        raise PlanInvalid([Problem("empty_plan", f"{called} holds no plan, only comments or null")])
    return value


def decoded(text: str | bytes, *, name: str) -> str:
    """Returns a text without a byte order mark.

    Raises:
        PlanInvalid: `unreadable`, for what is no UTF-8.
    """
    try:
        if isinstance(text, bytes):
            return text.decode("utf-8-sig")
        text.encode()
        return text.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        message = f"{name} is no UTF-8 text: byte 0x{error.object[error.start]:02x} in line {line}"
    except UnicodeEncodeError as error:
        line = error.object.count("\n", 0, error.start) + 1
        message = f"{name} holds a lone surrogate, which is no character, in line {line}"
    raise PlanInvalid([Problem("unreadable", message)])


def read_plan_file(path: Path) -> JsonValue:
    """Returns the value of a file; its name decides between JSON and YAML as in `read_text`.

    Raises:
        PlanInvalid: `unreadable` (missing, a folder, no permission, too large), or as `read_text`.
    """
    return read_text(_bytes_of(path), name=str(path))


def stamp_of(path: Path) -> FileStamp:
    """Fingerprint of a file, which differs after a change; `None` if the file cannot be read."""
    try:
        stat = path.stat()
    except (OSError, ValueError):
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def read_text_file(path: Path) -> str:
    """Returns the text of a file, as it is.

    Raises:
        PlanInvalid: `unreadable`.
    """
    return decoded(_bytes_of(path), name=printable(str(path)))


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if len(content) > MAX_FILE_BYTES:
        raise PlanInvalid([_too_long(path)])
    return content


def _too_long(path: Path) -> Problem:
    return Problem("unreadable", f"{path} is larger than {MAX_FILE_BYTES // 1_000_000} MB, which is no plan")


def _unreadable(path: Path, error: OSError | ValueError) -> PlanInvalid:
    shown = printable(str(path))
    if isinstance(error, FileNotFoundError):
        message = f"there is no file {shown}"
    elif isinstance(error, IsADirectoryError):
        message = f"{shown} is a folder, not a file"
    elif isinstance(error, PermissionError):
        message = f"{shown} may not be read: permission denied"
    else:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"{shown} cannot be read: {reason}"
    return PlanInvalid([Problem("unreadable", message)])


def read_plan_lines(path: Path) -> Iterator[tuple[int, JsonValue | PlanInvalid]]:
    """Yields the plans of a `.jsonl` file, each with the number of its line, from 1, without empty lines.

    A line that is no JSON comes as a `PlanInvalid`, and the lines after it follow.

    Raises:
        PlanInvalid: `unreadable`, before the first line.
    """
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    with file:
        number = 0
        while line := _next_line(file, path=path):
            number += 1
            if line.strip(b" \t\r\n\xef\xbb\xbf"):
                yield number, _value_of_line(line, name=printable(str(path)), number=number)


def _next_line(file: BinaryIO, *, path: Path) -> bytes:
    try:
        line = file.readline(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(line) > MAX_FILE_BYTES:
        raise PlanInvalid([_too_long(path)])
    return line


def _value_of_line(line: bytes, *, name: str, number: int) -> JsonValue | PlanInvalid:
    try:
        return read_json(decoded(line, name=f"{name}, line {number}"), name=name, first_line=number)
    except PlanInvalid as invalid:
        return invalid


def inline_files(document: JsonValue, *, base: Path, stamps: dict[Path, FileStamp] | None = None) -> JsonValue:
    """Returns the document with the files put in that its nodes name as sub-plans (`plan: "file.yaml"`).

    Args:
        document: in Dagwright's own dialect; one of another shape has no sub-plans and comes back as it is.
        base: the folder of the document; a path in a file is relative to the folder of that file.
        stamps: receives the stamp of each file that is read, or that should be there.

    Raises:
        PlanInvalid: files that cannot be read, or that hold each other in a circle; with pointers, and with the
            document, in which the names of such files still stand.
    """
    inliner = _Inliner(stamps=stamps if stamps is not None else {})
    inlined = inliner.inline(document, base, at="", within=())
    if inliner.problems:
        raise PlanInvalid(inliner.problems, document=inlined)
    return inlined


@dataclass(slots=True)
class _Inliner:
    """Reads each file once; counts how often one is put in."""

    problems: list[Problem] = field(default_factory=list)
    read: dict[Path, JsonValue] = field(default_factory=dict)
    stamps: dict[Path, FileStamp] = field(default_factory=dict)
    count: int = 0

    def inline(self, document: JsonValue, base: Path, *, at: str, within: tuple[Path, ...]) -> JsonValue:
        """Returns the document with its files; `within` are the files that hold it, the outermost first."""
        if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
            return document
        nodes = document["nodes"]
        assert isinstance(nodes, list)
        changed = list(nodes)
        for index, node in enumerate(nodes):
            if isinstance(node, dict) and isinstance(node.get("plan"), str | dict):
                node_at = at + pointer("nodes", index, "plan")
                sub_plan = self._sub_plan(node["plan"], base, at=node_at, within=within)
                changed[index] = {**node, "plan": sub_plan}
        return {**document, "nodes": changed}

    def _sub_plan(self, plan: JsonValue, base: Path, *, at: str, within: tuple[Path, ...]) -> JsonValue:
        if not isinstance(plan, str):
            return self.inline(plan, base, at=at, within=within)
        try:
            path = (base / plan).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            self.problems.append(Problem("unreadable", printable(f"{plan!r} is no path: {error}"), at))
            return plan
        if path in within:
            circle = " → ".join(file.name for file in (*within[within.index(path) :], path))
            self.problems.append(Problem("cycle", printable(f"these files hold each other: {circle}"), at))
            return plan
        if len(within) >= MAX_NESTED_PLANS:
            message = f"sub-plans are nested more than {MAX_NESTED_PLANS} deep"
            self.problems.append(Problem("too_large", message, at))
            return plan
        self.count += 1
        if self.count == MAX_INLINED_FILES + 1:
            message = f"the sub-plans name more than {MAX_INLINED_FILES} files"
            self.problems.append(Problem("too_large", message, at))
        if self.count > MAX_INLINED_FILES:
            return plan
        try:
            content = self._content(path)
        except PlanInvalid as invalid:
            self.problems += [replace(problem, pointer=at + problem.pointer) for problem in invalid.problems]
            if invalid.document is None:
                return plan
            content = invalid.document
        if isinstance(content, str):
            message = f"{printable(plan)} holds a text; a sub-plan must be written as JSON or YAML"
            self.problems.append(Problem("invalid_field", message, at))
            return plan
        return self.inline(content, path.parent, at=at, within=(*within, path))

    def _content(self, path: Path) -> JsonValue:
        if path not in self.read:
            # Before the file is read: a change in between is then noticed.
            self.stamps.setdefault(path, stamp_of(path))
            self.read[path] = read_plan_file(path)
        return self.read[path]
