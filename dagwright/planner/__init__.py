"""From words to a plan: what a model is told, what it must answer, and what is made of its answer.

Pure: nothing here asks a model or starts anything. It must not import Temporal's client, workflows or activities.
"""

from dagwright.planner.catalogue import Catalogue, catalogue_of
from dagwright.planner.goals import GOAL_LIMIT_BYTES, GoalRefused, checked_goal
from dagwright.planner.prompts import ANSWER_PROMPT, planning_messages, repair_words
from dagwright.planner.rounds_starting import RoundsAsked, prepare_rounds
from dagwright.planner.starting import Asked, prepare_goal

__all__ = [
    "ANSWER_PROMPT",
    "GOAL_LIMIT_BYTES",
    "Asked",
    "Catalogue",
    "GoalRefused",
    "RoundsAsked",
    "catalogue_of",
    "checked_goal",
    "planning_messages",
    "prepare_goal",
    "prepare_rounds",
    "repair_words",
]
