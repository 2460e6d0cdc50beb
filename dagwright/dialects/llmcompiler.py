"""The dialect `llmcompiler`: a text with a numbered call on each line, `2. math("$1 * 2")`, and `join()` at the end.

`$1` or `${1}` is the result of task 1. A line `Thought: …` explains the next task. `join()` ends the plan
and does not become a node. Arguments have Python syntax, but the quotes of a single text may be missing.

Source: Kim et al., "An LLM Compiler for Parallel Function Calling" (2023), and the parser of its repository.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import JsonValue

from dagwright.core.errors import Note, PlanInvalid, Problem
from dagwright.core.expressions.references import ResultOf
from dagwright.core.model.document import Document
from dagwright.dialects.draft import STAND_IN_ACTION, DocumentDraft, action_of_tool
from dagwright.dialects.foreign import (
    Tools,
    document_of_text,
    escape_references,
    key_problems,
    lines_of,
    map_texts,
    named_arguments,
    translate_references,
)
from dagwright.dialects.json_reader import describe
from dagwright.dialects.written_values import TRUNCATED, UnreadableValue, read_value, skip_space

TASK_START: Final = re.compile(r"[ \t]*(?P<number>[0-9]{1,9})\.[ \t]*(?P<tool>[A-Za-z_][\w.-]*)[ \t]*\(")
"""Start of a task's line."""

JOIN: Final = "join"
_UNQUOTED_REFERENCE = re.compile(r"\$\{[0-9]{1,9}\}|\$[0-9]{1,9}(?![\w.,]*[0-9])")
_REFERENCE = re.compile(r"\$\{([0-9]{1,9})\}|\$([0-9]{1,9})(?![0-9]*(?:[.,][0-9]|\w))")
_NAME = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)")
_THOUGHT = re.compile(r"[ \t]*Thought:[ \t]*(.*)")
_END_OF_TASK = re.compile(r"[ \t]*(?:Thought:|###|<END_OF_PLAN>)")
_END_OF_LINE = re.compile(r"\s*(?:#[^\n]*)?(?:<END_OF_PLAN>)?\s*")
_UNQUOTED_TEXT = re.compile(r"[^\"'\[{(\s][^\n]*")


@dataclass(frozen=True, slots=True)
class LlmCompilerTask:
    """A numbered call of the plan.

    Args:
        positional_arguments, keyword_arguments: values of the arguments.
        start: offset of its text.
        line: number of its line, from 1.
        problem: why the arguments could not be read.
        is_open: whether the text ends within the task.
    """

    number: int
    tool: str
    positional_arguments: Sequence[Any]
    keyword_arguments: Mapping[str, Any]
    thought: str | None
    start: int
    line: int
    problem: str | None = None
    is_open: bool = False

    @property
    def is_join(self) -> bool:
        """Whether the task is the end of the plan."""
        return self.tool == JOIN


@dataclass(slots=True)
class _TaskFinder:
    """Finds the tasks in the lines of a text.

    A task whose parentheses are not closed on its line continues on the following lines, up to the next task.
    """

    thought: str | None = None
    _open_task: tuple[re.Match[str], int, int] | None = field(default=None)
    _lines: list[str] = field(default_factory=list)

    def add_line(self, line: str, *, offset: int, number: int) -> list[LlmCompilerTask]:
        """Return the tasks that a line completes.

        Args:
            line: text of the line with its line break, if it has one.
            offset: offset of the line in the text.
            number: number of the line, from 1.
        """
        match = TASK_START.match(line)
        if match is None:
            completed_tasks = self.end() if _END_OF_TASK.match(line) else []
            if thought := _THOUGHT.match(line):
                self.thought = thought[1].strip() or None
            elif self._open_task is not None:
                self._lines.append(line)
            return completed_tasks
        completed_tasks = self.end()
        task = self._parse_task(match, line, offset=offset, number=number)
        if task is None:
            self._open_task = (match, offset, number)
            self._lines = [line]
            return completed_tasks
        return [*completed_tasks, task]

    def end(self) -> list[LlmCompilerTask]:
        """End the open task, and return it; return an empty list if no task is open."""
        if self._open_task is None:
            return []
        match, offset, number = self._open_task
        text = "".join(self._lines)
        self._open_task, self._lines = None, []
        task = self._parse_task(match, text, offset=offset, number=number)
        if task is None:
            task = self._create_task(match, (), {}, offset=offset, line=number)
            task = replace(task, problem="its ')' is missing", is_open=True)
        return [task]

    def _parse_task(self, match: re.Match[str], text: str, *, offset: int, number: int) -> LlmCompilerTask | None:
        """Parse a task; return `None` if its text may continue on the next line."""
        start = match.end()
        try:
            positional_arguments, keyword_arguments, end = _parse_arguments(text, start)
        except UnreadableValue as failure:
            end = text.rstrip().removesuffix("<END_OF_PLAN>").rstrip().rfind(")")
            arguments_text = text[start:end].strip() if end >= start else ""
            if end < 0 or text[start:end].count('"') % 2:
                return None
            task = self._create_task(match, (arguments_text,), {}, offset=offset, line=number)
            if _UNQUOTED_TEXT.fullmatch(arguments_text) and not _NAME.match(arguments_text):
                return task
            return replace(task, problem=failure.message)
        if end < 0:
            return None
        task = self._create_task(match, positional_arguments, keyword_arguments, offset=offset, line=number)
        line_end = text.find("\n", end)
        if _END_OF_LINE.fullmatch(text, end, line_end if line_end >= 0 else len(text)) is None:
            remaining_text = describe(text[end:].strip()).removeprefix("the ")
            return replace(task, problem=f"unexpected {remaining_text} after ')'")
        return task

    def _create_task(
        self,
        match: re.Match[str],
        positional_arguments: Sequence[Any],
        keyword_arguments: Mapping[str, Any],
        *,
        offset: int,
        line: int,
    ) -> LlmCompilerTask:
        thought, self.thought = self.thought, None
        start = offset + match.start("number")
        return LlmCompilerTask(
            int(match["number"]), match["tool"], positional_arguments, keyword_arguments, thought, start, line
        )


def _parse_arguments(text: str, at: int) -> tuple[list[Any], dict[str, Any], int]:
    """Parse the arguments of a call.

    Returns:
        Positional arguments, keyword arguments, and the offset after the closing parenthesis, or -1 if the text ends
        before the parenthesis.

    Raises:
        UnreadableValue: the arguments are not a list of values.
    """
    positional_arguments: list[Any] = []
    keyword_arguments: dict[str, Any] = {}
    while True:
        at = skip_space(text, at)
        if at >= len(text):
            return positional_arguments, keyword_arguments, -1
        if text[at] == ")":
            return positional_arguments, keyword_arguments, at + 1
        name = _NAME.match(text, at)
        parsed_value = read_value(text, name.end() if name else at, unquoted_pattern=_UNQUOTED_REFERENCE)
        if any(repair.code == TRUNCATED for repair in parsed_value.repairs):
            return positional_arguments, keyword_arguments, -1
        if name is not None:
            keyword_arguments[name[1]] = parsed_value.value
        elif keyword_arguments:
            raise UnreadableValue(
                "an argument without a name follows an argument with a name", at, looks_like_value=True
            )
        else:
            positional_arguments.append(parsed_value.value)
        at = skip_space(text, parsed_value.end)
        if at < len(text) and text[at] not in ",)":
            raise UnreadableValue(
                f"',' or ')' is missing before {describe(text[at : at + 20])}", at, looks_like_value=True
            )
        at += at < len(text) and text[at] == ","


def tasks_of(text: str) -> list[LlmCompilerTask]:
    """Return the tasks of a text, including `join()`."""
    return list(_tasks_of(text))


def _tasks_of(text: str) -> Iterator[LlmCompilerTask]:
    finder = _TaskFinder()
    for number, offset, line in lines_of(text):
        yield from finder.add_line(line, offset=offset, number=number)
    yield from finder.end()


def _node_of(
    task: LlmCompilerTask, *, numbers: Mapping[int, Any], tools: Tools, problems: list[Problem]
) -> dict[str, Any]:
    """Return the node of a task.

    Args:
        numbers: mapping whose keys are the numbers of the existing tasks.
        problems: list that problems are appended to.
    """
    node: dict[str, Any] = {"id": str(task.number), **action_of_tool(task.tool)}
    if task.thought is not None:
        node["title"] = task.thought

    def report(code: str, message: str, hint: str | None = None) -> None:
        problems.append(Problem(code, f"task {task.number} (line {task.line}): {message}", "", node["id"], hint))

    def resolve(match: re.Match[str]) -> ResultOf | None:
        number = int(match[1] or match[2])
        if number in numbers:
            return ResultOf(str(number), "result")
        hint = "an amount of money is written with the name of its currency, such as 100 USD"
        report("invalid_reference", f"Invalid reference: there is no task {number} for {match[0]}", hint)
        return None

    def replace_references(text: str, _: object) -> str:
        try:
            return translate_references(text, _REFERENCE, resolve)
        except ValueError as error:
            report("invalid_reference", str(error))
            return escape_references(text)

    if task.problem is not None:
        report("invalid_syntax", f"{task.tool}: {task.problem}", 'write it as one call: 1. tool("text", 2, ["$1"])')
        return {"id": node["id"], **STAND_IN_ACTION}
    try:
        arguments = named_arguments(task.positional_arguments, task.tool, tools=tools)
        if duplicates := arguments.keys() & task.keyword_arguments.keys():
            raise ValueError(f"{task.tool} is given {', '.join(sorted(duplicates))} twice")
    except ValueError as error:
        report("invalid_arguments", str(error))
        arguments = {}
    for message, _, hint in key_problems({**arguments, **task.keyword_arguments}, _REFERENCE):
        report("invalid_reference", message, hint)
    node["arguments"] = map_texts({**arguments, **task.keyword_arguments}, replace_references)
    return node


def read_llmcompiler(raw: JsonValue, *, tools: Tools) -> Document:
    """Return the document of a text with numbered calls.

    Raises:
        PlanInvalid: the text has no calls.
    """

    def add_lines(draft: DocumentDraft, tasks: Sequence[LlmCompilerTask]) -> None:
        _add_tasks(draft, tasks, tools=tools)

    return document_of_text(raw, "llmcompiler", parse_lines=tasks_of, add_lines=add_lines, example='1. tool("text")')


def _add_tasks(draft: DocumentDraft, tasks: Sequence[LlmCompilerTask], *, tools: Tools) -> None:
    join_index = next((index for index, task in enumerate(tasks) if task.is_join), len(tasks))
    for task in tasks[join_index + 1 :]:
        message = f"task {task.number} (line {task.line}) is after join(), which ends the plan"
        draft.problems.append(Problem("invalid_field", message, "", str(task.number)))
    if join_index == len(tasks):
        draft.notes.append(Note("no_join", "the plan does not end with join(); it may have been cut off"))
    tasks = tasks[:join_index]
    if not tasks:
        draft.problems.append(Problem("empty_plan", "there is no task before join(): there is nothing to run"))
        raise PlanInvalid(draft.problems)
    numbers = {task.number: None for task in tasks}
    draft.nodes = [_node_of(task, numbers=numbers, tools=tools, problems=draft.problems) for task in tasks]
