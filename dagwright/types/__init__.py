"""The types that methods of the Python API return, for annotations."""

from dagwright.client.call_limits import Limit
from dagwright.client.client import PendingClient
from dagwright.client.feedback.feedback_request import FeedbackRequest, Inbox
from dagwright.client.results import NodeResult, RunResult
from dagwright.client.run_lists import RunSummary
from dagwright.client.run_reports import Explanation, ForkPreview, Lineage
from dagwright.client.session import SessionState, SessionTurn
from dagwright.client.sync_client import SyncRun, SyncSession
from dagwright.client.tool_pauses import PausedTool, ResumedTool
from dagwright.plans.drawing import Drawing
from dagwright.plans.expressions import Condition, Expression
from dagwright.plans.handles import Handle, NodeHandle
from dagwright.plans.human_requests import HumanRequest
from dagwright.plans.node_values import Text
from dagwright.workflows.child import ChildRun, PlanResult

__all__ = [
    "ChildRun",
    "Condition",
    "Drawing",
    "Explanation",
    "Expression",
    "FeedbackRequest",
    "ForkPreview",
    "Handle",
    "HumanRequest",
    "Inbox",
    "Limit",
    "Lineage",
    "NodeHandle",
    "NodeResult",
    "PausedTool",
    "PendingClient",
    "PlanResult",
    "ResumedTool",
    "RunResult",
    "RunSummary",
    "SessionState",
    "SessionTurn",
    "SyncRun",
    "SyncSession",
    "Text",
]
