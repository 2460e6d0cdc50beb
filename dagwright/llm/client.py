"""Model client: makes each call once, against any server that speaks OpenAI's protocol, and classifies failures.

    async with ModelClient(Endpoint(base_url, key), model="gpt-4o") as client:
        answer = await client.complete(ModelCall(messages=(user("Hello?"),)))
        async with client.stream(call) as stream:
            async for words in stream: ...
        print(stream.answer.usage)

A client has no state per call, so it supports any number of concurrent calls to different models. A client never
retries a failed call. Only a request that a server rejects because of its form is sent again in another form
(`dagwright.llm.capabilities`). `ModelClients` creates one client per server on first use.
"""

import asyncio
import importlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from dagwright.core.extras import MissingExtra, has_extra
from dagwright.llm.capabilities import Capabilities, CapabilityCache, OutputMode, reduce_capabilities
from dagwright.llm.completions import CompletionBuilder, parse_completion, parse_usage, to_model_response
from dagwright.llm.errors import CallTarget, ServiceError, model_error_of, to_model_failure
from dagwright.llm.prices import PricesUnreadable, PriceTable, read_prices, shipped_prices
from dagwright.llm.request_body import PreparedCall
from dagwright.planning.model_calls.model_failure import ModelError, ModelFailure
from dagwright.planning.model_calls.model_requests import ModelCall, ModelConfig, ModelResponse, NamedEndpoint
from dagwright.tools.redaction import Redaction

if TYPE_CHECKING:
    from dagwright.llm.transport import Transport

OPENAI_BASE_URL = "https://api.openai.com/v1"
"""Default server."""
READ_TIMEOUT_S = 600.0
"""Read timeout in seconds: reasoning models may send nothing for minutes."""
CONNECT_TIMEOUT_S = 10.0
MAX_ANSWER_CHARACTERS = 4_000_000
"""Maximum length of a streamed answer: several times the output limit of any model. A worker holds the answer in
memory."""
_SENDABLE_KEY = re.compile(r"[!-~]*")
_WEB_ADDRESS = re.compile(r"https?://[^\s/]+\S*")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Model server.

    Args:
        base_url: `None` is OpenAI's server.
        api_key: empty if the server needs no key.
    """

    base_url: str | None = None
    api_key: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        """URL of the server."""
        return (self.base_url or OPENAI_BASE_URL).rstrip("/")

    @property
    def key(self) -> str:
        """Key as it is sent: without the trailing newline that files and secrets often have."""
        return self.api_key.strip()

    @property
    def is_key_missing(self) -> bool:
        """Whether the key is missing. Only OpenAI's server always needs a key; other servers may need none."""
        return not self.key and self.url == OPENAI_BASE_URL


class ModelClient:
    """Client for the models of one server.

    Args:
        model: default model.
        prices: price table; defaults to the table that ships with Dagwright.
        capability_cache: known capabilities of servers; share one cache between the clients of a process.
        read_timeout_s: read timeout in seconds.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        model: str | None = None,
        prices: PriceTable | None = None,
        capability_cache: CapabilityCache | None = None,
        read_timeout_s: float = READ_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._endpoint = endpoint
        self._model = model
        self._prices = prices if prices is not None else shipped_prices()
        self._capability_cache = capability_cache if capability_cache is not None else CapabilityCache()
        self._read_timeout_s = read_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._transport_task: asyncio.Task[Transport] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. The client can be used again."""
        transport_task, self._transport_task = self._transport_task, None
        if transport_task is not None:
            await (await transport_task).close()

    async def complete(self, call: ModelCall) -> ModelResponse:
        """Make a call and return the response.

        Raises:
            ModelFailure: the call failed, or its response cannot be used.
        """
        prepared_call = self._prepare(call)
        try:
            body, capabilities = await self._send_with_capabilities(prepared_call, self._post, is_streamed=False)
            completion = parse_completion(body)
            return to_model_response(
                completion,
                prepared_call,
                capabilities.mode,
                usage=parse_usage(completion, self._prices, requested_model=prepared_call.model),
            )
        except ServiceError as error:
            raise self._to_failure(error, prepared_call) from error

    def stream(self, call: ModelCall) -> "ModelStream":
        """Make a call and stream the response; use the result with `async with`.

        Raises:
            ModelFailure: the call cannot be made, for example because the key is missing.
        """
        return ModelStream(self, self._prepare(call))

    async def forward_request(self, body: Mapping[str, Any]) -> Any:
        """Forward a request body unchanged and return the response body, both as plain JSON.

        Args:
            body: request for a chat completion without streaming, including its model.

        Raises:
            ModelFailure: the request failed.
        """
        prepared_call = self._prepare_forwarding(body)
        try:
            return await self._post(body)
        except ServiceError as error:
            raise self._to_failure(error, prepared_call) from error

    async def forward_stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        """Forward a request body and yield the chunks of the response as plain JSON.

        Close the generator if you stop early.

        Args:
            body: request for a streamed chat completion, including its model.

        Raises:
            ModelFailure: the request failed, or the stream broke off.
        """
        prepared_call = self._prepare_forwarding(body)
        try:
            transport = await self._transport()
            stream = await transport.stream(body)
            try:
                async for chunk in transport.chunks(stream):
                    yield chunk
            finally:
                await stream.close()
        except ServiceError as error:
            raise self._to_failure(error, prepared_call) from error

    async def model_ids(self) -> list[str]:
        """Return the IDs of the available models, in the order of the server.

        Raises:
            ModelFailure: the server does not return a list of models.
        """
        prepared_call = self._prepare_forwarding({"model": "any"})
        try:
            return await (await self._transport()).model_ids()
        except ServiceError as error:
            raise self._to_failure(error, prepared_call) from error

    def _prepare_forwarding(self, body: Mapping[str, Any]) -> PreparedCall:
        return self._prepare(ModelCall(messages=(), config=ModelConfig(model=str(body.get("model") or "") or None)))

    def _prepare(self, call: ModelCall) -> PreparedCall:
        model = call.config.model or self._model or ""
        prepared_call = PreparedCall(call, model)
        if not has_extra("openai"):
            raise ModelFailure(ModelError.MODEL_NOT_SET, str(MissingExtra("openai")))
        if not model:
            raise self._to_failure(
                ServiceError("classified", "no model is named", error=ModelError.MODEL_NOT_SET), prepared_call
            )
        if self._endpoint.is_key_missing:
            raise self._to_failure(
                ServiceError("classified", "the API key is missing", error=ModelError.KEY_MISSING), prepared_call
            )
        # Without this check, the transport would report a connection error. The error would be retried, and its message
        # would contain the key.
        if _SENDABLE_KEY.fullmatch(self._endpoint.key) is None:
            message = (
                "cannot be called: its key contains a line break, a space, or a character that headers do not allow"
            )
            raise self._to_failure(ServiceError("classified", message, error=ModelError.KEY_REJECTED), prepared_call)
        if _WEB_ADDRESS.fullmatch(self._endpoint.url) is None:
            message = "cannot be called: this is not a URL such as https://models.example.com/v1"
            raise self._to_failure(ServiceError("classified", message, error=ModelError.ADDRESS_INVALID), prepared_call)
        return prepared_call

    async def _send_with_capabilities(
        self, prepared_call: PreparedCall, send: Callable[[Any], Awaitable[T]], *, is_streamed: bool
    ) -> tuple[T, Capabilities]:
        """Send a request. If the server rejects the form of the request, send it again with reduced capabilities.

        Raises:
            ServiceError: the request failed.
        """
        url, call = self._endpoint.url, prepared_call.call
        capabilities: Capabilities = self._capability_cache.find(url, prepared_call.model, call)
        rejections: list[ServiceError] = []
        while True:
            body = prepared_call.body(capabilities, is_streamed=is_streamed)
            try:
                response = await send(body)
            except ServiceError as error:
                reduced_capabilities = reduce_capabilities(capabilities, error, body)
                if reduced_capabilities is None:
                    # If every form was rejected, the error of the best form is the most specific.
                    is_rejection = model_error_of(error) is ModelError.REQUEST_INVALID
                    raise (rejections[0] if rejections and is_rejection else error) from None
                capabilities = reduced_capabilities
                rejections.append(error)
            else:
                self._capability_cache.store(
                    url, prepared_call.model, call, supported_capabilities=capabilities, rejections=rejections
                )
                return response, capabilities

    async def _post(self, body: Any) -> Any:
        return await (await self._transport()).post(body)

    async def _transport(self) -> "Transport":
        if self._transport_task is None:
            self._transport_task = asyncio.ensure_future(asyncio.to_thread(self._create_transport))
        # Other calls may wait for the same task, so the task must survive the cancellation of one call.
        return await asyncio.shield(self._transport_task)

    def _create_transport(self) -> "Transport":
        # The import takes half a second, and runs only when a model is called. It runs in a thread, so that other calls
        # can send heartbeats.
        transport_class: type[Transport] = importlib.import_module("dagwright.llm.transport").Transport
        return transport_class(
            self._endpoint.url,
            self._endpoint.key,
            read_timeout_s=self._read_timeout_s,
            connect_timeout_s=self._connect_timeout_s,
        )

    def _to_failure(self, error: ServiceError, prepared_call: PreparedCall) -> ModelFailure:
        target = CallTarget(
            # A URL may contain secrets.
            Redaction().redact_location(self._endpoint.url),
            model=prepared_call.model,
            max_tokens=prepared_call.call.config.max_tokens,
            api_key=self._endpoint.key,
        )
        return to_model_failure(error, target, now=datetime.now(UTC))


class ModelStream:
    """Response of a model as a stream: iterate over it for the pieces of text, then read `answer`.

    If the answer must be JSON, the pieces are the JSON text, whichever way the server returns it. Leaving the
    `async with` block early cancels the call; the usage of the call is then unknown.
    """

    def __init__(self, client: ModelClient, prepared_call: PreparedCall) -> None:
        self._client = client
        self._prepared_call = prepared_call
        self._builder = CompletionBuilder()
        self._pieces: list[str] = []
        self._answer: ModelResponse | None = None
        self._stream: Any = None
        self._capabilities = Capabilities()

    @property
    def text(self) -> str:
        """Text received so far."""
        return "".join(self._pieces)

    def from_strict(self, output: Any) -> Any:
        """Convert a part of the answer from the strict schema to the requested schema.

        Args:
            output: the answer, or a value assembled from parts of it.
        """
        is_strict = self._capabilities.mode is OutputMode.SCHEMA and self._prepared_call.strict_schema is not None
        return (
            self._prepared_call.strict_schema.from_strict(output)
            if is_strict and self._prepared_call.strict_schema is not None
            else output
        )

    @property
    def answer(self) -> ModelResponse:
        """The complete response.

        Raises:
            RuntimeError: the stream was not read to its end.
        """
        if self._answer is None:
            raise RuntimeError("`answer` is not available before the stream has been read to its end")
        return self._answer

    async def __aenter__(self) -> Self:
        try:
            self._stream, self._capabilities = await self._client._send_with_capabilities(
                self._prepared_call, self._open_stream, is_streamed=True
            )
        except ServiceError as error:
            raise self._client._to_failure(error, self._prepared_call) from error
        output = self._prepared_call.call.output
        if output is not None and self._capabilities.mode is OutputMode.TOOL:
            self._builder = CompletionBuilder(self._prepared_call.tool_names.protocol_name(output.name))
        return self

    async def _open_stream(self, body: Any) -> Any:
        return await (await self._client._transport()).stream(body)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stream.close()

    async def __aiter__(self) -> AsyncIterator[str]:
        client, builder = self._client, self._builder
        try:
            transport = await client._transport()
            async for chunk in transport.chunks(self._stream):
                text = builder.add(chunk)
                if builder.character_count > MAX_ANSWER_CHARACTERS:
                    message = f"exceeded the limit of {MAX_ANSWER_CHARACTERS:,} characters per answer"
                    raise ServiceError("classified", message, error=ModelError.OUTPUT_INVALID)
                if text:
                    self._pieces.append(text)
                    yield text
            completion = builder.finish()
            usage = parse_usage(completion, client._prices, requested_model=self._prepared_call.model)
            self._answer = to_model_response(completion, self._prepared_call, self._capabilities.mode, usage=usage)
        except ServiceError as error:
            error.partial = error.partial or self.text
            raise client._to_failure(error, self._prepared_call) from error


def _no_secret(name: str) -> str | None:  # noqa: ARG001 - signature of `find_secret`
    return None


class SecretMissing(Exception):
    """A request names a secret that the worker does not have; the message names the variable to set."""


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """Model settings of a worker. Nothing is opened or read before it is needed.

    Args:
        endpoint: default server.
        model: default model.
        prices_file: the user's price table; `None` uses only the table that ships with Dagwright.
        find_secret: name -> value of `DAGWRIGHT_SECRET_<name>`, `None` if it is not set.
        read_timeout_s: read timeout in seconds.
    """

    endpoint: Endpoint = field(default_factory=Endpoint)
    model: str | None = None
    prices_file: Path | None = None
    find_secret: Callable[[str], str | None] = field(default=_no_secret, repr=False)
    read_timeout_s: float = READ_TIMEOUT_S

    def prices(self) -> PriceTable:
        """Return the price table.

        Raises:
            PricesUnreadable: the user's table is invalid.
        """
        shipped_table = shipped_prices()
        if self.prices_file is None:
            return shipped_table
        try:
            return read_prices(self.prices_file).with_defaults(shipped_table)
        except PricesUnreadable as error:
            raise PricesUnreadable(f"DAGWRIGHT_PRICES cannot be used: {error}") from error


class ModelClients:
    """One client for each model server that a request names. Use it with `async with`, on one event loop.

    Args:
        setup: model settings of the worker.

    Raises:
        PricesUnreadable: the user's price table is invalid.
    """

    def __init__(self, setup: ModelSetup) -> None:
        self._setup = setup
        self._prices = setup.prices()
        self._capability_cache = CapabilityCache()
        self._clients: dict[Endpoint, ModelClient] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    @property
    def default_model(self) -> str | None:
        """Model of calls that do not name a model."""
        return self._setup.model

    def client(self, named_endpoint: NamedEndpoint | None) -> ModelClient:
        """Return the client of a server.

        Args:
            named_endpoint: `None` for the server of the settings. A named server gets only the key that it
                names, never the key of the settings.

        Raises:
            SecretMissing: the worker does not have the key of the server.
        """
        endpoint = self._setup.endpoint if named_endpoint is None else self._endpoint(named_endpoint)
        if endpoint not in self._clients:
            self._clients[endpoint] = ModelClient(
                endpoint,
                model=self._setup.model,
                prices=self._prices,
                capability_cache=self._capability_cache,
                read_timeout_s=self._setup.read_timeout_s,
            )
        return self._clients[endpoint]

    def _endpoint(self, named_endpoint: NamedEndpoint) -> Endpoint:
        if not named_endpoint.secret:
            return Endpoint(named_endpoint.base_url)
        key = self._setup.find_secret(named_endpoint.secret)
        if not key:
            location = Redaction().redact_location(named_endpoint.base_url)
            raise SecretMissing(
                f"the key of {location} is not set; set DAGWRIGHT_SECRET_{named_endpoint.secret} for the worker"
            )
        return Endpoint(named_endpoint.base_url, key)
