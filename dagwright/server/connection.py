"""Connect a client to the server that the user configured, or to the server of the state folder."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConfigProfile
from temporalio.service import RPCError, RPCStatusCode, ServiceClient

from dagwright.logging import temporal_runtime
from dagwright.process.tracing import tracing_client
from dagwright.protocol.conversion import compose_converter, data_converter
from dagwright.server.errors import SearchAttributesMissing, ServerUnreachable
from dagwright.server.local import LocalServer, Server, dial
from dagwright.server.namespace import SEARCH_ATTRIBUTES, register_search_attributes
from dagwright.settings import Settings

_CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Connection:
    """A connected client.

    Args:
        client: client with a data converter that encodes values as runs require.
        server: the connected server.
        missing_search_attributes: missing attributes that could not be registered. If any is missing, runs are started
            without search attributes and cannot be listed.
    """

    client: Client
    server: Server
    missing_search_attributes: frozenset[str]

    def require_search_attributes(self) -> None:
        """Check that runs can be listed.

        Raises:
            SearchAttributesMissing: the namespace lacks search attributes.
        """
        if self.missing_search_attributes:
            options = " ".join(
                f"--name {name} --type {SEARCH_ATTRIBUTES[name]}" for name in sorted(self.missing_search_attributes)
            )
            raise SearchAttributesMissing(
                f"runs cannot be listed, because the namespace {self.server.namespace!r} lacks search attributes; "
                f"register them with `temporal operator search-attribute create --namespace {self.server.namespace} "
                f"{options}`, then restart the workers; if they are registered already, connect again: a server "
                "accepts new attributes after some seconds"
            )


@asynccontextmanager
async def open_connection(
    settings: Settings, *, address: str | None = None, namespace: str | None = None
) -> AsyncIterator[Connection]:
    """Connect to a server until the block ends; if no server is configured or running, start one.

    Args:
        address, namespace: override those of Temporal's environment variables and config file.

    Raises:
        ServerUnreachable: no server is available.
    """
    profile = _load_profile()
    namespace = namespace or profile.namespace or "default"
    source = "" if address else _ADDRESS_SOURCE
    profile = replace(profile, address=address or profile.address, namespace=namespace)
    if profile.address is not None:
        client = await _dial_profile(profile, namespace=namespace, source=source)
        server = Server(address=profile.address, namespace=namespace, ui_url=settings.ui_url)
        async with _traced_connection(client, server, settings) as connection:
            yield connection
        return
    async with LocalServer(settings).hold(namespace) as server:
        client = await dial(server.address, namespace=namespace)
        async with _traced_connection(client, server, settings) as connection:
            yield connection


@asynccontextmanager
async def _traced_connection(client: Client, server: Server, settings: Settings) -> AsyncIterator[Connection]:
    attributes = await register_search_attributes(client)
    async with tracing_client(client, endpoint=settings.otel_endpoint) as traced_client:
        yield Connection(traced_client, server, attributes)


async def connection_of(client: Client) -> Connection:
    """Return the connection of an existing client; the caller closes the client.

    Dagwright's data converter is composed with that of the client, so the codec of the client is preserved.

    Raises:
        ConverterUnusable: the data converter does not encode JSON values as `json/plain`.
    """
    config = client.config()
    config["data_converter"] = compose_converter(client.data_converter)
    client = Client(**config)
    server = Server(address=client.service_client.config.target_host, namespace=client.namespace)
    return Connection(client, server, await register_search_attributes(client))


async def separate_client(client: Client) -> Client:
    """Open another connection for a client: the SDK allows one worker per connection and task queue."""
    config = client.config()
    config["service_client"] = await ServiceClient.connect(client.service_client.config)
    return Client(**config)


def configured_server() -> dict[str, str]:
    """Return the server in Temporal's environment variables or config file: variable -> value; may be empty.

    Raises:
        ServerUnreachable: the variables or the file cannot be read.
    """
    profile = _load_profile()
    variables = {"TEMPORAL_ADDRESS": profile.address, "TEMPORAL_NAMESPACE": profile.namespace}
    return {variable: value for variable, value in variables.items() if value}


def _load_profile() -> ClientConfigProfile:
    try:
        return ClientConfigProfile.load()
    except Exception as error:
        # The parser in the SDK's core reports an error only as text.
        raise ServerUnreachable(f"Temporal's environment variables or config file cannot be used: {error}") from error


async def _dial_profile(profile: ClientConfigProfile, *, namespace: str, source: str) -> Client:
    server_text = f"the Temporal server at {profile.address}"
    if "://" in (profile.address or ""):
        # The SDK would accept the value and log a deprecation warning.
        raise ServerUnreachable(f"{server_text} cannot be reached: {_ADDRESS_FORMAT}")
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            client = await Client.connect(
                **profile.to_client_connect_config(),
                data_converter=data_converter,
                runtime=temporal_runtime(),
            )
            await _check_namespace(client)
    except TimeoutError as error:
        raise ServerUnreachable(f"{server_text} does not respond within {_CONNECT_TIMEOUT_S:g} s{source}") from error
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            raise ServerUnreachable(f"{server_text} has no namespace {namespace!r}") from error
        raise ServerUnreachable(f"{server_text} rejects the connection: {_explain(str(error))}") from error
    except (RuntimeError, ValueError) as error:
        raise ServerUnreachable(f"{server_text} cannot be reached: {_explain(str(error))}{source}") from None
    return client


_ADDRESS_FORMAT = "an address is written HOST:PORT, such as localhost:7233"
_ADDRESS_SOURCE = "; TEMPORAL_ADDRESS or Temporal's config file names this server; without them, Dagwright starts one"
_EXPLANATIONS = (
    ("ConnectionRefused", "nothing listens there"),
    ("dns error", "the host name is unknown"),
    ("TimedOut", "the host does not respond"),
    ("Unreachable", "there is no network route to the host"),
    ("ertificate", "its certificate is not trusted; see the TLS settings"),
    ("InvalidContentType", "it does not use TLS; remove the TLS settings and the API key, or use its TLS port"),
    ("h2 protocol error", "it is not a Temporal server, or it requires TLS"),
    ("FRAME_SIZE_ERROR", "it is not a Temporal server, or it requires TLS"),
    ("invalid target URL", _ADDRESS_FORMAT),
    ("Unauthenticated", "it rejects the API key"),
    ("PermissionDenied", "it rejects the API key"),
)
"""Part of an error text of the SDK's core -> explanation for users."""


def _explain(text: str) -> str:
    """Return the explanation of a connection error; without an explanation, the start of the error text."""
    explanation = next((explanation for part, explanation in _EXPLANATIONS if part in text), None)
    return explanation or text.partition(" Status {")[0].partition(" tonic::")[0].strip(" :")[:200]


async def _check_namespace(client: Client) -> None:
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError as error:
        # A key may be allowed to run workflows but not to describe namespaces.
        if error.status != RPCStatusCode.PERMISSION_DENIED:
            raise
