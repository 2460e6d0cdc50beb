"""Errors of the Temporal server.

ServerError                   the server rejects a request; the message has its reason
├── ServerUnreachable         start a server, or correct its address
└── SearchAttributesMissing   register the search attributes in the namespace
"""

from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.errors import DagwrightError

UNREACHABLE_STATUSES = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)
"""Statuses of Temporal's client for a server that does not respond."""


class ServerError(DagwrightError):
    """The Temporal server rejects a request; the message has its reason."""


class ServerUnreachable(ServerError):
    """No Temporal server can be reached or started. The message has the address, the reason and the fix."""


class SearchAttributesMissing(ServerError):
    """The namespace lacks search attributes, without which runs cannot be listed; the message has the fix."""


def server_error(error: RPCError, *, address: str) -> ServerError:
    """Return the public error for an error of Temporal's client.

    Args:
        address: address of the server.
    """
    reason = error.message.partition("\n")[0][:300]
    if error.status in UNREACHABLE_STATUSES:
        return ServerUnreachable(f"the Temporal server at {address} does not respond: {reason}")
    return ServerError(f"the Temporal server at {address} rejects the request ({error.status.name}): {reason}")
