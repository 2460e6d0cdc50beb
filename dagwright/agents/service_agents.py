"""Service agents: one POST of JSON per attempt, signed if the card names a secret (docs/guides/agents.md).

Each attempt sends the idempotency key of the call. Redirects are not followed, and private addresses are rejected
unless the settings allow them.
"""

import json
import time
from collections.abc import Mapping
from typing import Any

import httpx

from dagwright.agents.class_agents import question_or_give_up
from dagwright.core.boundary.limits import MAX_BUILT_IN_RESULT_BYTES
from dagwright.core.model.agents import AgentCard
from dagwright.core.name_hints import suggestion
from dagwright.core.text import one_line
from dagwright.protocol.webhooks import signed_headers, signing_key
from dagwright.tools.builtin.addresses import PinnedTransport
from dagwright.tools.context import ToolContext
from dagwright.tools.environment import ToolEnvironment
from dagwright.tools.errors import GiveUp, MissingSecret, NotStarted, RemoteFailed, RetryLater
from dagwright.tools.retry_after import requested_delay, requesting_service

CONNECT_TIMEOUT_S = 10.0
_EXCERPT_BYTES = 400
_RETRYABLE_STATUSES = (httpx.codes.REQUEST_TIMEOUT, httpx.codes.TOO_EARLY)
_RESPONSE_KEYS = ("result", "feedback", "checkpoint")
_SENT_DETAILS = {"sent": True}
"""Heartbeat details while a request that must not be repeated is in flight."""


class ServiceCall:
    """One attempt of a call of a service agent.

    Args:
        environment: secrets, and whether private addresses are allowed.
    """

    def __init__(self, card: AgentCard, call: ToolContext, environment: ToolEnvironment) -> None:
        assert card.service_url is not None
        self._card = card
        self._call = call
        self._environment = environment
        self._url = httpx.URL(card.service_url)
        self._safe_url = str(self._url.copy_with(username=None, password=None, query=None, fragment=None))
        self._is_write = card.effects not in ("read", "idempotent")

    async def send(self, objective: str, context: Mapping[str, Any]) -> Any:
        """Send the request and return the result of the service.

        Raises:
            AskPerson: the service asks a person.
            ToolError: the call failed; the class of the error decides whether the call is retried.
        """
        body = json.dumps(self._request_body(objective, context), ensure_ascii=False).encode()
        headers = self._headers(body)
        self._record_sending()
        transport = PinnedTransport(self._environment.allow_private_addresses)
        # The service has no time limit of its own: Temporal's timeout of the attempt ends the wait.
        timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
        async with httpx.AsyncClient(
            transport=transport, trust_env=False, timeout=timeout, follow_redirects=False
        ) as client:
            try:
                async with client.stream("POST", self._url, content=body, headers=headers) as response:
                    content = await _content_of(response)
            except NotStarted:
                self._clear_sent_mark()
                raise
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
                self._clear_sent_mark()
                raise NotStarted(f"{self._safe_url} {_error_text(error)}") from None
            except (httpx.HTTPError, httpx.StreamError) as error:
                raise RemoteFailed(
                    f"{self._safe_url} {_error_text(error)}; the result of the call is unknown"
                ) from None
        self._call.record_read(str(self._url))
        if not response.is_success:
            raise self._status_error(response, content)
        return self._parse_result(content)

    def _request_body(self, objective: str, context: Mapping[str, Any]) -> dict[str, Any]:
        call = self._call
        return {
            "agent": self._card.name,
            "objective": objective,
            "context": context,
            "call": {"run_id": call.run_id, "node_id": call.node_id, "attempt": call.attempt},
            "answers": list(call.answers),
            "checkpoint": call.checkpoint,
        }

    def _headers(self, body: bytes) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "application/json",
            "user-agent": "dagwright",
            "idempotency-key": self._call.idempotency_key,
        }
        name = self._card.service_secret
        if name is None:
            return headers
        key = signing_key(self._environment.find_secret(name) or "")
        if not key:
            raise MissingSecret(
                f"the agent {self._card.name!r} signs its requests: set DAGWRIGHT_SECRET_{name} for the worker"
            )
        signature_headers = signed_headers(body, key, message_id=self._call.idempotency_key, at_s=int(time.time()))
        return {**headers, **signature_headers}

    def _record_sending(self) -> None:
        """Record that a `write` call is sent; reject a retry if an earlier attempt died without a response."""
        if not self._is_write:
            return
        if self._call.last_heartbeat == _SENT_DETAILS:
            raise GiveUp(f"{self._safe_url} was called by an attempt that died before the response; outcome unknown")
        self._call.heartbeat(_SENT_DETAILS)

    def _clear_sent_mark(self) -> None:
        """Allow another attempt of a `write` call, because the service has not performed the call."""
        if self._is_write:
            self._call.heartbeat(None)

    def _status_error(self, response: httpx.Response, content: bytes) -> Exception:
        """Map a status to the error that decides whether the call is retried."""
        status = response.status_code
        excerpt = one_line(content[:_EXCERPT_BYTES].decode(errors="replace"))
        message = f"{self._safe_url} answers {status}" + (f": {excerpt}" if excerpt else "")
        delay, requested_by = requested_delay(response.headers), requesting_service(status, self._url.host)
        if status == httpx.codes.TOO_MANY_REQUESTS:
            self._clear_sent_mark()
            return RetryLater(message, delay, requested_by=requested_by)
        if response.is_redirect:
            return GiveUp(f"{message}; redirects are not followed: set service_url to the target of the redirect")
        if response.is_server_error or status in _RETRYABLE_STATUSES:
            if self._is_write:
                return RemoteFailed(f"{message}; the result of the call is unknown")
            return RetryLater(message, delay, requested_by=requested_by)
        return GiveUp(message)

    def _parse_result(self, content: bytes) -> Any:
        """Return the result in the body of a response."""
        try:
            response_json = json.loads(content)
        except (ValueError, RecursionError):
            response_json = None
        expected = 'expected {"result": …} or {"feedback": {"type", "prompt"}}'
        if not isinstance(response_json, dict):
            raise GiveUp(f"{self._safe_url} did not answer with a JSON object; {expected}")
        if unknown_keys := [key for key in response_json if key not in _RESPONSE_KEYS]:
            hint = suggestion(unknown_keys[0], _RESPONSE_KEYS) or expected
            raise GiveUp(f"{self._safe_url} answers with the unknown key {unknown_keys[0]!r:.80}; {hint}")
        if ("result" in response_json) == ("feedback" in response_json):
            raise GiveUp(f"{self._safe_url} must answer with either a result or a question; {expected}")
        if "feedback" in response_json:
            self._clear_sent_mark()
            raise question_or_give_up(self._card, response_json["feedback"], checkpoint=response_json.get("checkpoint"))
        return response_json["result"]


async def _content_of(response: httpx.Response) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > MAX_BUILT_IN_RESULT_BYTES:
            raise GiveUp(f"the service answers more than {MAX_BUILT_IN_RESULT_BYTES:,} bytes, the limit for a result")
    return bytes(content)


def _error_text(error: Exception) -> str:
    return f"does not answer ({type(error).__name__} {error})".replace(" )", ")")
