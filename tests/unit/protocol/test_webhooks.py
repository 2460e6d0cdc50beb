"""Webhook notifications: stable ids, limited sizes, and a standard signature."""

from typing import Any

from dagwright.core.boundary.limits import MAX_NOTIFIED_REQUEST_BYTES
from dagwright.core.model.requests import Closing, Request
from dagwright.features.feedback.feedback_state import Notification, RequestRegistry, registry_from_json
from dagwright.protocol.notifications import notification_to_json
from dagwright.protocol.webhooks import signed_headers, signing_key
from tests.support.receiver import SECRET

_IDENTITY = ["scope", [["node", "archive"]]]


def _request(request_id: str = "check", prompt: str = "Publish?") -> Request:
    return Request(request_id, request_id, "answer", "APPROVAL", prompt, opened_at=1.5)


def _notification_json(notification: Notification, closing: Closing | None = None) -> Any:
    return notification_to_json(notification, closing, run_id="run-1", identity=_IDENTITY)


def _notification_ids(*notifications: Notification) -> list[str]:
    return [_notification_json(notification)["id"] for notification in notifications]


def test_signature_matches_the_example_of_the_standard() -> None:
    message_id = "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert signed_headers(b'{"test": 2432232314}', signing_key(SECRET), message_id=message_id, at_s=1614265330) == {
        "webhook-id": message_id,
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_id_of_a_notification_depends_only_on_its_event() -> None:
    escalated_request = _request()
    escalated_request.assignee = "eve"
    opened_notification = Notification("opened", _request(), 1.5)
    assert _notification_ids(opened_notification) == _notification_ids(Notification("opened", escalated_request, 1.5))
    others = (Notification("answered", _request(), 2.0), Notification("reminded", _request(), 2.0))
    other_request_notification = Notification("opened", _request("check#2"), 1.5)
    assert len(set(_notification_ids(opened_notification, *others, other_request_notification))) == 4


def test_notification_shortens_a_long_request_and_includes_a_closing() -> None:
    request = _request(prompt="é" * MAX_NOTIFIED_REQUEST_BYTES)
    request.options = ["x"]
    result = _notification_json(Notification("opened", request, 1.5))["request"]
    assert (result["shortened"], result["options"]) == (True, None)
    assert len(result["prompt"].encode()) <= MAX_NOTIFIED_REQUEST_BYTES // 4
    assert result["request_id"] == "check"
    closing = Closing("answered", 2.0, "ann", "signal", answer="approved")
    expected_fields = {"outcome": "answered", "by": "ann", "source": "signal", "answer": "approved", "note": None}
    result = _notification_json(Notification("answered", _request(), 2.0), closing)["closing"]
    assert result == {"at": "1970-01-01T00:00:02.000Z", **expected_fields}


def test_pending_notifications_survive_continue_as_new() -> None:
    registry = RequestRegistry()
    registry.add(_request("a"))
    registry.add(_request("b"))
    registry.close(registry.open["a"], Closing("answered", 2.0, "ann"))
    restored_registry = registry_from_json(registry.to_json())
    keys = [("a", "opened", 1.5), ("b", "opened", 1.5), ("a", "answered", 2.0)]
    assert [notification.key for notification in restored_registry.notifications] == keys
    assert restored_registry.notifications[1].request is restored_registry.open["b"]
