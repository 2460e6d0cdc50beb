// The answer of a run while a model writes it, from the chat completions API.
//
// After a lost connection, a request is sent again with its idempotency key, which identifies its run. The answer
// of an open run is requested by run ID, even if another client started the run.

import { ApiError, runPath, send } from "./api.js";
import { errorOfEvent, eventsOf, isRetryable, retryUntilSuccess, runWithWatchdog } from "./events.js";

/** An idempotency key for a request, so that retries start no second run. */
export function newIdempotencyKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `console-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** The HTTP request that sends a chat request; retries with the same `key` start no second run. */
export function chatRequest(body, key) {
  const headers = key ? { "Idempotency-Key": key } : {};
  return { path: "/v1/chat/completions", method: "POST", headers, body: { ...body, stream: true, stream_progress: "progress" } };
}

/** The HTTP request that follows the answer of an open run. */
export function answerRequest(runId) {
  return { path: runPath(runId, "/answer?stream_progress=progress") };
}

/**
 * Sends a request, and reports events until the answer is complete or the run asks a question.
 *
 * request: from `chatRequest` or `answerRequest`.
 * handlers: {started() when an answer starts, run(id), text(message), event(event), offline(message)}.
 *
 * Returns {calls, runSummary}: the arguments of the calls of `answer_feedback`, and the object `dagwright` of the answer.
 * Throws an ApiError.
 */
export function followAnswer(request, { handlers, signal }) {
  const openOnce = (onResponse) =>
    runWithWatchdog(signal, (connectionSignal, onActivity) => openStream(request, { handlers, onResponse, onActivity, signal: connectionSignal }));
  return retryUntilSuccess(openOnce, { signal, mayRetry: isRetryable, onOffline: handlers.offline });
}

async function openStream({ path, headers = {}, ...rest }, { handlers, onResponse, onActivity, signal }) {
  // The first call of `onActivity` starts the watchdog. For a chat request, the watchdog starts only with the response,
  // because the model that chooses the route may take long.
  if (rest.method !== "POST") onActivity();
  const response = await send(path, { ...rest, headers: { Accept: "text/event-stream", ...headers }, signal });
  onResponse();
  onActivity();
  handlers.started();
  const mode = response.headers.get("X-Routing-Mode");
  const runId = response.headers.get("X-Run-Id");
  if (runId) handlers.run(runId);
  try {
    return await readStream(response, { handlers, onActivity });
  } catch (error) {
    // Without a run, a retry would call the model a second time.
    throw mode === "direct" && isRetryable(error) ? new ApiError("the connection was lost before the answer was complete", { status: 499 }) : error;
  }
}

async function readStream(response, { handlers, onActivity }) {
  const calls = [];
  let runSummary = null;
  for await (const { data } of eventsOf(response.body, onActivity)) {
    if (data === "[DONE]") return { calls, runSummary };
    if (data.error) throw errorOfEvent(data);
    const choice = data.choices?.[0];
    if (choice?.delta?.content) handlers.text(choice.delta.content);
    for (const call of choice?.delta?.tool_calls ?? []) calls.push(JSON.parse(call.function.arguments));
    if (data.dagwright?.events) {
      for (const event of data.dagwright.events) {
        handlers.run(event.run_id);
        handlers.event(event);
      }
    } else if (data.dagwright) {
      runSummary = data.dagwright;
    }
  }
  // The stream ended without [DONE]: the gateway has stopped.
  throw new ApiError("the stream ended early");
}
