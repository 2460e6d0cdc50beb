"""Model calls of worker tools: messages, answers and failures."""

from dagwright.planning.model_calls.calls import Action, Message, ModelError, ModelResponse, system, user
from dagwright.planning.model_calls.failures import ModelFailure
from dagwright.planning.model_calls.messages import json_line

__all__ = ["Action", "Message", "ModelError", "ModelFailure", "ModelResponse", "json_line", "system", "user"]
