"""Plan templates: the plans of a folder, which others start by name with inputs of their own.

It exists so that every door that publishes plans (MCP server, gateway) publishes the same ones under the same names. It
must not import Temporal: templates are read and checked before there is a server.

TemplatesUnreadable     the folder or a file in it is wrong; the message tells each, and what to do
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from dagwright.dialects.reading import inline_files, read_plan_file
from dagwright.plan.compiled import CompiledPlan
from dagwright.plan.errors import PlanInvalid, Problem
from dagwright.plan.inputs import schema_of_form
from dagwright.plan.policy import default_policy
from dagwright.plan.tools import ToolDeclaration
from dagwright.plan.validation import Checked
from dagwright.preparation import check_plan, check_size, input_problems, policy_problems, prepare_plan, unused_inputs

_SUFFIXES = (".json", ".yaml", ".yml")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every client of models takes as the name of a tool."""
_PROBLEMS_SHOWN = 5

Templates = Mapping[str, "Template"]
"""Name of a template -> the template, in order of the names."""


class TemplatesUnreadable(Exception):
    """The folder of templates cannot be used; the message has a part for each thing that is wrong."""


@dataclass(frozen=True, slots=True)
class Template:
    """A plan that is started by name.

    Args:
        name: stem of its file.
        file: name of its file.
        written: the plan as it was written, with the files of its sub-plans put in.
        checked: the same, checked with the tools that serve it.
    """

    name: str
    file: str
    written: JsonValue
    checked: Checked

    @property
    def title(self) -> str:
        """Returns the plan's title, or else the name."""
        return self.checked.plan.title or self.name

    @property
    def description(self) -> str | None:
        """Returns what the plan is for: `description` of its `metadata`, if that is a text."""
        told = self.checked.plan.metadata.get("description")
        return told if isinstance(told, str) and told.strip() else None

    @property
    def input_schema(self) -> dict[str, Any]:
        """Returns the JSON Schema of an object that holds its inputs; those without a default are required."""
        return schema_of_form(self.checked.inputs)

    @property
    def source(self) -> dict[str, Any]:
        """Returns what tells its runs from others of the same id: the same as of `run FILE`."""
        return {"plan": self.written, "dialect": self.checked.dialect, "context": {}}

    def compiled(self, inputs: Mapping[str, Any]) -> CompiledPlan:
        """Returns the plan, ready to run with these inputs.

        Args:
            inputs: name -> value; what has a default may be left out.

        Raises:
            PlanInvalid: an input is missing, of the wrong type or not one of the plan's.
        """
        return compiled_with(self.checked, inputs)


def compiled_with(checked: Checked, inputs: Mapping[str, Any]) -> CompiledPlan:
    """Returns a checked plan, ready to run with inputs that a program gave, which can be told of names that are wrong.

    Raises:
        PlanInvalid: as `Template.compiled`.
    """
    if unused := unused_inputs(checked, inputs):
        raise PlanInvalid(_told([*unused, *input_problems(checked, inputs, given=inputs)]))
    try:
        return prepare_plan(checked, inputs)
    except PlanInvalid as invalid:
        raise PlanInvalid(_told(invalid.problems)) from None


def _told(problems: Iterable[Problem]) -> list[Problem]:
    """Returns problems without what only a command line can do about a missing input."""
    hint = "give it among the inputs"
    return [replace(problem, hint=hint) if problem.code == "missing_input" else problem for problem in problems]


def load_templates(folder: Path, tools: Mapping[str, ToolDeclaration]) -> Templates:
    """Returns the templates of a folder: each `.json`, `.yaml` or `.yml` file right in it, checked with the tools.

    Files whose names begin with a dot, and folders in it, are left out: sub-plans in files may lie there.

    Raises:
        TemplatesUnreadable: with everything that is wrong.
    """
    wrong: list[str] = []
    found: dict[str, Template] = {}
    for path in _files_in(folder):
        if _NAME.fullmatch(path.stem) is None:
            wrong.append(f"{path.name}: a template has a name of 1 to 64 letters, digits, - and _; rename the file")
        elif (same := found.get(path.stem)) is not None:
            wrong.append(f"{path.name}: {same.file} has the same name before its suffix; rename one of them")
        else:
            try:
                found[path.stem] = _template(path, tools)
            except PlanInvalid as invalid:
                wrong += _lines(path, invalid)
    if wrong:
        raise TemplatesUnreadable("; ".join(wrong))
    return found


def _files_in(folder: Path) -> list[Path]:
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        reason = error.strerror or str(error)
        raise TemplatesUnreadable(f"the folder of plans, {folder}, cannot be read: {reason}") from None
    files = [path for path in inside if path.suffix in _SUFFIXES and path.is_file() and not path.name.startswith(".")]
    if not files:
        raise TemplatesUnreadable(f"the folder of plans, {folder}, holds no file that ends with {', '.join(_SUFFIXES)}")
    return files


def _template(path: Path, tools: Mapping[str, ToolDeclaration]) -> Template:
    written = inline_files(read_plan_file(path), base=path.parent)
    checked = check_plan(written, tools)
    check_size(checked)
    if refused := policy_problems(checked, default_policy("person")):
        raise PlanInvalid(refused)
    return Template(path.stem, path.name, written, checked)


def _lines(path: Path, invalid: PlanInvalid) -> list[str]:
    told = [_line(path, problem) for problem in invalid.problems[:_PROBLEMS_SHOWN]]
    left = len(invalid.problems) - _PROBLEMS_SHOWN
    return [*told, f"{path.name}: and {left:,} more; `dagwright check {path.name}` tells all"] if left > 0 else told


def _line(path: Path, problem: Problem) -> str:
    place = f" at {problem.pointer}" if problem.pointer else ""
    hint = f" ({problem.hint})" if problem.hint and problem.hint not in problem.message else ""
    return f"{path.name}: {problem.code}{place}: {problem.message}{hint}"
