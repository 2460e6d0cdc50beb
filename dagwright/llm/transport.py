"""HTTP transport of model calls with the library `openai`. Failures are raised as `ServiceError`.

The import of `openai` takes over half a second of CPU, so no other module imports it, and this module is loaded at the
first call of a process. Retries of the library are off, because Temporal's retry policy alone decides on retries.
Responses are parsed as plain JSON, because servers differ and the library would put any response into its types without
validation.
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2
import openai
from openai import AsyncOpenAI, AsyncStream

from dagwright.llm.completions import to_stream_chunk
from dagwright.llm.errors import ErrorContent, ServiceError, parse_error_body
from dagwright.planning.model_calls.model_failure import ModelError

MAX_RESPONSE_BYTES = 32_000_000
"""Maximum size of a response that is not an event stream: `MAX_ANSWER_CHARACTERS` of `llm.client` with up to six bytes
of JSON per character, and the JSON around the answer. A worker holds the response in memory."""
MAX_ERROR_BYTES = 64 * 1024
"""Maximum number of bytes to read of an error body, which is usually a sentence in JSON or the HTML page of a proxy."""
_COMPLETIONS = "/chat/completions"
_MODELS = "/models"


class Transport:
    """HTTP client for one model server with one key; safe for concurrent calls.

    Args:
        base_url: URL of the server.
        api_key: empty if the server needs no key.
        read_timeout_s: read timeout in seconds.
        connect_timeout_s: connection timeout in seconds.
    """

    def __init__(self, base_url: str, api_key: str, *, read_timeout_s: float, connect_timeout_s: float) -> None:
        # Without a key, the library would use a key from the environment and send it to any server.
        self._client = AsyncOpenAI(
            base_url=base_url,
            api_key=api_key or "none",
            max_retries=0,
            timeout=httpx2.Timeout(read_timeout_s, connect=connect_timeout_s),
            # The library would read an error body of any size.
            http_client=openai.DefaultAsyncHttpxClient(event_hooks={"response": [_limit_error_body]}),
        )

    async def post(self, body: Mapping[str, Any]) -> Any:
        """Send a request and return the JSON of the response.

        Raises:
            ServiceError: the request failed.
        """
        # Stream the response to enforce the size limit; the library would read a response of any size.
        stream = await self.stream(body)
        try:
            return await _read_response(stream.response)
        finally:
            await stream.close()

    async def stream(self, body: Mapping[str, Any]) -> "AsyncStream[object]":
        """Send a request, and return the response once its headers are received. The caller must close the response.

        Raises:
            ServiceError: the request failed.
        """
        with _convert_errors():
            stream = await self._client.post(
                _COMPLETIONS, cast_to=object, body=body, stream=True, stream_cls=AsyncStream[object]
            )
        return stream

    async def chunks(self, stream: "AsyncStream[object]") -> AsyncIterator[Any]:
        """Yield the chunks of a stream as plain JSON.

        Raises:
            ServiceError: the stream broke off.
        """
        content_type = stream.response.headers.get("content-type", "")
        if "application/json" in content_type:
            # Some servers and proxies do not stream. Use the response anyway, because it has already been paid for.
            yield to_stream_chunk(await _read_response(stream.response))
            return
        if "text/event-stream" not in content_type:
            raise ServiceError("broken", f"returned {content_type or 'no content type'} instead of a stream")
        with _convert_errors():
            async for chunk in stream:
                yield chunk

    async def model_ids(self) -> list[str]:
        """Return the IDs of the available models.

        Raises:
            ServiceError: the server does not return a list of models.
        """
        with _convert_errors():
            stream = await self._client.get(_MODELS, cast_to=object, stream=True, stream_cls=AsyncStream[object])
        try:
            response_body = await _read_response(stream.response)
        finally:
            await stream.close()
        models = response_body.get("data") if isinstance(response_body, Mapping) else None
        if not isinstance(models, list):
            raise ServiceError("broken", "returned something other than a list of models")
        ids = (model.get("id") for model in models if isinstance(model, Mapping))
        return [model_id for model_id in ids if isinstance(model_id, str) and model_id]

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


async def _read_response(response: httpx2.Response) -> Any:
    """Read a response that is not an event stream: its JSON, or its text if the content type is not JSON.

    Raises:
        ServiceError: the response is incomplete, too long, or invalid JSON.
    """
    content = bytearray()
    with _convert_errors():
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > MAX_RESPONSE_BYTES:
                raise ServiceError(
                    "classified", f"returned over {MAX_RESPONSE_BYTES:,} bytes", error=ModelError.OUTPUT_INVALID
                )
        media_type = response.headers.get("content-type", "").partition(";")[0].strip()
        return json.loads(content) if media_type.endswith("json") else content.decode(errors="replace")


class _BoundedStream(httpx2.AsyncByteStream):
    """First bytes of a response body."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, max_bytes: int) -> None:
        self._stream = stream
        self._remaining_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece[: self._remaining_bytes]
            self._remaining_bytes -= len(piece)
            if self._remaining_bytes <= 0:
                return

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _limit_error_body(response: httpx2.Response) -> None:
    if not response.is_success and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _BoundedStream(response.stream, max_bytes=MAX_ERROR_BYTES)


@contextmanager
def _convert_errors() -> Iterator[None]:
    """Convert exceptions of `openai` and of its HTTP library to `ServiceError`."""
    try:
        yield
    except openai.APIStatusError as error:
        raise _status_error(error) from error
    except (openai.APITimeoutError, httpx2.TimeoutException) as error:
        raise ServiceError("timeout", "did not answer in time") from error
    except openai.APIConnectionError as error:
        cause = error.__cause__
        message = f"{type(cause).__name__}: {cause}" if cause is not None else str(error)
        raise ServiceError("connection", f"could not be reached, or broke off ({message})") from error
    except httpx2.RequestError as error:
        raise ServiceError("connection", f"broke off ({type(error).__name__}: {error})") from error
    except openai.APIError as error:
        body = parse_error_body(error.body, error.message)
        raise ServiceError("stream", error.message, status=_status_in_stream(body), body=body) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ServiceError("broken", f"returned invalid JSON ({error})") from error


def _status_error(error: openai.APIStatusError) -> ServiceError:
    text = error.response.text
    body = parse_error_body(error.body, text)
    headers = {name.lower(): value for name, value in error.response.headers.items()}
    return ServiceError("status", error.message, status=error.status_code, body=body, headers=headers)


def _status_in_stream(body: ErrorContent) -> int | None:
    """Return the status of an error inside a stream. Some servers send the status as the error's code."""
    return int(body.code) if body.code.isdecimal() and len(body.code) == 3 else None
