"""Agent spec in its JSON form, and the initial plan of an agent run with its first turn.

An agent is a sub-plan that is extended while it runs: each turn and each tool call is a node. The first turn contains
the prompt and the context; the spec contains everything that later turns need.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from dagwright.core.expressions.references import Placeholder, ResultOf
from dagwright.core.model.agents import FeedbackPolicy
from dagwright.core.model.compiled import Binding, CompiledNode, CompiledPlan, tool_from_json, tool_to_json
from dagwright.core.model.policy import POLICY, model_policy
from dagwright.core.model.tools import AGENT_KIND, ENCODED_FIELDS, ToolDeclaration
from dagwright.planning.model_calls.model_requests import (
    CALL_MODEL,
    CallLabels,
    Message,
    ModelCall,
    ModelRequest,
    OfferedTool,
    OutputSchema,
    model_node,
    system,
    user,
)

FEEDBACK_POLICIES: Sequence[FeedbackPolicy] = get_args(FeedbackPolicy)

DEFAULT_MAX_TURNS = 12
"""Default limit for the model calls of one agent."""
TURNS_LIMIT = 200
"""Largest number of model calls that a card may set."""
CONTEXT_RESULTS_CHARACTERS = 60_000
"""Limit for all results of nodes in the context of an agent; each result gets an equal part."""
TURN_RESULTS_CHARACTERS = 60_000
"""Limit for all tool results of one turn; each result gets an equal part."""
MIN_RESULT_CHARACTERS = 2_000
"""Each result may have at least this many characters, even if all results together then exceed their limit."""
MAX_TOOL_CALLS = 64
"""Maximum number of tool calls per turn; the model is informed about the calls that were not made."""
OBJECTIVE = "objective"
"""Input of an agent's plan: the task of the agent."""
_ASK_PERSON = "ask_person"
_TURN = re.compile(r"turn[0-9]+(#[0-9]+)?")
REQUEST_TYPES = ("CLARIFICATION", "APPROVAL", "SELECTION", "INFORMATION", "GUIDANCE")
"""Types of the requests that an agent may make to people."""
_LEGACY_REQUEST_TYPES = ("CLARIFICATION", "APPROVAL", "SELECTION", "GUIDANCE")
"""Default for specs without `request_types`: runs that started before the field existed must still replay."""


def ask_person_tool(types: Sequence[str]) -> OfferedTool:
    """Return the tool with which an agent asks people. A call of the tool is a request to a person, not an activity.

    Args:
        types: types of the requests that the agent may make.
    """
    properties: dict[str, Any] = {
        "prompt": {"type": "string", "description": "The question, understandable by itself"},
        "type": {
            "type": "string",
            "enum": [*types],
            "description": "SELECTION needs options; APPROVAL is answered with yes or no",
        },
        "options": {"type": "array", "items": {"type": "string"}, "description": "Only for SELECTION"},
    }
    if "INFORMATION" in types:
        properties["type"]["description"] += "; INFORMATION is answered with JSON"
        properties["schema"] = {
            "type": "object",
            "description": "Only for INFORMATION: JSON Schema of the answer, such as "
            '{"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}',
        }
    return OfferedTool(
        _ASK_PERSON,
        "Asks a person and waits for the answer. Use it if you cannot continue without a decision or a fact that only "
        "a person has; ask one thing at a time.",
        {"type": "object", "properties": properties, "required": ["prompt"], "additionalProperties": False},
    )


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """Configuration of one agent for a run. The run, not the agent, selects the model.

    Args:
        name: name on the agent card.
        tools: tools that the model may call, by name.
        output: schema of the answer; `None` for text.
        max_turns: maximum number of model calls; the last call must answer without tools.
        max_tokens: limit for all model calls together. After the limit is reached, one last call must answer. `None` is
            no limit.
        feedback_policy: when the agent asks people. `never`: not at all. `on_request`: through the tool `ask_person`,
            or with `[[FEEDBACK type: prompt]]` in its answer. `always`: as `on_request`, and a person reviews each
            answer. `heuristic`: as `on_request`, and an answer that consists of a question is a request.
        compensating_tools: tools that compensate calls of `tools`, by name. They are not offered to the model.
        request_types: types of the requests that the agent may make to people.
    """

    name: str
    tools: Mapping[str, ToolDeclaration] = field(default_factory=dict)
    output: OutputSchema | None = None
    max_turns: int = DEFAULT_MAX_TURNS
    max_tokens: int | None = None
    feedback_policy: FeedbackPolicy = "never"
    compensating_tools: Mapping[str, ToolDeclaration] = field(default_factory=dict)
    request_types: Sequence[str] = REQUEST_TYPES

    @property
    def can_send_requests(self) -> bool:
        """Whether the agent can make requests to people by itself."""
        return self.feedback_policy != "never"

    @property
    def offered_tools(self) -> tuple[OfferedTool, ...]:
        """Tools that are offered to the model, in declared order."""
        tools = tuple(
            OfferedTool(tool.name, tool.description, tool.input_schema or {"type": "object", "properties": {}})
            for tool in self.tools.values()
        )
        offers_ask_person = self.can_send_requests and _ASK_PERSON not in self.tools
        return (*tools, ask_person_tool(self.request_types)) if offers_ask_person else tools

    def is_ask_person_tool(self, tool: str) -> bool:
        """Check whether a call of a tool is a request to a person."""
        return tool == _ASK_PERSON and self.can_send_requests and tool not in self.tools

    def request(
        self,
        messages: Sequence[Message],
        *,
        is_last: bool,
        previous_conversation: str | None = None,
        cuts: Mapping[int, int] | None = None,
    ) -> ModelRequest:
        """Build the model request of one turn.

        Args:
            is_last: whether this is the last turn, in which the model may not call tools.
            previous_conversation: reference to the earlier conversation, as in `ModelRequest`.
            cuts: index of a message -> number of characters after which it is truncated.
        """
        call = ModelCall(
            tuple(messages),
            tools=self.offered_tools,
            # Keep the tools in the request: earlier messages contain tool calls, and some servers require the
            # declarations of the called tools.
            tool_choice="none" if is_last and self.offered_tools else "",
            output=self.output,
            labels=CallLabels(purpose=AGENT_KIND),
        )
        # An empty field name streams the whole text. `None` streams nothing: a program reads structured output.
        streamed_field = "" if self.output is None else None
        return ModelRequest(
            call,
            previous_conversation=previous_conversation,
            stores_conversation=True,
            cuts=cuts or {},
            streamed_field=streamed_field,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the spec as the `extender` of a plan."""
        encoded: dict[str, Any] = {
            "kind": AGENT_KIND,
            "name": self.name,
            "tools": [_tool_to_json(tool) for tool in self.tools.values()],
            **(
                {"compensations": [_tool_to_json(tool) for tool in self.compensating_tools.values()]}
                if self.compensating_tools
                else {}
            ),
            "max_turns": self.max_turns,
            "feedback_policy": self.feedback_policy,
            "request_types": list(self.request_types),
        }
        if self.output is not None:
            encoded["output"] = self.output.to_json()
        if self.max_tokens is not None:
            encoded["max_tokens"] = self.max_tokens
        return encoded


def agent_spec_from_json(encoded: Mapping[str, Any]) -> AgentSpec:
    """Decode a spec from its JSON form.

    Raises:
        ValueError: the JSON is not an agent spec.
    """
    try:
        output = encoded.get("output")
        spec = AgentSpec(
            name=str(encoded["name"]),
            tools={tool.name: tool for tool in map(_tool_from_json, encoded["tools"])},
            compensating_tools={tool.name: tool for tool in map(_tool_from_json, encoded.get("compensations", ()))},
            output=None if output is None else OutputSchema(output["name"], output["schema"]),
            max_turns=int(encoded["max_turns"]),
            max_tokens=encoded.get("max_tokens"),
            feedback_policy=encoded["feedback_policy"],
            request_types=tuple(map(str, encoded.get("request_types", _LEGACY_REQUEST_TYPES))),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an agent spec: {error!r}") from None
    if not 1 <= spec.max_turns <= TURNS_LIMIT:
        raise ValueError(f"max_turns: an agent has 1 to {TURNS_LIMIT} turns, not {spec.max_turns}")
    if spec.max_tokens is not None and (type(spec.max_tokens) is not int or spec.max_tokens < 1):
        raise ValueError(f"max_tokens: expected a whole number of at least 1, not {spec.max_tokens!r:.60}")
    if spec.feedback_policy not in FEEDBACK_POLICIES:
        raise ValueError(f"feedback_policy: expected one of {', '.join(FEEDBACK_POLICIES)}")
    return spec


def _tool_to_json(tool: ToolDeclaration) -> dict[str, Any]:
    encoded = {**tool_to_json(tool), "name": tool.name, "description": tool.description, "timeout_s": tool.timeout_s}
    # Include the schema of pure tools too, because the model needs it.
    encoded["input_schema"] = tool.input_schema
    return encoded


def _tool_from_json(encoded: Mapping[str, Any]) -> ToolDeclaration:
    declaration = tool_from_json(str(encoded["name"]), encoded)
    return ToolDeclaration(
        **{name: getattr(declaration, name) for name in ("name", "effects", "input_schema", "worker", *ENCODED_FIELDS)},
        description=str(encoded["description"]),
        timeout_s=float(encoded["timeout_s"]),
    )


# The plan.


def turn_id(number: int) -> str:
    """Return the ID of a turn; turns count from 1."""
    return f"turn{number}"


def next_turn_id(turn: str) -> str:
    """Return the ID of the next turn, also for the ID of a repeated turn."""
    return turn_id(int(turn.partition("#")[0].removeprefix("turn")) + 1)


def is_turn(node_id: str) -> bool:
    """Check whether a node ID belongs to a turn or to a repeated turn."""
    return _TURN.fullmatch(node_id) is not None


def agent_plan(
    spec: AgentSpec,
    *,
    prompt: str,
    result_titles: Mapping[str, str | None],
    title: str | None = None,
    objective: str = "",
) -> CompiledPlan:
    """Build the initial plan of an agent run.

    The inputs of the plan are the `objective`, and `result_input(id)` for each result in the context.

    Args:
        prompt: system message of the agent.
        result_titles: the nodes whose results are context, in declared order: node ID -> title.
        objective: text of the objective, without the values of its references. The policy lets the agent read the
            files that this text names.
    """
    return CompiledPlan(
        nodes=(_first_turn(spec, prompt, result_titles),),
        tools={CALL_MODEL.name: CALL_MODEL},
        title=title,
        inputs={OBJECTIVE: {}, **{result_input(node_id): {} for node_id in result_titles}},
        output_bindings=(output_of_turn(spec, turn_id(1)),),
        extender=spec.to_json() | {POLICY: model_policy(objective).to_json()},
    )


def result_input(node_id: str) -> str:
    """Return the name of the input with which an agent's plan receives the result of a node."""
    return f"result of {node_id}"


def output_of_turn(spec: AgentSpec, node_id: str) -> Binding:
    """Return the binding that makes the answer of a turn the output of the agent."""
    path = ("message", "content") if spec.output is None else ("output",)
    return (), (ResultOf(node_id, "result", path),)


def _first_turn(spec: AgentSpec, prompt: str, result_titles: Mapping[str, str | None]) -> CompiledNode:
    messages = [system(prompt)] if prompt else []
    bindings: list[Binding] = []
    characters = max(MIN_RESULT_CHARACTERS, CONTEXT_RESULTS_CHARACTERS // max(1, len(result_titles)))
    cuts = {len(messages) + index: characters for index in range(len(result_titles))}
    for node_id, title in result_titles.items():
        label = f"{node_id} ({title})" if title else node_id
        bindings.append(
            (("messages", len(messages), "content"), (f"Result of {label}:\n\n", Placeholder(result_input(node_id))))
        )
        messages.append(user(""))
    # Because of the empty string, the content is always a text, even if the objective is a reference to an object.
    bindings.append((("messages", len(messages), "content"), ("", Placeholder(OBJECTIVE))))
    messages.append(user(""))
    request = spec.request(messages, is_last=spec.max_turns == 1, cuts=cuts)
    return model_node(turn_id(1), request, title=f"{spec.name}: turn 1", bindings=bindings)
