"""Runs that no worker serves, with attributes of every kind, and the check that each filter finds them."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from dagwright.client.feedback.inbox import InboxFilter
from dagwright.client.run_lists import RunFilter
from dagwright.client.runs import Runs
from dagwright.core.boundary import wire
from dagwright.protocol.run_attributes import attributes_at_start
from dagwright.server import Connection
from dagwright.store import open_store
from tests.support.eventually import eventually

_REQUEST = {"request_id": "check", "type": "APPROVAL", "assignee": "ann", "opened_at": "2026-01-05T09:30:00.000Z"}


async def _start(client: Client, name: str, memo: Mapping[str, Any], **attributes: Any) -> None:
    """Start a run; attributes are named without their prefix."""
    written = {pair.key.name: pair for pair in attributes_at_start(memo, missing=()).search_attributes}
    for short, value in attributes.items():
        make = SearchAttributeKey.for_keyword_list if isinstance(value, list) else SearchAttributeKey.for_keyword
        key: Any = make(f"Dagwright{short}")
        written[key.name] = SearchAttributePair(key, value)
    await client.start_workflow(
        wire.WORKFLOW_RUN_PLAN,
        {},
        id=name,
        task_queue="nobody",
        memo=memo,
        search_attributes=TypedSearchAttributes([*written.values()]),
    )


async def check_filters(connection: Connection) -> None:
    """Check that each filter of lists and inbox finds exactly its runs, on the server of a connection."""
    client, of = connection.client, uuid4().hex[:12]
    runs = Runs(connection, task_queue="nobody", store=open_store("unused"))
    tags = {"of": of}
    odd = {"who": "o'neill", "says": 'a "b" \\ c', "where": "Köln 100%_"}
    asks = {wire.MEMO_REQUESTS: {"title": "Asks", "count": 1, "shown": [{"node": "check", "request": _REQUEST}]}}
    await _start(client, f"{of}-plain", {wire.MEMO_TAGS: tags, wire.MEMO_TITLE: f'{of} It\'s "plain"'})
    await _start(client, f"{of}-odd", {wire.MEMO_TAGS: tags | odd, wire.MEMO_TEMPLATE: "nightly's"})
    quotes = {"who": "'ann'", "what": "a\u2661b?"}
    await _start(client, f"{of}-it's?", {wire.MEMO_TAGS: tags | quotes, wire.MEMO_TITLE: f"'{of}' \u2661?"})
    waits = {"State": "waiting", "Awaiting": ["ann"]}
    await _start(client, f"{of}-asks", {wire.MEMO_TAGS: tags, wire.MEMO_OWNER: f"bob-{of}", **asks}, **waits)
    below = {wire.MEMO_ROOT: f"{of}-asks", wire.MEMO_PATH: ["in"], wire.MEMO_OWNER: f"bob-{of}", **asks}
    await _start(client, f"{of}-asks/in", {wire.MEMO_TAGS: tags, **below}, Root=f"{of}-asks", **waits)
    await _start(client, f"{of}-over", {wire.MEMO_TAGS: tags}, Session="ann:main")
    await client.get_workflow_handle(f"{of}-over").terminate()

    async def list_names(**expected_filter: Any) -> list[str]:
        listed_runs = await runs.list_runs(run_filter=RunFilter(**{"tags": tags, **expected_filter}))
        return sorted(run.run_id.removeprefix(f"{of}-") for run in listed_runs)

    async def are_listed() -> bool:
        return await list_names() == ["asks", "it's?", "odd", "over", "plain"] and await list_names(
            status="failed"
        ) == ["over"]

    await eventually(are_listed)
    expected: list[tuple[dict[str, Any], list[str]]] = [
        *(({"status": "running"}, ["it's?", "odd", "plain"]), ({"status": "waiting"}, ["asks"])),
        *(({"status": "completed"}, []), ({"status": "completed_with_failures"}, []), ({"status": "cancelled"}, [])),
        *(({"session": "ann:main"}, ["over"]), ({"owner": f"bob-{of}"}, ["asks"]), ({"owner": f"Bob-{of}"}, [])),
        *(({"template": "nightly's"}, ["odd"]), ({"title": f"{of} It's \"pl"}, ["plain"])),
        *(({"title": f"{of} it's"}, []), ({"title": f"{of}-o"}, ["odd", "over"]), ({"title": f"{of}-O"}, [])),
        *(({"title": f"{of}-it's"}, ["it's?"]), ({"title": f"'{of}' \u2661?"}, ["it's?"])),
        *(({"title": f"{of}-it's?"}, ["it's?"]), ({"title": f"{of}-it's\\"}, []), ({"title": "''"}, [])),
        *(({"tags": tags | quotes}, ["it's?"]), ({"tags": tags | {"who": "ann"}}, []), ({"owner": f"'bob-{of}'"}, [])),
        *(({"tags": tags | odd}, ["odd"]), ({"tags": tags | {"who": "O'Neill"}}, [])),
        *(({"since": 0.0}, ["asks", "it's?", "odd", "over", "plain"]), ({"since": 4e9}, [])),
    ]
    assert [await list_names(**expected_filter) for expected_filter, _ in expected] == [names for _, names in expected]
    for expected_filter in (
        InboxFilter(owner=f"bob-{of}"),
        InboxFilter(assignee="ann"),
        InboxFilter(opened_before=4e9),
    ):
        page = await runs.inbox(limit=1_000, inbox_filter=expected_filter)
        ids = {request.id for request in page.requests if request.document["run_id"] == f"{of}-asks"}
        assert ids == {"check", "in/check"}, expected_filter
    assert (await runs.inbox(limit=10, inbox_filter=InboxFilter(owner=f"eve-{of}"))).requests == []
    assert await runs.count_open_runs(f"bob-{of}") == 1
    assert await runs.count_open_runs(f"bob-{of}", excluded_ids=[f"{of}-asks"]) == 0
    for name in ("plain", "odd", "it's?", "asks", "asks/in"):
        await client.get_workflow_handle(f"{of}-{name}").terminate()


async def check_pages(connection: Connection) -> None:
    """Check that pages skip nothing while runs end between them, on the server of a connection."""
    client, of = connection.client, uuid4().hex[:12]
    runs = Runs(connection, task_queue="nobody", store=open_store("unused"))
    run_filter, inbox_filter = RunFilter(tags={"of": of}), InboxFilter(assignee=f"ann-{of}")
    request = {**_REQUEST, "assignee": f"ann-{of}"}
    asks = {wire.MEMO_REQUESTS: {"title": "Asks", "count": 1, "shown": [{"node": "check", "request": request}]}}
    names = [f"{of}-{number}" for number in range(10)]
    for name in names:
        await _start(client, name, {wire.MEMO_TAGS: {"of": of}, **asks}, State="waiting", Awaiting=[f"ann-{of}"])

    async def have_ended(count: int) -> bool:
        return [run.status.value for run in await runs.list_runs(run_filter=run_filter)].count("failed") == count

    async def end(*ended: str, total: int) -> None:
        for name in ended:
            await client.get_workflow_handle(name).terminate()
        await eventually(lambda: have_ended(total))

    await eventually(lambda: _lists(runs, run_filter, len(names)))
    newest_first = [run.run_id for run in await runs.list_runs(run_filter=run_filter)]
    page = await runs.inbox(limit=4, inbox_filter=inbox_filter)
    asking = [request.request_ref.workflow_id for request in page.requests]
    listed, cursor = await runs.page_of_runs(limit=4, run_filter=run_filter)
    assert sorted(asking) == sorted(newest_first[:4]) == sorted(run.run_id for run in listed)
    # Two runs of the first page, of which one is at the cursor, and one of a later page.
    await end(newest_first[0], newest_first[3], newest_first[5], total=3)
    rest = await runs.inbox(limit=9, inbox_filter=inbox_filter, after=page.cursor)
    still_open = [newest_first[4], *newest_first[6:]]
    assert sorted(request.request_ref.workflow_id for request in rest.requests) == sorted(still_open)
    actual: list[str] = []
    while cursor is not None:
        listed, cursor = await runs.page_of_runs(limit=3, run_filter=run_filter, after=cursor)
        actual += [run.run_id for run in listed]
    # Runs that ended after they were listed are listed again, at their new position.
    assert actual == [*still_open, newest_first[5], newest_first[3], newest_first[0]]
    await end(*still_open, *newest_first[1:3], total=len(names))


async def _lists(runs: Runs, run_filter: RunFilter, count: int) -> bool:
    return len(await runs.list_runs(run_filter=run_filter)) == count
