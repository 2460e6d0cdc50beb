"""HTTP transport of model calls on `openai`: one request, one response as plain JSON, failures as `ServiceError`.

Nothing else imports `openai`, which takes over half a second of CPU: this module is loaded with the first call of a
process. Retries of the library are off, since Temporal's policy alone decides on them. Answers are taken as plain JSON
because servers differ, and the library would put into its types unchecked whatever they send.
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2
import openai
from openai import AsyncOpenAI, AsyncStream

from dagwright.llm.completions import to_stream_chunk
from dagwright.llm.errors import ErrorBody, ServiceError, error_body
from dagwright.planning.model_calls.calls import ModelError

ANSWER_BYTES = 32_000_000
"""What an answer in one piece may have: that of a stream, whose characters JSON writes with up to six bytes each, and
what stands around them. A worker holds it in memory."""
ERROR_BYTES = 64 * 1024
"""What is read of the body of an answer that is none: a sentence and what stands around it, or a page of a proxy."""
_COMPLETIONS = "/chat/completions"
_MODELS = "/models"


class Transport:
    """Talks to one model service with one key; safe for many calls at once.

    Args:
        base_url: of the service.
        api_key: empty if it needs none.
        answer_s: seconds without a byte after which a call is given up.
        connect_s: seconds for a connection.
    """

    def __init__(self, base_url: str, api_key: str, *, answer_s: float, connect_s: float) -> None:
        # Without a key the library would look for one in the environment, and send it wherever this goes.
        self._client = AsyncOpenAI(
            base_url=base_url,
            api_key=api_key or "none",
            max_retries=0,
            timeout=httpx2.Timeout(answer_s, connect=connect_s),
            # The library reads all of an error, however much that is.
            http_client=openai.DefaultAsyncHttpxClient(event_hooks={"response": [_bound_error]}),
        )

    async def post(self, body: Mapping[str, Any]) -> Any:
        """Returns the JSON of an answer.

        Raises:
            ServiceError: there is none.
        """
        # As a stream, so that no more of it is read than may be: the library would read all.
        stream = await self.stream(body)
        try:
            return await _whole(stream.response)
        finally:
            await stream.close()

    async def stream(self, body: Mapping[str, Any]) -> "AsyncStream[object]":
        """Returns an answer of which nothing but the headers is read; whoever gets it closes it.

        Raises:
            ServiceError: there is none.
        """
        with _told():
            stream = await self._client.post(
                _COMPLETIONS, cast_to=object, body=body, stream=True, stream_cls=AsyncStream[object]
            )
        return stream

    async def chunks(self, stream: "AsyncStream[object]") -> AsyncIterator[Any]:
        """Yields the chunks of a stream as plain JSON.

        Raises:
            ServiceError: the stream broke off.
        """
        content_type = stream.response.headers.get("content-type", "")
        if "application/json" in content_type:
            # Some services and proxies do not stream. What they answer is paid for.
            yield to_stream_chunk(await _whole(stream.response))
            return
        if "text/event-stream" not in content_type:
            raise ServiceError(
                "broken", f"answered with {content_type or 'no content type'} where a stream was asked for"
            )
        with _told():
            async for chunk in stream:
                yield chunk

    async def model_ids(self) -> list[str]:
        """Returns the ids of the models that the service lists.

        Raises:
            ServiceError: it does not tell.
        """
        with _told():
            stream = await self._client.get(_MODELS, cast_to=object, stream=True, stream_cls=AsyncStream[object])
        try:
            listed = await _whole(stream.response)
        finally:
            await stream.close()
        models = listed.get("data") if isinstance(listed, Mapping) else None
        if not isinstance(models, list):
            raise ServiceError("broken", "answered with no list of models")
        ids = (each.get("id") for each in models if isinstance(each, Mapping))
        return [each for each in ids if isinstance(each, str) and each]

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()


async def _whole(response: httpx2.Response) -> Any:
    """Returns an answer in one piece: its JSON, or its text if it says that it is none.

    Raises:
        ServiceError: it does not come to its end, is too long, or is not what it says.
    """
    content = bytearray()
    with _told():
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > ANSWER_BYTES:
                raise ServiceError(
                    "answer", f"answered with over {ANSWER_BYTES:,} bytes", error=ModelError.OUTPUT_INVALID
                )
        kind = response.headers.get("content-type", "").partition(";")[0].strip()
        return json.loads(content) if kind.endswith("json") else content.decode(errors="replace")


class _Bounded(httpx2.AsyncByteStream):
    """The beginning of the body of an answer."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, most_bytes: int) -> None:
        self._stream = stream
        self._left_bytes = most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece[: self._left_bytes]
            self._left_bytes -= len(piece)
            if self._left_bytes <= 0:
                return

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _bound_error(response: httpx2.Response) -> None:
    if not response.is_success and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream, most_bytes=ERROR_BYTES)


@contextmanager
def _told() -> Iterator[None]:
    """Turns what the library raises, and what it is made of, into `ServiceError`."""
    try:
        yield
    except openai.APIStatusError as error:
        raise _of_status(error) from error
    except (openai.APITimeoutError, httpx2.TimeoutException) as error:
        raise ServiceError("timeout", "did not answer in time") from error
    except openai.APIConnectionError as error:
        cause = error.__cause__
        words = f"{type(cause).__name__}: {cause}" if cause is not None else str(error)
        raise ServiceError("connection", f"could not be reached, or broke off ({words})") from error
    except httpx2.RequestError as error:
        raise ServiceError("connection", f"broke off ({type(error).__name__}: {error})") from error
    except openai.APIError as error:
        body = error_body(error.body, error.message)
        raise ServiceError("stream", error.message, status=_status_of(body), body=body) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ServiceError("broken", f"answered what is no JSON ({error})") from error


def _of_status(error: openai.APIStatusError) -> ServiceError:
    text = error.response.text
    body = error_body(error.body, text)
    headers = {name.lower(): value for name, value in error.response.headers.items()}
    return ServiceError("status", error.message, status=error.status_code, body=body, headers=headers)


def _status_of(body: ErrorBody) -> int | None:
    """Returns the status that an error inside of a stream has, as some services tell it in its code."""
    return int(body.code) if body.code.isdecimal() and len(body.code) == 3 else None
