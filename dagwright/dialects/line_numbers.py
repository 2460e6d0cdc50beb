"""Find the lines of problems in a JSON or YAML text, to display the problems in the text.

A text is parsed for this purpose only if it has problems. If a value cannot be found, its line is `None`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from dagwright.core.errors import Problem, pointer

_SYNTAX_CODES = ("invalid_syntax", "unreadable")
"""Codes of problems that prevent parsing; their message has the line."""
_LINE_NUMBER = re.compile(r"\bline ([0-9]+)")
_START_EVENTS = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_END_EVENTS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)


def lines_of_problems(text: str, problems: Iterable[Problem]) -> list[int | None]:
    """Return the line of each problem in the text, from 1; `None` if the line is unknown.

    For a missing field, return the line of its container.
    """
    problem_list = list(problems)
    lines = _lines_of(text, {problem.pointer for problem in problem_list})
    return [_line_in_message(problem) or _nearest_line(problem.pointer, lines) for problem in problem_list]


def _line_in_message(problem: Problem) -> int | None:
    match = _LINE_NUMBER.search(problem.message) if problem.code in _SYNTAX_CODES else None
    return int(match[1]) if match is not None else None


def _nearest_line(location: str, lines: Mapping[str, int]) -> int | None:
    while location and location not in lines:
        location = location.rpartition("/")[0]
    return lines.get(location)


def _lines_of(text: str, pointers: Iterable[str]) -> dict[str, int]:
    """Return the lines of pointers and of their containers, as far as the text can be parsed."""
    searched_pointers = {""}
    for requested_pointer in pointers:
        container = requested_pointer
        while container not in searched_pointers:
            searched_pointers.add(container)
            container = container.rpartition("/")[0]
    lines: dict[str, int] = {}
    tracker = _PointerTracker()
    try:
        # YAML does not allow lone surrogates.
        valid_text = text.encode(errors="replace").decode()
        for event in yaml.parse(valid_text, Loader=yaml.CSafeLoader):
            pointer_and_line = tracker.locate(event)
            if pointer_and_line is not None and pointer_and_line[0] in searched_pointers:
                lines.setdefault(*pointer_and_line)
    except yaml.YAMLError:
        # JSON allows text that YAML does not; values before that text are found.
        pass
    return lines


class _PointerTracker:
    """Tracks the pointer of each value that is read, and the line of the value or its key."""

    def __init__(self) -> None:
        self._frames: list[_Frame] = []

    def locate(self, event: Any) -> tuple[str, int] | None:
        """Return pointer and line of the value that starts with an event."""
        if isinstance(event, _END_EVENTS):
            self._frames.pop()
            return None
        if not isinstance(event, (yaml.ScalarEvent, yaml.AliasEvent, *_START_EVENTS)):
            return None
        container = self._frames[-1] if self._frames else None
        mark = event.start_mark
        line = mark.line + 1 if mark is not None else 1
        if container is not None and container.expects_key:
            container.key, container.line = getattr(event, "value", ""), line
            if isinstance(event, _START_EVENTS):
                # The key is a list or an object; no valid plan has such a key.
                self._frames.append(_Frame(event, f"{container.prefix}/"))
            return None
        pointer_and_line = ("", line) if container is None else container.next(line)
        if isinstance(event, _START_EVENTS):
            self._frames.append(_Frame(event, pointer_and_line[0]))
        return pointer_and_line


class _Frame:
    """A list or an object that is not closed yet."""

    __slots__ = ("count", "is_object", "key", "line", "prefix")

    def __init__(self, event: Any, prefix: str) -> None:
        self.prefix = prefix
        self.is_object = isinstance(event, yaml.MappingStartEvent)
        self.count = 0
        self.key: str | None = None
        self.line = 0

    @property
    def expects_key(self) -> bool:
        return self.is_object and self.key is None

    def next(self, line: int) -> tuple[str, int]:
        """Return pointer and line of the next value."""
        if self.is_object:
            assert self.key is not None
            key, self.key = self.key, None
            return self.prefix + pointer(key), self.line
        self.count += 1
        return self.prefix + pointer(self.count - 1), line
