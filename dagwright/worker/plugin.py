"""`DagwrightPlugin`: runs plans in the clients and workers that a Temporal user already has.

On a client it composes the data converter (`dagwright.protocol.conversion.compose_converter`). On each worker of that
client, or on a single worker, it adds the workflows, activities, interceptors and the sandbox passthrough of
`dagwright.worker.serving`, and holds the resources that `dagwright worker` holds.

User settings take precedence. A worker setting that still has the SDK's default gets the value that `dagwright worker`
uses (see `_SETTINGS`); the build ID and the garbage collector of the process stay as they are. A built-in tool is left
out if the worker has an activity of that name, and so are the handlers of unknown workflows and tools if it has dynamic
ones. If it has a workflow or an activity that the engine itself needs, the plugin refuses the worker, and `task_queue`
serves plans on a queue of their own in the same process.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.plugin import SimplePlugin
from temporalio.worker import Worker, WorkerConfig

from dagwright.core.boundary.arguments import checks_arguments
from dagwright.core.errors import DagwrightError
from dagwright.llm.client import ModelClients
from dagwright.process import event_loop_watchdog
from dagwright.process.drain import grace_s
from dagwright.protocol.conversion import compose_converter
from dagwright.settings import ACTIVITY_POLLERS, NEW_RUNS_SHARE, WORKFLOW_POLLERS, WORKFLOW_SLOTS, Settings
from dagwright.tools import ToolRegistry
from dagwright.toolset.given_tools import AgentSource, ToolSource, read_given
from dagwright.toolset.toolset import Toolset, load_toolset
from dagwright.worker.serving import (
    HEARTBEAT_THROTTLE,
    STICKY_TIMEOUT,
    WORKFLOWS,
    Activity,
    OwnWorker,
    create_activities,
    create_interceptors,
    held_resources,
    prepare_to_serve,
    publish_toolset,
    releasing_calls,
    serving,
    with_shared_modules,
)


class PluginConflict(DagwrightError, ValueError):
    """A worker has a workflow, an activity or a plugin that excludes this plugin; rename it, or give `task_queue`."""


@dataclass(frozen=True, slots=True)
class _Served:
    """Resources and tasks of one worker while it polls."""

    client: Client
    toolset: Toolset
    models: ModelClients
    task_queue: str


class DagwrightPlugin(SimplePlugin):
    """Run plans on the clients and workers of an application that uses Temporal already.

    Give it to `temporalio.client.Client.connect(..., plugins=[...])`: all workers of that client serve plans. Give it
    to a single `temporalio.worker.Worker` instead if the others should not. Runs start on the task queue of such a
    worker.

    Args:
        tools: served on the task queue of the worker; as for `Worker`, and declared workflows.
        agents: agent cards, or files of agents.
        settings: settings; by default those of the environment. All workers of a task queue need the same payload
            store.
        task_queue: serves plans on this queue with workers of their own, which leave the worker of the user as it is.

    Raises:
        ToolLoadError: a tool cannot be loaded, or two tools have one name.
        PluginConflict: a worker has a workflow or an activity with a name that the engine needs, or another
            `DagwrightPlugin`.
        ConverterUnusable: the data converter of the client does not encode JSON values as `json/plain`.
    """

    @checks_arguments
    def __init__(
        self,
        *,
        tools: Sequence[ToolSource] = (),
        agents: Sequence[AgentSource] = (),
        settings: Settings | None = None,
        task_queue: str | None = None,
    ) -> None:
        self._tools, self._agents = tuple(tools), tuple(agents)
        self._settings = settings
        self._own_queue = task_queue
        self._shared: _SharedQueue | None = None
        """Serves the own queue, if there is one."""
        self._served: dict[str, _Served] = {}
        """Task queue of a worker that was configured and does not run yet -> its resources and tasks."""
        has_own_queue = task_queue is not None
        super().__init__(
            "dagwright.DagwrightPlugin",
            data_converter=compose_converter,
            workflow_runner=lambda runner: with_shared_modules(cast("Any", runner)),
            workflows=None if has_own_queue else lambda given: [*(given or ()), *_missing_workflows(given or ())],
            interceptors=create_interceptors(),
        )

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add workflows, activities and settings to the configuration of a worker, unless it has them already."""
        queue = config["task_queue"]
        given = config.get("workflows") or ()
        is_own = any(isinstance(each, OwnWorker) for each in config.get("interceptors") or ())
        if is_own or queue in self._served:
            return config
        client = config["client"] = _with_converter(config["client"])
        if self._own_queue is not None and self._own_queue != queue:
            config["workflow_runner"] = with_shared_modules(config["workflow_runner"])
            if self._shared is None:
                self._shared = _SharedQueue(client, self._load, self._own_queue, settings=self._known_settings())
            return config
        if any(each in given for each in WORKFLOWS):
            raise PluginConflict(
                "the worker has another DagwrightPlugin: give all tools to one of them, or serve those of the other on "
                "a queue of their own: DagwrightPlugin(task_queue=...)"
            )
        config = super().configure_worker(config)
        activities = config.get("activities") or ()
        toolset = _without_built_in(self._load(queue), activities)
        models = ModelClients(toolset.models)
        added = create_activities(client, toolset, task_queue=queue, models=models)(queue)
        config["activities"] = [*activities, *_missing_activities(activities, added)]
        _apply_settings(config, drain_limit_s=toolset.environment.drain_limit_s)
        self._served[queue] = _Served(client, toolset, models, queue)
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Run a worker with its resources and tasks."""
        served = self._served.pop(worker.task_queue, None)
        is_on_other_queue = self._shared is not None and worker.task_queue != self._own_queue
        if served is None and not is_on_other_queue:
            await next(worker)
            return
        async with AsyncExitStack() as stack:
            try:
                if served is not None:
                    await stack.enter_async_context(_hold_resources(served, self._known_settings()))
                elif self._shared is not None:
                    await stack.enter_async_context(self._shared.serving())
            except BaseException:
                # Leaving `async with Worker(...)` waits for the end of a worker that has never started, as it does not
                # for one that the server refuses (`Worker._run` in the SDK).
                worker._shutdown_complete_event.set()
                raise
            await next(worker)

    def _known_settings(self) -> Settings:
        return self._settings or Settings()

    def _load(self, task_queue: str) -> Toolset:
        given = read_given(self._tools, self._agents, task_queue=task_queue)
        return load_toolset(self._known_settings(), given=given)


class _SharedQueue:
    """Serves a queue while at least one worker of the application runs: one client serves a queue once.

    Args:
        load: returns the tools for the queue.
    """

    def __init__(self, client: Client, load: Callable[[str], Toolset], task_queue: str, *, settings: Settings) -> None:
        self._client = client
        self._toolset = load(task_queue)
        self._task_queue = task_queue
        self._settings = settings
        self._users = 0
        self._stop = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._is_serving: asyncio.Future[None] | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve the queue while the block lasts, with the other blocks.

        Raises:
            StoreMismatch: the other workers of the queue use another payload store.
            StoreUnavailable: the payload store does not respond.
        """
        self._users += 1
        try:
            # A task of its own: the worker that comes first need not be the one that goes last.
            if self._serving is None or self._is_serving is None:
                self._stop.clear()
                self._is_serving = asyncio.get_running_loop().create_future()
                self._serving = asyncio.create_task(self._serve(self._is_serving))
            await asyncio.shield(self._is_serving)
            yield
        finally:
            self._users -= 1
            if not self._users and (serving_task := self._serving) is not None:
                self._serving = None
                self._stop.set()
                await asyncio.wait([serving_task])

    async def _serve(self, is_serving: asyncio.Future[None]) -> None:
        try:
            await prepare_to_serve(self._settings, self._toolset)
            async with serving(self._client, self._toolset, task_queue=self._task_queue):
                is_serving.set_result(None)
                await self._stop.wait()
        except Exception as error:
            if is_serving.done():
                raise
            is_serving.set_exception(error)


@asynccontextmanager
async def _hold_resources(served: _Served, settings: Settings) -> AsyncIterator[None]:
    """Hold the resources and tasks of a worker while the block lasts.

    Raises:
        StoreMismatch: the other workers of the queue use another payload store.
        StoreUnavailable: the payload store does not respond.
        PricesUnreadable: the prices of models cannot be read.
    """
    await prepare_to_serve(settings, served.toolset)
    await publish_toolset(served.client, served.toolset, task_queue=served.task_queue)
    async with held_resources(served.toolset, served.models), releasing_calls(served.client, served.toolset):
        with event_loop_watchdog.blocked_loop_logged():
            yield


def _with_converter(client: Client) -> Client:
    """Return the client itself if its converter is composed, as on a client with the plugin, else one with the same."""
    config = client.config(active_config=True)
    composed = compose_converter(config["data_converter"])
    if composed.payload_converter_class is config["data_converter"].payload_converter_class:
        return client
    # The plugins of the client have been applied to its configuration.
    config["data_converter"], config["plugins"] = composed, []
    return Client(**config)


def _missing_workflows(given: Sequence[type]) -> list[type]:
    names = {_workflow_name(each) for each in given}
    for each in WORKFLOWS:
        if (name := _workflow_name(each)) is not None and name in names:
            raise PluginConflict(_conflict("workflow", name))
    # The last one ends executions of unknown types; a dynamic workflow of the user takes them instead.
    return [each for each in WORKFLOWS if _workflow_name(each) not in names]


def _missing_activities(given: Sequence[Activity], added: Sequence[Activity]) -> list[Activity]:
    names = {_activity_name(each) for each in given}
    for each in added:
        if (name := _activity_name(each)) is not None and name in names:
            raise PluginConflict(_conflict("activity", name))
    return [each for each in added if _activity_name(each) not in names]


def _without_built_in(toolset: Toolset, given: Sequence[Activity]) -> Toolset:
    names = {_activity_name(each) for each in given}
    built_in = {name: spec for name, spec in toolset.built_in.specs.items() if name not in names}
    return replace(toolset, built_in=ToolRegistry(built_in, toolset.built_in.sources))


def _conflict(kind: str, name: str) -> str:
    return (
        f"the worker has the {kind} {name!r}, which plans need too; rename it, or serve plans on a queue of their own: "
        "DagwrightPlugin(task_queue=...)"
    )


# The SDK has no public way to read a name; `None` is that of a dynamic one.


def _workflow_name(candidate: type) -> str | None:
    found = workflow._Definition.from_class(candidate)
    return found.name if found is not None else candidate.__qualname__


def _activity_name(candidate: Activity) -> str | None:
    found = activity._Definition.from_callable(candidate)
    return found.name if found is not None else candidate.__qualname__


_SDK_DEFAULTS: Mapping[str, Any] = {
    name: parameter.default for name, parameter in inspect.signature(Worker.__init__).parameters.items()
}
_SETTINGS: Mapping[str, Any] = {
    "sticky_queue_schedule_to_start_timeout": STICKY_TIMEOUT,
    "max_heartbeat_throttle_interval": HEARTBEAT_THROTTLE,
    "max_concurrent_activity_task_polls": ACTIVITY_POLLERS,
    "max_concurrent_workflow_tasks": WORKFLOW_SLOTS,
    "max_concurrent_workflow_task_polls": WORKFLOW_POLLERS,
    "nonsticky_to_sticky_poll_ratio": NEW_RUNS_SHARE,
}
"""Worker settings that get these values where they have the SDK's default. Cost of other values: a later
continuation after a worker died; cancellation and streamed text that arrive late; slower starts of wide plans; workflow
tasks that time out together after a restart; many runs at once that all end late."""
_ALTERNATIVE_SETTINGS = {
    "max_concurrent_activity_task_polls": "activity_task_poller_behavior",
    "max_concurrent_workflow_tasks": "tuner",
    "max_concurrent_workflow_task_polls": "workflow_task_poller_behavior",
    "nonsticky_to_sticky_poll_ratio": "workflow_task_poller_behavior",
}
"""Setting -> another setting of the SDK with the same purpose."""


def _apply_settings(config: WorkerConfig, *, drain_limit_s: float | None) -> None:
    settings = cast("dict[str, Any]", config)
    values = {**_SETTINGS, "graceful_shutdown_timeout": timedelta(seconds=grace_s(drain_limit_s))}
    for name, value in values.items():
        if all(settings.get(each, _SDK_DEFAULTS[each]) == _SDK_DEFAULTS[each] for each in _names_of(name)):
            settings[name] = value


def _names_of(setting: str) -> list[str]:
    return [setting, *([other] if (other := _ALTERNATIVE_SETTINGS.get(setting)) is not None else [])]
