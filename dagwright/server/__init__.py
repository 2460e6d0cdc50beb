"""Find or start a Temporal server, in the order of docs/deploy/topology.md.

A command connects to the first available server in this order: the server of Temporal's own environment variables or
config profile, the server that an earlier command started in this state folder, a new server. The package must not
import workflows, activities or the client: it handles processes, files and one namespace, and knows nothing of
plans.

If no server is available, `ServerUnreachable` is raised; its message is one sentence with a hint (exit code 4).
"""

from dagwright.server.connection import (
    Connection,
    configured_server,
    connection_of,
    open_connection,
    separate_client,
)
from dagwright.server.daemon import Daemon
from dagwright.server.errors import UNREACHABLE_STATUSES, SearchAttributesMissing, ServerUnreachable
from dagwright.server.local import LocalServer, Server

__all__ = [
    "UNREACHABLE_STATUSES",
    "Connection",
    "Daemon",
    "LocalServer",
    "SearchAttributesMissing",
    "Server",
    "ServerUnreachable",
    "configured_server",
    "connection_of",
    "open_connection",
    "separate_client",
]
