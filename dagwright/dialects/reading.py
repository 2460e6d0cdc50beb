"""Read JSON values from bytes: files, standard input, lines of a `.jsonl` file, sub-plans in files.

All problems are raised as `PlanInvalid`, with one sentence for each; nothing is repaired silently.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from pydantic import JsonValue

from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.dialects import text_dialect_and_offset
from dagwright.dialects.json_reader import printable, read_json
from dagwright.dialects.yaml_reader import read_yaml

MAX_FILE_BYTES = 200_000_000
"""A plan of 1,000,000 nodes has about 150 MB; a larger file is not a plan."""

MAX_INLINED_FILES = 1_000
"""Maximum number of files inlined in one document. A few files that name each other twice can become millions of
plans."""

FileStamp = tuple[int, int, int] | None
"""Modification time, size and inode of a file, which identify its version; `None` if there is no such file."""

MAX_NESTED_PLANS = 20
"""Maximum nesting of files while they are read, before the check of the plan applies `MAX_SUB_PLAN_DEPTH`."""

_DATA_SUFFIXES = (".json", ".yaml", ".yml")

_TEXT_PLAN_START = re.compile(r"\s*(?:Thought:|Plan[ 0-9]*:|[0-9]+\.[ \t]*[A-Za-z_]|#E[0-9])")
_JSON_START = re.compile(r'\s*[\[{][\[{\s]*["\]}]')


def parse_plan_text(text: str | bytes, *, name: str) -> JsonValue:
    """Parse a JSON or YAML text; return the text itself if it is a plan in one of the text dialects.

    Args:
        text: bytes are UTF-8, with or without a byte order mark.
        name: name of the file, `-` for standard input. `.json` is JSON, `.yaml` and `.yml` are YAML. With any other
            name, the start of the text shows whether the text is JSON or a plan in a text dialect; any other text is
            YAML.

    Raises:
        PlanInvalid: `unreadable`, `empty_plan`, `invalid_syntax` (line and column in the message), `invalid_field` (a
            duplicate key), `too_large`.
    """
    display_name = "standard input" if name == "-" else printable(name)
    content = decode_text(text, name=display_name)
    if not content.strip():
        raise PlanInvalid([Problem("empty_plan", f"{display_name} is empty")])
    suffix = Path(name).suffix.lower()
    looks_like_json = _JSON_START.match(content) is not None
    if suffix == ".json" or looks_like_json:
        try:
            return read_json(content, name=display_name)
        except PlanInvalid:
            # JSON is tried first, because YAML does not support its escaped surrogate pairs. A YAML file that is not
            # valid JSON may be YAML in flow style.
            if suffix not in (".yaml", ".yml"):
                raise
    elif (
        suffix not in _DATA_SUFFIXES
        and _TEXT_PLAN_START.match(content)
        and text_dialect_and_offset(content) is not None
    ):
        return content
    value = read_yaml(content, name=display_name)
    if value is None:
        raise PlanInvalid([Problem("empty_plan", f"{display_name} has no plan, only comments or null")])
    return value


def decode_text(text: str | bytes, *, name: str) -> str:
    """Decode a text and remove its byte order mark.

    Raises:
        PlanInvalid: `unreadable`, if the bytes are not UTF-8.
    """
    try:
        if isinstance(text, bytes):
            return text.decode("utf-8-sig")
        text.encode()
        return text.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        message = f"{name} is not UTF-8 text: byte 0x{error.object[error.start]:02x} in line {line}"
    except UnicodeEncodeError as error:
        line = error.object.count("\n", 0, error.start) + 1
        message = f"{name} holds a lone surrogate, which is not a character, in line {line}"
    raise PlanInvalid([Problem("unreadable", message)])


def read_plan_file(path: Path) -> JsonValue:
    """Parse a file. Its name selects JSON or YAML as in `parse_plan_text`.

    Raises:
        PlanInvalid: `unreadable` (missing, a folder, no permission, too large), or a code of `parse_plan_text`.
    """
    return parse_plan_text(_bytes_of(path), name=str(path))


def stamp_of(path: Path) -> FileStamp:
    """Return the stamp of a file, which changes with the file; `None` if the file cannot be read."""
    try:
        stat = path.stat()
    except (OSError, ValueError):
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def read_text_file(path: Path) -> str:
    """Return the unchanged text of a file.

    Raises:
        PlanInvalid: `unreadable`.
    """
    return decode_text(_bytes_of(path), name=printable(str(path)))


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _unreadable_error(path, error) from None
    if len(content) > MAX_FILE_BYTES:
        raise PlanInvalid([_too_large_problem(path)])
    return content


def _too_large_problem(path: Path) -> Problem:
    return Problem("unreadable", f"{path} is larger than {MAX_FILE_BYTES // 1_000_000} MB, the limit for a plan")


def _unreadable_error(path: Path, error: OSError | ValueError) -> PlanInvalid:
    printable_path = printable(str(path))
    if isinstance(error, FileNotFoundError):
        message = f"there is no file {printable_path}"
    elif isinstance(error, IsADirectoryError):
        message = f"{printable_path} is a folder, not a file"
    elif isinstance(error, PermissionError):
        message = f"{printable_path} may not be read: permission denied"
    else:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"{printable_path} cannot be read: {reason}"
    return PlanInvalid([Problem("unreadable", message)])


def read_plan_lines(path: Path) -> Iterator[tuple[int, JsonValue | PlanInvalid]]:
    """Yield the plans of a `.jsonl` file, each with its line number, from 1; empty lines are skipped.

    An invalid line is yielded as a `PlanInvalid`, and reading continues with the next line.

    Raises:
        PlanInvalid: `unreadable`: the file cannot be read, or a line is too large.
    """
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:
        raise _unreadable_error(path, error) from None
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
        raise _unreadable_error(path, error) from None
    if len(line) > MAX_FILE_BYTES:
        raise PlanInvalid([_too_large_problem(path)])
    return line


def _value_of_line(line: bytes, *, name: str, number: int) -> JsonValue | PlanInvalid:
    try:
        return read_json(decode_text(line, name=f"{name}, line {number}"), name=name, first_line=number)
    except PlanInvalid as error:
        return error


def inline_files(document: JsonValue, *, base: Path, stamps: dict[Path, FileStamp] | None = None) -> JsonValue:
    """Inline the files that nodes of a document name as their sub-plans (`plan: "file.yaml"`).

    Args:
        document: in Dagwright's own dialect; a document in another dialect has no sub-plans and is returned unchanged.
        base: the folder of the document; paths in a file are relative to the folder of that file.
        stamps: receives the stamp of each file that is read or missing.

    Raises:
        PlanInvalid: files cannot be read or include each other in a cycle. The error has the problems with their
            pointers, and the document, which still has the names of these files.
    """
    inliner = _Inliner(stamps=stamps if stamps is not None else {})
    inlined_document = inliner.inline(document, base, at="", parent_files=())
    if inliner.problems:
        raise PlanInvalid(inliner.problems, document=inlined_document)
    return inlined_document


@dataclass(slots=True)
class _Inliner:
    """Inliner that reads each file once and counts all inlined files."""

    problems: list[Problem] = field(default_factory=list)
    parsed_files: dict[Path, JsonValue] = field(default_factory=dict)
    stamps: dict[Path, FileStamp] = field(default_factory=dict)
    inlined_count: int = 0

    def inline(self, document: JsonValue, base: Path, *, at: str, parent_files: tuple[Path, ...]) -> JsonValue:
        """Return the document with inlined files. `parent_files` are the files that include the document, outermost
        first.
        """
        if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
            return document
        nodes = document["nodes"]
        assert isinstance(nodes, list)
        inlined_nodes = list(nodes)
        for index, node in enumerate(nodes):
            if isinstance(node, dict) and isinstance(node.get("plan"), str | dict):
                node_at = at + pointer("nodes", index, "plan")
                sub_plan = self._sub_plan(node["plan"], base, at=node_at, parent_files=parent_files)
                inlined_nodes[index] = {**node, "plan": sub_plan}
        return {**document, "nodes": inlined_nodes}

    def _sub_plan(self, plan: JsonValue, base: Path, *, at: str, parent_files: tuple[Path, ...]) -> JsonValue:
        if not isinstance(plan, str):
            return self.inline(plan, base, at=at, parent_files=parent_files)
        try:
            path = (base / plan).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            self.problems.append(Problem("unreadable", printable(f"{plan!r} is not a path: {error}"), at))
            return plan
        if path in parent_files:
            cycle = " → ".join(file.name for file in (*parent_files[parent_files.index(path) :], path))
            self.problems.append(Problem("cycle", printable(f"these files include each other: {cycle}"), at))
            return plan
        if len(parent_files) >= MAX_NESTED_PLANS:
            message = f"sub-plans are nested more than {MAX_NESTED_PLANS} deep"
            self.problems.append(Problem("too_large", message, at))
            return plan
        self.inlined_count += 1
        if self.inlined_count == MAX_INLINED_FILES + 1:
            message = f"the sub-plans name more than {MAX_INLINED_FILES} files"
            self.problems.append(Problem("too_large", message, at))
        if self.inlined_count > MAX_INLINED_FILES:
            return plan
        try:
            content = self._parse_file(path)
        except PlanInvalid as error:
            self.problems += [replace(problem, pointer=at + problem.pointer) for problem in error.problems]
            if error.document is None:
                return plan
            content = error.document
        if isinstance(content, str):
            message = f"{printable(plan)} is a text; a sub-plan must be written as JSON or YAML"
            self.problems.append(Problem("invalid_field", message, at))
            return plan
        return self.inline(content, path.parent, at=at, parent_files=(*parent_files, path))

    def _parse_file(self, path: Path) -> JsonValue:
        if path not in self.parsed_files:
            # The stamp is read before the file, so that a concurrent change is detected.
            self.stamps.setdefault(path, stamp_of(path))
            self.parsed_files[path] = read_plan_file(path)
        return self.parsed_files[path]
