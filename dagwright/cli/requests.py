"""What a command was asked to do, as its module gets it from the command line."""

from collections.abc import Sequence
from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Arguments of `cancel`."""

    workflow_id: str
    reason: str | None
    by: str | None
