"""`DagwrightPlugin`: runs plans in the clients and workers that a Temporal user already has.

On a client it composes the data converter (`dagwright.protocol.conversion.compose_converter`). On each worker of that
client, or on a single worker, it adds the workflows, activities, interceptors and the sandbox passthrough of
`dagwright.worker.serving`. While the worker runs, the plugin opens the same resources as `dagwright worker`.

User settings take precedence. A worker setting with the SDK's default gets the value of `dagwright worker` (see
`_WORKER_SETTINGS`); the build ID and the garbage collector of the process do not change. A built-in tool is omitted if
the worker has an activity of that name. The handlers of unknown workflows and tools are omitted if the worker has a
dynamic workflow or activity. If the worker already has a workflow or an activity of the engine, the plugin raises
`PluginConflict`. Set `task_queue` to serve plans on a separate queue of the same process instead.
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
from dagwright.toolset.program_tools import AgentSource, ToolSource, read_program_tools
from dagwright.toolset.toolset import Toolset, load_toolset
from dagwright.worker.serving import (
    HEARTBEAT_THROTTLE,
    STICKY_TIMEOUT,
    WORKFLOWS,
    Activity,
    DagwrightWorkerMark,
    closing_resources,
    create_activities,
    create_interceptors,
    prepare_to_serve,
    publish_toolset,
    releasing_calls,
    serving,
    with_shared_modules,
)


class PluginConflict(DagwrightError, ValueError):
    """A worker has a workflow, an activity or a plugin that conflicts with this plugin; the message has the fix."""


@dataclass(frozen=True, slots=True)
class _WorkerResources:
    """Resources of a worker between its configuration and its start."""

    client: Client
    toolset: Toolset
    models: ModelClients
    task_queue: str


class DagwrightPlugin(SimplePlugin):
    """Run plans on the clients and workers of an application that uses Temporal already.

    Pass the plugin to `temporalio.client.Client.connect(..., plugins=[...])`: all workers of that client serve plans.
    Pass it to a single `temporalio.worker.Worker` instead to serve plans only there. Start runs on the task queue of a
    worker that has the plugin.

    Args:
        tools: tools to serve on the worker's task queue: the types that `dagwright.Worker` accepts, or declared
            workflows.
        agents: agent cards, or files of agents.
        settings: settings; by default those of the environment. All workers of a task queue need the same payload
            store.
        task_queue: serve plans with separate workers on this queue; the user's worker is unchanged.

    Raises:
        ToolLoadError: a tool cannot be loaded, or two tools have the same name.
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
        self._separate_queue = task_queue
        self._separate_worker: _SeparateQueueWorker | None = None
        """Worker of the separate queue, if `task_queue` is set."""
        self._pending_resources: dict[str, _WorkerResources] = {}
        """Task queue of a worker that was configured and does not run yet -> its resources."""
        has_separate_queue = task_queue is not None
        super().__init__(
            "dagwright.DagwrightPlugin",
            data_converter=compose_converter,
            workflow_runner=lambda runner: with_shared_modules(cast("Any", runner)),
            workflows=None
            if has_separate_queue
            else lambda user_workflows: [*(user_workflows or ()), *_missing_workflows(user_workflows or ())],
            interceptors=create_interceptors(),
        )

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """Add workflows, activities and settings to the configuration of a worker that does not have them."""
        queue = config["task_queue"]
        user_workflows = config.get("workflows") or ()
        is_dagwright_worker = any(
            isinstance(interceptor, DagwrightWorkerMark) for interceptor in config.get("interceptors") or ()
        )
        if is_dagwright_worker or queue in self._pending_resources:
            return config
        client = config["client"] = _with_converter(config["client"])
        if self._separate_queue is not None and self._separate_queue != queue:
            config["workflow_runner"] = with_shared_modules(config["workflow_runner"])
            if self._separate_worker is None:
                self._separate_worker = _SeparateQueueWorker(
                    client, self._load, self._separate_queue, settings=self._settings_or_default()
                )
            return config
        if any(workflow_type in user_workflows for workflow_type in WORKFLOWS):
            raise PluginConflict(
                "the worker has another DagwrightPlugin: give all tools to one of them, or give one plugin a "
                "separate queue: DagwrightPlugin(task_queue=...)"
            )
        config = super().configure_worker(config)
        activities = config.get("activities") or ()
        toolset = _without_replaced_tools(self._load(queue), activities)
        models = ModelClients(toolset.models)
        engine_activities = create_activities(client, toolset, task_queue=queue, models=models)(queue)
        config["activities"] = [*activities, *_missing_activities(activities, engine_activities)]
        _apply_settings(config, drain_limit_s=toolset.environment.drain_limit_s)
        self._pending_resources[queue] = _WorkerResources(client, toolset, models, queue)
        return config

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:
        """Run a worker with its resources and tasks."""
        resources = self._pending_resources.pop(worker.task_queue, None)
        uses_separate_worker = self._separate_worker is not None and worker.task_queue != self._separate_queue
        if resources is None and not uses_separate_worker:
            await next(worker)
            return
        async with AsyncExitStack() as stack:
            try:
                if resources is not None:
                    await stack.enter_async_context(_open_resources(resources, self._settings_or_default()))
                elif self._separate_worker is not None:
                    await stack.enter_async_context(self._separate_worker.serving())
            except BaseException:
                # Without the event, the exit of `async with Worker(...)` would wait for a worker that never started.
                # The SDK sets the event only if the server rejects the worker (`Worker._run`).
                worker._shutdown_complete_event.set()
                raise
            await next(worker)

    def _settings_or_default(self) -> Settings:
        return self._settings or Settings()

    def _load(self, task_queue: str) -> Toolset:
        program_tools = read_program_tools(self._tools, self._agents, task_queue=task_queue)
        return load_toolset(self._settings_or_default(), program_tools=program_tools)


class _SeparateQueueWorker:
    """Serves a queue while at least one worker of the application runs.

    A client can have only one worker per queue, so the workers of the application share this worker.

    Args:
        load: returns the tools for the queue.
    """

    def __init__(self, client: Client, load: Callable[[str], Toolset], task_queue: str, *, settings: Settings) -> None:
        self._client = client
        self._toolset = load(task_queue)
        self._task_queue = task_queue
        self._settings = settings
        self._open_block_count = 0
        self._stop_event = asyncio.Event()
        self._serving_task: asyncio.Task[None] | None = None
        self._start_future: asyncio.Future[None] | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve the queue until the last of the concurrent `serving` blocks ends.

        Raises:
            StoreMismatch: the other workers of the queue use another payload store.
            StoreUnavailable: the payload store does not respond.
        """
        self._open_block_count += 1
        try:
            # The queue is served in a separate task, because the first worker to start may not be the last to stop.
            if self._serving_task is None or self._start_future is None:
                self._stop_event.clear()
                self._start_future = asyncio.get_running_loop().create_future()
                self._serving_task = asyncio.create_task(self._serve(self._start_future))
            await asyncio.shield(self._start_future)
            yield
        finally:
            self._open_block_count -= 1
            if not self._open_block_count and (serving_task := self._serving_task) is not None:
                self._serving_task = None
                self._stop_event.set()
                await asyncio.wait([serving_task])

    async def _serve(self, start_future: asyncio.Future[None]) -> None:
        try:
            await prepare_to_serve(self._settings, self._toolset)
            async with serving(self._client, self._toolset, task_queue=self._task_queue):
                start_future.set_result(None)
                await self._stop_event.wait()
        except Exception as error:
            if start_future.done():
                raise
            start_future.set_exception(error)


@asynccontextmanager
async def _open_resources(resources: _WorkerResources, settings: Settings) -> AsyncIterator[None]:
    """Open the resources of a worker, and run its tasks, until the block ends.

    Raises:
        StoreMismatch: the other workers of the queue use another payload store.
        StoreUnavailable: the payload store does not respond.
        PricesUnreadable: the prices of models cannot be read.
    """
    client, toolset = resources.client, resources.toolset
    await prepare_to_serve(settings, toolset)
    await publish_toolset(client, toolset, task_queue=resources.task_queue)
    async with closing_resources(toolset, resources.models), releasing_calls(client, toolset):
        with event_loop_watchdog.logging_blocked_loop():
            yield


def _with_converter(client: Client) -> Client:
    """Return the client if its converter is already composed; otherwise a new client with the composed converter."""
    config = client.config(active_config=True)
    composed_converter = compose_converter(config["data_converter"])
    if composed_converter.payload_converter_class is config["data_converter"].payload_converter_class:
        return client
    # The plugins of the client have been applied to its configuration.
    config["data_converter"], config["plugins"] = composed_converter, []
    return Client(**config)


def _missing_workflows(user_workflows: Sequence[type]) -> list[type]:
    """Return the workflows to add to those of the user.

    Raises:
        PluginConflict: the user has a workflow of the same name.
    """
    names = {_workflow_name(workflow_type) for workflow_type in user_workflows}
    for workflow_type in WORKFLOWS:
        if (name := _workflow_name(workflow_type)) is not None and name in names:
            raise PluginConflict(_conflict_message("workflow", name))
    # The last workflow is dynamic and ends executions of unknown types. A dynamic workflow of the user replaces it.
    return [workflow_type for workflow_type in WORKFLOWS if _workflow_name(workflow_type) not in names]


def _missing_activities(user_activities: Sequence[Activity], engine_activities: Sequence[Activity]) -> list[Activity]:
    """Return the activities to add to those of the user.

    Raises:
        PluginConflict: the user has an activity of the same name.
    """
    names = {_activity_name(candidate) for candidate in user_activities}
    for candidate in engine_activities:
        if (name := _activity_name(candidate)) is not None and name in names:
            raise PluginConflict(_conflict_message("activity", name))
    return [candidate for candidate in engine_activities if _activity_name(candidate) not in names]


def _without_replaced_tools(toolset: Toolset, user_activities: Sequence[Activity]) -> Toolset:
    names = {_activity_name(user_activity) for user_activity in user_activities}
    built_in = {name: spec for name, spec in toolset.built_in.specs.items() if name not in names}
    return replace(toolset, built_in=ToolRegistry(built_in, toolset.built_in.sources))


def _conflict_message(kind: str, name: str) -> str:
    return (
        f"the worker has the {kind} {name!r}, which plans need too; rename it, or serve plans on a separate queue: "
        "DagwrightPlugin(task_queue=...)"
    )


# The SDK has no public way to read the name of a workflow or activity. A dynamic definition has the name `None`.


def _workflow_name(candidate: type) -> str | None:
    definition = workflow._Definition.from_class(candidate)
    return definition.name if definition is not None else candidate.__qualname__


def _activity_name(candidate: Activity) -> str | None:
    definition = activity._Definition.from_callable(candidate)
    return definition.name if definition is not None else candidate.__qualname__


_SDK_DEFAULTS: Mapping[str, Any] = {
    name: parameter.default for name, parameter in inspect.signature(Worker.__init__).parameters.items()
}
_WORKER_SETTINGS: Mapping[str, Any] = {
    # With the SDK's default, a run continues at the earliest 10 s after its worker died.
    "sticky_queue_schedule_to_start_timeout": STICKY_TIMEOUT,
    # With the SDK's default, cancellations and streamed text arrive late.
    "max_heartbeat_throttle_interval": HEARTBEAT_THROTTLE,
    # With the SDK's default, wide plans start more slowly.
    "max_concurrent_activity_task_polls": ACTIVITY_POLLERS,
    # With the SDK's default, workflow tasks time out together after a restart.
    "max_concurrent_workflow_tasks": WORKFLOW_SLOTS,
    # With the SDK's defaults of the next two settings, many concurrent runs all end late.
    "max_concurrent_workflow_task_polls": WORKFLOW_POLLERS,
    "nonsticky_to_sticky_poll_ratio": NEW_RUNS_SHARE,
}
"""Worker settings that get these values if they have the SDK's default."""
_ALTERNATIVE_SETTINGS = {
    "max_concurrent_activity_task_polls": "activity_task_poller_behavior",
    "max_concurrent_workflow_tasks": "tuner",
    "max_concurrent_workflow_task_polls": "workflow_task_poller_behavior",
    "nonsticky_to_sticky_poll_ratio": "workflow_task_poller_behavior",
}
"""Setting -> another setting that controls the same behavior."""


def _apply_settings(config: WorkerConfig, *, drain_limit_s: float | None) -> None:
    settings = cast("dict[str, Any]", config)
    values = {**_WORKER_SETTINGS, "graceful_shutdown_timeout": timedelta(seconds=grace_s(drain_limit_s))}
    for name, value in values.items():
        if all(settings.get(key, _SDK_DEFAULTS[key]) == _SDK_DEFAULTS[key] for key in _names_of(name)):
            settings[name] = value


def _names_of(setting: str) -> list[str]:
    alternative = _ALTERNATIVE_SETTINGS.get(setting)
    return [setting] if alternative is None else [setting, alternative]
