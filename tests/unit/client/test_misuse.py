"""Errors for misuse of the public API and for failed requests to Temporal. They name the argument or the server."""

import inspect
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import date, datetime, timedelta
from typing import Any, cast

import pytest
from temporalio.service import RPCError, RPCStatusCode

import dagwright
import dagwright.errors
from dagwright.client.client import _parse_start_time
from dagwright.client.errors import OptionInvalid
from dagwright.client.options import SharedRunOptions, without_none
from dagwright.client.run import Run
from dagwright.client.server_errors import reports_server_errors
from dagwright.core.boundary import arguments as argument_checker
from dagwright.server.errors import ServerError, ServerUnreachable
from dagwright.worker.worker import Worker

_PYTHON_AND_TEMPORAL_ERRORS = {"TypeError", "ValueError", "WorkflowAlreadyStartedError", "ChildWorkflowError"}
_SECTIONS = {"Args", "Returns", "Raises", "Example"}


def _public_functions() -> Iterator[tuple[str, Any]]:
    for name in dagwright.__all__:
        function_or_class = getattr(dagwright, name)
        if inspect.isfunction(function_or_class):
            yield name, function_or_class
        elif inspect.isclass(function_or_class):
            for attribute, member in vars(function_or_class).items():
                function = getattr(member, "__func__", member)
                if inspect.isfunction(function) and not attribute.startswith("_"):
                    yield f"{name}.{attribute}", function


FUNCTIONS = dict(_public_functions())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_argument_checker_supports_the_annotations_of_the_functions_that_it_wraps(name: str) -> None:
    function = FUNCTIONS[name]
    is_wrapped = function.__code__.co_filename == argument_checker.__file__
    if is_wrapped:
        argument_checker._annotations_of(function, [*inspect.signature(function).parameters.values()])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_documented_errors_are_public(name: str) -> None:
    documented_names = re.findall(
        r"^ {4,12}((?:[A-Z]\w+)(?:, [A-Z]\w+)*):", FUNCTIONS[name].__doc__ or "", re.MULTILINE
    )
    known_names = {*dagwright.errors.__all__, *_PYTHON_AND_TEMPORAL_ERRORS, *_SECTIONS}
    assert {each for line in documented_names for each in line.split(", ")} <= known_names


def test_worker_of_an_unconnected_client_is_rejected() -> None:
    for client in (dagwright.Client.connect(), "localhost:7233"):
        with pytest.raises(TypeError, match=r"^Worker\(\): client must be a connected Client, not .*; await Client"):
            Worker(cast("Any", client))


def test_client_that_is_not_awaited_is_rejected_at_its_first_use() -> None:
    client = cast("Any", dagwright.Client.connect())
    with pytest.raises(AttributeError, match=r"^'start': the client is not connected: write `client = await Client"):
        client.start({})
    with pytest.raises(TypeError, match=r"^the client is not connected: .* or `async with"), client:
        pass


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cast("Any", dagwright.Client.connect)(addres="x"), "connect() .* 'addres'; did you mean 'address'"),
        (lambda: cast("Any", dagwright.SyncClient.connect)(addres="x"), "connect() .* 'addres'"),
        (lambda: cast("Any", dagwright.run)({}, input={}), "run() .* 'input'; did you mean 'inputs'"),
        (lambda: cast("Any", dagwright.run)({}, id="a"), "run() .* 'id'; did you mean 'run_id' or 'session_id'"),
        (lambda: cast("Any", dagwright.run)({}, deadlin="2h"), "run() .* 'deadlin'; did you mean 'deadline'"),
        (lambda: cast("Any", dagwright.Plan)(titel="Refill"), "Plan() .* 'titel'; did you mean 'title'"),
        (lambda: cast("Any", dagwright.ask_human)("Order?", asignee="ann"), "ask_human() .* did you mean 'assignee'"),
    ],
)
def test_misspelt_keyword_argument_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError, match=message.replace("()", r"\(\)")):
        call()


async def test_set_limits_rejects_missing_and_invalid_limits() -> None:
    run = Run(lambda: cast("Any", None), "run")
    with pytest.raises(TypeError, match="needs at least one of max_parallel, deadline and budget"):
        await run.set_limits()
    with pytest.raises(OptionInvalid, match=r"^deadline: 'soon' is not a duration"):
        await run.set_limits(deadline="soon")


def test_start_time_is_a_date_a_time_or_a_duration() -> None:
    midnight = datetime(2026, 11, 23).timestamp()
    assert _parse_start_time(date(2026, 11, 23)) == _parse_start_time("2026-11-23") == midnight
    assert _parse_start_time(datetime(2026, 11, 23, 8)) == _parse_start_time("2026-11-23T08:00") == midnight + 8 * 3600
    an_hour_ago = datetime.now().timestamp() - 3600
    assert _parse_start_time(timedelta(hours=1)) == pytest.approx(an_hour_ago, abs=5)
    assert _parse_start_time("1h") == pytest.approx(an_hour_ago, abs=5)
    assert _parse_start_time("9999-12-31T23:59:59Z") == 253_402_300_799
    assert _parse_start_time("1970-01-01") == datetime(1970, 1, 1).timestamp()
    with pytest.raises(OptionInvalid, match=r"^since must be a date, .*, not 'yesterday'$"):
        _parse_start_time("yesterday")
    times_before_1970 = ("0001-01-01", "0001-01-01T00:00+14:00", "1969-12-31T23:59Z", date.min)
    for time_out_of_range in (*times_before_1970, "9999-12-31T23:59-12:00"):
        with pytest.raises(OptionInvalid, match=r"^since must be a time in the years 1970 to 9999, not "):
            _parse_start_time(time_out_of_range)


def test_options_that_are_none_are_dropped() -> None:
    assert without_none(cast("SharedRunOptions", {"title": None, "compensate": False})) == {"compensate": False}


@reports_server_errors
class RequestSender:
    """Client of a server that responds with an error."""

    _address = "localhost:7233"

    def __init__(self, status: RPCStatusCode) -> None:
        self._status = status

    async def send(self) -> None:
        """Send one request."""
        raise RPCError("no luck\nand a stack", self._status, b"")

    async def listen(self) -> AsyncGenerator[int, None]:
        """Yield one event, then fail."""
        yield 1
        raise RPCError("no luck", self._status, b"")

    async def _private(self) -> None:
        raise RPCError("no luck", self._status, b"")


@pytest.mark.parametrize("status", [RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED])
async def test_server_that_does_not_respond_is_named(status: RPCStatusCode) -> None:
    sender = RequestSender(status)
    message = r"^the Temporal server at localhost:7233 does not respond: no luck$"
    with pytest.raises(ServerUnreachable, match=message):
        await sender.send()
    events = sender.listen()
    assert await anext(events) == 1
    with pytest.raises(ServerUnreachable, match=message):
        await anext(events)


async def test_error_of_a_rejected_request_names_the_status_code_of_the_response() -> None:
    message = r"^the Temporal server at localhost:7233 rejects the request \(PERMISSION_DENIED\): no luck$"
    with pytest.raises(ServerError, match=message) as error:
        await RequestSender(RPCStatusCode.PERMISSION_DENIED).send()
    assert type(error.value) is ServerError
    with pytest.raises(RPCError):
        await RequestSender(RPCStatusCode.PERMISSION_DENIED)._private()
