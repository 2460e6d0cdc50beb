"""The services of one connection, which the public `Client` and all interfaces share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagwright.client.runs import Runs
    from dagwright.client.sessions import Sessions
    from dagwright.client.steering import Steering
    from dagwright.server import Connection
    from dagwright.settings import Settings
    from dagwright.store import PayloadStore


@dataclass(frozen=True, slots=True)
class Services:
    """Services of one connection; `dagwright.client.connecting` creates them.

    Args:
        store: store of payloads that are too large for the history.
    """

    connection: "Connection"
    settings: "Settings"
    store: "PayloadStore"
    runs: "Runs"
    steering: "Steering"
    sessions: "Sessions"
