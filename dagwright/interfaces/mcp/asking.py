"""How a call asks the person behind its client what a run asks: by requests to the client, or by an interim result.

Clients of the protocol up to 2025-11-25 are asked while the call goes on (`elicitation/create`); from 2026-07-28 on the
call ends with the forms, and the client makes it again with what was filled in.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dagwright.interfaces.mcp.forms import Request, form_of, words_of

Context = ServerRequestContext[Any, Any]

_MOST_ROUNDS: Final = 8
"""Interim results of one call: clients stop at ten."""
_UNREADABLE: Final = "`requestState` is not what the interim result had: make the call anew"
_LISTS_SINCE: Final = "2025-11-25"
"""Since this version a form may have a choice of several."""


@dataclass(frozen=True, slots=True)
class CallState:
    """What an interim result has the client bring back.

    Args:
        workflow_id: the run that the call has started or found.
        left: ids of requests that the person did not want to answer.
        rounds: how many interim results there were.
    """

    workflow_id: str
    left: tuple[str, ...] = ()
    rounds: int = 0

    def to_text(self) -> str:
        """Returns it as the client keeps it."""
        return json.dumps({"run_id": self.workflow_id, "left": list(self.left), "rounds": self.rounds})


class StateUnreadable(Exception):
    """What a client brought back is not what an interim result gave it."""


def state_in(params: types.CallToolRequestParams) -> CallState | None:
    """Returns what an interim result had the client bring back; `None` for a call that is made first.

    Raises:
        StateUnreadable: somebody has changed it.
    """
    if params.request_state is None:
        return None
    try:
        told = json.loads(params.request_state)
        state = CallState(str(told["run_id"]), tuple(map(str, told["left"])), int(told["rounds"]))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        raise StateUnreadable(_UNREADABLE) from None
    if state.rounds < 0:
        raise StateUnreadable(_UNREADABLE)
    return state


def can_ask(context: Context) -> bool:
    """Tells whether the client shows forms to a person."""
    capabilities = context.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    # One that names no mode means forms.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def is_asked_between(context: Context) -> bool:
    """Tells whether the client is asked by interim results, and not while the call goes on."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def form_for(request: Request, context: Context) -> types.ElicitRequestFormParams | None:
    """Returns the form for a request; `None` if the client cannot show one."""
    # A client may fill in forms without asking anyone.
    form = form_of(request) if request.get("channel") != "inbox" else None
    if form is None or (context.protocol_version < _LISTS_SINCE and _has_lists(form)):
        return None
    return types.ElicitRequestFormParams(message=words_of(request), requested_schema=form)


def _has_lists(form: Mapping[str, Any]) -> bool:
    return any("oneOf" in field or field["type"] == "array" for field in form["properties"].values())


@dataclass(slots=True)
class Asking:
    """What one call has asked its client, and may still ask.

    Args:
        context: of the call.
        left: ids of requests that are not asked (any more).
        taken: ids of those that were answered in this call.
        said: what became of answers that the run did not take.
        rounds: how many interim results there were.
        is_silent: whether this call asks nothing, because another one will.
    """

    context: Context
    left: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    rounds: int = 0
    is_silent: bool = False

    def next_of(self, requests: Iterable[Request]) -> tuple[Request, types.ElicitRequestFormParams] | None:
        """Returns the first request that the client can be asked, with its form."""
        if self.is_silent or not can_ask(self.context) or self.rounds >= _MOST_ROUNDS:
            return None
        for request in requests:
            if request["request_id"] not in self.left and (form := form_for(request, self.context)) is not None:
                return request, form
        return None

    def forms(self, requests: Iterable[Request]) -> dict[str, types.InputRequest]:
        """Returns the forms for all requests that the client can be asked: id of a request -> its form."""
        asked: dict[str, types.InputRequest] = {}
        rest = list(requests)
        while (found := self.next_of(rest)) is not None:
            request, form = found
            asked[str(request["request_id"])] = types.ElicitRequest(params=form)
            rest = rest[rest.index(request) + 1 :]
        return asked

    def interim(self, workflow_id: str, requests: Iterable[Request]) -> types.InputRequiredResult | None:
        """Returns the interim result with the forms for all requests; `None` if there is nothing that can be asked."""
        asked = self.forms(requests)
        if not asked:
            return None
        state = CallState(workflow_id, tuple(sorted(self.left)), self.rounds + 1)
        return types.InputRequiredResult(input_requests=asked, request_state=state.to_text())


def filled_in(response: Any) -> types.ElicitResult | None:
    """Returns what a client says to one form; `None` if it is no answer to a form."""
    if isinstance(response, types.ElicitResult):
        return response
    try:
        return types.ElicitResult.model_validate(response)
    except ValidationError:
        return None
