"""Read plans and values of the command line: files, standard input, KEY=VALUE.

This module must not import Temporal, because `check` works without Temporal.
"""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import JsonValue

from dagwright.core.boundary.decoding import json_from_bytes
from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.core.model.budget_limits import limits_from_json
from dagwright.core.model.policy import Policy, policy_from_json
from dagwright.core.text import cut_bytes, format_count
from dagwright.dialects.reading import (
    MAX_FILE_BYTES,
    decode_text,
    inline_files,
    parse_plan_text,
    read_plan_file,
    read_plan_lines,
    read_text_file,
)
from dagwright.features.budgets.budget import budget_of_options, options_to_json
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode
from dagwright.plans.check_reports import invalid_plan_report
from dagwright.protocol.fairness import Fairness, FairnessInvalid, fairness_of
from dagwright.protocol.run_labels import TagsInvalid, validate_run_tags

STANDARD_INPUT = "-"
PROBLEMS_SHOWN = 20
"""Maximum number of problems of a plan in the text output; `--json` lists all."""


@dataclass(frozen=True, slots=True)
class PlanSource:
    """A plan, or the problems that prevented reading it.

    Args:
        file: as named on the command line.
        line: line of a `.jsonl` file, from 1.
        plan: plan, including sub-plans from other files.
    """

    file: str
    line: int | None
    plan: JsonValue | PlanInvalid


def read_plan(file: str) -> JsonValue | PlanInvalid:
    """Return the plan of a file or of standard input, including sub-plans from other files, or the problems."""
    try:
        plan: JsonValue | PlanInvalid = (
            _read_plan_of_standard_input() if file == STANDARD_INPUT else read_plan_file(Path(file))
        )
    except PlanInvalid as invalid:
        plan = invalid
    return _include_sub_plans(plan, base=Path() if file == STANDARD_INPUT else Path(file).parent)


def _read_plan_of_standard_input() -> JsonValue:
    return parse_plan_text(_read_standard_input(), name=STANDARD_INPUT)


@lru_cache(maxsize=1)
def _read_once(stream: BinaryIO) -> bytes:
    """Return the content of a stream. It is cached, because a plan may be prepared twice."""
    return stream.read(MAX_FILE_BYTES + 1)


def _read_standard_input() -> bytes:
    content = _read_once(sys.stdin.buffer)
    if len(content) > MAX_FILE_BYTES:
        message = f"standard input is larger than {MAX_FILE_BYTES // 1_000_000} MB, the maximum size of a plan"
        raise PlanInvalid([Problem("unreadable", message)])
    return content


def read_raw_text(file: str) -> str | PlanInvalid:
    """Return the text of a file or of standard input unparsed, or the problems that prevented reading it."""
    try:
        if file == STANDARD_INPUT:
            return decode_text(_read_standard_input(), name="standard input")
        return read_text_file(Path(file))
    except PlanInvalid as invalid:
        return invalid


def read_raw_sources(files: Sequence[str]) -> Iterator[PlanSource]:
    """Yield the unparsed text of each file."""
    return (PlanSource(file, None, read_raw_text(file)) for file in files)


def read_sources(files: Sequence[str]) -> Iterator[PlanSource]:
    """Yield the plans of the files: one per file, or one per line of a `.jsonl` file."""
    for file in files:
        if not file.lower().endswith(".jsonl"):
            yield PlanSource(file, None, read_plan(file))
            continue
        try:
            for number, plan in read_plan_lines(Path(file)):
                yield PlanSource(file, number, _include_sub_plans(plan, base=Path(file).parent))
        except PlanInvalid as invalid:
            yield PlanSource(file, None, invalid)


def _include_sub_plans(plan: JsonValue | PlanInvalid, *, base: Path) -> JsonValue | PlanInvalid:
    """Include the sub-plans from other files; an invalid plan keeps its problems."""
    read_error = plan if isinstance(plan, PlanInvalid) else None
    document: JsonValue = plan.document if isinstance(plan, PlanInvalid) else plan
    if read_error is not None and document is None:
        return read_error
    try:
        document = inline_files(document, base=base)
    except PlanInvalid as invalid:
        return PlanInvalid([*(read_error.problems if read_error else ()), *invalid.problems], document=invalid.document)
    return PlanInvalid(read_error.problems, document=document) if read_error else document


def invalid_plan_document(source: PlanSource, invalid: PlanInvalid) -> dict[str, Any]:
    """Return the document of an invalid plan: `{"status": "invalid", "file", "line", "errors"}`."""
    return {**invalid_plan_report(invalid.problems), "file": source.file, "line": source.line}


def problem_lines(source: PlanSource, invalid: PlanInvalid) -> list[str]:
    """Return a line for each problem, up to a limit."""
    name = "standard input" if source.file == STANDARD_INPUT else source.file
    location = name if source.line is None else f"{name}, line {source.line}"
    lines = []
    for problem in invalid.problems[:PROBLEMS_SHOWN]:
        # Problems of an unparsed plan have no pointers, but may name a node.
        position = f" at {problem.pointer}" if problem.pointer else ""
        if not position and isinstance(source.plan, str) and problem.node_id:
            position = f" in {problem.node_id}"
        lines.append(f"{location}: {problem.code}{position}: {problem.text.removeprefix(f'{name}: ')}")
    omitted_count = len(invalid.problems) - PROBLEMS_SHOWN
    return (
        [*lines, f"{location}: and {format_count(omitted_count, 'more problem')}; --json lists all"]
        if omitted_count > 0
        else lines
    )


def parse_pairs(pairs: Sequence[str], *, option: str) -> dict[str, str]:
    """Parse KEY=VALUE texts. The last value of a key wins.

    Raises:
        CommandError: a text is not KEY=VALUE.
    """
    values = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise CommandError(f"{option} must be KEY=VALUE, not {pair!r:.80}")
        values[key.strip()] = value
    return values


def parse_context(pairs: Sequence[str]) -> dict[str, str]:
    """Parse the values of `--context`; names may start with `@`.

    Raises:
        CommandError: a text is not KEY=VALUE.
    """
    return {name.removeprefix("@"): value for name, value in parse_pairs(pairs, option="--context").items()}


def parse_tags(pairs: Sequence[str]) -> dict[str, str]:
    """Parse the values of `--tag`.

    Raises:
        CommandError: a tag is invalid.
    """
    try:
        return validate_run_tags(parse_pairs(pairs, option="--tag"))
    except TagsInvalid as error:
        raise CommandError(f"--tag: {error}") from None


def parse_fairness(key: str | None, weight: float | None) -> Fairness | None:
    """Return the fairness of `--fairness-key` and `--fairness-weight`.

    Raises:
        CommandError: the key or the weight is invalid.
    """
    try:
        return fairness_of(key, weight)
    except FairnessInvalid as error:
        raise CommandError(str(error)) from None


def read_inputs_file(file: str | None) -> dict[str, JsonValue]:
    """Return the inputs of `--input-file FILE`.

    Raises:
        CommandError: the file cannot be read, or does not contain an object.
    """
    if file is None:
        return {}
    try:
        values = read_plan_file(Path(file))
    except PlanInvalid as invalid:
        raise CommandError(f"--input-file: {invalid.problems[0].text}", code=CommandErrorCode.UNREADABLE) from None
    if not isinstance(values, dict):
        raise CommandError(f"--input-file: {file} must contain an object of inputs")
    return values


def read_policy(file: str | None) -> Policy | None:
    """Return the policy of a file; `None` without a file.

    Raises:
        CommandError: the file cannot be read, or does not contain a valid policy.
    """
    if file is None:
        return None
    try:
        return policy_from_json(read_plan_file(Path(file)))
    except PlanInvalid as invalid:
        raise CommandError(f"the policy: {invalid.problems[0].text}", code=CommandErrorCode.UNREADABLE) from None
    except ValueError as error:
        raise CommandError(f"the policy {file}: {error}", code=CommandErrorCode.INVALID_VALUE) from None


def convert_inputs(
    input_schemas: Mapping[str, Mapping[str, Any]], texts: Mapping[str, str]
) -> tuple[dict[str, JsonValue], list[Problem]]:
    """Convert texts to the declared types of the inputs; return the values and a problem for each invalid text.

    Undeclared inputs stay text.
    """
    values: dict[str, JsonValue] = {}
    problems = []
    for name, text in texts.items():
        try:
            values[name] = convert_value(input_schemas.get(name, {}), text)
        except ValueError as error:
            message, hint = f"the input {name!r}: {error}", _json_hint(input_schemas.get(name, {}), name, text)
            problems.append(Problem("invalid_field", message, pointer("inputs", name), hint=hint))
    return values, problems


def _json_hint(schema: Mapping[str, Any], name: str, text: str) -> str | None:
    """Return how to write a list or an object on the command line; `None` for other types."""
    match schema.get("type"):
        case "array":
            items: list[JsonValue] = [part.strip(" []'\"") for part in text[:60].split(",")]
            return f"write a list as JSON: --input {shlex.quote(f'{name}={value_as_text(items)}')}"
        case "object":
            example = name + '={"key": "value"}'
            return f"write an object as JSON: --input {shlex.quote(example)}"
    return None


def convert_value(schema: Mapping[str, Any], text: str) -> JsonValue:
    """Convert a text to a type of a JSON Schema.

    Raises:
        ValueError: the text is not a value of a type that the schema allows.
    """
    declared_type = schema.get("type")
    types = [declared_type] if isinstance(declared_type, str) else list(declared_type or [])
    if not types:
        choices: list[JsonValue] = [choice for choice in schema.get("enum", []) if value_as_text(choice) == text]
        return choices[0] if choices else text
    for type_name in types:
        if type_name == "string":
            continue
        value: JsonValue = _parse_as_type(text, type_name)
        if value is not _NOT_OF_TYPE:
            return value
    if "string" in types:
        return text
    raise ValueError(f"{text!r:.80} is not of type {' or '.join(types)}")


_NOT_OF_TYPE: Any = object()
_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}
_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def _parse_as_type(text: str, type_name: str) -> Any:
    if type_name == "boolean":
        return _BOOLEANS.get(text.strip().lower(), _NOT_OF_TYPE)
    try:
        value = json_from_bytes(text.encode())
    except ValueError:
        return _NOT_OF_TYPE
    if type_name == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    has_type = isinstance(value, _PYTHON_TYPES.get(type_name, ())) and not isinstance(value, bool)
    return value if has_type else _NOT_OF_TYPE


def parse_json_option(text: str, *, option: str) -> Any:
    """Decode a JSON text.

    Args:
        option: name of the option for the error message.

    Raises:
        CommandError: the text is invalid JSON, or its value cannot be encoded as JSON.
    """
    try:
        return json_from_bytes(text.encode())
    except ValueError as error:
        raise CommandError(f"{option} must be JSON, not {text!r:.80}: {error}") from None


def value_as_text(value: JsonValue) -> str:
    """Return the text that a user types for a value."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_NO_LIMIT_TEXT = "none"


_MAX_DIGITS = 20
"""Maximum number of digits of a limit, because Python rejects very long numbers."""


def parse_budget(text: str | None, *, is_interactive: bool) -> Mapping[str, Any] | None:
    """Parse `--budget` into the budget of the run options; return `None` if `--budget` was not given.

    Args:
        is_interactive: whether a run at a limit requests a higher limit. If not, the run finishes at the limit.

    Raises:
        CommandError: the budget is invalid.
    """
    if text is None:
        return None
    on_limit = {} if is_interactive else {"on_limit": "finish"}
    try:
        return options_to_json(budget_of_options({**_parse_limits(text), **on_limit}))
    except ValueError as error:
        raise _budget_error(text, error) from None


def parse_new_limits(text: str) -> Mapping[str, Any]:
    """Parse new limits for the budget of a run; `none` removes a limit.

    Raises:
        CommandError: a limit is invalid.
    """
    try:
        limits = {name: None if value == _NO_LIMIT_TEXT else value for name, value in _parse_limits(text).items()}
        limits_from_json(limits, allow_null=True)
    except ValueError as error:
        raise _budget_error(text, error) from None
    return limits


def _parse_limits(text: str) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            comma_hint = ", and numbers without commas" if part.strip().isdecimal() else ""
            raise ValueError(f"invalid limit {part.strip()!r:.60}; write NAME=NUMBER{comma_hint}")
        if name in limits:
            raise ValueError(f"{name} is given twice")
        is_count = name not in ("money", "time") and value.isascii() and value.isdecimal() and len(value) <= _MAX_DIGITS
        limits[name] = int(value) if is_count else value
    return limits


def _budget_error(text: str, error: ValueError) -> CommandError:
    return CommandError(
        f"--budget {cut_bytes(text, max_bytes=200)}: {error}; "
        "an example is tokens=50000,money=1.50,calls=40,nodes=200,time=2h"
    )
