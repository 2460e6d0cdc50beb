"""Capacity of a worker: its role, and the number of concurrent tasks and of cached runs."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.worker import (
    FixedSizeSlotSupplier,
    ResourceBasedSlotConfig,
    ResourceBasedSlotSupplier,
    ResourceBasedTunerConfig,
    WorkerTuner,
)

from dagwright.settings import (
    ACTIVITY_POLLERS,
    ACTIVITY_SLOTS,
    CACHED_RUNS,
    NEW_RUNS_SHARE,
    WORKFLOW_POLLERS,
    WORKFLOW_SLOTS,
    Settings,
    WorkerRole,
)

_MIN_SLOTS = 4
"""Minimum number of slots for calls. Without a minimum, a worker starts no call while other processes use the CPU."""
_SLOT_INTERVAL = timedelta(milliseconds=20)
"""Delay before each slot over `_MIN_SLOTS`. With the SDK's default of 50 ms, a fan-out of 100 calls is four times
slower (docs/contributing/internals/temporal.md)."""


@dataclass(frozen=True, slots=True)
class WorkerCapacity:
    """Role of a worker, and its slots on each of its queues.

    Args:
        role: `workflows` executes runs, `tools` calls tools and models, `all` does both.
        workflow_slots: maximum number of concurrent workflow tasks.
        activity_slots: maximum number of concurrent calls.
        cached_runs: maximum number of runs in memory; other runs are replayed when they continue.
        pollers: maximum number of concurrent polls for calls.
        target_cpu, target_memory: shares of the machine's CPU and memory, 0 to 1, up to which the worker accepts more
            calls. Without a target, the worker accepts calls up to `activity_slots`.
    """

    role: WorkerRole = "all"
    workflow_slots: int = WORKFLOW_SLOTS
    activity_slots: int = ACTIVITY_SLOTS
    cached_runs: int = CACHED_RUNS
    pollers: int = ACTIVITY_POLLERS
    target_cpu: float | None = None
    target_memory: float | None = None

    @property
    def serves_workflows(self) -> bool:
        """Whether the worker executes runs."""
        return self.role != "tools"

    @property
    def serves_tools(self) -> bool:
        """Whether the worker calls tools."""
        return self.role != "workflows"

    def worker_options(self) -> dict[str, Any]:
        """Return the options of `temporalio.worker.Worker` for one queue."""
        options: dict[str, Any] = {
            "max_cached_workflows": self.cached_runs,
            "max_concurrent_workflow_task_polls": WORKFLOW_POLLERS,
            "nonsticky_to_sticky_poll_ratio": NEW_RUNS_SHARE,
        }
        if self.serves_tools:
            options["max_concurrent_activity_task_polls"] = self.pollers
        if self.target_cpu is None and self.target_memory is None:
            slots = {
                "max_concurrent_workflow_tasks": self.workflow_slots,
                "max_concurrent_activities": self.activity_slots,
            }
            return {**options, **slots}
        return {**options, "tuner": self._tuner()}

    def _tuner(self) -> WorkerTuner:
        # A target of 1 never limits.
        target = ResourceBasedTunerConfig(self.target_memory or 1.0, self.target_cpu or 1.0)
        slots = ResourceBasedSlotConfig(
            minimum_slots=min(_MIN_SLOTS, self.activity_slots),
            maximum_slots=self.activity_slots,
            ramp_throttle=_SLOT_INTERVAL,
        )
        return WorkerTuner.create_composite(
            workflow_supplier=FixedSizeSlotSupplier(self.workflow_slots),
            activity_supplier=ResourceBasedSlotSupplier(slots, target),
            local_activity_supplier=FixedSizeSlotSupplier(self.activity_slots),
            nexus_supplier=FixedSizeSlotSupplier(1),
        )


DEFAULT_CAPACITY = WorkerCapacity()
"""Capacity of a process that serves everything with the default slots."""


def capacity_of(settings: Settings) -> WorkerCapacity:
    """Return the capacity in the settings of a process."""
    return WorkerCapacity(
        role=settings.serve,
        workflow_slots=settings.workflow_slots,
        activity_slots=settings.activity_slots,
        cached_runs=settings.cached_runs,
        pollers=settings.activity_pollers,
        target_cpu=settings.target_cpu,
        target_memory=settings.target_memory,
    )
