"""Dagwright runs plans durably on Temporal. A plan is a graph of steps.

`__all__` has the names that programs call, and the errors that most programs catch or raise. Each name is imported when
it is first used, so `import dagwright` is cheap. `dagwright.errors`, `dagwright.events` and `dagwright.types` have the
other errors, the events of runs, and the types that methods return.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagwright.client.client import Client
    from dagwright.client.results import RunFailed, RunResult
    from dagwright.client.run import Run
    from dagwright.client.run_script import run
    from dagwright.client.session import Session
    from dagwright.client.sync_client import SyncClient
    from dagwright.core.errors import DagwrightError, PlanInvalid
    from dagwright.core.model.tools import Effects
    from dagwright.history.executions import RunNotFound
    from dagwright.plans.human_requests import ask_human
    from dagwright.plans.plan import Plan
    from dagwright.tools.context import context
    from dagwright.tools.errors import GiveUp, RetryLater
    from dagwright.tools.spec import declare_activity, declare_workflow, tool
    from dagwright.worker.plugin import DagwrightPlugin
    from dagwright.worker.worker import Worker
    from dagwright.workflows.child import ChildRunFailed, execute_plan, start_plan

__version__ = "0.1.0"

_MODULES = {
    "ChildRunFailed": "workflows.child",
    "Client": "client.client",
    "DagwrightError": "core.errors",
    "DagwrightPlugin": "worker.plugin",
    "Effects": "core.model.tools",
    "GiveUp": "tools.errors",
    "Plan": "plans.plan",
    "PlanInvalid": "core.errors",
    "RetryLater": "tools.errors",
    "Run": "client.run",
    "RunFailed": "client.results",
    "RunNotFound": "history.executions",
    "RunResult": "client.results",
    "Session": "client.session",
    "SyncClient": "client.sync_client",
    "Worker": "worker.worker",
    "ask_human": "plans.human_requests",
    "context": "tools.context",
    "declare_activity": "tools.spec",
    "declare_workflow": "tools.spec",
    "execute_plan": "workflows.child",
    "run": "client.run_script",
    "start_plan": "workflows.child",
    "tool": "tools.spec",
}
"""Public name -> the module of the package `dagwright` from which it is imported."""

__all__ = [
    "ChildRunFailed",
    "Client",
    "DagwrightError",
    "DagwrightPlugin",
    "Effects",
    "GiveUp",
    "Plan",
    "PlanInvalid",
    "RetryLater",
    "Run",
    "RunFailed",
    "RunNotFound",
    "RunResult",
    "Session",
    "SyncClient",
    "Worker",
    "__version__",
    "ask_human",
    "context",
    "declare_activity",
    "declare_workflow",
    "execute_plan",
    "run",
    "start_plan",
    "tool",
]

if not TYPE_CHECKING:
    # Type checkers would accept every name of a module that has this function.
    def __getattr__(name: str) -> object:
        """Import a public name or module when it is first used."""
        if name in ("errors", "events", "types"):
            return import_module(f"dagwright.{name}")
        if name not in _MODULES:
            raise AttributeError(f"module 'dagwright' has no attribute {name!r}")
        attribute = getattr(import_module(f"dagwright.{_MODULES[name]}"), name)
        globals()[name] = attribute
        return attribute


def __dir__() -> list[str]:
    """List the public names and the loaded modules."""
    return sorted({*globals(), *__all__})
