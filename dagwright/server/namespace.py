"""Prepare a namespace for Dagwright: create it, set its retention, and register the search attributes."""

import asyncio
import time
from datetime import timedelta

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    RegisterNamespaceRequest,
    UpdateNamespaceRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from dagwright.core.boundary import wire

RETENTION = timedelta(days=90)
"""Retention of closed runs on a server that Dagwright started; the default of a dev server is one day."""

SEARCH_ATTRIBUTES = {
    wire.SEARCH_STATE: "Keyword",
    wire.SEARCH_AWAITING: "KeywordList",
    wire.SEARCH_SESSION: "Keyword",
    wire.SEARCH_TITLE: "Keyword",
    wire.SEARCH_TEMPLATE: "Keyword",
    wire.SEARCH_TAGS: "KeywordList",
    wire.SEARCH_OWNER: "Keyword",
    wire.SEARCH_ROOT: "Keyword",
    wire.SEARCH_PROGRESS: "Keyword",
}
"""Search attribute -> name of its type in the Temporal CLI. With an SQL database, a namespace can have 10 Keywords and
3 KeywordLists.
"""

_TYPES_IN_API = {
    "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    "KeywordList": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST,
}

_ACCEPT_TIMEOUT_S = 30.0
_RECHECK_INTERVAL_S = 60.0
"""Interval of the check for missing attributes: an administrator may register them at any time."""
_RPC_TIMEOUT = timedelta(seconds=10)


async def prepare_namespace(client: Client) -> None:
    """Create the client's namespace if it is missing, and set its retention to `RETENTION`.

    Raises:
        RPCError: the server rejects the request.
    """
    service = client.workflow_service
    retention = Duration()
    retention.FromTimedelta(RETENTION)
    try:
        description = await service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace), timeout=_RPC_TIMEOUT
        )
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        await service.register_namespace(
            RegisterNamespaceRequest(namespace=client.namespace, workflow_execution_retention_period=retention),
            timeout=_RPC_TIMEOUT,
        )
        return
    if description.config.workflow_execution_retention_ttl.ToTimedelta() == RETENTION:
        return
    await service.update_namespace(
        UpdateNamespaceRequest(
            namespace=client.namespace, config=NamespaceConfig(workflow_execution_retention_ttl=retention)
        ),
        timeout=_RPC_TIMEOUT,
    )


async def register_search_attributes(client: Client) -> frozenset[str]:
    """Register the search attributes that the namespace lacks, and wait until the server accepts them.

    The server rejects the start of a run with an unregistered attribute, and a workflow that sets such an attribute is
    stuck. A new attribute is listed some seconds before the server accepts it in queries and in starts of runs.

    Returns:
        The attributes that are not registered, or that the server does not accept in time.
    """
    missing_names, is_query_rejected = await asyncio.gather(_missing_attributes(client), _is_query_rejected(client))
    if missing_names:
        request = AddSearchAttributesRequest(
            namespace=client.namespace,
            search_attributes={name: _TYPES_IN_API[SEARCH_ATTRIBUTES[name]] for name in sorted(missing_names)},
        )
        try:
            await client.operator_service.add_search_attributes(request, timeout=_RPC_TIMEOUT)
        except RPCError as error:
            if error.status != RPCStatusCode.ALREADY_EXISTS:
                return missing_names
    elif not is_query_rejected:
        return missing_names
    deadline = time.monotonic() + _ACCEPT_TIMEOUT_S
    while (
        missing_names := await _missing_attributes(client) or await _unqueryable_attributes(client)
    ) and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    return missing_names


class SearchAttributeCheck:
    """Cached check whether the namespace of a client has the search attributes that runs write."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._is_registered = False
        self._checked_at = -_RECHECK_INTERVAL_S

    async def is_registered(self) -> bool:
        """Return whether all search attributes are registered."""
        if not self._is_registered and time.monotonic() - self._checked_at >= _RECHECK_INTERVAL_S:
            self._is_registered = not await _missing_attributes(self._client)
            self._checked_at = time.monotonic()
        return self._is_registered


async def _missing_attributes(client: Client) -> frozenset[str]:
    try:
        response = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace), timeout=_RPC_TIMEOUT
        )
    except RPCError:
        # A key may lack access to the operator service. A query then shows whether the attributes exist.
        return await _unqueryable_attributes(client)
    return frozenset(
        name for name, kind in SEARCH_ATTRIBUTES.items() if response.custom_attributes.get(name) != _TYPES_IN_API[kind]
    )


async def _unqueryable_attributes(client: Client) -> frozenset[str]:
    """Return all search attributes if a query with them fails, otherwise an empty set."""
    return frozenset(SEARCH_ATTRIBUTES if await _query_error_status(client) is not None else ())


async def _is_query_rejected(client: Client) -> bool:
    """Return whether the server rejects a query with the search attributes."""
    return await _query_error_status(client) is RPCStatusCode.INVALID_ARGUMENT


async def _query_error_status(client: Client) -> RPCStatusCode | None:
    try:
        await client.count_workflows(" AND ".join(f"{name} IS NULL" for name in SEARCH_ATTRIBUTES))
    except RPCError as error:
        return error.status
    return None
