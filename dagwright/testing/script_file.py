"""Scripts as YAML files, for demos and for tests that are not written in Python.

models: [small]
pace: {first: 500ms}
steps:
  - when: {metadata: {purpose: planner}}
    json: {nodes: []}
  - text: The answer is 42.
    pace: {first: 500ms, each: 20ms}
  - function: answers.py:answer_with_figures
  - error: {status: 429, retry_after: 2}
"""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dagwright.core.model.times import parse_duration
from dagwright.testing.script import ANY_NUMBER, AnswerFunction, ReceivedCall, Step, When
from dagwright.testing.scripted_answers import (
    Answer,
    Completion,
    Cut,
    HttpError,
    Pace,
    Raw,
    Reset,
    ScriptedToolCall,
    Silence,
    Tokens,
    json_text,
)
from dagwright.testing.server import ModelServer


class ScriptInvalid(ValueError):
    """A script is invalid. The text has the problem and its location."""


def _seconds(value: Any) -> Any:
    return parse_duration(value).total_seconds() if isinstance(value, str) else value


_Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _When(_StrictModel):
    model: str | None = None
    metadata: dict[str, str] = {}
    text: str | None = None
    last: str | None = None
    tool: str | None = None
    response_format: Literal["text", "json_object", "json_schema"] | None = None
    is_streamed: bool | None = None

    def to_when(self) -> When:
        return When(**self.model_dump())


class _Pace(_StrictModel):
    first: _Seconds = 0.0
    each: _Seconds = 0.0
    characters: int = Field(default=8, ge=0)
    cut_after: int | None = Field(default=None, ge=0)
    cut: Cut = Cut.CLOSE

    def to_pace(self) -> Pace:
        return Pace(self.first, self.each, self.characters, self.cut_after, self.cut)


class _Tokens(_StrictModel):
    prompt: int = Field(ge=0)
    completion: int = Field(ge=0)
    cached: int = Field(default=0, ge=0)
    reasoning: int = Field(default=0, ge=0)


class _ToolCall(_StrictModel):
    name: str
    arguments: dict[str, Any] | str = {}
    id: str = ""


class _Error(_StrictModel):
    status: int = Field(ge=400, le=599)
    message: str = "scripted error"
    code: str | None = None
    type: str = "invalid_request_error"
    param: str | None = None
    retry_after: float | str | None = None


class _Raw(_StrictModel):
    body: str
    status: int = Field(default=200, ge=200, le=599)
    content_type: str = "application/json"


_RESPONSE_FIELDS = ("text", "value", "function", "tool_calls", "refusal", "error", "raw", "connection")
_Function = Callable[[ReceivedCall], Any]


class _Step(_StrictModel):
    when: _When = _When()
    times: int | Literal["any"] = 1
    text: str | None = None
    value: Any = Field(default=None, alias="json")
    function: str | None = None
    tool_calls: tuple[_ToolCall, ...] = ()
    refusal: str | None = None
    error: _Error | None = None
    raw: _Raw | None = None
    connection: Literal["reset", "silence"] | None = None
    finish_reason: str = ""
    usage: _Tokens | None = None
    pace: _Pace | None = None

    @model_validator(mode="after")
    def _check_single_answer(self) -> "_Step":
        response_fields = [field for field in _RESPONSE_FIELDS if field in self.model_fields_set]
        if not response_fields or (len(response_fields) > 1 and set(response_fields) != {"text", "tool_calls"}):
            names = ", ".join("json" if field == "value" else field for field in _RESPONSE_FIELDS)
            raise ValueError(f"a step has exactly one of {names} (text and tool_calls may be combined)")
        return self

    def to_step(self, default_pace: _Pace, functions: "_Functions") -> Step:
        times = ANY_NUMBER if self.times == "any" else self.times
        return Step(self._answer(default_pace, functions), self.when.to_when(), times=times)

    def _answer(self, default_pace: _Pace, functions: "_Functions") -> Answer | AnswerFunction:
        if self.error is not None:
            return HttpError(**self.error.model_dump())
        if self.raw is not None:
            return Raw(self.raw.body.encode(), self.raw.status, self.raw.content_type)
        if self.connection is not None:
            return Reset() if self.connection == "reset" else Silence()
        completion_fields: dict[str, Any] = {
            "finish_reason": self.finish_reason,
            "tokens": None if self.usage is None else Tokens(**self.usage.model_dump()),
            "pace": (self.pace or default_pace).to_pace(),
        }
        if self.function is not None:
            return _answer_function(functions.find(self.function), completion_fields)
        if "value" in self.model_fields_set:
            return json_text(self.value, **completion_fields)
        calls = tuple(ScriptedToolCall(call.name, call.arguments, call.id) for call in self.tool_calls)
        return Completion(text=self.text, tool_calls=calls, refusal=self.refusal, **completion_fields)


def _answer_function(function: _Function, completion_fields: Mapping[str, Any]) -> AnswerFunction:
    """Return a function that builds a response from the call. Values other than text are sent as JSON."""

    def reply(call: ReceivedCall) -> Answer:
        value = function(call)
        return (
            Completion(text=value, **completion_fields)
            if isinstance(value, str)
            else json_text(value, **completion_fields)
        )

    return reply


class _Functions:
    """Functions in the Python files next to a script.

    Args:
        folder: folder of the script.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Mapping[str, Any]] = {}

    def find(self, reference: str) -> _Function:
        """Return the function of a reference `FILE.py:NAME`.

        Raises:
            ScriptInvalid: there is no such function, or its file cannot be run.
        """
        file, _, name = reference.rpartition(":")
        if file not in self._files:
            self._files[file] = self._run_file(file)
        function = self._files[file].get(name)
        if not callable(function):
            raise ScriptInvalid(f"function: {reference!r}: there is no function {name!r} in {file!r}")
        return function  # type: ignore[no-any-return] # called with the received call, even if the signature differs

    def _run_file(self, file: str) -> Mapping[str, Any]:
        path = self._folder / file
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise ScriptInvalid(f"function: there is no Python file {file!r} next to the script; write FILE.py:NAME")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise ScriptInvalid(f"function: {file}: {type(error).__name__}: {error}") from error
        return vars(module)


class _Script(_StrictModel):
    steps: tuple[_Step, ...]
    pace: _Pace = _Pace()
    models: tuple[str, ...] | None = None
    api_keys: tuple[str, ...] | None = None


def read_script(path: Path, *, host: str = "127.0.0.1", port: int = 0) -> ModelServer:
    """Return a server, not started yet, for a script file.

    Raises:
        ScriptInvalid: the file cannot be read, or is not a valid script.
    """
    try:
        script = _Script.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ScriptInvalid(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ScriptInvalid(f"{path}: {error}") from error
    except ValidationError as error:
        raise ScriptInvalid(f"{path}: {_error_text(error)}") from error
    functions = _Functions(path.parent)
    try:
        steps = [step.to_step(script.pace, functions) for step in script.steps]
    except ScriptInvalid as error:
        raise ScriptInvalid(f"{path}: {error}") from error.__cause__
    return ModelServer(*steps, models=script.models, api_keys=script.api_keys, host=host, port=port)


_UNKNOWN_KEY_MESSAGE = "unknown key; docs/guides/testing.md lists the keys of a script"


def _error_text(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'the script'}: "
        f"{_UNKNOWN_KEY_MESSAGE if problem['type'] == 'extra_forbidden' else problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    )
