"""Arguments of the commands, as their modules get them from the command line."""

import os
import pwd
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Literal

from dagwright.core.model.times import parse_duration
from dagwright.interfaces.cli.exit_codes import CommandRefused, Refusal
from dagwright.interfaces.cli.output import one_line
from dagwright.planning.plan_and_execute.goal_spec import Profile
from dagwright.planning.rounds.rounds_spec import Synthesis

WorkerRole = Literal["all", "workflows", "tools"]
"""As in the settings, whose import takes longer than most commands."""
_FILES = frozenset({"plan", "file", "nodes", "plans", "inputs_file", "policy_file", "tools", "agents", "address_file"})
"""Fields with file names, which on Linux may be any bytes; a missing file is reported by its reader."""


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """Arguments of `check`."""

    plans: Sequence[str]
    tools: Sequence[str]
    dialect: str | None
    context: Sequence[str]
    allows_unknown_tools: bool
    is_repairing: bool = False
    agents: Sequence[str] = ()
    policy_file: str | None = None
    is_compensating: bool = False


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Arguments of `run`; `timeout` is a duration as written."""

    plan: str
    inputs: Sequence[str] = ()
    inputs_file: str | None = None
    context: Sequence[str] = ()
    tools: Sequence[str] = ()
    agents: Sequence[str] = ()
    dialect: str | None = None
    workflow_id: str | None = None
    deadline: str | None = None
    policy_file: str | None = None
    budget: str | None = None
    model: str | None = None
    session: str | None = None
    tags: Sequence[str] = ()
    fairness_key: str | None = None
    fairness_weight: float | None = None
    approve_plan: bool = False
    is_compensating: bool = False
    is_repairing: bool = False
    is_interactive: bool = True
    is_detached: bool = False
    keeps_server: bool = False


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Arguments of `list`; `since` is a duration or a time as written, `after` a cursor."""

    limit: int
    status: str | None = None
    title: str | None = None
    since: str | None = None
    tags: Sequence[str] = ()
    template: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class AskRequest:
    """Arguments of `ask`; `timeout` and `worker_timeout` are durations as written."""

    text: str
    model: str | None = None
    tools: Sequence[str] = ()
    agents: Sequence[str] = ()
    workflow_id: str | None = None
    deadline: str | None = None
    policy_file: str | None = None
    budget: str | None = None
    max_repairs: int | None = None
    max_replans: int | None = None
    profile: Profile | Literal["rounds"] = "plan"
    max_rounds: int | None = None
    worker_timeout: str | None = None
    synthesis: Synthesis | None = None
    context: Sequence[str] = ()
    confidence: float | None = None
    session: str | None = None
    tags: Sequence[str] = ()
    fairness_key: str | None = None
    fairness_weight: float | None = None
    is_plan_only: bool = False
    approve_plan: bool = False
    is_compensating: bool = False
    is_interactive: bool = True
    is_detached: bool = False
    keeps_server: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Arguments of `chat`; `timeout` and `worker_timeout` are durations as written, the first for each turn."""

    session: str | None = None
    profile: Profile | Literal["rounds"] = "plan"
    max_rounds: int | None = None
    worker_timeout: str | None = None
    synthesis: Synthesis | None = None
    model: str | None = None
    tools: Sequence[str] = ()
    agents: Sequence[str] = ()
    deadline: str | None = None
    policy_file: str | None = None
    budget: str | None = None

    def asking(self) -> AskRequest:
        """Return the request of each message, without its text."""
        return AskRequest(
            text="",
            model=self.model,
            deadline=self.deadline,
            policy_file=self.policy_file,
            budget=self.budget,
            profile=self.profile,
            max_rounds=self.max_rounds,
            worker_timeout=self.worker_timeout,
            synthesis=self.synthesis,
        )


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """Arguments of `worker`.

    Args:
        task_queue: queue of workflows and built-in tools; `None` takes that of the settings.
        serve: role of the worker; `None` takes that of the settings.
    """

    tools: Sequence[str]
    agents: Sequence[str]
    task_queue: str | None = None
    serve: WorkerRole | None = None


@dataclass(frozen=True, slots=True)
class UpRequest:
    """Arguments of `up`; `plans` and `port` as `serve` has them."""

    tools: Sequence[str]
    agents: Sequence[str]
    plans: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class ServeRequest:
    """Arguments of `serve`.

    Args:
        port: 0 for any free port; `None` for the default.
        plans: folder of templates.
        is_serving: run a worker in this process.
        needs_keys: require keys if other machines can reach the address.
        address_file: file for the address, read by the command that started this one.
    """

    host: str
    port: int | None
    tools: Sequence[str] = ()
    agents: Sequence[str] = ()
    plans: str | None = None
    is_serving: bool = True
    needs_keys: bool = True
    address_file: str | None = None


@dataclass(frozen=True, slots=True)
class ShowRequest:
    """Arguments of the commands that show a run."""

    workflow_id: str
    is_full: bool = False
    is_serving: bool = True
    format: str = "mermaid"
    node: str = ""
    is_all: bool = False


@dataclass(frozen=True, slots=True)
class RunActionRequest:
    """Arguments of `cancel`, `pause` and `resume`."""

    workflow_id: str
    reason: str | None
    by: str | None


@dataclass(frozen=True, slots=True)
class LimitsRequest:
    """Arguments of `limits` and `policy`; `deadline` is a duration as written, or `none`; `budget` is as written."""

    workflow_id: str
    max_parallel: int | None = None
    deadline: str | None = None
    budget: str | None = None
    policy_file: str | None = None
    reason: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class NodeActionRequest:
    """Arguments of the commands that change a node; `arguments` and `result` are JSON texts."""

    workflow_id: str
    node: str
    arguments: str | None = None
    result: str | None = None
    is_branch: bool = False
    reason: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class AddNodesRequest:
    """Arguments of `add-nodes`."""

    workflow_id: str
    file: str
    by: str | None = None


@dataclass(frozen=True, slots=True)
class ToolPauseRequest:
    """Arguments of `tool pause` and `tool resume`.

    Args:
        tools: values of `--tools`, where tools of the user are looked up.
        ramp: time over which waiting calls start, as a duration.
    """

    tool: str
    by: str | None = None
    reason: str | None = None
    tools: Sequence[str] = ()
    ramp: str | None = None


@dataclass(frozen=True, slots=True)
class CallLimitRequest:
    """Arguments of `call-limits set` and `call-limits remove`.

    Args:
        subject: such as `tool:http_request`.
        limit: such as `20/s concurrency=5`; empty for `call-limits remove`.
        tools: values of `--tools`, where tools of the user are looked up.
    """

    subject: str
    limit: str = ""
    by: str | None = None
    tools: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """Arguments of `feedback`; `data` and `arguments` are JSON texts, `nodes` is a file."""

    workflow_id: str
    request: str | None = None
    is_for_all: bool = False
    is_approved: bool = False
    is_rejected: bool = False
    is_remembered: bool = False
    reason: str | None = None
    selected: Sequence[str] = ()
    text: str | None = None
    nodes: str | None = None
    data: str | None = None
    arguments: str | None = None
    by: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """Arguments of `fork`."""

    workflow_id: str
    plan: str | None = None
    inputs: Sequence[str] = ()
    rerun: Sequence[str] = ()
    is_yes: bool = False


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """Arguments of `session`; without a name, the sessions are listed, `after` a cursor."""

    name: str | None
    is_ending: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True)
class InboxRequest:
    """Arguments of `inbox`; `older_than` and `wait` are durations as written, `after` a cursor."""

    limit: int
    run_id: str | None = None
    assignee: str | None = None
    type: str | None = None
    older_than: str | None = None
    after: str | None = None
    wait: str | None = None


@dataclass(frozen=True, slots=True)
class McpRequest:
    """Arguments of `mcp`; `plans` is the folder of published plans, and `needs_keys` as for `serve`."""

    tools: Sequence[str]
    agents: Sequence[str]
    plans: str | None
    host: str
    port: int
    is_http: bool = False
    is_serving: bool = True
    needs_keys: bool = True


def refuse_half_characters(request: object) -> None:
    """Refuse a request with a text that is not valid UTF-8: no plan, ID or history can store it.

    Raises:
        CommandRefused: a text is not valid UTF-8.
    """
    for field in fields(request) if is_dataclass(request) else ():
        value = getattr(request, field.name)
        texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
        invalid = next((text for text in texts if any("\ud800" <= sign <= "\udfff" for sign in text)), None)
        if invalid is not None and field.name not in _FILES:
            raise CommandRefused(f"'{one_line(invalid, limit=60)}' is not valid UTF-8", status=Refusal.INVALID_FIELD)


def account_name() -> str | None:
    """Return the name of the account that runs the command; `None` if it has none, as in some containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None


def author_name(by: str | None) -> str | None:
    """Return the name that `--by` gives, else the name of the account."""
    return by if by is not None else account_name()


def seconds_of_option(name: str, option_text: str | None) -> float | None:
    """Return the seconds of a duration option; `None` if it was not given.

    Raises:
        CommandRefused: it is not a duration.
    """
    if option_text is None:
        return None
    try:
        return parse_duration(option_text).total_seconds()
    except ValueError as error:
        raise CommandRefused(f"{name}: {error}") from None
