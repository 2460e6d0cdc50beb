"""The dialects: the formats in which a plan can be written."""

from typing import Final, Self

from dagwright.core.described_enum import DescribedEnum


class Dialect(DescribedEnum):
    """Name of a dialect, as in `--dialect` and in the `check` document.

    Each member has three texts in Markdown: `shape`, the form of a document; `call`, the part of a step that names
    its tool; and `node_ids`, the ids of the nodes. Error messages show the shape; the reference shows all
    texts.
    """

    shape: str
    call: str
    node_ids: str

    def __new__(cls, name: str, shape: str, call: str, node_ids: str) -> Self:
        return cls.create_member(name, shape=shape, call=call, node_ids=node_ids)

    PLAN = (
        "plan",
        '`{"plan": 1, "nodes": [{"id", "tool", …}]}`',
        "`tool`, `agent`, `human` or `plan`",
        "as written",
    )
    TASKS = (
        "tasks",
        '`{"dag": [{"id", "tool", "query", "dependencies"}]}`',
        "`tool`, with `query` as its argument",
        "as written",
    )
    STEPS = (
        "steps",
        '`[{"id", "intent", "tool", "arguments", "depends_on"}]`',
        "`tool`, with `arguments`",
        "as written",
    )
    AGENTS = ("agents", '`{"nodes": [{"id", "agent", "objective", "depends_on"}]}`', "`agent`", "as written")
    INTENTS = (
        "intents",
        '`{"intents": [{"verb", "params", "refs", "lookups"}]}`',
        "`verb`, as a tool",
        "`@result_1`, `@result_2`, …",
    )
    SUBGOALS = (
        "subgoals",
        '`{"sub_goals": [{"id", "worker", "inputs", "params", "outputs"}]}`',
        "`worker`, as a tool",
        "`sg1`, `sg2`, …",
    )
    HUGGINGGPT = ("hugginggpt", '`[{"task", "id", "dep", "args"}]`', "`task`, as a tool", "as written")
    TASKBENCH = (
        "taskbench",
        '`{"task_nodes": [{"task", "arguments"}], "task_steps", "task_links"}`',
        "`task`, as a tool",
        "`node-0`, `node-1`, …",
    )
    NESTFUL = ("nestful", '`[{"name", "arguments", "label"}]`', "`name`, as a tool", "the labels")
    LLMCOMPILER = ("llmcompiler", 'a text with lines `1. tool("text")`', "the call", "the number that starts each line")
    REWOO = ("rewoo", "a text with lines `#E1 = Tool[input]`", "`Tool`", "`E1`, `E2`, …")


TEXT_DIALECTS: Final = (Dialect.LLMCOMPILER, Dialect.REWOO)
"""Dialects whose documents are plain text, not JSON or YAML."""
