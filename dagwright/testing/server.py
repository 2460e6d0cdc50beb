"""A scripted server that implements OpenAI's protocol over real sockets.

    agent_step = step(tool_call("look", at="Oslo"), when=When(metadata={"purpose": "agent"}))
    async with ModelServer("Hello", agent_step) as server:
        ...  # the program under test talks to server.base_url
    assert server.calls[0].model == "small"

The end of the block raises `ScriptNotFollowed` for a call without a matching step, a request that OpenAI's own server
would reject, or an unused response.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dagwright.testing.http import JSON_TYPE, ReceivedRequest, ResponseSender, ScriptedServer
from dagwright.testing.protocol import DONE, WireCompletion, encode_event, validation_error
from dagwright.testing.script import ReceivedCall, Script, Step, step
from dagwright.testing.scripted_answers import Answer, Completion, Cut, HttpError, Pace, Raw, Reset, Silence

_COMPLETIONS = "/chat/completions"
_MODELS = "/models"
UNEXPECTED_CALL = "unexpected_call"
"""Error code for a call without a matching step; clients do not retry a call with this code."""


class ModelServer(ScriptedServer):
    """Responds to model calls strictly according to a script, and records the calls.

    Args:
        steps: the responses; a bare text or response is a step that matches any call.
        models: models that `/models` lists; calls to other models get OpenAI's 404. By default, every model is
            accepted.
        api_keys: accepted keys; calls with other keys get OpenAI's 401. By default, every key is accepted.
    """

    def __init__(
        self,
        *steps: Step | Answer | str,
        models: Sequence[str] | None = None,
        api_keys: Sequence[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        super().__init__(host=host, port=port)
        self._steps = [
            scripted_step if isinstance(scripted_step, Step) else step(scripted_step) for scripted_step in steps
        ]
        self._script = Script(self._steps)
        self._models = models
        self._api_keys = api_keys
        self._calls: list[ReceivedCall] = []
        self._sent_at: list[list[float]] = []

    @property
    def base_url(self) -> str:
        """Return the `OPENAI_BASE_URL` of the server."""
        return f"http://{self._http.address}/v1"

    @property
    def calls(self) -> Sequence[ReceivedCall]:
        """Return the requested chat completions in the order of arrival."""
        return self._calls

    @property
    def sent_at(self) -> Sequence[Sequence[float]]:
        """Return for each of `calls` the times at which its chunks of text or arguments were sent, in epoch seconds.

        A response that is not streamed has no such times.
        """
        return self._sent_at

    def report(self) -> str:
        """Return a readable report of all deviations from the script; empty if there are none."""
        return self._script.report()

    async def _answer(self, request: ReceivedRequest, sender: ResponseSender) -> None:
        path = request.target.partition("?")[0].rstrip("/")
        call = ReceivedCall(request.method, path, request.headers, _parse_json(request.body))
        if request.method == "GET" and path.endswith(_MODELS):
            entries = [
                {"id": name, "object": "model", "created": 0, "owned_by": "script"} for name in self._listed_models()
            ]
            await sender.send_json(200, {"object": "list", "data": entries})
        elif request.method == "POST" and path.endswith(_COMPLETIONS):
            await self._complete(call, sender)
        else:
            self._script.record_unexpected_call(call)
            await sender.send_json(404, HttpError(404, f"Invalid URL ({request.method} {path})").body())

    def _listed_models(self) -> Sequence[str]:
        return self._models if self._models is not None else ["scripted-model"]

    async def _complete(self, call: ReceivedCall, sender: ResponseSender) -> None:
        error_response = self._access_error(call)
        if error_response is None:
            error_response = validation_error(call)
            if error_response is not None:
                self._script.record_violation(call, error_response.message)
        step_index = self._script.use_step(call) if error_response is None else None
        self._calls.append(ReceivedCall(call.method, call.path, call.headers, call.body, step_index=step_index))
        sent_at: list[float] = []
        self._sent_at.append(sent_at)
        if error_response is not None:
            await _send_error(sender, error_response)
        elif step_index is None:
            reason = self._script.explain_mismatch(call)
            text = f"no step of the script matches this call: {call.summary()}; {reason}"
            await _send_error(sender, HttpError(400, text, code=UNEXPECTED_CALL, type=UNEXPECTED_CALL))
        else:
            await self._send(self._steps[step_index], call, sender, sent_at)

    def _access_error(self, call: ReceivedCall) -> HttpError | None:
        if self._api_keys is not None and call.api_key not in self._api_keys:
            text = f"Incorrect API key provided: {call.api_key[:3]}***. You can find your API key in your account."
            return HttpError(401, text, code="invalid_api_key")
        if self._models is not None and call.model not in self._models:
            text = f"The model `{call.model}` does not exist or you do not have access to it."
            return HttpError(404, text, code="model_not_found")
        return None

    async def _send(self, matched_step: Step, call: ReceivedCall, sender: ResponseSender, sent_at: list[float]) -> None:
        if matched_step.release_event is not None:
            await matched_step.release_event.wait()
        match self._answer_to(matched_step, call):
            case Completion() as completion if call.is_streamed:
                await _send_stream(sender, WireCompletion(completion, call), completion.pace, sent_at)
            case Completion() as completion:
                await _pause(completion.pace.first_byte_delay_s)
                if completion.pace.cut_after is not None:
                    await _send_cut_off(sender, completion.pace.cut, body=WireCompletion(completion, call).full_body())
                await sender.send_json(200, WireCompletion(completion, call).full_body())
            case HttpError() as error_response:
                await _send_error(sender, error_response)
            case Raw(body, status, content_type, headers):
                await sender.send_response(status, body, {"content-type": content_type, **headers})
            case Reset():
                sender.reset()
            case Silence():
                await asyncio.Event().wait()

    def _answer_to(self, matched_step: Step, call: ReceivedCall) -> Answer:
        try:
            return matched_step.answer_to(call)
        except Exception as error:
            # The function of a script may fail in any way; its error is added to the report.
            text = f"its response cannot be built: {type(error).__name__}: {error}"
            self._script.record_unexpected_call(call, text)
            return HttpError(400, text, code=UNEXPECTED_CALL, type=UNEXPECTED_CALL)


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


async def _send_error(sender: ResponseSender, error_response: HttpError) -> None:
    await _pause(error_response.first_byte_delay_s)
    retry_after = error_response.retry_after
    retry_headers = (
        {}
        if retry_after is None
        else {"retry-after": retry_after if isinstance(retry_after, str) else f"{retry_after:g}"}
    )
    await sender.send_json(error_response.status, error_response.body(), {**retry_headers, **error_response.headers})


async def _send_stream(sender: ResponseSender, completion: WireCompletion, pace: Pace, sent_at: list[float]) -> None:
    await _pause(pace.first_byte_delay_s)
    await sender.start(200, {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"})
    first_chunk, *chunks = completion.chunks()
    await sender.write(encode_event(first_chunk))
    for index, chunk in enumerate(chunks):
        if index == pace.cut_after:
            await _send_cut_off(sender, pace.cut)
            return
        if index == pace.held_after_chunks and pace.release_event is not None:
            await pace.release_event.wait()
        await _pause(pace.chunk_delay_s)
        await sender.write(encode_event(chunk))
        sent_at.append(time.time())
    if pace.cut_after is not None:
        await _send_cut_off(sender, pace.cut)
        return
    for chunk in completion.final_chunks():
        await sender.write(encode_event(chunk))
    await sender.write(DONE)
    await sender.end()


async def _send_cut_off(sender: ResponseSender, cut: Cut, *, body: Mapping[str, Any] | None = None) -> None:
    """Cut off a response. If the response is not streamed, send the first half of its body first.

    Args:
        body: body of a response that is not streamed.
    """
    if body is not None:
        full_body = json.dumps(body, ensure_ascii=False).encode()
        await sender.start(200, JSON_TYPE if cut is Cut.END else {**JSON_TYPE, "content-length": str(len(full_body))})
        await sender.write(full_body[: len(full_body) // 2])
    if cut is Cut.RESET:
        sender.reset()
    if cut is Cut.CLOSE:
        await sender.close()
    await sender.end()


async def _pause(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)
