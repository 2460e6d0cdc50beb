"""Start requests of runs, and their encoding: memo, workflow type, task queue and input."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from uuid import uuid4

from dagwright.client.errors import RunIdInvalid
from dagwright.core.boundary import wire
from dagwright.core.boundary.limits import MAX_RUN_ID_BYTES, summary_of
from dagwright.core.model.compiled import CompiledPlan
from dagwright.core.model.policy import Policy, default_policy
from dagwright.planning.extender_specs import workflow_type_of
from dagwright.planning.plan_and_execute.goal_spec import Profile
from dagwright.plans.pages import split_for_transfer
from dagwright.protocol.fairness import Fairness, fairness_of_owner
from dagwright.protocol.run_input import RunInput, run_input_to_json
from dagwright.store import PayloadStore
from dagwright.tools.queue_names import queue_of_plan

_DIGEST_CHARACTERS = 32
"""Number of hex digits (128 bits) of the fingerprint of plan, inputs and model in the memo of each run."""

NO_INPUT_FIELDS = RunInput()
"""Run input without optional fields."""


@dataclass(frozen=True, slots=True)
class RunStartOptions:
    """Options of a run.

    Args:
        deadline_s: time limit of the whole run, in seconds.
        policy: which calls require approval; the default depends on the author of the plan: a person or a model.
        needs_approval: whether a person must approve the plan before its first tool call, such as a plan that a model
            wrote.
        approved_by: person who has approved the plan already.
        owner: owner of the API key that starts the run.
        fairness: fairness group of the run; `None` for the group of the owner's runs.
        input_fields: the other fields of the run input, such as the results that a fork reuses.
        tags: key -> value, as `protocol.run_labels.validate_run_tags` returns them; lists filter by them.
    """

    deadline_s: float | None = None
    policy: Policy | None = None
    needs_approval: bool = False
    approved_by: str | None = None
    owner: str | None = None
    input_fields: RunInput = NO_INPUT_FIELDS
    tags: Mapping[str, str] = field(default_factory=dict)
    fairness: Fairness | None = None


DEFAULT_OPTIONS = RunStartOptions()


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A request to start a run.

    Args:
        source: JSON of the plan as it was written, with its dialect and context. A run with the same ID must have the
            same source. If the source is `None`, the compiled plans are compared; compiled plans also differ if their
            tools differ.
        run_id: ID of the run; `None` generates an ID.
        title: title in lists if the plan has no title, such as the name of its file.
        template: name under which the plan is published, if the run was started by that name.
        tools: values of `--tools` and `--agents`, stored in the memo of the run.
    """

    plan: CompiledPlan
    source: Any = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    options: RunStartOptions = DEFAULT_OPTIONS
    run_id: str | None = None
    title: str | None = None
    template: str | None = None
    tools: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class EncodedStart:
    """A start request in the format of the server.

    Args:
        workflow: workflow type.
        content: workflow input.
        source, inputs, model: identify the run; an existing run with the same ID must have the same values.
        task_queue: queue of the plan's tools, if the workers of that queue also serve the run; `None` for the default
            queue.
        fairness: fairness group of the run.
    """

    workflow: str
    content: dict[str, Any]
    memo: dict[str, Any]
    title: str | None
    source: Any
    inputs: Mapping[str, Any]
    model: Mapping[str, Any] | None
    task_queue: str | None = None
    fairness: Fairness | None = None

    @property
    def digest(self) -> str:
        """Fingerprint of plan, inputs and model."""
        return str(self.memo[wire.MEMO_DIGEST])


async def encode_start(request: StartRequest, store: PayloadStore, *, has_webhook: bool) -> EncodedStart:
    """Encode a start request. A large plan goes to the payload store.

    Args:
        has_webhook: whether the run sends webhook notifications.

    Raises:
        StoreUnavailable: the plan cannot be stored now.
    """
    plan, options = request.plan, request.options
    transfer = await split_for_transfer(plan, store)
    is_model_written = plan.extender is None and (options.needs_approval or options.approved_by is not None)
    run_input = replace(
        options.input_fields,
        compiled=transfer.plan,
        pages=transfer.pages,
        inputs=request.inputs,
        deadline_s=options.deadline_s,
        notifies=has_webhook,
        policy=options.policy or (default_policy("model") if is_model_written else None),
        needs_approval=options.needs_approval,
        approved_by=options.approved_by,
    )
    content = run_input_to_json(run_input, compiled=transfer.encoded)
    source, title = request.source or content["compiled"], summary_of(plan.title or request.title or "") or None
    memo = {
        wire.MEMO_DIGEST: digest_of(source, request.inputs, run_input.model),
        wire.MEMO_NODES: plan.visible_count,
        **({wire.MEMO_TOOLS: list(request.tools)} if request.tools else {}),
        **({wire.MEMO_TITLE: title} if title is not None else {}),
        **({wire.MEMO_OWNER: options.owner} if options.owner is not None else {}),
        **({wire.MEMO_TAGS: dict(options.tags)} if options.tags else {}),
        **({wire.MEMO_TEMPLATE: request.template} if request.template else {}),
    }
    workflow, queue = workflow_type_of(plan), queue_of_plan(plan)
    fairness = options.fairness or fairness_of_owner(options.owner)
    return EncodedStart(workflow, content, memo, title, source, request.inputs, run_input.model, queue, fairness)


def digest_of(source: Any, inputs: Mapping[str, Any], model: Mapping[str, Any] | None) -> str:
    """Return the fingerprint of plan, inputs and model; other options of the run are not part of it."""
    content = {"source": source, "inputs": dict(inputs), **({"model": dict(model)} if model else {})}
    # With ASCII escapes, every text can be encoded, including lone surrogates.
    canonical_json = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical_json.encode()).hexdigest()[:_DIGEST_CHARACTERS]


def new_run_id() -> str:
    """Generate the ID of a run."""
    return f"run-{uuid4().hex[:12]}"


def checked_run_id(run_id: str) -> str:
    """Return a run ID unchanged if it is valid.

    Raises:
        RunIdInvalid: the ID is invalid.
    """
    if not run_id.strip() or len(run_id.encode(errors="replace")) > MAX_RUN_ID_BYTES:
        raise RunIdInvalid(f"a run ID must have 1 to {MAX_RUN_ID_BYTES} bytes of UTF-8, not {run_id!r:.60}")
    if any("\ud800" <= character <= "\udfff" or character < " " for character in run_id):
        raise RunIdInvalid(f"the run ID {run_id!r} has control characters or surrogates, which are not allowed")
    if run_id.startswith(wire.ID_SESSION):
        message = f"the run ID {run_id!r} starts with {wire.ID_SESSION!r}, which is reserved for sessions"
        raise RunIdInvalid(f"{message}: choose another ID, or start a turn with the option `session`")
    return run_id


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A new run, or an existing run with the same ID, plan, inputs and model."""

    run_id: str
    execution_id: str
    is_new: bool


AnyProfile = Profile | Literal["rounds"]
