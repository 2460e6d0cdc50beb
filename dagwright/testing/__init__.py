"""Scripted model and web search servers, for tests and demos in which real servers would cost money.

`ModelServer` implements OpenAI's protocol over real sockets, so tests cover the model client and its retries too. It is
strict: see `dagwright.testing.server`. `python -m dagwright.testing SCRIPT.yaml` serves a script file. The fixture
`model_server` of `dagwright.testing.fixtures` provides servers that pytest checks at the end of each test. This package
does not import the model client, so a defect of the server cannot hide a defect of the client.
"""

from dagwright.testing.script import ANY_NUMBER, ReceivedCall, ScriptNotFollowed, Step, When, step
from dagwright.testing.script_file import ScriptInvalid, read_script
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
    busy,
    http_date,
    json_text,
    slow,
    text,
    tool_call,
    tool_calls,
)
from dagwright.testing.search import SearchAnswer, SearchHit, SearchServer, search_answer
from dagwright.testing.server import ModelServer

__all__ = [
    "ANY_NUMBER",
    "Answer",
    "Completion",
    "Cut",
    "HttpError",
    "ModelServer",
    "Pace",
    "Raw",
    "ReceivedCall",
    "Reset",
    "ScriptInvalid",
    "ScriptNotFollowed",
    "ScriptedToolCall",
    "SearchAnswer",
    "SearchHit",
    "SearchServer",
    "Silence",
    "Step",
    "Tokens",
    "When",
    "busy",
    "http_date",
    "json_text",
    "read_script",
    "search_answer",
    "slow",
    "step",
    "text",
    "tool_call",
    "tool_calls",
]
