"""Show the feedback requests of a run as forms to the person who uses the client.

With protocol versions up to 2025-11-25, the client gets forms during the call (`elicitation/create`). From 2026-07-28
on, the call ends with an interim result that has the forms, and the client repeats the call with the filled forms.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dagwright.interfaces.mcp.request_forms import RequestDocument, form_of, prompt_of

CallContext = ServerRequestContext[Any, Any]

_MAX_INTERIM_RESULTS: Final = 8
"""Maximum number of interim results of one call: clients stop at ten."""
_STATE_UNREADABLE: Final = "`requestState` is not the state of the interim result: repeat the call without it"
_FIRST_VERSION_WITH_LISTS: Final = "2025-11-25"
"""First protocol version whose forms support lists and labelled choices."""


@dataclass(frozen=True, slots=True)
class CallState:
    """The state that a client returns with the content of forms.

    Args:
        run_id: the run that the call has started or found.
        skipped_ids: IDs of requests that the repeated call must not show again.
        interim_result_count: number of interim results of the call so far.
    """

    run_id: str
    skipped_ids: tuple[str, ...] = ()
    interim_result_count: int = 0

    def to_text(self) -> str:
        """Serialize the state for the client."""
        return json.dumps(
            {"run_id": self.run_id, "skipped": list(self.skipped_ids), "rounds": self.interim_result_count}
        )


class StateUnreadable(Exception):
    """The state that a client returned is invalid."""


def parse_call_state(params: types.CallToolRequestParams) -> CallState | None:
    """Return the state that the client returned; `None` for a first call.

    Raises:
        StateUnreadable: the state is invalid.
    """
    if params.request_state is None:
        return None
    try:
        state = json.loads(params.request_state)
        state = CallState(str(state["run_id"]), tuple(map(str, state["skipped"])), int(state["rounds"]))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        raise StateUnreadable(_STATE_UNREADABLE) from None
    if state.interim_result_count < 0:
        raise StateUnreadable(_STATE_UNREADABLE)
    return state


def can_elicit(context: CallContext) -> bool:
    """Return whether the client can show forms."""
    capabilities = context.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    # According to the protocol, a client that declares no mode supports forms.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def uses_interim_results(context: CallContext) -> bool:
    """Return whether the client gets forms in interim results rather than during the call."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def form_for_client(request: RequestDocument, context: CallContext) -> types.ElicitRequestFormParams | None:
    """Return the form for a request; `None` if the client cannot show the form, or must not answer the request."""
    # Requests with the channel `inbox` have no form, because clients may fill in forms without a person.
    form = form_of(request) if request.get("channel") != "inbox" else None
    if form is None or (context.protocol_version < _FIRST_VERSION_WITH_LISTS and _has_lists_or_labels(form)):
        return None
    return types.ElicitRequestFormParams(message=prompt_of(request), requested_schema=form)


def _has_lists_or_labels(form: Mapping[str, Any]) -> bool:
    return any("oneOf" in field or field["type"] == "array" for field in form["properties"].values())


@dataclass(slots=True)
class Elicitations:
    """The feedback requests that one call has shown, or may still show, to its client.

    Args:
        context: context of the call.
        skipped_ids: IDs of requests that the call must not show, because they were declined, answered or shown before.
        answered_ids: IDs of requests that were answered in this call.
        rejections: messages about answers that the run rejected.
        interim_result_count: number of interim results so far.
        is_silent: whether this call shows no forms, because a later call shows them.
    """

    context: CallContext
    skipped_ids: set[str] = field(default_factory=set)
    answered_ids: set[str] = field(default_factory=set)
    rejections: list[str] = field(default_factory=list)
    interim_result_count: int = 0
    is_silent: bool = False

    def next_form(
        self, requests: Iterable[RequestDocument]
    ) -> tuple[RequestDocument, types.ElicitRequestFormParams] | None:
        """Return the first request that the client can show, with its form."""
        if self.is_silent or not can_elicit(self.context) or self.interim_result_count >= _MAX_INTERIM_RESULTS:
            return None
        for request in requests:
            if (
                request["request_id"] not in self.skipped_ids
                and (form := form_for_client(request, self.context)) is not None
            ):
                return request, form
        return None

    def forms(self, requests: Iterable[RequestDocument]) -> dict[str, types.InputRequest]:
        """Return the forms for all requests that the client can show: request ID -> form."""
        forms: dict[str, types.InputRequest] = {}
        remaining_requests = list(requests)
        while (next_form := self.next_form(remaining_requests)) is not None:
            request, form = next_form
            forms[str(request["request_id"])] = types.ElicitRequest(params=form)
            remaining_requests = remaining_requests[remaining_requests.index(request) + 1 :]
        return forms

    def interim_result(self, run_id: str, requests: Iterable[RequestDocument]) -> types.InputRequiredResult | None:
        """Return the interim result with the forms for all requests; `None` if the client can show no form."""
        forms = self.forms(requests)
        if not forms:
            return None
        state = CallState(run_id, tuple(sorted(self.skipped_ids)), self.interim_result_count + 1)
        return types.InputRequiredResult(input_requests=forms, request_state=state.to_text())


def parse_form_response(response: Any) -> types.ElicitResult | None:
    """Return the response of a client to a form; `None` if the response is invalid."""
    if isinstance(response, types.ElicitResult):
        return response
    try:
        return types.ElicitResult.model_validate(response)
    except ValidationError:
        return None
