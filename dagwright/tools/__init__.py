"""Tools: typed Python functions that a plan calls by name, and declarations of activities of other workers.

The subpackage `builtin` contains the built-in tools. `dagwright.tools` imports `protocol` and packages of lower layers.
"""

from dagwright.core.model.tools import WorkerCard
from dagwright.core.model.worker_results import WorkerResult
from dagwright.planning.model_calls.model_failure import ModelFailure
from dagwright.tools.context import ToolContext, context
from dagwright.tools.errors import AskPerson, GiveUp, NotStarted, RetryLater, ToolLoadError
from dagwright.tools.registry import ToolRegistry
from dagwright.tools.spec import ToolSpec, declare_activity, declare_workflow, spec_of, tool
from dagwright.tools.tool_files import load_tools
from dagwright.tools.worker_tools import SubGoal, worker_tool

__all__ = [
    "AskPerson",
    "GiveUp",
    "ModelFailure",
    "NotStarted",
    "RetryLater",
    "SubGoal",
    "ToolContext",
    "ToolLoadError",
    "ToolRegistry",
    "ToolSpec",
    "WorkerCard",
    "WorkerResult",
    "context",
    "declare_activity",
    "declare_workflow",
    "load_tools",
    "spec_of",
    "tool",
    "worker_tool",
]
