"""Planner: prompts and response formats for models, and parsers that turn their answers into plans.

No module here calls a model, starts a run, or imports Temporal's client, workflows or activities.
"""

from dagwright.planner.goal_start import PlanningOptions, prepare_goal
from dagwright.planner.goal_validation import GOAL_LIMIT_BYTES, GoalRejected, validate_goal
from dagwright.planner.prompts import ANSWER_PROMPT, planning_messages, repair_message
from dagwright.planner.rounds_start import RoundsOptions, prepare_rounds
from dagwright.planner.tool_catalogue import Catalogue, build_catalogue

__all__ = [
    "ANSWER_PROMPT",
    "GOAL_LIMIT_BYTES",
    "Catalogue",
    "GoalRejected",
    "PlanningOptions",
    "RoundsOptions",
    "build_catalogue",
    "planning_messages",
    "prepare_goal",
    "prepare_rounds",
    "repair_message",
    "validate_goal",
]
