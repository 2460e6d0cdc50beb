"""All tools of a process: built-in tools, tools of plugins and of `--tools`, and the agents of `--agents`.

A worker, `run` and `check` use this module, so they see the same tools on the same queues. This module
must not import workflows or activities.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from dagwright.agents.agent_calls import agent_tools, declare_agents
from dagwright.agents.agent_database import stored_cards
from dagwright.agents.agent_files import load_agents
from dagwright.agents.class_agents import load_class
from dagwright.agents.registry import AgentRegistry, AgentsUnreadable
from dagwright.core.model.call_limits import CallLimit, Subject, parse_limits
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.plugins import InstalledPlugin, PluginError, installed_plugins, reject_duplicate
from dagwright.core.validation.worker_tools import WorkerToolsRejected, check_worker_tools, worker_tools_among
from dagwright.llm.client import Endpoint, ModelSetup
from dagwright.planning.rounds.rounds_spec import RoundsLimits
from dagwright.protocol.plan_limits import is_queue_name
from dagwright.protocol.webhooks import Webhook, signing_key
from dagwright.settings import Settings, app_settings
from dagwright.store import PayloadStore, open_store
from dagwright.tools import ToolLoadError, ToolRegistry, ToolSpec, load_tools
from dagwright.tools.builtin import builtin_tools
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.queue_names import queue_name
from dagwright.tools.registry import check_tool_names
from dagwright.tools.secret_bindings import SecretBinding
from dagwright.tools.tool_references import (
    SERVERS_SUFFIX,
    absolute_path,
    agents_file_of_reference,
    agents_reference,
    is_path,
    last_tools_queue_of,
    tools_queue_of_reference,
    tools_queue_reference,
)
from dagwright.toolset.file_protection import protected_paths
from dagwright.toolset.program_tools import ProgramTools
from dagwright.toolset.tool_directory import find_published_card

if TYPE_CHECKING:
    from dagwright.mcp_client import LoadedServers


@dataclass(frozen=True, slots=True)
class Toolset:
    """The tools of a process.

    Args:
        built_in: built-in tools, agents of the database, and tools of plugins, served on the task queue of the
            workflows.
        user_tools: the tools of `--tools` and `--agents`. Each tool is served on the queue of its file or module; with
            `--tools-queue`, all are served on this queue. They take precedence over built-in tools of the same name.
        references: the values of `--tools`, `--agents` and `--tools-queue`, with absolute paths, so that another
            command can load the same tools.
        database_url: URL of the database of the stored agents.
        store: store of large values; opened on first use.
        webhook: is notified when a run requests something from a person.
        models: the model service and its settings; opened on first use.
        servers: the MCP servers of the tools, if any; the process that serves the tools stops the servers.
        agents: agents of `--agents`; each agent is a tool too.
        rounds: default limits of runs with the profile `rounds`.
        limits: call limits across all runs, declared by the settings.
    """

    built_in: ToolRegistry
    user_tools: ToolRegistry
    references: tuple[str, ...]
    environment: ToolEnvironment
    database_url: str
    store: PayloadStore
    webhook: Webhook | None = None
    models: ModelSetup = field(default_factory=ModelSetup)
    servers: "LoadedServers | None" = None
    agents: AgentRegistry = field(default_factory=AgentRegistry)
    rounds: RoundsLimits = field(default_factory=RoundsLimits)
    limits: Mapping[Subject, CallLimit] = field(default_factory=dict)

    def declarations(self) -> Mapping[str, ToolDeclaration]:
        """Return the tools that a plan can call: tool name -> declaration."""
        return self.built_in.merge(self.user_tools).declarations()

    @property
    def user_queues(self) -> tuple[str, ...]:
        """Queues of the user's tools."""
        return self.user_tools.queues


def references_of(tools: Sequence[str], agents: Sequence[str], tools_queue: str | None = None) -> list[str]:
    """Return the references for values of `--tools`, `--agents` and `--tools-queue`."""
    queues = [] if tools_queue is None else [tools_queue_reference(tools_queue)]
    return [*tools, *queues, *map(agents_reference, agents)]


NO_PROGRAM_TOOLS = ProgramTools()


def load_toolset(
    settings: Settings, references: Sequence[str] = (), *, program_tools: ProgramTools = NO_PROGRAM_TOOLS
) -> Toolset:
    """Load the tools of a process.

    Args:
        settings: settings of the process.
        references: as returned by `references_of`.
        program_tools: tools and agents that a Python program passes; its references are loaded too.

    Raises:
        ToolLoadError: a reference cannot be loaded, or its tools are incompatible.
    """
    references = [*references, *program_tools.references]
    queue = last_tools_queue_of(references) or settings.tools_queue
    if queue is not None and not is_queue_name(queue):
        raise ToolLoadError(f"{queue!r:.60} cannot be the name of a task queue")
    references = [reference for reference in references if tools_queue_of_reference(reference) is None]
    environment = environment_of(settings, references)
    built_in = builtin_tools(environment)
    built_in = built_in.merge(_plugin_tools(settings, built_in), declare_agents(stored_cards(settings.database_url)))
    files = [file for file in map(agents_file_of_reference, references) if file is not None]
    agents = load_agents(files) if files else AgentRegistry()
    tool_references = [reference for reference in references if agents_file_of_reference(reference) is None]
    user_tools, servers = _load_user_tools(settings, tool_references)
    user_tools = _with_functions(user_tools, program_tools.functions)
    store = open_store(settings.payload_store, state_dir=settings.state_dir)
    _check_worker_tools(user_tools, built_in)
    agents = _with_cards(agents, program_tools.agents)
    user_tools = user_tools.merge(agent_tools(agents, environment, find_card=partial(find_published_card, store)))
    default_queue = partial(queue_name, task_queue=settings.task_queue)
    absolute_references = dict.fromkeys([*map(_absolute_reference, references), *program_tools.importable_modules])
    return Toolset(
        built_in=built_in,
        user_tools=user_tools.with_queue(queue) if queue else user_tools.with_queues(default_queue),
        references=(*absolute_references, *([tools_queue_reference(queue)] if queue else [])),
        limits=parse_limits(settings.limits),
        environment=environment,
        database_url=settings.database_url,
        store=store,
        webhook=_webhook_of(settings),
        models=_models_of(settings),
        servers=servers,
        agents=agents,
        rounds=settings.rounds_limits,
    )


def _plugin_tools(settings: Settings, built_in: ToolRegistry) -> ToolRegistry:
    """Return the tools of all plugins.

    Raises:
        PluginError: two plugins have a tool of the same name, two plugins have a resolver, or a tool has the name of a
            built-in tool.
    """
    plugin_of_tool: dict[str, InstalledPlugin] = {}
    specs: list[ToolSpec] = []
    resolver_plugin: InstalledPlugin | None = None
    for plugin in installed_plugins():
        for spec in plugin.load(plugin.plugin.tools)(settings) if plugin.plugin.tools is not None else ():
            if spec.name in built_in:
                raise PluginError(f"the {plugin} contributes the tool {spec.name!r}, which is built in")
            reject_duplicate("tool", spec.name, plugin, plugin_of_tool.get(spec.name))
            plugin_of_tool[spec.name] = plugin
            if spec.declaration.resolver is not None:
                reject_duplicate("resolver", spec.name, plugin, resolver_plugin)
                resolver_plugin = plugin
            specs.append(spec)
    return ToolRegistry.of(*specs)


def environment_of(settings: Settings, references: Sequence[str] = ()) -> ToolEnvironment:
    """Build the environment of a process's tools from its settings, without opening anything.

    Args:
        references: as returned by `references_of`; the file tools must not access these files.
    """
    return ToolEnvironment(
        files_root=settings.files_root,
        files_root_is_explicit="files_root" in settings.model_fields_set,
        protected_paths=protected_paths(settings, references),
        allow_private_addresses=settings.allow_private_addresses,
        serper_api_key=settings.serper_api_key.get_secret_value() if settings.serper_api_key else None,
        serper_base_url=settings.serper_base_url,
        travel_url=settings.search_url,
        find_secret=settings.secret,
        drain_limit_s=settings.drain_s,
        binding_of=lambda name: SecretBinding(settings.secret_tools(name), settings.secret_hosts(name)),
        app_settings={type(setting): setting for setting in app_settings(settings)},
    )


def _check_worker_tools(user_tools: ToolRegistry, built_in: ToolRegistry) -> None:
    worker_tools = worker_tools_among(user_tools.declarations())
    for name in worker_tools:
        if name in built_in:
            raise ToolLoadError(f"The worker tool {name!r} has the name of a built-in tool; rename it")
    try:
        check_worker_tools(worker_tools)
    except WorkerToolsRejected as error:
        raise ToolLoadError(f"The worker tools cannot work together: {error}") from None


def _models_of(settings: Settings) -> ModelSetup:
    key = settings.llm_api_key
    return ModelSetup(
        endpoint=Endpoint(settings.llm_base_url, key.get_secret_value() if key is not None else ""),
        model=settings.model,
        prices_file=settings.prices,
        find_secret=settings.secret,
    )


def _load_user_tools(settings: Settings, references: Sequence[str]) -> "tuple[ToolRegistry, LoadedServers | None]":
    modules = [reference for reference in references if not reference.endswith(SERVERS_SUFFIX)]
    files = dict.fromkeys(absolute_path(reference) for reference in references if reference.endswith(SERVERS_SUFFIX))
    tools = load_tools(modules) if modules else ToolRegistry()
    if not files:
        return tools, None
    from dagwright.mcp_client import Variables, load_servers  # noqa: PLC0415 - most commands name no server

    servers = load_servers([*files], Variables(settings.secret, settings.variable))
    for name in tools.specs:
        if name in servers.registry:
            raise ToolLoadError(f"Duplicate tool {name!r}: in {', '.join(modules)} and in an MCP server")
    return tools.merge(servers.registry), servers


def _with_functions(tools: ToolRegistry, functions: ToolRegistry) -> ToolRegistry:
    """Return the tools of modules and files together with the functions that a program passes.

    Raises:
        ToolLoadError: two different tools have the same name.
    """
    for spec in functions:
        if (existing_spec := tools.get(spec.name)) is not None and existing_spec is not spec:
            raise ToolLoadError(
                f"Duplicate tool {spec.name!r}: in {tools.sources[spec.name]} and among the passed functions"
            )
    merged_tools = tools.merge(functions)
    try:
        check_tool_names(merged_tools.specs)
    except ValueError as error:
        raise ToolLoadError(str(error)) from None
    return merged_tools


def _with_cards(agents: AgentRegistry, cards: AgentRegistry) -> AgentRegistry:
    """Return the agents of files together with the cards that a program passes.

    Raises:
        ToolLoadError: two agents have the same name, or a class cannot be loaded.
    """
    if not cards:
        return agents
    for name, card in cards.cards.items():
        if agents.cards.get(name, card) != card:
            raise ToolLoadError(f"Duplicate agent {name!r}: in {agents.files[name]} and among the passed cards")
    try:
        classes = {card.name: load_class(card.class_name, folder=Path.cwd()) for card in cards if card.class_name}
    except ToolLoadError as error:
        raise AgentsUnreadable(f"an agent card: {error}") from None
    return AgentRegistry(
        MappingProxyType({**agents.cards, **cards.cards}),
        agents.files,
        MappingProxyType({**agents.classes, **classes}),
    )


def merge_toolsets(base: Toolset, others: Sequence[Toolset]) -> Toolset:
    """Add the tools of other toolsets, for compiling plans. If tools have the same name, the last tool is used."""
    user_tools = base.user_tools.merge(*(toolset.user_tools for toolset in others))
    references = dict.fromkeys(reference for toolset in (base, *others) for reference in toolset.references)
    return replace(base, user_tools=user_tools, references=tuple(references))


def _webhook_of(settings: Settings) -> Webhook | None:
    if settings.notify_url is None or settings.notify_secret is None:
        return None
    return Webhook(settings.notify_url, signing_key(settings.notify_secret.get_secret_value()), settings.ui_url)


def _absolute_reference(reference: str) -> str:
    """Return the absolute path of a file; a module name is returned unchanged."""
    if agents_file_of_reference(reference) is not None:
        return reference
    return str(absolute_path(reference)) if is_path(reference) else reference
