"""The model client: asks any server that speaks OpenAI's protocol, once for each call, and tells what a failure means.

    async with ModelClient(Endpoint(base_url, key), model="gpt-4o") as client:
        answer = await client.complete(ModelCall(messages=(user("Hello?"),)))
        async with client.stream(call) as stream:
            async for words in stream: ...
        print(stream.answer.usage)

A client holds no state of a call, so any number of them, of different models, may be under way at once. It never tries
again what failed: only what a server refused for how it was asked is asked in another way (`dagwright.llm.manners`).
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
from dagwright.llm.answers import Pieces, answer_of, read_whole, usage_of
from dagwright.llm.bodies import Prepared
from dagwright.llm.failures import Asked, Trouble, error_of, model_failure_of
from dagwright.llm.manners import Manner, Manners, OutputMode, next_manner
from dagwright.llm.prices import PriceTable, shipped_prices
from dagwright.planning.model_calls.calls import ModelAnswer, ModelCall, ModelConfig, ModelError
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
    def lacks_key(self) -> bool:
        """Whether nothing can be asked here for want of a key; other services than OpenAI's own may need none."""
        return not self.key and self.url == OPENAI_BASE_URL


class ModelClient:
    """Asks the models of one service.

    Args:
        model: what is asked where a call names none.
        prices: what models cost; by default the table that ships with Dagwright.
        manners: what is known of servers; share one among the clients of a process.
        answer_s: seconds without a byte after which a call is given up.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        model: str | None = None,
        prices: PriceTable | None = None,
        manners: Manners | None = None,
        answer_s: float = ANSWER_S,
        connect_s: float = CONNECT_S,
    ) -> None:
        self._endpoint = endpoint
        self._model = model
        self._prices = prices if prices is not None else shipped_prices()
        self._manners = manners if manners is not None else Manners()
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

    async def complete(self, call: ModelCall) -> ModelAnswer:
        """Returns the answer to a call.

        Raises:
            ModelFailure: there is none that is of use.
        """
        prepared = self._prepared(call)
        try:
            body, manner = await self._asked(prepared, self._post, is_streamed=False)
            said = read_whole(body)
            return answer_of(said, prepared, manner.mode, usage=usage_of(said, self._prices, asked=prepared.model))
        except Trouble as trouble:
            raise self._failure(trouble, prepared) from trouble

    def stream(self, call: ModelCall) -> "ModelStream":
        """Returns the answer to a call as it is written; use it as `async with`.

        Raises:
            ModelFailure: the call cannot be made.
        """
        return ModelStream(self, self._prepared(call))

    async def pass_on(self, body: Mapping[str, Any]) -> Any:
        """Returns the answer to a request that somebody else wrote, both as plain JSON and neither changed.

        Args:
            body: of a chat completion that is not streamed, with its model.

        Raises:
            ModelFailure: there is none.
        """
        prepared = self._passed_on(body)
        try:
            return await self._post(body)
        except Trouble as trouble:
            raise self._failure(trouble, prepared) from trouble

    async def pass_on_stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Any, None]:
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
        except Trouble as trouble:
            raise self._failure(trouble, prepared) from trouble

    async def model_ids(self) -> list[str]:
        """Returns the ids of the models that the service lists, as it orders them.

        Raises:
            ModelFailure: it does not tell.
        """
        prepared = self._passed_on({"model": "any"})
        try:
            return await (await self._transport()).model_ids()
        except Trouble as trouble:
            raise self._failure(trouble, prepared) from trouble

    def _passed_on(self, body: Mapping[str, Any]) -> Prepared:
        return self._prepared(ModelCall(messages=(), config=ModelConfig(model=str(body.get("model") or "") or None)))

    def _prepared(self, call: ModelCall) -> Prepared:
        model = call.config.model or self._model or ""
        prepared = Prepared(call, model)
        if not has_extra("openai"):
            raise self._failure(
                Trouble("answer", str(MissingExtra("openai")), error=ModelError.MODEL_MISSING), prepared
            )
        if not model:
            raise self._failure(Trouble("answer", "no model is named", error=ModelError.MODEL_MISSING), prepared)
        if self._endpoint.lacks_key:
            raise self._failure(Trouble("answer", "there is no key", error=ModelError.KEY_MISSING), prepared)
        # The transport would fail as if nobody were there, again and again, and with the key in its words.
        if _SENDABLE_KEY.fullmatch(self._endpoint.key) is None:
            words = "cannot be asked: its key holds a line end, a blank or a letter that no header can carry"
            raise self._failure(Trouble("answer", words, error=ModelError.KEY_REFUSED), prepared)
        if _WEB_ADDRESS.fullmatch(self._endpoint.url) is None:
            words = "cannot be asked: that is no address such as https://models.example.com/v1"
            raise self._failure(Trouble("answer", words, error=ModelError.ADDRESS_WRONG), prepared)
        return prepared

    async def _asked(
        self, prepared: Prepared, send: Callable[[Any], Awaitable[T]], *, is_streamed: bool
    ) -> tuple[T, Manner]:
        """Asks in the manner of the server, and in another one as long as it refuses how it was asked.

        Raises:
            Trouble: it does not answer.
        """
        url, call = self._endpoint.url, prepared.call
        manner: Manner = self._manners.of(url, prepared.model, call)
        refused: list[Trouble] = []
        while True:
            body = prepared.body(manner, is_streamed=is_streamed)
            try:
                answer = await send(body)
            except Trouble as trouble:
                changed = next_manner(manner, trouble, body)
                if changed is None:
                    # If no way was taken, what was wrong with the best one tells the most.
                    is_refusal = error_of(trouble) is ModelError.REQUEST_INVALID
                    raise (refused[0] if refused and is_refusal else trouble) from None
                manner = changed
                refused.append(trouble)
            else:
                self._manners.remember(url, prepared.model, call, worked=manner, refused=refused)
                return answer, manner

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

    def _failure(self, trouble: Trouble, prepared: Prepared) -> ModelFailure:
        asked = Asked(
            # Of what stands in an address beside where it leads some is secret.
            Redaction().place(self._endpoint.url),
            model=prepared.model,
            max_tokens=prepared.call.config.max_tokens,
            api_key=self._endpoint.key,
        )
        return model_failure_of(trouble, asked, now=datetime.now(UTC))


class ModelStream:
    """One answer as it is written: iterate over it for the pieces of text, then look at `answer`.

    Where the answer must be JSON, the pieces are those of the JSON text, however the server gives it. Leaving the block
    early ends the call; nobody knows then what it has used.
    """

    def __init__(self, client: ModelClient, prepared: Prepared) -> None:
        self._client = client
        self._prepared = prepared
        self._pieces = Pieces()
        self._told: list[str] = []
        self._answer: ModelAnswer | None = None
        self._stream: Any = None
        self._manner = Manner()

    @property
    def text(self) -> str:
        """Returns what has been said so far: all pieces of text that were told."""
        return "".join(self._told)

    def restored(self, written: Any) -> Any:
        """Returns what was asked for of a part of the answer, which stands there in the form that the server wants.

        Args:
            written: the answer, or one that is made of parts of it.
        """
        is_strict = self._manner.mode is OutputMode.SCHEMA and self._prepared.strict is not None
        return self._prepared.strict.restore(written) if is_strict and self._prepared.strict is not None else written

    @property
    def answer(self) -> ModelAnswer:
        """Returns the whole answer.

        Raises:
            RuntimeError: the stream was not read to its end.
        """
        if self._answer is None:
            raise RuntimeError("the answer is there when the stream has been read to its end")
        return self._answer

    async def __aenter__(self) -> Self:
        try:
            self._stream, self._manner = await self._client._asked(self._prepared, self._open, is_streamed=True)
        except Trouble as trouble:
            raise self._client._failure(trouble, self._prepared) from trouble
        output = self._prepared.call.output
        if output is not None and self._manner.mode is OutputMode.TOOL:
            self._pieces = Pieces(self._prepared.names.sent(output.name))
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
                    raise Trouble("answer", told, error=ModelError.OUTPUT_INVALID)
                if words:
                    self._told.append(words)
                    yield words
            said = pieces.ended()
            usage = usage_of(said, client._prices, asked=self._prepared.model)
            self._answer = answer_of(said, self._prepared, self._manner.mode, usage=usage)
        except Trouble as trouble:
            trouble.partial = trouble.partial or self.text
            raise client._failure(trouble, self._prepared) from trouble
