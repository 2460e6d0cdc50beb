"""Plan templates: the plans of a folder, which users start by name with their own inputs.

All interfaces that publish plans (MCP server, gateway) use this module, so they publish the same plans under the
same names. It must not import Temporal: templates are read and checked before there is a server.

    TemplatesUnreadable     the folder cannot be read, or has no plan
"""

import os
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog
from pydantic import JsonValue

from dagwright.core.errors import DagwrightError, PlanInvalid, Problem
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.policy import default_policy
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.validation.checked_plan import CheckedPlan
from dagwright.core.validation.inputs import schema_of_form
from dagwright.dialects.json_reader import printable
from dagwright.dialects.reading import FileStamp, inline_files, read_plan_file, stamp_of
from dagwright.plans.preparation import (
    check_plan,
    compile_within_limits,
    input_problems,
    policy_problems,
    prepare_plan,
    unused_input_problems,
)

_SUFFIXES = (".json", ".yaml", ".yml")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names of templates. They are also tool names, so all model clients must accept them."""
_MAX_PROBLEMS_SHOWN = 5
_LOG = structlog.stdlib.get_logger("dagwright.plans.templates")

Templates = Mapping[str, "Template"]
"""Name of a template -> the template, sorted by name."""


class TemplatesUnreadable(DagwrightError):
    """The folder of templates cannot be read, or has no plan."""


@dataclass(frozen=True, slots=True)
class Template:
    """A plan that is started by name.

    Args:
        name: stem of its file.
        file_name: name of its file.
        document: the plan as it was written, with the files of its sub-plans included.
        checked: the checked plan.
    """

    name: str
    file_name: str
    document: JsonValue
    checked: CheckedPlan

    @property
    def title(self) -> str:
        """Title of the plan; by default the name of the template."""
        return self.checked.plan.title or self.name

    @property
    def description(self) -> str | None:
        """Purpose of the plan: `description` in its `metadata`, if that is a text."""
        description = self.checked.plan.metadata.get("description")
        return description if isinstance(description, str) and description.strip() else None

    @property
    def input_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of an object with the inputs; inputs without a default are required."""
        return schema_of_form(self.checked.inputs)

    @property
    def source(self) -> dict[str, Any]:
        """The value that identifies the plan of a run, as for `dagwright run FILE`."""
        return {"plan": self.document, "dialect": self.checked.dialect, "context": {}}

    def compile(self, inputs: Mapping[str, Any]) -> CompiledPlan:
        """Compile the plan with its inputs.

        Args:
            inputs: name -> value; inputs with a default are optional.

        Raises:
            PlanInvalid: an input is missing, has the wrong type or is unknown.
        """
        return compile_template(self.checked, inputs)


def compile_template(checked: CheckedPlan, inputs: Mapping[str, Any]) -> CompiledPlan:
    """Compile a checked plan with inputs from a program; unknown names are rejected.

    Raises:
        PlanInvalid: as `Template.compile`.
    """
    if unused_problems := unused_input_problems(checked, inputs):
        raise PlanInvalid(
            _with_template_hints([*unused_problems, *input_problems(checked, inputs, given_names=inputs)])
        )
    try:
        return prepare_plan(checked, inputs)
    except PlanInvalid as invalid:
        raise PlanInvalid(_with_template_hints(invalid.problems)) from None


def _with_template_hints(problems: Iterable[Problem]) -> list[Problem]:
    """Replace the hints about missing inputs, because those hints apply to the command line only."""
    hint = "add it to the inputs"
    return [replace(problem, hint=hint) if problem.code == "missing_input" else problem for problem in problems]


@dataclass(frozen=True, slots=True)
class PublishedTemplates:
    """The templates of a folder at one moment.

    Args:
        templates: the valid templates.
        problems: name of a template -> its problems, one line each; problems of the folder itself under `""`.
    """

    templates: Templates
    problems: Mapping[str, list[str]]

    @property
    def problem_lines(self) -> list[str]:
        """Return all problems, one line each."""
        return [line for lines in self.problems.values() for line in lines]


@dataclass(frozen=True, slots=True, eq=False)
class _ParsedFile:
    """A parsed template file, and the stamps of the file and of all files that it includes."""

    stamps: Mapping[Path, FileStamp]
    template: Template | None
    problems: list[str]

    @property
    def is_current(self) -> bool:
        """Return whether none of its files has changed."""
        return all(stamp_of(path) == stamp for path, stamp in self.stamps.items())


class TemplateFolder:
    """The templates of a folder, read again when a file changes.

    An invalid file does not affect other files. The object is thread-safe.

    Args:
        folder: each `.json`, `.yaml` or `.yml` file directly in the folder is a template. Subfolders and files whose
            names start with a dot are ignored, so they can contain the files of sub-plans.
        tools: tools that plans are checked with.
    """

    def __init__(self, folder: Path, tools: Mapping[str, ToolDeclaration]) -> None:
        self._folder = folder
        self._tools = tools
        self._lock = threading.Lock()
        self._files: dict[Path, _ParsedFile] = {}
        self._published = PublishedTemplates({}, {})

    def read(self) -> PublishedTemplates:
        """Return the current templates: the same object until a file changes."""
        with self._lock:
            try:
                paths = _files_in(self._folder)
            except TemplatesUnreadable as unreadable:
                self._files = {}
                if list(self._published.problems) != [""]:
                    problem = _with_replaced_path(str(self._folder), self._folder.name, str(unreadable))
                    self._publish(PublishedTemplates({}, {"": [problem]}))
                return self._published
            files = {path: self._current_file(path) for path in paths}
            if [*files.values()] != [*self._files.values()]:
                self._files = files
                self._publish(_collect_templates(files))
            return self._published

    def _current_file(self, path: Path) -> _ParsedFile:
        cached_file = self._files.get(path)
        return cached_file if cached_file is not None and cached_file.is_current else _read_file(path, self._tools)

    def _publish(self, templates: PublishedTemplates) -> None:
        """Replace the published templates, and log each new problem."""
        previous_lines, self._published = self._published.problem_lines, templates
        for line in templates.problem_lines:
            if line not in previous_lines:
                _LOG.error("a published plan cannot be used", problem=line)


def open_templates(folder: Path, tools: Mapping[str, ToolDeclaration]) -> TemplateFolder:
    """Open a folder of templates. An error is logged for each file that cannot be used.

    Raises:
        TemplatesUnreadable: the folder cannot be read or has no plan.
    """
    _files_in(folder)
    template_folder = TemplateFolder(folder, tools)
    template_folder.read()
    return template_folder


def _collect_templates(files: Mapping[Path, _ParsedFile]) -> PublishedTemplates:
    """Return templates and problems by name; for several files with the same name, the first file is used."""
    templates: dict[str, Template] = {}
    problems: dict[str, list[str]] = {}
    first_files: dict[str, Path] = {}
    for path, file in files.items():
        file_problems = file.problems
        if _NAME.fullmatch(path.stem) is None:
            file_problems = [f"{path.name}: a template has a name of 1 to 64 letters, digits, - and _; rename the file"]
        elif (first_file := first_files.setdefault(path.stem, path)) is not path:
            file_problems = [f"{path.name}: {first_file.name} has the same name before its suffix; rename one of them"]
        elif file.template is not None:
            templates[path.stem] = file.template
        if file_problems:
            problems.setdefault(path.stem, []).extend(file_problems)
    return PublishedTemplates(templates, problems)


def _files_in(folder: Path) -> list[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        reason = error.strerror or str(error)
        raise TemplatesUnreadable(f"the template folder {folder} cannot be read: {reason}") from None
    files = [path for path in entries if path.suffix in _SUFFIXES and path.is_file() and not path.name.startswith(".")]
    if not files:
        raise TemplatesUnreadable(f"the template folder {folder} has no file that ends with {', '.join(_SUFFIXES)}")
    return files


def _read_file(path: Path, tools: Mapping[str, ToolDeclaration]) -> _ParsedFile:
    # The stamp is read before the file, so that a concurrent change is detected.
    stamps: dict[Path, FileStamp] = {path: stamp_of(path)}
    try:
        return _ParsedFile(stamps, _load_template(path, tools, stamps), [])
    except PlanInvalid as invalid:
        return _ParsedFile(
            stamps, None, [_with_relative_paths(line, path, stamps) for line in _problem_lines(path, invalid)]
        )


def _with_relative_paths(line: str, path: Path, read_files: Iterable[Path]) -> str:
    """Make the paths in a problem relative to the template's folder, because API clients read the message too."""
    base = path.parent.resolve()
    line = _with_replaced_path(str(path), path.name, line)
    for file in sorted(read_files, key=lambda file: len(str(file)), reverse=True):
        if file != path:
            line = _with_replaced_path(str(file), os.path.relpath(file, base), line)
    return line


def _with_replaced_path(path: str, replacement: str, text: str) -> str:
    # `Path(".").name` is empty.
    return text.replace(printable(path), printable(replacement)) if replacement else text


def _load_template(path: Path, tools: Mapping[str, ToolDeclaration], stamps: dict[Path, FileStamp]) -> Template:
    document = inline_files(read_plan_file(path), base=path.parent, stamps=stamps)
    checked = check_plan(document, tools)
    compile_within_limits(checked)
    if rejections := policy_problems(checked, default_policy("person")):
        raise PlanInvalid(rejections)
    return Template(path.stem, path.name, document, checked)


def _problem_lines(path: Path, invalid: PlanInvalid) -> list[str]:
    entries = [_problem_line(path, problem) for problem in invalid.problems[:_MAX_PROBLEMS_SHOWN]]
    omitted_count = len(invalid.problems) - _MAX_PROBLEMS_SHOWN
    return (
        [*entries, f"{path.name}: and {omitted_count:,} more; `dagwright check {path.name}` lists all"]
        if omitted_count > 0
        else entries
    )


def _problem_line(path: Path, problem: Problem) -> str:
    location = f" at {problem.pointer}" if problem.pointer else ""
    return f"{path.name}: {problem.code}{location}: {problem.text}"
