"""Streaming parser for JSON plans: returns each step as soon as the text contains the last character of the step.

The parser accepts a text in chunks of any size, and its result does not depend on the chunks. It only finds the start
and end of each step. `read_value`, which also parses complete texts, parses the step. The whole plan is validated
later, when the plan is complete.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dagwright.core.errors import Problem
from dagwright.dialects.written_values import UnreadableValue, read_value

STEP_LIST_KEYS: Final = frozenset({"nodes", "dag", "steps", "plan", "intents", "sub_goals", "task_nodes"})
"""Keys of the list of steps in a document; a document can also be the list itself."""

_ROOT = re.compile(r"[{\[]")
_NOT_SPACE = re.compile(r"[^ \t\r\n\u00a0\u200b\ufeff]")
_STRUCTURAL_CHARACTERS = re.compile("[\"'\u201c\u201d\u201e\u2018\u2019{}\\[\\],/#]")
_QUOTE_ENDS: Final[Mapping[str, re.Pattern[str]]] = {
    '"': re.compile(r'["\\]'),
    "'": re.compile(r"['\\]"),
    **dict.fromkeys("\u201c\u201d\u201e", re.compile("[\u201c\u201d\u201e\\\\]")),
    **dict.fromkeys("\u2018\u2019", re.compile("[\u2018\u2019\\\\]")),
}
_THINKING_TAGS: Final = {"<think>": "</think>", "<thinking>": "</thinking>"}
_MAX_KEY_CHARACTERS = 20


@dataclass(frozen=True, slots=True)
class StreamedStep:
    """A complete step of a plan.

    Args:
        index: its position in the plan, from 0.
        value: the list entry as it was written.
        start, end: offsets of its text.
    """

    index: int
    value: Any
    start: int
    end: int


@dataclass(slots=True)
class _ThinkingFilter:
    """Skips the thinking of a model before its answer."""

    consumed_characters: int = 0
    has_answer_started: bool = False
    _buffer: str = ""
    _end_tag: str = ""

    def answer_part(self, chunk: str) -> str:
        """Return the part of a chunk that belongs to the answer. The part ends at the offset `consumed_characters`."""
        self.consumed_characters += len(chunk)
        if self.has_answer_started:
            return chunk
        self._buffer = (
            (self._buffer + chunk).lstrip(" \t\r\n\u00a0\ufeff") if not self._end_tag else self._buffer + chunk
        )
        if not self._end_tag:
            start_tag = next((tag for tag in _THINKING_TAGS if self._buffer.startswith(tag)), None)
            if start_tag is not None:
                self._end_tag = _THINKING_TAGS[start_tag]
            elif any(tag.startswith(self._buffer) for tag in _THINKING_TAGS):
                return ""
            else:
                self.has_answer_started = True
                return self._buffer
        end = self._buffer.find(self._end_tag)
        if end < 0:
            self._buffer = self._buffer[-len(self._end_tag) :]
            return ""
        self.has_answer_started = True
        return self._buffer[end + len(self._end_tag) :]


@dataclass(slots=True)
class JsonStepParser:
    """Finds the steps of a JSON plan in a text with prose and fences.

    Args:
        problem: why a step could not be read. The parser then finds no more steps.
        is_complete: whether the JSON value of the plan is closed.
        key: key of the list of steps; `None` if the list is not found yet, or is the plan itself.

    Complexity: linear in the length of the text, for any chunks.
    """

    problem: Problem | None = None
    is_complete: bool = False
    key: str | None = None
    _thinking_filter: _ThinkingFilter = field(default_factory=_ThinkingFilter)
    _mode: str = "prose"
    _quote: str = ""
    _start_brackets: str = ""
    _first_step_start: int = -1
    _chunk: str = ""
    _offset: int = 0
    _open_brackets: list[str] = field(default_factory=list)
    _step_list_depth: int = 0
    _root_text: str | None = None
    """String at the root level that is being read, which may be a key; `None` in other strings."""
    _last_root_text: str = ""
    _buffer_start: int = -1
    _parts: list[str] = field(default_factory=list)
    _part_start: int = 0
    _step_count: int = 0
    _completed_steps: list[StreamedStep] = field(default_factory=list)

    def feed(self, chunk: str) -> list[StreamedStep]:
        """Return the steps that a chunk completes, in order."""
        self._chunk = self._thinking_filter.answer_part(chunk)
        self._offset = self._thinking_filter.consumed_characters - len(self._chunk)
        self._part_start = 0
        at = 0
        while at < len(self._chunk) and self.problem is None and not self.is_complete:
            at = _MODES[self._mode](self, at)
        if self._buffer_start >= 0:
            self._parts.append(self._chunk[self._part_start :])
        steps, self._completed_steps = self._completed_steps, []
        return steps

    def _read_prose(self, at: int) -> int:
        match = _ROOT.search(self._chunk, at)
        if match is None:
            return len(self._chunk)
        self._start_brackets = match[0]
        self._buffer_start = self._offset + match.start()
        self._part_start = match.start()
        self._mode = "possible_start"
        return match.end()

    def _read_possible_start(self, at: int) -> int:
        """Check a possible start of the plan: the first key of the object or of the first list entry must be quoted."""
        match = _NOT_SPACE.search(self._chunk, at)
        if match is None:
            return len(self._chunk)
        character = match[0]
        if character == "{" and self._start_brackets == "[":
            self._start_brackets = "[{"
            self._first_step_start = self._offset + match.start()
            return match.end()
        if self._start_brackets[-1] == "{" and character in _QUOTE_ENDS:
            return self._start_plan(match.start())
        self._discard_buffer()
        # This may be an unquoted key or prose, so the text is parsed only when it is complete.
        is_unclear = self._start_brackets[-1] == "{" or character in _QUOTE_ENDS
        self._mode = "undecidable" if is_unclear else "prose"
        return match.start() if character in "{[" else match.end()

    def _start_plan(self, at: int) -> int:
        """Start the plan; its first key is at the given offset of the chunk."""
        self._open_brackets = list(self._start_brackets)
        self._mode = "value"
        if self._start_brackets == "[{":
            buffered_text = "".join([*self._parts, self._chunk[self._part_start : at]])
            self._step_list_depth = 1
            self._parts = [buffered_text[self._first_step_start - self._buffer_start :]]
            self._buffer_start, self._part_start = self._first_step_start, at
        else:
            self._discard_buffer()
        return at

    def _discard_buffer(self) -> None:
        self._buffer_start = -1
        self._parts = []

    def _read_value(self, at: int) -> int:
        match = _STRUCTURAL_CHARACTERS.search(self._chunk, at)
        if match is None:
            return len(self._chunk)
        character, at = match[0], match.start()
        if character in _QUOTE_ENDS:
            self._quote, self._mode = character, "text"
            self._root_text = "" if len(self._open_brackets) == 1 else None
        elif character in "{[":
            self._enter_bracket(character, at)
        elif character in "}]":
            self._leave_bracket(at)
        elif character == ",":
            self._last_root_text = ""
        else:
            self._mode = "slash" if character == "/" else "line_comment"
        return match.end()

    def _enter_bracket(self, character: str, at: int) -> None:
        depth = len(self._open_brackets)
        if character == "[" and depth == 1 and not self._step_list_depth and self._last_root_text in STEP_LIST_KEYS:
            self._step_list_depth = 2
            self.key = self._last_root_text
        elif (
            character == "{"
            and depth == self._step_list_depth
            and self._open_brackets[-1] == "["
            and self._buffer_start < 0
        ):
            self._buffer_start, self._part_start = self._offset + at, at
        self._open_brackets.append(character)

    def _leave_bracket(self, at: int) -> None:
        self._open_brackets.pop()
        depth = len(self._open_brackets)
        if self._buffer_start >= 0 and depth == self._step_list_depth:
            self._parts.append(self._chunk[self._part_start : at + 1])
            self._add_step("".join(self._parts), self._buffer_start)
            self._discard_buffer()
        elif depth < self._step_list_depth:
            # A plan has only one list of steps.
            self._step_list_depth = -1
        self.is_complete = not self._open_brackets

    def _add_step(self, text: str, start: int) -> None:
        try:
            parsed_value = read_value(text, 0)
        except UnreadableValue as failure:
            message = f"step {self._step_count + 1} is ambiguous or invalid JSON: {failure.message}"
            self.problem = Problem("invalid_syntax", f"{message} (character {start + failure.offset + 1})")
            return
        self._completed_steps.append(StreamedStep(self._step_count, parsed_value.value, start, start + len(text)))
        self._step_count += 1

    def _read_text(self, at: int) -> int:
        match = _QUOTE_ENDS[self._quote].search(self._chunk, at)
        end = match.start() if match is not None else len(self._chunk)
        if self._root_text is not None and len(self._root_text) <= _MAX_KEY_CHARACTERS:
            self._root_text += self._chunk[at : min(end, at + _MAX_KEY_CHARACTERS + 1)]
        if match is None:
            return end
        if match[0] == "\\":
            self._mode = "escape"
        else:
            self._mode = "value"
            if self._root_text is not None:
                self._last_root_text, self._root_text = self._root_text, None
        return match.end()

    def _read_escape(self, at: int) -> int:
        self._mode = "text"
        return at + 1

    def _read_slash(self, at: int) -> int:
        next_mode = {"/": "line_comment", "*": "block_comment"}.get(self._chunk[at])
        self._mode = next_mode or "value"
        return at + 1 if next_mode else at

    def _read_line_comment(self, at: int) -> int:
        end = self._chunk.find("\n", at)
        if end < 0:
            return len(self._chunk)
        self._mode = "value"
        return end + 1

    def _read_block_comment(self, at: int) -> int:
        end = self._chunk.find("*", at)
        if end < 0:
            return len(self._chunk)
        self._mode = "star"
        return end + 1

    def _read_star(self, at: int) -> int:
        character = self._chunk[at]
        self._mode = "value" if character == "/" else "star" if character == "*" else "block_comment"
        return at + 1

    def _read_undecidable(self, _: int) -> int:
        return len(self._chunk)


_MODES: Final[Mapping[str, Callable[[JsonStepParser, int], int]]] = {
    "prose": JsonStepParser._read_prose,
    "possible_start": JsonStepParser._read_possible_start,
    "value": JsonStepParser._read_value,
    "text": JsonStepParser._read_text,
    "escape": JsonStepParser._read_escape,
    "slash": JsonStepParser._read_slash,
    "line_comment": JsonStepParser._read_line_comment,
    "block_comment": JsonStepParser._read_block_comment,
    "star": JsonStepParser._read_star,
    "undecidable": JsonStepParser._read_undecidable,
}
"""Mode of the parser -> method that continues from an offset of the chunk and returns the next offset."""
