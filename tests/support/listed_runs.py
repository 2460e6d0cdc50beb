"""Check the filters and pages of run lists and of the inbox, with runs that no worker serves."""

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
    """Start a run; `attributes` are search attributes, whose names are given without the prefix `Dagwright`."""
    attributes_by_name = {
        pair.key.name: pair for pair in attributes_at_start(memo, missing_attributes=()).search_attributes
    }
    for suffix, value in attributes.items():
        create_key = SearchAttributeKey.for_keyword_list if isinstance(value, list) else SearchAttributeKey.for_keyword
        key: Any = create_key(f"Dagwright{suffix}")
        attributes_by_name[key.name] = SearchAttributePair(key, value)
    await client.start_workflow(
        wire.WORKFLOW_RUN_PLAN,
        {},
        id=name,
        task_queue="unserved",
        memo=memo,
        search_attributes=TypedSearchAttributes([*attributes_by_name.values()]),
    )


async def check_filters(connection: Connection) -> None:
    """Check that each filter of run lists and of the inbox finds exactly the matching runs."""
    client, prefix = connection.client, uuid4().hex[:12]
    runs = Runs(connection, task_queue="unserved", store=open_store("unused"))
    tags = {"of": prefix}
    odd_tags = {"who": "o'neill", "says": 'a "b" \\ c', "where": "Köln 100%_"}
    request_memo = {
        wire.MEMO_REQUESTS: {"title": "Asks", "count": 1, "shown": [{"node": "check", "request": _REQUEST}]}
    }
    await _start(client, f"{prefix}-plain", {wire.MEMO_TAGS: tags, wire.MEMO_TITLE: f'{prefix} It\'s "plain"'})
    await _start(client, f"{prefix}-odd", {wire.MEMO_TAGS: tags | odd_tags, wire.MEMO_TEMPLATE: "nightly's"})
    quoted_tags = {"who": "'ann'", "what": "a\u2661b?"}
    await _start(
        client, f"{prefix}-it's?", {wire.MEMO_TAGS: tags | quoted_tags, wire.MEMO_TITLE: f"'{prefix}' \u2661?"}
    )
    waiting_attributes = {"State": "waiting", "Awaiting": ["ann"]}
    waiting_memo = {wire.MEMO_TAGS: tags, wire.MEMO_OWNER: f"bob-{prefix}", **request_memo}
    await _start(client, f"{prefix}-asks", waiting_memo, **waiting_attributes)
    child_memo = {**waiting_memo, wire.MEMO_ROOT: f"{prefix}-asks", wire.MEMO_PATH: ["in"]}
    await _start(client, f"{prefix}-asks/in", child_memo, Root=f"{prefix}-asks", **waiting_attributes)
    await _start(client, f"{prefix}-over", {wire.MEMO_TAGS: tags}, Session="ann:main")
    await client.get_workflow_handle(f"{prefix}-over").terminate()

    async def list_names(**filter_fields: Any) -> list[str]:
        listed_runs = await runs.list_runs(run_filter=RunFilter(**{"tags": tags, **filter_fields}))
        return sorted(run.run_id.removeprefix(f"{prefix}-") for run in listed_runs)

    async def are_listed() -> bool:
        names = await list_names()
        return names == ["asks", "it's?", "odd", "over", "plain"] and await list_names(status="failed") == ["over"]

    await eventually(are_listed)
    expected: list[tuple[dict[str, Any], list[str]]] = [
        ({"status": "running"}, ["it's?", "odd", "plain"]),
        ({"status": "waiting"}, ["asks"]),
        *(({"status": status}, []) for status in ("completed", "completed_with_failures", "cancelled")),
        ({"session_name": "ann:main"}, ["over"]),
        ({"owner": f"bob-{prefix}"}, ["asks"]),
        *(({"owner": owner}, []) for owner in (f"Bob-{prefix}", f"'bob-{prefix}'")),
        ({"template": "nightly's"}, ["odd"]),
        ({"title": f"{prefix} It's \"pl"}, ["plain"]),
        ({"title": f"{prefix}-o"}, ["odd", "over"]),
        *(({"title": title}, ["it's?"]) for title in (f"{prefix}-it's", f"'{prefix}' \u2661?", f"{prefix}-it's?")),
        *(({"title": title}, []) for title in (f"{prefix} it's", f"{prefix}-O", f"{prefix}-it's\\", "''")),
        ({"tags": tags | quoted_tags}, ["it's?"]),
        ({"tags": tags | odd_tags}, ["odd"]),
        *(({"tags": tags | {"who": who}}, []) for who in ("ann", "O'Neill")),
        ({"since": 0.0}, ["asks", "it's?", "odd", "over", "plain"]),
        ({"since": 4e9}, []),
    ]
    assert [await list_names(**filter_fields) for filter_fields, _ in expected] == [names for _, names in expected]
    inbox_filters = (InboxFilter(owner=f"bob-{prefix}"), InboxFilter(assignee="ann"), InboxFilter(opened_before=4e9))
    for inbox_filter in inbox_filters:
        page = await runs.inbox(limit=1_000, inbox_filter=inbox_filter)
        ids = {request.id for request in page.requests if request.document["run_id"] == f"{prefix}-asks"}
        assert ids == {"check", "in/check"}, inbox_filter
    assert (await runs.inbox(limit=10, inbox_filter=InboxFilter(owner=f"eve-{prefix}"))).requests == []
    assert await runs.count_open_runs(f"bob-{prefix}") == 1
    assert await runs.count_open_runs(f"bob-{prefix}", excluded_ids=[f"{prefix}-asks"]) == 0
    for name in ("plain", "odd", "it's?", "asks", "asks/in"):
        await client.get_workflow_handle(f"{prefix}-{name}").terminate()


async def check_pages(connection: Connection) -> None:
    """Check that a list of several pages skips no run if runs end between two pages."""
    client, prefix = connection.client, uuid4().hex[:12]
    runs = Runs(connection, task_queue="unserved", store=open_store("unused"))
    run_filter, inbox_filter = RunFilter(tags={"of": prefix}), InboxFilter(assignee=f"ann-{prefix}")
    request = {**_REQUEST, "assignee": f"ann-{prefix}"}
    request_memo = {wire.MEMO_REQUESTS: {"title": "Asks", "count": 1, "shown": [{"node": "check", "request": request}]}}
    names = [f"{prefix}-{number}" for number in range(10)]
    for name in names:
        await _start(
            client, name, {wire.MEMO_TAGS: {"of": prefix}, **request_memo}, State="waiting", Awaiting=[f"ann-{prefix}"]
        )

    async def have_ended(count: int) -> bool:
        return [run.status.value for run in await runs.list_runs(run_filter=run_filter)].count("failed") == count

    async def end_runs(*run_ids: str, total: int) -> None:
        for name in run_ids:
            await client.get_workflow_handle(name).terminate()
        await eventually(lambda: have_ended(total))

    await eventually(lambda: _has_run_count(runs, run_filter, len(names)))
    ids_newest_first = [run.run_id for run in await runs.list_runs(run_filter=run_filter)]
    page = await runs.inbox(limit=4, inbox_filter=inbox_filter)
    requesting_ids = [request.request_ref.run_id for request in page.requests]
    page_runs, cursor = await runs.page_of_runs(limit=4, run_filter=run_filter)
    assert sorted(requesting_ids) == sorted(ids_newest_first[:4]) == sorted(run.run_id for run in page_runs)
    # End two runs of the first page, one of them at the cursor, and a run of a later page.
    await end_runs(ids_newest_first[0], ids_newest_first[3], ids_newest_first[5], total=3)
    next_page = await runs.inbox(limit=9, inbox_filter=inbox_filter, after=page.cursor)
    open_ids = [ids_newest_first[4], *ids_newest_first[6:]]
    assert sorted(request.request_ref.run_id for request in next_page.requests) == sorted(open_ids)
    later_ids: list[str] = []
    while cursor is not None:
        page_runs, cursor = await runs.page_of_runs(limit=3, run_filter=run_filter, after=cursor)
        later_ids += [run.run_id for run in page_runs]
    # A run that ends after it was listed is listed again, at its new position.
    assert later_ids == [*open_ids, ids_newest_first[5], ids_newest_first[3], ids_newest_first[0]]
    await end_runs(*open_ids, *ids_newest_first[1:3], total=len(names))


async def _has_run_count(runs: Runs, run_filter: RunFilter, count: int) -> bool:
    return len(await runs.list_runs(run_filter=run_filter)) == count
