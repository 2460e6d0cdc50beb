// Server-sent events, read with `fetch`, because `EventSource` cannot send the key in a header. After a lost connection,
// the reader reconnects with the last event ID, so that no event is lost or repeated.

import { ApiError, askForKey, errorOf, keyHeaders } from "./api.js";

const RETRY_DELAYS_MS = [300, 1000, 2000, 4000, 8000];
const SILENCE_MS = 30000; // the gateway sends a heartbeat every 10 s
const STATUS_OF_CODE = { unavailable: 503, server_busy: 429 }; // retryable error code of a stream event -> its HTTP status

/**
 * Retries an operation with increasing pauses until it succeeds.
 *
 * operation: called as `operation(onResponse)`; calls `onResponse` when the gateway responds, which resets the pauses.
 * mayRetry: returns whether a retry may succeed after an error. onOffline: called with a text before each pause.
 *
 * Returns the result of the operation. Throws permanent errors, and any error after `signal` is aborted.
 */
export async function retryUntilSuccess(operation, { signal, mayRetry, onOffline }) {
  for (let failures = 0; ; failures += 1) {
    try {
      return await operation(() => (failures = 0));
    } catch (error) {
      if (signal.aborted || !mayRetry(error)) throw error;
      onOffline(offlineMessage(error));
    }
    await pause(RETRY_DELAYS_MS[Math.min(failures, RETRY_DELAYS_MS.length - 1)], signal);
    signal.throwIfAborted();
  }
}

function offlineMessage(error) {
  if (!error.status) return "The gateway does not respond. Runs continue; this page reconnects by itself.";
  return `${error.message.replace(/\.$/, "")}. This page tries again by itself.`;
}

/**
 * Runs `operation(connectionSignal, onActivity)` with a watchdog.
 *
 * The signal of the connection is aborted when `signal` is aborted, or SILENCE_MS after the last call of `onActivity`.
 */
export async function runWithWatchdog(signal, operation) {
  const connection = new AbortController();
  const stop = () => connection.abort();
  signal.addEventListener("abort", stop);
  let timer = null;
  const onActivity = () => {
    clearTimeout(timer);
    timer = setTimeout(stop, SILENCE_MS);
  };
  try {
    return await operation(connection.signal, onActivity);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}

/**
 * Follows the events at a URL until they end.
 *
 * onEvent: called with each event as {name, id, data}; data is the JSON of the event.
 * onState: called as `onState("open")`; `onState("offline", text)` before a retry; `onState("ended")`; or
 *     `onState("failed", text)` after a permanent error.
 * after: the last received event ID.
 *
 * Returns a function that stops following.
 */
export function followEvents(path, { onEvent, onState = () => {}, after = null }) {
  const controller = new AbortController();
  const { signal } = controller;
  let lastId = after;

  async function readOnce(onResponse, connectionSignal, onActivity) {
    const headers = { Accept: "text/event-stream", ...keyHeaders() };
    if (lastId) headers["Last-Event-ID"] = lastId;
    onActivity();
    const response = await fetch(path, { headers, signal: connectionSignal });
    if (response.status === 204) return;
    if (!response.ok) {
      const error = await errorOf(response);
      const hasKey = response.status === 401 && (await askForKey(error.message));
      throw hasKey ? new Error("retry with the new key") : error;
    }
    onState("open");
    onResponse();
    for await (const event of eventsOf(response.body, onActivity)) {
      if (event.name === "error") throw errorOfEvent(event.data);
      onEvent(event);
      if (event.id) lastId = event.id;
      if (isFinalEvent(event.name)) return;
    }
    throw new Error("the stream ended early");
  }

  retryUntilSuccess((onResponse) => runWithWatchdog(signal, (connectionSignal, onActivity) => readOnce(onResponse, connectionSignal, onActivity)), {
    signal,
    mayRetry: isRetryable,
    onOffline: (message) => onState("offline", message),
  }).then(
    () => signal.aborted || onState("ended"),
    (error) => signal.aborted || onState("failed", error.message),
  );
  return () => controller.abort();
}

/** Whether an event is the last event of a run. */
export function isFinalEvent(name) {
  return ["run.completed", "run.failed", "run.cancelled"].includes(name);
}

/** Whether a retry may succeed after an error. Network errors are not ApiErrors. */
export function isRetryable(error) {
  return !(error instanceof ApiError) || error.isRetryable;
}

/** The error in a stream event. Stream events have no HTTP status. */
export function errorOfEvent({ error: { message, code } }) {
  return new ApiError(message, { status: STATUS_OF_CODE[code] ?? 422, code });
}

/** Pause for `ms` milliseconds, or until the network is back, the page is shown or hidden, or `signal` is aborted. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const endPause = () => {
      clearTimeout(timer);
      window.removeEventListener("online", endPause);
      document.removeEventListener("visibilitychange", endPause);
      signal.removeEventListener("abort", endPause);
      resolve();
    };
    const timer = setTimeout(endPause, ms);
    window.addEventListener("online", endPause);
    document.addEventListener("visibilitychange", endPause);
    signal.addEventListener("abort", endPause);
  });
}

/** The events of a response body; `onActivity` is called for every chunk, including comments. */
export async function* eventsOf(body, onActivity = () => {}) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onActivity();
    // The chunks of a large event are joined once the end of the event has arrived.
    parts.push(value);
    const tail = (parts.length > 1 ? parts[parts.length - 2].slice(-1) : "") + value;
    if (!tail.includes("\n\n")) continue;
    const blocks = parts.join("").split("\n\n");
    parts = [blocks.pop()];
    for (const block of blocks) {
      const event = parseEvent(block);
      if (event) yield event;
    }
  }
}

function parseEvent(block) {
  const event = { name: "message", id: null, data: undefined };
  const lines = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("data: ")) lines.push(line.slice(6));
    else if (line.startsWith("event: ")) event.name = line.slice(7);
    else if (line.startsWith("id: ")) event.id = line.slice(4);
  }
  if (!lines.length) return null;
  const text = lines.join("\n");
  event.data = text === "[DONE]" ? text : JSON.parse(text);
  return event;
}
