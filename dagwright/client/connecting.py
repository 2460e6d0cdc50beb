"""Create the services of a connection, and prepare the first start of a run."""

from dagwright.client.runs import namespace_runs
from dagwright.client.services import Services
from dagwright.client.sessions import Sessions
from dagwright.client.steering import Steering
from dagwright.server import Connection
from dagwright.server.namespace_retention import claim_store
from dagwright.server.store_notes import check_store
from dagwright.settings import Settings
from dagwright.store import open_store
from dagwright.toolset.file_protection import record_protected_paths
from dagwright.toolset.tool_directory import publish_cards
from dagwright.toolset.toolset import Toolset


async def prepare_to_start(connection: Connection, settings: Settings, toolset: Toolset) -> None:
    """Prepare the first start of a run: check the payload store, and publish the agent cards of this process.

    Raises:
        StoreMismatch: the workers use another payload store.
        StoreUnavailable: the payload store does not respond.
    """
    record_protected_paths(settings, toolset.environment.protected_paths)
    await check_store(connection.client, toolset.store, task_queue=settings.task_queue)
    await claim_store(toolset.store, connection.client)
    # Running workers may have other agent cards, so the cards of this process are published.
    await publish_cards(toolset.store, toolset.agents)


def create_services(connection: Connection, settings: Settings) -> Services:
    """Create the services of a connection."""
    store = open_store(settings.payload_store, state_dir=settings.state_dir)
    runs = namespace_runs(connection, settings)
    return Services(
        connection=connection,
        settings=settings,
        store=store,
        runs=runs,
        steering=Steering(connection),
        sessions=Sessions(connection, runs, task_queue=settings.task_queue),
    )
