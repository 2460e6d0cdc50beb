"""Names of the task queues that serve the tools of `--tools` and `--agents`.

The name of a queue must not depend on the content of the file: runs in flight call tools on the queue that their plan
was compiled with, and a new version of the file must serve them (docs/decisions/0064).
"""

import base64
import hashlib
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from dagwright.core.boundary import wire
from dagwright.core.model.compiled import CompiledPlan
from dagwright.tools.tool_references import (
    SERVERS_SUFFIX,
    absolute_path,
    agents_file_of_reference,
    is_path,
    last_tools_queue_of,
    options_of_references,
    tools_queue_of_reference,
)

_UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9_.-]")
_STEM_CHARACTERS = 60
_DIGEST_CHARACTERS = 6
"""Base32 characters of the digest of a path: 30 bits. The digest is short, because each call in the history names its
queue."""
_PATH_DIGEST = re.compile(rf"-[a-z2-7]{{{_DIGEST_CHARACTERS}}}$")
"""End of the queue name of a file. The queue name of a module ends with the module name instead."""
FILE_PLACEHOLDER = "FILE"
"""Placeholder for an unknown file in the options of `dagwright worker`."""


def queue_name(reference: str, *, task_queue: str) -> str:
    """Return the queue of the tools of a module or file.

    Args:
        reference: value of `--tools`, or the reference of a file of `--agents`.
        task_queue: queue of the workflows of the same workers.
    """
    return f"{task_queue}:{_queue_suffix(reference)}"


def base_queue_of(queue: str, reference: str) -> str | None:
    """Invert `queue_name`: return a queue without the suffix of the reference.

    Returns:
        The queue of the workflows, or `None` if `queue` is not a queue of the tools of this reference.
    """
    suffix = f":{_queue_suffix(reference)}"
    return queue.removesuffix(suffix) if queue.endswith(suffix) and queue != suffix else None


def worker_options(queue: str, references: Sequence[str], *, is_run_queue: bool) -> list[str]:
    """Return the options with which `dagwright worker` serves a queue.

    Args:
        references: tools and agents of the run that waits for a worker, as in the memo of the run.
        is_run_queue: whether the workflow of the run uses the queue. A worker without tools may serve such a queue.
    """
    options = options_of_references(references)
    if last_tools_queue_of(references) == queue:
        return options
    base_queues = filter(None, (base_queue_of(queue, reference) for reference in references))
    base_queue = next(base_queues, queue if is_run_queue and not is_tool_queue(queue) else None)
    if base_queue is None and (reference := _reference_of(queue)) is not None:
        return worker_options(queue, [reference], is_run_queue=False)
    if base_queue is None:
        return [*_tools_options(queue, references), "--tools-queue", queue]
    return [*options, *([] if base_queue == wire.DEFAULT_TASK_QUEUE else ["--task-queue", base_queue])]


def is_tool_queue(queue: str) -> bool:
    """Return whether a queue serves the tools of a module or file, as named by `queue_name`."""
    return ":" in queue


def _reference_of(queue: str) -> str | None:
    """Return the module of a queue, or its file if the file is in the current folder."""
    suffix = queue.rpartition(":")[2]
    stem = _PATH_DIGEST.sub("", suffix)
    files = [str(absolute_path(f"{stem}{ending}")) for ending in (".py", SERVERS_SUFFIX)]
    candidates = [suffix] if stem == suffix else files
    return next((candidate for candidate in candidates if base_queue_of(queue, candidate) is not None), None)


def _tools_options(queue: str, references: Sequence[str]) -> list[str]:
    """Return the options that load the tools of a queue that is not named after a reference."""
    tool_references = [reference for reference in references if tools_queue_of_reference(reference) is None]
    return options_of_references([] if is_tool_queue(queue) else tool_references) or ["--tools", FILE_PLACEHOLDER]


def is_queue_served_by(queue: str, references: Sequence[str]) -> bool:
    """Return whether a worker with these references serves a tool queue without additional options."""
    return last_tools_queue_of(references) == queue or any(base_queue_of(queue, reference) for reference in references)


def queue_of_plan(plan: CompiledPlan) -> str | None:
    """Return the queue for the run of a plan: the queue that most of its calls use; `None` for the default queue.

    The worker that serves the tools serves the workflow too, so Temporal can hand out the activities eagerly. Tools of
    other files are called on the queues of these files. Queues of declared activities do not count, because they serve
    no workflows.
    """
    counts: Counter[str] = Counter()
    _count_calls(plan, counts)
    # A run whose calls are all chosen by a model, such as an agent, starts with a plan without calls of tools.
    if not counts:
        _count_offered_tools(plan, counts)
    return counts.most_common(1)[0][0] if counts else None


def _count_calls(plan: CompiledPlan, counts: Counter[str]) -> None:
    """Count the nodes that call tools, by queue."""
    queues = {name: tool.task_queue for name, tool in plan.tools.items() if not tool.is_foreign}
    counts.update(queue for node in plan.nodes if (queue := queues.get(node.tool)) is not None)
    for node in plan.nodes:
        if node.sub_plan is not None:
            _count_calls(node.sub_plan, counts)


def _count_offered_tools(plan: CompiledPlan, counts: Counter[str]) -> None:
    """Count the tools that the model of an agent or planner may call, by queue."""
    counts.update(tool.task_queue for tool in plan.tools.values() if tool.task_queue and not tool.is_foreign)
    offered_tools = (plan.extender or {}).get("tools")
    for tool in offered_tools if isinstance(offered_tools, list) else ():
        if isinstance(tool, Mapping) and isinstance(tool.get("task_queue"), str) and not tool.get("is_foreign"):
            counts[tool["task_queue"]] += 1
    for node in plan.nodes:
        if node.sub_plan is not None:
            _count_offered_tools(node.sub_plan, counts)


def _queue_suffix(reference: str) -> str:
    file = agents_file_of_reference(reference) or (reference if is_path(reference) else None)
    if file is None:
        return _UNSAFE_CHARACTERS.sub("_", reference)
    path = absolute_path(file)
    digest = base64.b32encode(hashlib.sha256(os.fsencode(path)).digest()).decode().lower()
    return f"{_UNSAFE_CHARACTERS.sub('_', path.stem)[:_STEM_CHARACTERS]}-{digest[:_DIGEST_CHARACTERS]}"
