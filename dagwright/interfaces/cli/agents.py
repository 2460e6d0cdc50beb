"""`agents add | list | show | remove`: agents in the database, for all who share it. Needs no server."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from rich.table import Table
from rich.text import Text

from dagwright.agents import load_agents
from dagwright.agents.stored import AGENTS, AgentVersion, StoredAgents
from dagwright.core.expressions.references import suggestion
from dagwright.core.model.times import format_time
from dagwright.database.database import Database
from dagwright.interfaces.cli.databases import opened_database
from dagwright.interfaces.cli.exits import CommandRefused, ExitCode
from dagwright.interfaces.cli.output import Output, one_line
from dagwright.settings import load_settings
from dagwright.toolset.toolset import load_toolset


def add(file: str, output: Output) -> int:
    """Adds the agents of a file, all or none."""
    registry = load_agents([file])
    with _stored() as stored:
        added = stored.add([*registry])
    missing = registry.missing_tools(load_toolset(load_settings()).declarations())
    for name, tools in missing.items():
        output.tell(f"the agent {name!r} names tools that are not built in: {', '.join(tools)}; give them with --tools")
    if output.is_json:
        told = [{"name": each.name, "version": each.number, "created": each.is_new} for each in added]
        output.document({"status": "added", "file": file, "agents": told})
    else:
        for each in added:
            output.say(f"{each.name}: version {each.number}{'' if each.is_new else ', as it was'}")
    return ExitCode.COMPLETED


def list_agents(_: None, output: Output) -> int:
    """Lists the agents that new plans get."""
    with _stored() as stored:
        found = stored.current()
    if output.is_json:
        output.document([_told(each) for each in found])
    elif not found:
        output.say("no agents were added; `dagwright agents add FILE` adds those of a file")
    else:
        output.show(_table(found))
    return ExitCode.COMPLETED


def show(name: str, output: Output) -> int:
    """Shows the newest card of an agent, and which versions there are."""
    with _stored() as stored:
        versions = stored.versions(name)
        known = [each.card.name for each in stored.current()]
    if not versions:
        raise _unknown(name, known)
    newest = versions[0]
    if output.is_json:
        output.document(
            {**_told(newest), "card": newest.card.to_json(), "versions": [_told(each) for each in versions]}
        )
        return ExitCode.COMPLETED
    state = "" if newest.is_current else ", removed"
    output.say(f"{name}: {_version_words(newest)}{state}")
    for each in versions[1:]:
        output.say(f"before that {_version_words(each)}")
    output.say(json.dumps(newest.card.to_json(), indent=2, ensure_ascii=False))
    return ExitCode.COMPLETED


def remove(name: str, output: Output) -> int:
    """Removes an agent for new plans."""
    with _stored() as stored:
        known = [each.card.name for each in stored.current()]
        if not stored.remove(name):
            raise _unknown(name, known)
    message = f"{name} is removed for new plans; runs that were checked with it go on with it"
    if output.is_json:
        output.document({"status": "removed", "name": name, "message": message})
    else:
        output.say(message)
    return ExitCode.COMPLETED


@contextmanager
def _stored() -> Iterator[StoredAgents]:
    with opened_database(partial(Database, schema=AGENTS)) as database:
        yield StoredAgents(database)


def _unknown(name: str, known: list[str]) -> CommandRefused:
    near = suggestion(name, known) or "`dagwright agents list` lists those that were added"
    return CommandRefused(f"there is no agent {name!r}; {near}", status="not_found")


def _version_words(agent: AgentVersion) -> str:
    return f"version {agent.number} of {format_time(agent.added_at.timestamp())}"


def _told(agent: AgentVersion) -> dict[str, Any]:
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
    for each in agents:
        description = Text(one_line(each.card.description, limit=200))
        table.add_row(Text(each.card.name), str(each.number), each.card.type, description)
    return table
