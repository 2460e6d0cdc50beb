"""Error codes: `ProblemCode` for invalid plans, and `FailureCode` for failed nodes and runs.

Each code has a meaning and a remedy. The reference documentation is generated from these tables, and a test compares
the tables with the codes in the source. The codes of failed model calls are in
`planning.model_calls.model_failure.ModelError`.
"""

from typing import Self

from dagwright.core.described_enum import DescribedEnum


class DescribedCode(DescribedEnum):
    """Enumeration of codes. Each member has a `meaning` and a `remedy` in Markdown."""

    meaning: str
    remedy: str

    def __new__(cls, code: str, meaning: str, remedy: str) -> Self:
        return cls.create_member(code, meaning=meaning, remedy=remedy)


class ProblemCode(DescribedCode):
    """Code of a problem in a plan. The check of the plan finds such a problem before any node runs."""

    ACCEPTED_NODE_CHANGED = (
        "accepted_node_changed",
        "A new version of the plan changes a node that has started.",
        "Keep the node as it was.",
    )
    AMBIGUOUS = ("ambiguous", "A text can be read in several ways.", "Write it in the way that you mean.")
    TRUNCATED = (
        "truncated",
        "The answer of a model is cut off before the end of the plan.",
        "Ask again; `check --repair` shows the steps before the cut.",
    )
    CYCLE = (
        "cycle",
        "Nodes depend on each other, or plan files include each other.",
        "Remove one of the dependencies that the message lists.",
    )
    DUPLICATE_ID = ("duplicate_id", "Two nodes or slots have the same ID.", "Rename one of them.")
    EMPTY_PLAN = ("empty_plan", "The plan has no nodes.", "Add a node.")
    INVALID_ARGUMENTS = (
        "invalid_arguments",
        "Arguments do not match the schema of the tool.",
        "Correct the argument at the pointer.",
    )
    INVALID_FIELD = (
        "invalid_field",
        "A field is unknown, or has an invalid value.",
        "Use the fields of [the plan](plan.md); the hint has the nearest name.",
    )
    INVALID_INPUTS = ("invalid_inputs", "The inputs are not an object.", "Give an object of inputs by name.")
    INVALID_REFERENCE = (
        "invalid_reference",
        "A reference names a node, slot, input or field that does not exist.",
        "Correct the name.",
    )
    INVALID_SYNTAX = (
        "invalid_syntax",
        "The text is not valid JSON or YAML, or a reference is not complete.",
        "Correct the text at the line that the message names; `--repair` accepts plans as models write them.",
    )
    MISSING_CONTEXT = (
        "missing_context",
        "A name such as `@order` has no value in the session.",
        "Give it with `--context`.",
    )
    MISSING_INPUT = ("missing_input", "An input has no value.", "Give it with `--input`, or let the run ask for it.")
    NO_DELIVERABLE = (
        "no_deliverable",
        "The answer uses no slot of a deliverable sub-goal.",
        "Name a slot of a deliverable sub-goal.",
    )
    NOT_SUPPORTED = ("not_supported", "The feature does not exist yet.", "Omit the field.")
    PRECONDITION_MISSING = (
        "precondition_missing",
        "A required slot of a worker tool is not filled.",
        "Fill the slot with a reference to a slot of another sub-goal.",
    )
    NOT_ALLOWED = (
        "not_allowed",
        "The policy does not allow an inline agent of the plan.",
        "Use the name of an existing agent, or change the policy.",
    )
    REPEATED = (
        "repeated",
        "A sub-goal that failed is repeated without a change.",
        "Change the parameters of the sub-goal.",
    )
    RESERVED_ID = ("reserved_id", "The ID is reserved for another use.", "Rename the node.")
    SELF_DEPENDENCY = ("self_dependency", "A node depends on itself.", "Remove the dependency.")
    TOO_LARGE = ("too_large", "A value is over a limit.", "See [limits](limits.md).")
    TOO_MANY_PROBLEMS = (
        "too_many_problems",
        "There are more problems than the check reports.",
        "Correct these, and check again.",
    )
    UNKNOWN_AGENT = ("unknown_agent", "No agent has this name.", "Load its file with `--agents`.")
    UNKNOWN_ARGUMENT = ("unknown_argument", "A tool has no argument of this name.", "Use a name from the hint.")
    UNKNOWN_DEPENDENCY = ("unknown_dependency", "`depends_on` names a node that does not exist.", "Correct the name.")
    UNKNOWN_TOOL = ("unknown_tool", "No tool has this name.", "Correct the name, or load its file with `--tools`.")
    UNREADABLE = ("unreadable", "A file cannot be read.", "Check the path and the size of the file.")


class FailureCode(DescribedCode):
    """Code of the error of a node or a run."""

    AGENT_STOPPED = ("agent_stopped", "An agent was stopped before it had an answer.", "Retry the node.")
    AGENT_UNFINISHED = (
        "agent_unfinished",
        "An agent reached its limits without an answer.",
        "Raise its limits, or make the objective smaller.",
    )
    ASK_PERSON = (
        "ask_person",
        "A call asks a person where this is not possible.",
        "Ask in a node of the plan; `pure` tools cannot ask.",
    )
    ANSWERS_TOO_LARGE = (
        "answers_too_large",
        "The answers of people to the requests of one call are over the size limit.",
        "Ask in nodes of the plan.",
    )
    TOO_MANY_HUMAN_REQUESTS = (
        "too_many_human_requests",
        "A call makes too many requests to people.",
        "Ask in nodes of the plan.",
    )
    BUDGET_SPENT = (
        "budget_spent",
        "The [budget](../guides/budgets.md) was used up before a round was planned.",
        "Raise the budget.",
    )
    INTERNAL_ERROR = ("InternalError", "A defect of Dagwright.", "Report it with the log of the worker.")
    COMPENSATED = ("compensated", "The parent run compensates this run.", "See the error of the parent run.")
    DEADLINE_EXCEEDED = (
        "deadline_exceeded",
        "The deadline of the run or of a request has passed.",
        "Set a longer deadline, and start the run again.",
    )
    DEPENDENCY_FAILED = (
        "dependency_failed",
        "A dependency of the node has failed or was cancelled.",
        "Correct the dependency.",
    )
    DUPLICATE_KEY = ("duplicate_key", "Two items of a `for_each` have the same key.", "Choose another `key`.")
    FAIL_FAST = ("fail_fast", "Another node failed in a plan with `on_failure: fail_fast`.", "Correct the failed node.")
    FAILED = ("failed", "A run ended without a result document.", "See the execution in the Temporal UI.")
    INVALID = (
        "invalid",
        "A value that is only known during the run is invalid.",
        "Correct the node that made the value.",
    )
    INVALID_ARGUMENTS = (
        "invalid_arguments",
        "Resolved arguments do not match the schema of the tool.",
        "Correct the reference or the tool that made the value.",
    )
    INVALID_CONDITION = ("invalid_condition", "The `when` of the node cannot be evaluated.", "Correct the condition.")
    INVALID_FIELD = (
        "invalid_field",
        "A resolved field of the node has an invalid value.",
        "Correct the node that made the value.",
    )
    INVALID_FOR_EACH = ("invalid_for_each", "The `for_each` is not a list.", "Refer to a list.")
    INVALID_KEY = ("invalid_key", "The `key` of an item is empty, too long or not a text.", "Choose another `key`.")
    INVALID_HUMAN_REQUEST = (
        "invalid_human_request",
        "A request to a person is invalid.",
        "Correct the node or tool that makes the request.",
    )
    INVALID_RESULT = ("invalid_result", "A result does not match its schema, or is not JSON.", "Correct the tool.")
    LOOKUP_FAILED = (
        "lookup_failed",
        "A lookup found no entity; an application may define other codes for its lookups.",
        "Correct the name. If the lookup asks a person, answer the request.",
    )
    LOW_CONFIDENCE = (
        "low_confidence",
        "The model is less confident than `--confidence` requires, and no person may be asked.",
        "State the request more precisely.",
    )
    MAX_ROUNDS = ("max_rounds", "All rounds are used, and the planner has not finished.", "Raise `--max-rounds`.")
    MISSING_DATA = ("missing_data", "A reference leads to a missing value.", "Correct the reference.")
    MISSING_SECRET = (
        "missing_secret",
        "The worker has no value for a secret.",
        "Set the variable of the [secret](../guides/secrets.md).",
    )
    NEEDS_OWN_ACTIVITY = (
        "needs_own_activity",
        "A `pure` node of a very large plan needs a model.",
        "Give the node a `heartbeat`, so that it runs as a separate activity.",
    )
    NO_ANSWER = (
        "no_answer",
        "The request was not answered before its deadline.",
        "Set `on_timeout`, or retry the node.",
    )
    NO_PLAN = ("no_plan", "The model wrote no plan.", "Ask again, or with another model.")
    NODE_FAILED = ("node_failed", "A node failed, so the run failed.", "Correct the node that `node_id` names.")
    NOT_COMPENSATED = (
        "not_compensated",
        "Calls remain that could not be undone.",
        "See `not_compensated` of the document.",
    )
    NOT_COMPLETED = (
        "not_completed",
        "A plan did not complete, because a node failed, was cancelled or was blocked.",
        "Correct the node that the message names.",
    )
    NOT_STARTED = (
        "not_started",
        "The tool was not called, or it failed before it changed anything.",
        "Retry the node.",
    )
    NOTHING_COMPLETED = (
        "nothing_completed",
        "No final node of the plan has completed.",
        "See the states of the nodes.",
    )
    OUTCOME_UNKNOWN = (
        "outcome_unknown",
        "The worker died or the timeout passed during a `write` call, so its effect is unknown.",
        "Check the effect, then `retry` or `set-result`.",
    )
    PLAN_INVALID = ("plan_invalid", "No plan that the model wrote can be run.", "Ask again, or with another model.")
    PLAN_LOST = (
        "plan_lost",
        "A part of a large plan is no longer in the payload store.",
        "[Restore it](../deploy/store-outages.md#after-a-loss), then start the run again.",
    )
    PLANNER_FAILED = (
        "planner_failed",
        "The planner gave up; the message has its reason.",
        "Ask with more information.",
    )
    PLANNER_INVALID = ("planner_invalid", "The planner gave no valid answer.", "Ask again, or with another model.")
    PLANNER_REPEATS = (
        "planner_repeats",
        "The planner repeats finished sub-goals.",
        "Ask again, or with another model.",
    )
    PLANNER_STOPPED = ("planner_stopped", "The planner was stopped or skipped.", "Ask again.")
    PRECONDITION_MISSING = (
        "precondition_missing",
        "A required slot of a worker tool is null.",
        "Correct the node that fills the slot.",
    )
    NOT_ALLOWED = (
        "not_allowed",
        "The policy does not allow the call, or an answer is not allowed.",
        "Change the policy.",
    )
    REGION_FAILED = (
        "region_failed",
        "A group of `pure` nodes made no progress.",
        "Retry the node; report it if it fails again.",
    )
    REGION_LOST = (
        "region_lost",
        "The data of a region of `pure` nodes is no longer in the payload store.",
        "[Restore it](../deploy/store-outages.md#after-a-loss), or `fork` the run.",
    )
    REJECTED = ("rejected", "A person rejected the call or the plan.", "Change the plan.")
    SECRET_NOT_ALLOWED = (
        "secret_not_allowed",
        "A secret is not bound to the tool or host.",
        "[Bind it](../guides/secrets.md#bind-a-secret).",
    )
    STATE_LOST = (
        "state_lost",
        "The state of a long run is no longer in the payload store.",
        "[Restore it](../deploy/store-outages.md#after-a-loss), then `fork` the run.",
    )
    STORE_REJECTED = (
        "store_rejected",
        "The payload store rejects the state or the results of a run.",
        "Correct the [store](../deploy/storage.md), then `fork` the run.",
    )
    STORE_UNAVAILABLE = (
        "store_unavailable",
        "The payload store does not respond.",
        "Repair the [store](../deploy/store-outages.md), then retry the node.",
    )
    SUB_PLAN_FAILED = ("sub_plan_failed", "The run of a sub-plan failed.", "Correct the node of the sub-plan.")
    TERMINATED = ("terminated", "The execution was terminated.", "Start the run again with `fork`.")
    TIMED_OUT = (
        "timed_out",
        "The run exceeded the execution timeout of its Temporal workflow.",
        "Start the run again with `fork`.",
    )
    TIMEOUT = ("timeout", "An attempt of a node took longer than the `timeout` of the node.", "Raise the `timeout`.")
    TOO_LARGE = ("too_large", "A value is over a limit.", "See [limits](limits.md).")
    TOOL_CHANGED = (
        "tool_changed",
        "The plan was checked with another version of a tool or agent.",
        "Check the plan again, then `fork` the run.",
    )
    TOOL_FAILED = (
        "tool_failed",
        "The tool raised an error.",
        "Correct the tool or its arguments; the type of the [exception](../guides/tools.md#failing) decides whether "
        "the call is retried.",
    )
    VALUE_LOST = (
        "value_lost",
        "A value is no longer in the payload store.",
        "[Restore it](../deploy/store-outages.md#after-a-loss), or `fork` the run.",
    )
    WORKER_FAILED = ("worker_failed", "A worker tool reported a failure.", "Correct the tool.")
    WORKER_STOPPED = (
        "worker_stopped",
        "The worker stopped while the tool ran.",
        "Check the effect of a `write` call, then retry the node.",
    )
