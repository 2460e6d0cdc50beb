"""The activity that tells a hook what happened to the requests of a run: one signed POST for each notice.

The idempotency key of a notice is its id, in the header `webhook-id`: an attempt goes on behind what the one before it
has told, but one whose worker died may tell something twice. This module must not import workflows.
"""

import asyncio
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pydantic_core
from temporalio import activity
from temporalio.exceptions import ApplicationError

from dagwright.activities.heartbeats import Heartbeats
from dagwright.core.boundary.limits import MESSAGE_LIMIT_BYTES
from dagwright.core.boundary.text import cut_bytes
from dagwright.core.boundary.wire import ACTIVITY_NOTIFY
from dagwright.protocol.notifications import told
from dagwright.protocol.webhooks import Hook, signed_headers
from dagwright.tools.retry_after import requested_delay

ERROR_NOT_TOLD = "not_told"
"""`ApplicationError.type`: the hook has not taken every notice."""
ANSWER_S = 10.0
"""How long a hook may take for one notice."""
_LONGEST_DELAY = timedelta(minutes=10)

Notice = Mapping[str, Any]


def notify_activity(hook: Hook | None) -> Callable[..., Any]:
    """Returns the activity `notify` for the hook of a worker."""

    @activity.defn(name=ACTIVITY_NOTIFY)
    async def notify(message: dict[str, Any]) -> None:
        """Tells the notices of `{"title", "notices"}`.

        Raises:
            ApplicationError: the hook has not taken all of them.
        """
        notices: Sequence[Notice] = message["notices"]
        if hook is None:
            raise ApplicationError(
                f"{told(notices)}: the worker has no hook; set DAGWRIGHT_NOTIFY_URL and DAGWRIGHT_NOTIFY_SECRET for it",
                type=ERROR_NOT_TOLD,
            )
        heartbeats = Heartbeats(activity.info())
        heartbeats.start()
        try:
            await _Telling(hook, message.get("title"), heartbeats).tell(notices)
        finally:
            heartbeats.stop()

    return notify


@dataclass(slots=True)
class _Refused:
    """What the hook has not taken in this attempt, and why the last of it."""

    notices: list[Notice] = field(default_factory=list)
    why: str = ""
    delay: timedelta | None = None


class _Telling:
    """One attempt to tell some notices of a run."""

    def __init__(self, hook: Hook, title: Any, heartbeats: Heartbeats) -> None:
        self._hook = hook
        self._title = title
        self._heartbeats = heartbeats
        self._done: list[str] = list(heartbeats.last_details or [])
        """Ids of the notices that have been told, in this attempt and those before."""

    async def tell(self, notices: Sequence[Notice]) -> None:
        open_notices = [notice for notice in notices if notice["id"] not in self._done]
        refused = _Refused()
        async with httpx.AsyncClient(follow_redirects=False, timeout=ANSWER_S) as client:
            for place, notice in enumerate(open_notices):
                try:
                    async with asyncio.timeout(ANSWER_S):
                        await self._tell_one(client, notice, refused)
                except (TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
                    # The others would fare no better now.
                    refused.notices += open_notices[place:]
                    refused.why = f"does not answer ({_kind(error)})"
                    break
        if refused.notices:
            words = f"{told(refused.notices)}: the hook at {self._host} {refused.why}"
            raise ApplicationError(
                cut_bytes(words, max_bytes=MESSAGE_LIMIT_BYTES), type=ERROR_NOT_TOLD, next_retry_delay=refused.delay
            )

    @property
    def _host(self) -> str:
        return httpx.URL(self._hook.url).host

    async def _tell_one(self, client: httpx.AsyncClient, notice: Notice, refused: _Refused) -> None:
        body = pydantic_core.to_json(_body_of(notice, title=self._title, ui_url=self._hook.ui_url))
        signed = signed_headers(body, self._hook.key, message_id=notice["id"], at_s=int(time.time()))
        headers = {"content-type": "application/json", "user-agent": "dagwright", **signed}
        # Nobody reads what it answers, however much that is.
        async with client.stream("POST", self._hook.url, content=body, headers=headers) as response:
            if response.is_success:
                self._done.append(notice["id"])
                self._heartbeats.beat(self._done, None)
                return
            refused.notices.append(notice)
            refused.why = f"answers {response.status_code}"
            delay = requested_delay(response.headers)
            if delay is not None:
                refused.delay = min(max(delay, refused.delay or delay), _LONGEST_DELAY)


def _kind(error: Exception) -> str:
    return f"no answer within {ANSWER_S:g} s" if isinstance(error, TimeoutError) else type(error).__name__


def _body_of(notice: Notice, *, title: Any, ui_url: str | None) -> dict[str, Any]:
    info, request = activity.info(), notice["request"]
    workflow_id = request["workflow_id"]
    page = f"{ui_url}/namespaces/{quote(info.namespace, safe='')}/workflows/{quote(workflow_id, safe='')}"
    return {
        "kind": notice["kind"],
        "at": notice["at"],
        "workflow_id": workflow_id,
        "run_id": info.workflow_run_id,
        "title": title,
        "request": request,
        "closing": notice["closing"],
        "links": {
            "answer": shlex.join(["dagwright", "feedback", workflow_id, request["id"]]),
            "run": None if ui_url is None else f"{page}/{info.workflow_run_id}/history",
        },
    }
