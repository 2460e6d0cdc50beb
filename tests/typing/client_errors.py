"""Mistakes in programs; type checkers report each mistake on its line."""

import dagwright
from dagwright import Client, SyncClient, Worker, run

dagwright.strat("refill.yaml")  # E: Module has no attribute "strat"
run("refill.yaml", input={"net": 100})  # E: Unexpected keyword argument "input"
run("refill.yaml", deadline=[1])  # E: Argument "deadline"
run(3)  # E: Argument 1 to "run"


async def work(client: Client) -> None:
    """Make mistakes with a client."""
    await client.start("refill.yaml", id="refill-1")  # E: Unexpected keyword argument "id"
    await client.start("refill.yaml", tags=["a"])  # E: Argument "tags"
    await client.session("mine").ask("Refill", deadlin="2h")  # E: Unexpected keyword argument "deadlin"
    await client.ask("Refill", profile="round")  # E: Argument "profile"
    client.start("refill.yaml").result()  # E: "Coroutine[Any, Any, Run]" has no attribute "result"
    Worker(client, tools=[3])  # E: List item 0
    Worker("client")  # E: Argument 1 to "Worker"


with SyncClient.connect() as client:
    client.start("refill.yaml", id="refill-1")  # E: Unexpected keyword argument "id"
    client.start("refill.yaml").pause(because="stocktaking")  # E: Unexpected keyword argument "because"
    client.session("mine").start("refill.yaml", session_id="other")  # E: Unexpected keyword argument "session_id"
    client.list_runs(state="failed")  # E: Unexpected keyword argument "state"
