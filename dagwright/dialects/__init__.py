"""Translate plans of all formats, Dagwright's own included, to one type, `Document`.

Documents of the dialects `llmcompiler` and `rewoo` are texts, that is, JSON strings.

A dialect only translates. The rules for all plans (IDs, edges, references, cycles, tools, arguments) are checked in
one place, `dagwright.core.validation.validation`. This package imports `core` only.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from pydantic import JsonValue

from dagwright.core.errors import PlanInvalid, Problem
from dagwright.core.model.dialect import Dialect
from dagwright.core.model.document import Document
from dagwright.core.model.plan import NODE_FIELDS, PLAN_FIELDS
from dagwright.core.model.tools import ToolDeclaration
from dagwright.core.name_hints import suggestion
from dagwright.dialects import agents
from dagwright.dialects.agents import read_agents
from dagwright.dialects.hugginggpt import read_hugginggpt
from dagwright.dialects.intents import read_intents
from dagwright.dialects.json_reader import describe
from dagwright.dialects.llmcompiler import TASK_START, read_llmcompiler
from dagwright.dialects.native import read_native
from dagwright.dialects.nestful import read_nestful
from dagwright.dialects.rewoo import STEP_START, read_rewoo
from dagwright.dialects.steps import read_steps
from dagwright.dialects.subgoals import read_subgoals
from dagwright.dialects.taskbench import read_taskbench
from dagwright.dialects.tasks import read_tasks

_MAX_TRANSLATION_DEPTH = 50
"""Maximum nesting of translated sub-plans. It prevents a stack overflow; validation has a far smaller limit."""

_DIALECT_OF_KEY: Final[Mapping[str, str]] = {
    "dag": "tasks",
    "intents": "intents",
    "sub_goals": "subgoals",
    "task_nodes": "taskbench",
    "steps": "steps",
    "action": "subgoals",
}
_TASK_IN_TEXT: Final = re.compile(f"^{TASK_START.pattern}", re.MULTILINE)
_NATIVE_NODE_KEYS = NODE_FIELDS - agents.KEYS
_NATIVE_ROOT_KEYS = PLAN_FIELDS - agents.ROOT_KEYS


def to_document(
    raw: JsonValue,
    *,
    dialect: str | None = None,
    context: Mapping[str, JsonValue] | None = None,
    tools: Mapping[str, ToolDeclaration] | None = None,
) -> Document:
    """Translate a JSON value, including its sub-plans, to a document; only the shape is checked.

    Args:
        raw: any JSON value.
        dialect: a `Dialect`; `None` detects it from the shape.
        context: name in the session (`order` for `@order`) -> its value, which is an ID or `{"id", "name", "kind"}`.
        tools: name -> declaration; used to name positional arguments, and for hints.

    Raises:
        PlanInvalid: the value cannot be checked further: unknown shape, no list of nodes, or an empty list. Problems of
            single nodes are in the document's `problems`.

    Complexity: linear in the size of the value.
    """
    return _read(raw, dialect=dialect, context=context or {}, tools=tools or {}, depth=0)


def _read(
    raw: JsonValue,
    *,
    dialect: str | None,
    context: Mapping[str, JsonValue],
    tools: Mapping[str, ToolDeclaration],
    depth: int,
) -> Document:
    def read_sub_plan(value: JsonValue) -> Document:
        if depth >= _MAX_TRANSLATION_DEPTH:
            raise PlanInvalid([Problem("too_large", f"sub-plans are nested more than {depth} deep")])
        return _read(value, dialect=None, context=context, tools=tools, depth=depth + 1)

    readers: Mapping[str, Callable[[], Document]] = {
        "plan": lambda: read_native(raw, read_sub_plan=read_sub_plan),
        "tasks": lambda: read_tasks(raw),
        "steps": lambda: read_steps(raw),
        "agents": lambda: read_agents(raw),
        "intents": lambda: read_intents(raw, context=context, tools=tools),
        "subgoals": lambda: read_subgoals(raw),
        "hugginggpt": lambda: read_hugginggpt(raw),
        "taskbench": lambda: read_taskbench(raw, tools=tools),
        "nestful": lambda: read_nestful(raw),
        "llmcompiler": lambda: read_llmcompiler(raw, tools=tools),
        "rewoo": lambda: read_rewoo(raw, tools=tools),
    }
    name = dialect if dialect is not None else detect_dialect(raw)
    if name not in readers:
        raise PlanInvalid(
            [Problem("invalid_field", f"unknown dialect {name!r}; the dialects are {', '.join(Dialect)}")]
        )
    return readers[name]()


def detect_dialect(raw: JsonValue) -> str:
    """Return the name of the dialect that matches the shape of a JSON value.

    Raises:
        PlanInvalid: the shape is unknown.
    """
    if isinstance(raw, list):
        return _dialect_of_list(raw)
    if isinstance(raw, str) and (name_and_offset := text_dialect_and_offset(raw)) is not None:
        return name_and_offset[0]
    if not isinstance(raw, dict):
        raise _unknown_shape_error(f"{describe(raw)} is not a plan", hint=None)
    if not raw:
        raise PlanInvalid([Problem("empty_plan", "the document is an empty object")])
    if "plan" in raw:
        return "steps" if isinstance(raw["plan"], list) else "plan"
    for key, name in _DIALECT_OF_KEY.items():
        if key in raw:
            return name
    if "verb" in raw:
        raise _unwrapped_plan_error("this object is a single intent and not a plan", '{"intents": [{"verb": …}]}')
    if "nodes" in raw:
        return "agents" if _is_agents_plan(raw) else "plan"
    hints = [hint for key in raw if (hint := suggestion(key, ["plan", "nodes", *_DIALECT_OF_KEY]))]
    raise _unknown_shape_error("this object is not a plan", hint=hints[0] if hints else None)


def text_dialect_and_offset(text: str) -> tuple[str, int] | None:
    """Return the dialect of a text and the offset of its first step; `None` if the text has no step."""
    first_steps = {"llmcompiler": _TASK_IN_TEXT.search(text), "rewoo": STEP_START.search(text)}
    offsets = [(match.start(), name) for name, match in first_steps.items() if match is not None]
    if not offsets:
        return None
    offset, name = min(offsets)
    return name, offset


def _dialect_of_list(raw: list[JsonValue]) -> str:
    objects = [item for item in raw if isinstance(item, dict)]
    if any("tool" in item or "intent" in item for item in objects):
        return "steps"
    if any("task" in item for item in objects):
        return "hugginggpt"
    if objects and all("verb" in item for item in objects):
        raise _unwrapped_plan_error("this is a list of intents and not a plan", '{"intents": […]}')
    return "nestful" if any("name" in item for item in objects) else "steps"


def _is_agents_plan(raw: Mapping[str, JsonValue]) -> bool:
    nodes = raw["nodes"]
    if not isinstance(nodes, list) or raw.keys() & _NATIVE_ROOT_KEYS:
        return False
    objects = [node for node in nodes if isinstance(node, dict)]
    if any(node.keys() & _NATIVE_NODE_KEYS or isinstance(node.get("agent"), dict) for node in objects):
        return False
    return any("agent" in node for node in objects)


def _unwrapped_plan_error(message: str, form: str) -> PlanInvalid:
    return PlanInvalid([Problem("invalid_field", message, hint=f"wrap it: {form}")])


def _unknown_shape_error(message: str, *, hint: str | None) -> PlanInvalid:
    shapes = "; ".join(f"{dialect.shape} ({dialect})" for dialect in Dialect)
    return PlanInvalid([Problem("invalid_field", f"{message}; a plan looks like one of: {shapes}", "", None, hint)])
