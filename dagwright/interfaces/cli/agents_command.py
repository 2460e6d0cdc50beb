"""`agents add | list | show | remove`: manage the agents in the database, without a Temporal server."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from rich.table import Table
from rich.text import Text

from dagwright.agents import load_agents
from dagwright.agents.stored_agents import AGENTS, AgentVersion, StoredAgents
from dagwright.core.model.times import format_time
from dagwright.core.name_hints import suggestion
from dagwright.database.database import Database
from dagwright.interfaces.cli.command_database import open_database
from dagwright.interfaces.cli.exit_codes import CommandError, CommandErrorCode, ExitCode
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.settings import load_settings
from dagwright.toolset.toolset import load_toolset


def add(file: str, output: Output) -> int:
    """Add the agents of a file, or no agent if an agent is invalid."""
    registry = load_agents([file])
    with _open_agents() as stored_agents:
        results = stored_agents.add([*registry])
    missing_tools_by_agent = registry.missing_tools(load_toolset(load_settings()).declarations())
    for name, tools in missing_tools_by_agent.items():
        output.log(
            f"the agent {name!r} names unknown tools: {', '.join(tools)}; to run the agent, load them with --tools"
        )
    if output.is_json:
        entries = [{"name": result.name, "version": result.number, "created": result.is_new} for result in results]
        output.document({"status": "added", "file": file, "agents": entries})
    else:
        for result in results:
            output.print(f"{result.name}: version {result.number}{'' if result.is_new else ', unchanged'}")
    return ExitCode.COMPLETED


def list_agents(_: None, output: Output) -> int:
    """List the current agents."""
    with _open_agents() as stored_agents:
        agents = stored_agents.current_versions()
    if output.is_json:
        output.document([_to_json(agent) for agent in agents])
    elif not agents:
        output.print("there are no agents; `dagwright agents add FILE` adds the agents of a file")
    else:
        output.show(_table(agents))
    return ExitCode.COMPLETED


def show(name: str, output: Output) -> int:
    """Show the newest card of an agent and the versions of the agent."""
    with _open_agents() as stored_agents:
        versions = stored_agents.versions(name)
        agent_names = [agent.card.name for agent in stored_agents.current_versions()]
    if not versions:
        raise _unknown_agent_error(name, agent_names)
    newest_version = versions[0]
    if output.is_json:
        output.document(
            {
                **_to_json(newest_version),
                "card": newest_version.card.to_json(),
                "versions": [_to_json(version) for version in versions],
            }
        )
        return ExitCode.COMPLETED
    state = "" if newest_version.is_current else ", removed"
    output.print(f"{name}: {_version_text(newest_version)}{state}")
    for version in versions[1:]:
        output.print(f"earlier: {_version_text(version)}")
    output.print(json.dumps(newest_version.card.to_json(), indent=2, ensure_ascii=False))
    return ExitCode.COMPLETED


def remove(name: str, output: Output) -> int:
    """Remove an agent, so that new plans cannot use it."""
    with _open_agents() as stored_agents:
        agent_names = [agent.card.name for agent in stored_agents.current_versions()]
        if not stored_agents.remove(name):
            raise _unknown_agent_error(name, agent_names)
    message = f"{name} is removed for new plans; runs that use it keep its card"
    if output.is_json:
        output.document({"status": "removed", "name": name, "message": message})
    else:
        output.print(message)
    return ExitCode.COMPLETED


@contextmanager
def _open_agents() -> Iterator[StoredAgents]:
    with open_database(partial(Database, schema=AGENTS)) as database:
        yield StoredAgents(database)


def _unknown_agent_error(name: str, agent_names: list[str]) -> CommandError:
    hint = suggestion(name, agent_names) or "`dagwright agents list` lists the agents"
    return CommandError(f"there is no agent {name!r}; {hint}", code=CommandErrorCode.NOT_FOUND)


def _version_text(agent: AgentVersion) -> str:
    return f"version {agent.number}, added at {format_time(agent.added_at.timestamp())}"


def _to_json(agent: AgentVersion) -> dict[str, Any]:
    return {
        "name": agent.card.name,
        "version": agent.number,
        "type": agent.card.type,
        "description": agent.card.description,
        "added_at": format_time(agent.added_at.timestamp()),
        "is_current": agent.is_current,
    }


def _table(agents: list[AgentVersion]) -> Table:
    table = Table("name", "version", "type", "description", box=None)
    for agent in agents:
        description = Text(one_line(agent.card.description, limit=200))
        table.add_row(Text(agent.card.name), str(agent.number), agent.card.type, description)
    return table
