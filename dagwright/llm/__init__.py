"""Models: a client for every server that speaks OpenAI's protocol.

`ModelClient` makes calls, and raises `ModelFailure` if a call fails. `planning.model_calls.model_requests` defines the
input and output of calls. This package does not read the environment or import Temporal. Only `transport` imports
`openai`, at the first call.
"""

from dagwright.core.boundary.usage_reports import Usage
from dagwright.llm.capabilities import CapabilityCache
from dagwright.llm.client import Endpoint, ModelClient, ModelStream
from dagwright.llm.prices import PricesUnreadable, PriceTable, read_prices, shipped_prices
from dagwright.planning.model_calls.model_failure import Action, ModelError, ModelFailure
from dagwright.planning.model_calls.model_requests import (
    CallLabels,
    Message,
    ModelCall,
    ModelConfig,
    ModelResponse,
    OfferedTool,
    OutputSchema,
    system,
    tool_result,
    user,
)
from dagwright.planning.model_calls.response_summary import ToolCall

__all__ = [
    "Action",
    "CallLabels",
    "CapabilityCache",
    "Endpoint",
    "Message",
    "ModelCall",
    "ModelClient",
    "ModelConfig",
    "ModelError",
    "ModelFailure",
    "ModelResponse",
    "ModelStream",
    "OfferedTool",
    "OutputSchema",
    "PriceTable",
    "PricesUnreadable",
    "ToolCall",
    "Usage",
    "read_prices",
    "shipped_prices",
    "system",
    "tool_result",
    "user",
]
