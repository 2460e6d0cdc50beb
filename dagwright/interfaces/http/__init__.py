"""The gateway: an HTTP server with OpenAI's API in front of durable runs.

A thin adapter over `dagwright.client`. It stores nothing that another gateway in front of the same Temporal server
would need: any number of gateways work as one, and a gateway that dies loses nothing (docs/decisions/0058). It must not
import the command line, workflows or activities.
"""

from dagwright.interfaces.http.app import create_app
from dagwright.interfaces.http.context import GatewayContext, open_context

__all__ = ["GatewayContext", "create_app", "open_context"]
