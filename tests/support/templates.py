"""Load the templates of a folder in which every file is valid."""

from collections.abc import Mapping
from pathlib import Path

from dagwright.core.model.tools import ToolDeclaration
from dagwright.plans.templates import TemplateFolder, Templates, TemplatesUnreadable


def load_templates(folder: Path, tools: Mapping[str, ToolDeclaration]) -> Templates:
    """Return the templates of a folder, or raise `TemplatesUnreadable` with every problem."""
    folder_templates = TemplateFolder(folder, tools).read()
    if folder_templates.problems:
        raise TemplatesUnreadable("; ".join(folder_templates.problem_lines))
    return folder_templates.templates
