"""Parse the fields of a planner's sub-goals, and report the problems of each field."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagwright.core.errors import PlanInvalid, Problem, pointer
from dagwright.core.model.tools import parameter_name
from dagwright.core.name_hints import suggestion
from dagwright.core.text import one_line
from dagwright.core.validation.worker_tools import WorkerTool
from dagwright.dialects.json_reader import depth_of, json_problems, read_json
from dagwright.planner.rounds_schema import INPUT_REF_FIELDS, MAX_REFS, MAX_SUB_GOALS, SUB_GOAL_FIELDS
from dagwright.planning.rounds.sub_goals import Input, InputRef, PlannedSubGoal, refs_of

DESCRIPTION_CHARACTERS = 2_000
_NAME_CHARACTERS = 60
_MAX_ID = 10**9
_ID = re.compile(r"\s*(?:sg|sub_goal|sub-goal)?[ _-]?([0-9]{1,9})\s*", re.IGNORECASE)
"""A number as a string, with the prefixes that models add to the id of a sub-goal."""
MAX_DEPTH = 80
"""Maximum nesting depth of an answer. Calls, results and documents wrap the answer, and their limit is 100."""
_DECODED_FIELDS = ("inputs", "params", "synthesis_inputs", "sub_goals")
_EXPECTED_INPUT = 'an object such as {"from_sub_goal": 1, "slot": "…"}, or a list of such objects'


def decode_json_strings(answer_part: Any) -> Any:
    """Return an answer with JSON strings in its fields decoded.

    In strict mode (`dagwright.llm.strict_schema`), models write objects with arbitrary keys as such strings. In an
    answer that fits the format, the strings are already decoded.

    Raises:
        PlanInvalid: the answer or one of its JSON strings contains JSON that cannot be stored.
    """
    problems: list[Problem] = []
    result = _decode_fields(answer_part, (), problems)
    if not problems:
        problems = json_problems(result)
    if not problems and depth_of(result) > MAX_DEPTH:
        hint = "connect slots of workers, and let workers find long values"
        problems = [Problem("too_large", f"lists and objects are nested more than {MAX_DEPTH} deep", hint=hint)]
    if problems:
        raise PlanInvalid(problems)
    return result


def _decode_fields(answer_part: Any, at: tuple[str | int, ...], problems: list[Problem]) -> Any:
    if not isinstance(answer_part, Mapping):
        return answer_part
    result = {
        name: _decode_json_string(value, (*at, name), problems) if name in _DECODED_FIELDS else value
        for name, value in answer_part.items()
    }
    if not at and isinstance(sub_goals := result.get("sub_goals"), list):
        result["sub_goals"] = [
            _decode_fields(entry, ("sub_goals", index), problems) for index, entry in enumerate(sub_goals)
        ]
    return result


def _decode_json_string(value: Any, at: tuple[str | int, ...], problems: list[Problem]) -> Any:
    """Decode a JSON string. Other values stay unchanged, and are checked where they are used."""
    if not isinstance(value, str):
        return value
    try:
        decoded_value = read_json(value, name=f"the text of {at[-1]!r}")
    except PlanInvalid as invalid:
        if value.lstrip()[:1] in ("{", "["):
            problems += [
                replace(problem, pointer=f"{pointer(*at)}{problem.pointer or ''}") for problem in invalid.problems
            ]
        return value
    return decoded_value if isinstance(decoded_value, dict | list | None) else value


def parse_sub_goal_id(value: Any) -> int | None:
    """Parse the id of a sub-goal, in any common notation; `None` if the value is not an id."""
    if isinstance(value, str) and (match := _ID.fullmatch(value)) is not None:
        value = int(match.group(1))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_id = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_ID
    return value if is_id else None


class FieldParser:
    """Parses the fields of an answer, and collects the problems of the fields."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        """Problems found so far."""
        self.invalid_goals: dict[int, tuple[int, Mapping[str, Input]]] = {}
        """Sub-goals with an invalid field: id -> index in the answer, and the inputs that could be read."""

    def _report(
        self, code: str, message: str, *at: str | int, hint: str | None = None, node_id: str | None = None
    ) -> None:
        self.problems.append(Problem(code, message, pointer(*at), node_id, hint))

    def parse_sub_goals(self, answer_part: Any, worker_tools: Mapping[str, WorkerTool]) -> list[PlannedSubGoal | None]:
        """Return the sub-goals of an answer in their order, `None` for each with an invalid field."""
        if not isinstance(answer_part, list) or not answer_part:
            hint = "start at least one, or answer with action 'done' or 'failed'"
            self._report("empty_plan", "'continue' needs a list of sub-goals", "sub_goals", hint=hint)
            return []
        if len(answer_part) > MAX_SUB_GOALS:
            message = f"there are {len(answer_part):,} sub-goals; at most {MAX_SUB_GOALS} may start in one round"
            self._report("too_large", message, "sub_goals", hint="start the first ones, and the rest in later rounds")
            return []
        return [self._parse_sub_goal(entry, index, worker_tools) for index, entry in enumerate(answer_part)]

    def _parse_sub_goal(
        self, answer_part: Any, index: int, worker_tools: Mapping[str, WorkerTool]
    ) -> PlannedSubGoal | None:
        at = ("sub_goals", index)
        if not isinstance(answer_part, Mapping):
            self._report("invalid_field", f"a sub-goal must be an object, not {answer_part!r:.60}", *at)
            return None
        problem_count_before = len(self.problems)
        self._reject_unknown(answer_part, SUB_GOAL_FIELDS, "a sub-goal", *at)
        number = parse_sub_goal_id(answer_part.get("id"))
        if number is None:
            self._report(
                "invalid_field", f"'id' must be a whole number from 0, not {answer_part.get('id')!r:.60}", *at, "id"
            )
        worker = self._find_worker_tool(answer_part.get("worker"), worker_tools, *at, "worker")
        description = _field_or_default(answer_part, "description", "")
        if not isinstance(description, str):
            self._report("invalid_field", f"'description' must be a text, not {description!r:.60}", *at, "description")
        params = self._with_declared_names(_field_or_default(answer_part, "params", {}), worker, *at, "params")
        if not isinstance(params, Mapping):
            self._report("invalid_field", f"'params' must be an object, not {params!r:.60}", *at, "params")
            params = {}
        inputs = self.parse_inputs(
            self._with_declared_names(_field_or_default(answer_part, "inputs", {}), worker, *at, "inputs"),
            *at,
            "inputs",
        )
        if (count := sum(len(refs_of(value)) for value in inputs.values())) > MAX_REFS:
            self._report(
                "too_large", f"the sub-goal receives {count:,} slots; at most {MAX_REFS} are allowed", *at, "inputs"
            )
        for name in (name for name in inputs if name in params):
            self._report("invalid_field", f"{name!r} is given twice, in params and in inputs", *at, "inputs", name)
        if len(self.problems) > problem_count_before or number is None or worker is None:
            if number is not None:
                self.invalid_goals[number] = (index, inputs)
            return None
        card = worker.card
        # Outputs and goal type come from the card, not from the answer.
        text = one_line(description)[:DESCRIPTION_CHARACTERS]
        return PlannedSubGoal(
            id=number,
            worker=worker.tool.name,
            description=text,
            inputs=inputs,
            params=dict(params),
            outputs=card.outputs,
            goal_type=card.goal_type,
        )

    def _with_declared_names(self, answer_part: Any, worker: WorkerTool | None, *at: str | int) -> Any:
        """Return arguments under their declared names; a model may write `-` for `_`."""
        if worker is None or not isinstance(answer_part, Mapping):
            return answer_part
        properties = (worker.tool.input_schema or {}).get("properties", {})
        fields: dict[Any, Any] = {}
        for name, value in answer_part.items():
            declared_name = parameter_name(str(name), properties)
            if declared_name in fields:
                self._report("invalid_field", f"{declared_name!r} is given twice", *at, name)
            fields[declared_name] = value
        return fields

    def _reject_unknown(
        self, answer_part: Mapping[str, Any], known_names: Sequence[str], object_description: str, *at: str | int
    ) -> None:
        for name in answer_part:
            if name not in known_names:
                self._report(
                    "invalid_field",
                    f"{object_description} has no field {name!r:.60}",
                    *at,
                    name,
                    hint=_name_hint(name, known_names),
                )

    def _find_worker_tool(self, name: Any, worker_tools: Mapping[str, WorkerTool], *at: str | int) -> WorkerTool | None:
        worker = worker_tools.get(name) if isinstance(name, str) else None
        if worker is None:
            hint = suggestion(str(name), list(worker_tools)) or f"there are {', '.join(worker_tools)}"
            self._report("unknown_tool", f"there is no worker {name!r:.80}", *at, hint=hint)
        return worker

    def parse_inputs(self, answer_part: Any, *at: str | int) -> dict[str, Input]:
        """Return inputs by name, without invalid inputs."""
        if not isinstance(answer_part, Mapping):
            self._report("invalid_field", f"{at[-1]!r} must be an object of name -> slot, not {answer_part!r:.60}", *at)
            return {}
        inputs_by_name: dict[str, Input] = {}
        for name, value in answer_part.items():
            if isinstance(value, list):
                refs = [self._parse_ref(entry, *at, name, index) for index, entry in enumerate(value)]
                if not refs:
                    self._report("invalid_field", f"the input {name!r} is an empty list", *at, name)
                inputs_by_name[str(name)] = tuple(ref for ref in refs if ref is not None)
            elif (ref := self._parse_ref(value, *at, name)) is not None:
                inputs_by_name[str(name)] = ref
        return inputs_by_name

    def _parse_ref(self, answer_part: Any, *at: str | int) -> InputRef | None:
        source = parse_sub_goal_id(answer_part.get("from_sub_goal")) if isinstance(answer_part, Mapping) else None
        slot = answer_part.get("slot") if isinstance(answer_part, Mapping) else None
        if source is None or not isinstance(slot, str):
            hint = "write plain values in params"
            self._report("invalid_field", f"expected {_EXPECTED_INPUT}, not {answer_part!r:.100}", *at, hint=hint)
            return None
        self._reject_unknown(answer_part, INPUT_REF_FIELDS, "a reference to a slot", *at)
        return InputRef(source, slot)


def _field_or_default(answer_part: Mapping[str, Any], name: str, default: Any) -> Any:
    """Return a field; null counts as absent."""
    value = answer_part.get(name)
    return default if value is None else value


def _name_hint(name: str, known_names: Sequence[str]) -> str:
    return suggestion(name[:_NAME_CHARACTERS], known_names) or f"there are {', '.join(known_names)}"
