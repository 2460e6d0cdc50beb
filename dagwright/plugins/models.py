"""Model calls of worker tools: messages, responses and failures."""

from dagwright.planning.model_calls.message_preparation import json_line
from dagwright.planning.model_calls.model_failure import Action, ModelError, ModelFailure
from dagwright.planning.model_calls.model_requests import Message, ModelResponse, system, user

__all__ = ["Action", "Message", "ModelError", "ModelFailure", "ModelResponse", "json_line", "system", "user"]
