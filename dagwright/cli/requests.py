"""What a command was asked to do, as its module gets it from the command line."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass

from dagwright.cli.exits import CommandRefused
from dagwright.cli.output import one_line

_FILES = frozenset({"plan", "plans", "inputs_file", "tools"})
"""Fields that name files: on Linux any bytes can be a name, and one that is not there is told as such."""


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """Arguments of `check`."""

    plans: Sequence[str]
    tools: Sequence[str]
    dialect: str | None
    context: Sequence[str]
    any_tool: bool


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Arguments of `run`; `timeout` is a duration as written."""

    plan: str
    inputs: Sequence[str] = ()
    inputs_file: str | None = None
    context: Sequence[str] = ()
    tools: Sequence[str] = ()
    dialect: str | None = None
    workflow_id: str | None = None
    timeout: str | None = None
    is_asking: bool = True
    is_detached: bool = False
    is_keeping: bool = False


@dataclass(frozen=True, slots=True)
class LookRequest:
    """Arguments of the commands that look at one run."""

    workflow_id: str
    is_full: bool = False
    is_serving: bool = True
    format: str = "mermaid"
    node: str = ""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Arguments of `cancel`."""

    workflow_id: str
    reason: str | None
    by: str | None


def refuse_half_characters(request: object) -> None:
    """Refuses a request with a text that is no UTF-8: no plan, no id and no history could hold it.

    Raises:
        CommandRefused: there is one.
    """
    for field in fields(request) if is_dataclass(request) else ():
        value = getattr(request, field.name)
        texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
        wrong = next((text for text in texts if any("\ud800" <= sign <= "\udfff" for sign in text)), None)
        if wrong is not None and field.name not in _FILES:
            raise CommandRefused(f"'{one_line(wrong, limit=60)}' is no UTF-8", status="invalid_field")
