"""The exceptions of the Python API, all subclasses of `DagwrightError`, and `Problem`, an entry of `PlanInvalid`."""

from dagwright.client.client import WrongEventLoop
from dagwright.client.errors import (
    CommandRejected,
    FeedbackRejected,
    ForkRejected,
    OptionInvalid,
    RunIdInUse,
    RunIdInvalid,
    SessionNotFound,
    TurnRejected,
)
from dagwright.client.events import CursorInvalid
from dagwright.client.results import RunCancelled, RunEnded, RunFailed, ValueNotLoaded
from dagwright.core.errors import ClientClosed, DagwrightError, PlanInvalid, Problem
from dagwright.core.extras import MissingExtra
from dagwright.history.executions import NodeNotFound, RunClosed, RunNotFound
from dagwright.llm.prices import PricesUnreadable
from dagwright.planner.goal_validation import GoalRejected
from dagwright.protocol.conversion import ConverterUnusable
from dagwright.protocol.sessions import SessionIdInvalid
from dagwright.server.errors import ServerError, ServerUnreachable
from dagwright.settings import SettingsError
from dagwright.store.errors import StoreError, StoreMismatch, StoreUnavailable
from dagwright.tools.errors import GiveUp, InvalidResult, NoToolContext, RetryLater, ToolError, ToolLoadError
from dagwright.worker.plugin import PluginConflict
from dagwright.workflows.child import ChildRunFailed

__all__ = [
    "ChildRunFailed",
    "ClientClosed",
    "CommandRejected",
    "ConverterUnusable",
    "CursorInvalid",
    "DagwrightError",
    "FeedbackRejected",
    "ForkRejected",
    "GiveUp",
    "GoalRejected",
    "InvalidResult",
    "MissingExtra",
    "NoToolContext",
    "NodeNotFound",
    "OptionInvalid",
    "PlanInvalid",
    "PluginConflict",
    "PricesUnreadable",
    "Problem",
    "RetryLater",
    "RunCancelled",
    "RunClosed",
    "RunEnded",
    "RunFailed",
    "RunIdInUse",
    "RunIdInvalid",
    "RunNotFound",
    "ServerError",
    "ServerUnreachable",
    "SessionIdInvalid",
    "SessionNotFound",
    "SettingsError",
    "StoreError",
    "StoreMismatch",
    "StoreUnavailable",
    "ToolError",
    "ToolLoadError",
    "TurnRejected",
    "ValueNotLoaded",
    "WrongEventLoop",
]
