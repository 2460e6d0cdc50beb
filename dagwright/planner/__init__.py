"""From words to a plan: what a model is told, what it must answer, and what is made of its answer.

Pure: nothing here asks a model or starts anything. It must not import Temporal's client, workflows or activities.
"""

from dagwright.planner.catalogue import Catalogue, build_catalogue
from dagwright.planner.goal_start import PlanningOptions, prepare_goal
from dagwright.planner.goals import GOAL_LIMIT_BYTES, GoalRefused, validate_goal
from dagwright.planner.prompts import ANSWER_PROMPT, planning_messages, repair_message
from dagwright.planner.rounds_start import RoundsOptions, prepare_rounds

__all__ = [
    "ANSWER_PROMPT",
    "GOAL_LIMIT_BYTES",
    "Catalogue",
    "GoalRefused",
    "PlanningOptions",
    "RoundsOptions",
    "build_catalogue",
    "planning_messages",
    "prepare_goal",
    "prepare_rounds",
    "repair_message",
    "validate_goal",
]
