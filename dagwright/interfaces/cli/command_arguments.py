"""Arguments of commands for existing runs, and functions that check and convert arguments."""

import os
import pwd
from dataclasses import dataclass, fields, is_dataclass

from dagwright.core.model.times import parse_duration
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode
from dagwright.interfaces.cli.output import one_line

_FILE_FIELDS = frozenset(
    {"plan", "file", "nodes", "plans", "inputs_file", "policy_file", "tools", "agents", "address_file"}
)
"""Fields with file names, which on Linux need not be valid UTF-8."""


@dataclass(frozen=True, slots=True)
class ShowArguments:
    """Arguments of the commands that show a run."""

    run_id: str
    is_full: bool = False
    has_worker: bool = True
    format: str = "mermaid"
    node: str = ""
    lists_all_items: bool = False


@dataclass(frozen=True, slots=True)
class RunActionArguments:
    """Arguments of `cancel`, `pause` and `resume`."""

    run_id: str
    reason: str | None
    by: str | None


@dataclass(frozen=True, slots=True)
class LimitsArguments:
    """Arguments of `limits` and `policy`. `deadline` is an unparsed duration or `none`; `budget` is unparsed text."""

    run_id: str
    max_parallel: int | None = None
    deadline: str | None = None
    budget: str | None = None
    policy_file: str | None = None
    reason: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class NodeActionArguments:
    """Arguments of the commands that change a node.

    Args:
        arguments, result: JSON texts.
        includes_branch: also cancel the nodes that cannot run without this node.
    """

    run_id: str
    node: str
    arguments: str | None = None
    result: str | None = None
    includes_branch: bool = False
    reason: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class AddNodesArguments:
    """Arguments of `add-nodes`."""

    run_id: str
    file: str
    by: str | None = None


def reject_lone_surrogates(arguments: object) -> None:
    """Reject arguments with a text that is not valid UTF-8, because no plan, ID or history can store such a text.

    Raises:
        CommandError: a text is not valid UTF-8.
    """
    for field in fields(arguments) if is_dataclass(arguments) else ():
        value = getattr(arguments, field.name)
        texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
        invalid_text = next(
            (text for text in texts if any("\ud800" <= character <= "\udfff" for character in text)), None
        )
        if invalid_text is not None and field.name not in _FILE_FIELDS:
            raise CommandError(
                f"'{one_line(invalid_text, limit=60)}' is not valid UTF-8", code=CommandErrorCode.INVALID_FIELD
            )


def account_name() -> str | None:
    """Return the name of the account that runs the command; `None` if the account has no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None


def author_name(by: str | None) -> str | None:
    """Return the name given by `--by`, or else the name of the account."""
    return by if by is not None else account_name()


def seconds_of_option(name: str, option_text: str | None) -> float | None:
    """Return the seconds of a duration option; `None` if the option was not given.

    Raises:
        CommandError: the value is not a duration.
    """
    if option_text is None:
        return None
    try:
        return parse_duration(option_text).total_seconds()
    except ValueError as error:
        raise CommandError(f"{name}: {error}") from None
