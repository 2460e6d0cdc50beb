"""The use cases of one connection, made together: what every interface and the public `Client` work with."""

from dataclasses import dataclass

from dagwright.client.runs import Runs, open_runs
from dagwright.client.sessions import Sessions
from dagwright.client.steering import Steering
from dagwright.server import Connection
from dagwright.settings import Settings
from dagwright.store import PayloadStore, open_store


@dataclass(frozen=True, slots=True)
class Services:
    """Use cases of one connection, which they share.

    Args:
        store: of payloads that are too large for the history.
    """

    connection: Connection
    settings: Settings
    store: PayloadStore
    runs: Runs
    steering: Steering
    sessions: Sessions


def create_services(connection: Connection, settings: Settings) -> Services:
    """Create the use cases that the settings describe."""
    store = open_store(settings.payload_store, state_dir=settings.state_dir)
    runs = open_runs(connection, settings)
    return Services(
        connection=connection,
        settings=settings,
        store=store,
        runs=runs,
        steering=Steering(connection),
        sessions=Sessions(connection, runs, task_queue=settings.task_queue),
    )
