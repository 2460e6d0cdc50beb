"""An agent that answers from the notes of an MCP server: `python examples/python/mcp_agent.py "How do I make tea?"`.

With OPENAI_API_KEY or OPENAI_BASE_URL the model of DAGWRIGHT_MODEL answers; without them, `mcp_agent_script.yaml` plays
the model.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dagwright import Client, Plan, Worker
from dagwright.settings import Settings, load_settings

FOLDER = Path(__file__).parent
QUESTION = "How do I make tea?"


def build_plan() -> Plan:
    """Return a plan of one agent; `question` is its input."""
    plan = Plan("Answer from the notes")
    plan.output = plan.add_agent(
        f"Answer this question: {plan.input('question', type=str)}",
        prompt="Answer only from the notes. Name the note that you used.",
        tools=["notes.titles", "notes.read"],
        max_turns=6,
    )
    return plan


async def main(question: str, settings: Settings, servers_path: Path) -> None:
    """Run the plan and print each call and the answer."""
    async with Client.connect(settings=settings) as client, Worker(client, tools=[servers_path]):
        run = await client.start(build_plan(), inputs={"question": question}, tools=[servers_path])
        async for event in run.events():
            if event.type == "node.completed":
                print(f"- {event.node_id}")
        print((await run.result()).output)


@contextmanager
def servers_file() -> Iterator[Path]:
    """Yield a temporary file that names the MCP server, which uses the interpreter of this process."""
    server = {"command": sys.executable, "args": [str(FOLDER / "notes_server.py")]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "servers.json"
        path.write_text(json.dumps({"mcpServers": {"notes": server}}), encoding="utf-8")
        yield path


@contextmanager
def scripted_model(settings: Settings) -> Iterator[Settings]:
    """Serve the script in another process inside the block, and yield settings that use it."""
    command = [sys.executable, "-m", "dagwright.testing", str(FOLDER / "mcp_agent_script.yaml")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        try:
            yield settings.model_copy(update={"openai_base_url": address, "model": "scripted-model"})
        finally:
            server.terminate()


if __name__ == "__main__":
    settings, question = load_settings(), " ".join(sys.argv[1:]) or QUESTION
    with servers_file() as path:
        if settings.llm_api_key is not None or settings.llm_base_url is not None:
            asyncio.run(main(question, settings, path))
        else:
            print("no OPENAI_API_KEY is set, so a script plays the model")
            with scripted_model(settings) as scripted_settings:
                asyncio.run(main(question, scripted_settings, path))
