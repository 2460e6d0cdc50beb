"""A real HTTP server that receives webhook requests, and responds as a test requires."""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.http_servers import ReceivedRequest, ServiceResponse, serve_requests

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"""The example key of Standard Webhooks."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request and the status of its response."""

    headers: Mapping[str, str]
    body: bytes
    status: int

    @property
    def notification(self) -> Any:
        return json.loads(self.body)

    @property
    def name(self) -> str:
        """Request and kind of the notification: `check opened`."""
        return f"{self.notification['request']['request_id']} {self.notification['kind']}"

    @property
    def id(self) -> str:
        """The ID, which is the same in duplicates."""
        return self.headers["webhook-id"]

    @property
    def is_signed(self) -> bool:
        key = base64.b64decode(SECRET.removeprefix("whsec_"))
        signed_content = b".".join([self.id.encode(), self.headers["webhook-timestamp"].encode(), self.body])
        expected_signature = base64.b64encode(hmac.digest(key, signed_content, hashlib.sha256)).decode()
        return self.headers["webhook-signature"] == f"v1,{expected_signature}"


class Receiver:
    """An endpoint that stores webhook requests.

    Attributes:
        status_of: name of a notification -> status of the response, or 0 for no response.
    """

    def __init__(self) -> None:
        self.status_of: Callable[[str], int] = lambda name: 204
        self.deliveries: list[Delivery] = []
        self.url = ""
        self.release_event = threading.Event()
        """Set at the end of the test, so that no request hangs."""

    @property
    def accepted_names(self) -> list[str]:
        return [delivery.name for delivery in self.deliveries if delivery.status == 204]

    def respond(self, request: ReceivedRequest) -> ServiceResponse:
        notification = request.json_body
        status = self.status_of(f"{notification['request']['request_id']} {notification['kind']}")
        self.deliveries.append(Delivery(request.headers, request.body, status))
        if status == 0:
            self.release_event.wait(60)
        return ServiceResponse(status, b"")


@contextmanager
def webhook_receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    with serve_requests(receiver.respond) as address:
        receiver.url = f"{address}/hook?token=hidden"
        try:
            yield receiver
        finally:
            receiver.release_event.set()
