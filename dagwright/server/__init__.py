"""Find or start a Temporal server, in the order of docs/operations.md.

A command opens a connection and gets, in this order, the server that Temporal's own environment variables or
config profile name, the one that an earlier command started in this state folder, or a new one. The package
must not import workflows, activities or the client; it knows processes, files and one namespace, and nothing
of plans.

Errors: `ServerUnreachable` is the only one, and its text is one sentence that says what to do (exit code 4).
"""

from dagwright.server.connection import (
    Connection,
    connection_of,
    named_server,
    open_connection,
    separate_client,
)
from dagwright.server.daemon import Daemon
from dagwright.server.errors import NO_ANSWER, ServerUnreachable
from dagwright.server.local import LocalServer, Server

__all__ = [
    "NO_ANSWER",
    "Connection",
    "Daemon",
    "LocalServer",
    "Server",
    "ServerUnreachable",
    "connection_of",
    "named_server",
    "open_connection",
    "separate_client",
]
