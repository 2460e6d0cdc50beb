"""The model client: asks any server that speaks OpenAI's protocol, once for each call, and tells what a failure means.

    async with ModelClient(Endpoint(base_url, key), model="gpt-4o") as client:
        answer = await client.complete(ModelCall(messages=(user("Hello?"),)))
        async with client.stream(call) as stream:
            async for words in stream: ...
        print(stream.answer.usage)

A client holds no state of a call, so any number of them, of different models, may be under way at once. It never tries
again what failed: only a request that a server rejects for its form is sent in another form
(`dagwright.llm.capabilities`).
"""

import asyncio
import importlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from dagwright.core.extras import MissingExtra, has_extra
from dagwright.llm.capabilities import Capabilities, CapabilityCache, OutputMode, next_capabilities
from dagwright.llm.completions import CompletionBuilder, parse_completion, parse_usage, to_model_response
from dagwright.llm.errors import CallTarget, ServiceError, model_error_of, to_model_failure
from dagwright.llm.prices import PriceTable, shipped_prices
from dagwright.llm.request_body import PreparedCall
from dagwright.planning.model_calls.calls import ModelCall, ModelConfig, ModelError, ModelResponse
from dagwright.planning.model_calls.failures import ModelFailure
from dagwright.tools.redaction import Redaction

if TYPE_CHECKING:
    from dagwright.llm.transport import Transport

OPENAI_BASE_URL = "https://api.openai.com/v1"
"""The service that is asked where no other is named."""
ANSWER_S = 600.0
"""Seconds without a byte: models that think first may be silent for minutes."""
CONNECT_S = 10.0
ANSWER_CHARACTERS = 4_000_000
"""What a streamed answer may have: several times what any model writes at once. A worker holds it in memory."""
_SENDABLE_KEY = re.compile(r"[!-~]*")
_WEB_ADDRESS = re.compile(r"https?://[^\s/]+\S*")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model service.

    Args:
        base_url: `None` is OpenAI's own.
        api_key: empty if it needs none.
    """

    base_url: str | None = None
    api_key: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        """Returns the address of the service."""
        return (self.base_url or OPENAI_BASE_URL).rstrip("/")

    @property
    def key(self) -> str:
        """Returns the key as it is sent: without the line end that files and secrets often have behind it."""
        return self.api_key.strip()

    @property
    def is_key_missing(self) -> bool:
        """Whether nothing can be asked here for want of a key; other services than OpenAI's own may need none."""
        return not self.key and self.url == OPENAI_BASE_URL


class ModelClient:
    """Asks the models of one service.

    Args:
        model: what is asked where a call names none.
        prices: what models cost; by default the table that ships with Dagwright.
        capability_cache: what is known of servers; share one among the clients of a process.
        answer_s: seconds without a byte after which a call is given up.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        model: str | None = None,
        prices: PriceTable | None = None,
        capability_cache: CapabilityCache | None = None,
        answer_s: float = ANSWER_S,
        connect_s: float = CONNECT_S,
    ) -> None:
        self._endpoint = endpoint
        self._model = model
        self._prices = prices if prices is not None else shipped_prices()
        self._capability_cache = capability_cache if capability_cache is not None else CapabilityCache()
        self._answer_s = answer_s
        self._connect_s = connect_s
        self._opening: asyncio.Task[Transport] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections; the client can be used again."""
        opening, self._opening = self._opening, None
        if opening is not None:
            await (await opening).close()

    async def complete(self, call: ModelCall) -> ModelResponse:
        """Returns the answer to a call.

        Raises:
            ModelFailure: there is none that is of use.
        """
        prepared = self._prepared(call)
        try:
            body, capabilities = await self._asked(prepared, self._post, is_streamed=False)
            said = parse_completion(body)
            return to_model_response(
                said, prepared, capabilities.mode, usage=parse_usage(said, self._prices, asked=prepared.model)
            )
        except ServiceError as error:
            raise self._failure(error, prepared) from error

    def stream(self, call: ModelCall) -> "ModelStream":
        """Returns the answer to a call as it is written; use it as `async with`.

        Raises:
            ModelFailure: the call cannot be made.
        """
        return ModelStream(self, self._prepared(call))

    async def forward_request(self, body: Mapping[str, Any]) -> Any:
        """Returns the answer to a request that somebody else wrote, both as plain JSON and neither changed.

        Args:
            body: of a chat completion that is not streamed, with its model.

        Raises:
            ModelFailure: there is none.
        """
        prepared = self._passed_on(body)
        try:
            return await self._post(body)
        except ServiceError as error:
            raise self._failure(error, prepared) from error

    async def forward_stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
        """Yields the chunks of the answer to a request that somebody else wrote, as plain JSON; close it if left early.

        Args:
            body: of a chat completion that is streamed, with its model.

        Raises:
            ModelFailure: there is none, or it broke off.
        """
        prepared = self._passed_on(body)
        try:
            transport = await self._transport()
            stream = await transport.stream(body)
            try:
                async for chunk in transport.chunks(stream):
                    yield chunk
            finally:
                await stream.close()
        except ServiceError as error:
            raise self._failure(error, prepared) from error

    async def model_ids(self) -> list[str]:
        """Returns the ids of the models that the service lists, as it orders them.

        Raises:
            ModelFailure: it does not tell.
        """
        prepared = self._passed_on({"model": "any"})
        try:
            return await (await self._transport()).model_ids()
        except ServiceError as error:
            raise self._failure(error, prepared) from error

    def _passed_on(self, body: Mapping[str, Any]) -> PreparedCall:
        return self._prepared(ModelCall(messages=(), config=ModelConfig(model=str(body.get("model") or "") or None)))

    def _prepared(self, call: ModelCall) -> PreparedCall:
        model = call.config.model or self._model or ""
        prepared = PreparedCall(call, model)
        if not has_extra("openai"):
            raise ModelFailure(ModelError.MODEL_MISSING, str(MissingExtra("openai")))
        if not model:
            raise self._failure(ServiceError("answer", "no model is named", error=ModelError.MODEL_MISSING), prepared)
        if self._endpoint.is_key_missing:
            raise self._failure(ServiceError("answer", "there is no key", error=ModelError.KEY_MISSING), prepared)
        # The transport would fail as if nobody were there, again and again, and with the key in its words.
        if _SENDABLE_KEY.fullmatch(self._endpoint.key) is None:
            words = "cannot be asked: its key holds a line end, a blank or a letter that no header can carry"
            raise self._failure(ServiceError("answer", words, error=ModelError.KEY_REFUSED), prepared)
        if _WEB_ADDRESS.fullmatch(self._endpoint.url) is None:
            words = "cannot be asked: that is no address such as https://models.example.com/v1"
            raise self._failure(ServiceError("answer", words, error=ModelError.ADDRESS_WRONG), prepared)
        return prepared

    async def _asked(
        self, prepared: PreparedCall, send: Callable[[Any], Awaitable[T]], *, is_streamed: bool
    ) -> tuple[T, Capabilities]:
        """Asks in the capabilities of the server, and in another one as long as it refuses how it was asked.

        Raises:
            ServiceError: it does not answer.
        """
        url, call = self._endpoint.url, prepared.call
        capabilities: Capabilities = self._capability_cache.of(url, prepared.model, call)
        refused: list[ServiceError] = []
        while True:
            body = prepared.body(capabilities, is_streamed=is_streamed)
            try:
                answer = await send(body)
            except ServiceError as error:
                changed = next_capabilities(capabilities, error, body)
                if changed is None:
                    # If no way was taken, what was wrong with the best one tells the most.
                    is_refusal = model_error_of(error) is ModelError.REQUEST_INVALID
                    raise (refused[0] if refused and is_refusal else error) from None
                capabilities = changed
                refused.append(error)
            else:
                self._capability_cache.remember(url, prepared.model, call, worked=capabilities, refused=refused)
                return answer, capabilities

    async def _post(self, body: Any) -> Any:
        return await (await self._transport()).post(body)

    async def _transport(self) -> "Transport":
        if self._opening is None:
            self._opening = asyncio.ensure_future(asyncio.to_thread(self._open))
        # Others may wait for it too, so a call that is cancelled does not stop it.
        return await asyncio.shield(self._opening)

    def _open(self) -> "Transport":
        # In a thread, and only now: the library takes half a second, in which no other call could heartbeat.
        kind: type[Transport] = importlib.import_module("dagwright.llm.transport").Transport
        return kind(self._endpoint.url, self._endpoint.key, answer_s=self._answer_s, connect_s=self._connect_s)

    def _failure(self, error: ServiceError, prepared: PreparedCall) -> ModelFailure:
        asked = CallTarget(
            # Of what stands in an address beside where it leads some is secret.
            Redaction().place(self._endpoint.url),
            model=prepared.model,
            max_tokens=prepared.call.config.max_tokens,
            api_key=self._endpoint.key,
        )
        return to_model_failure(error, asked, now=datetime.now(UTC))


class ModelStream:
    """One answer as it is written: iterate over it for the pieces of text, then look at `answer`.

    Where the answer must be JSON, the pieces are those of the JSON text, however the server gives it. Leaving the block
    early ends the call; nobody knows then what it has used.
    """

    def __init__(self, client: ModelClient, prepared: PreparedCall) -> None:
        self._client = client
        self._prepared = prepared
        self._pieces = CompletionBuilder()
        self._told: list[str] = []
        self._answer: ModelResponse | None = None
        self._stream: Any = None
        self._capabilities = Capabilities()

    @property
    def text(self) -> str:
        """Returns what has been said so far: all pieces of text that were told."""
        return "".join(self._told)

    def restored(self, written: Any) -> Any:
        """Returns what was asked for of a part of the answer, which stands there in the form that the server wants.

        Args:
            written: the answer, or one that is made of parts of it.
        """
        is_strict = self._capabilities.mode is OutputMode.SCHEMA and self._prepared.strict is not None
        return self._prepared.strict.restore(written) if is_strict and self._prepared.strict is not None else written

    @property
    def answer(self) -> ModelResponse:
        """Returns the whole answer.

        Raises:
            RuntimeError: the stream was not read to its end.
        """
        if self._answer is None:
            raise RuntimeError("the answer is there when the stream has been read to its end")
        return self._answer

    async def __aenter__(self) -> Self:
        try:
            self._stream, self._capabilities = await self._client._asked(self._prepared, self._open, is_streamed=True)
        except ServiceError as error:
            raise self._client._failure(error, self._prepared) from error
        output = self._prepared.call.output
        if output is not None and self._capabilities.mode is OutputMode.TOOL:
            self._pieces = CompletionBuilder(self._prepared.names.sent(output.name))
        return self

    async def _open(self, body: Any) -> Any:
        return await (await self._client._transport()).stream(body)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stream.close()

    async def __aiter__(self) -> AsyncIterator[str]:
        client, pieces = self._client, self._pieces
        try:
            transport = await client._transport()
            async for chunk in transport.chunks(self._stream):
                words = pieces.take(chunk)
                if pieces.characters > ANSWER_CHARACTERS:
                    told = f"wrote over {ANSWER_CHARACTERS:,} characters and did not come to an end"
                    raise ServiceError("answer", told, error=ModelError.OUTPUT_INVALID)
                if words:
                    self._told.append(words)
                    yield words
            said = pieces.finish()
            usage = parse_usage(said, client._prices, asked=self._prepared.model)
            self._answer = to_model_response(said, self._prepared, self._capabilities.mode, usage=usage)
        except ServiceError as error:
            error.partial = error.partial or self.text
            raise client._failure(error, self._prepared) from error
