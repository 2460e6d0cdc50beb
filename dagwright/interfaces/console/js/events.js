// Server-sent events, read with `fetch`, since EventSource cannot send the key in a header.
// The reader reconnects with the last event ID, so that no event is lost or repeated.

import { ApiError, askForKey, errorOf, keyHeaders } from "./api.js";

const PAUSES_MS = [300, 1000, 2000, 4000, 8000];
const SILENCE_MS = 30000; // the gateway sends a heartbeat every 10 s
const STATUSES = { unavailable: 503, server_busy: 429 }; // error codes in a stream after which a retry may succeed

/**
 * Retries an operation with increasing pauses until it succeeds.
 *
 * once: the operation, `once(came)`; it calls `came` once the gateway responds.
 * isRetryable: returns whether a retry may succeed after an error. onOffline: called with a text before each pause.
 *
 * Returns the result of `once`; throws permanent errors, and any error once `signal` is aborted.
 */
export async function persist(once, { signal, isRetryable, onOffline }) {
  for (let fails = 0; ; fails += 1) {
    try {
      return await once(() => (fails = 0));
    } catch (error) {
      if (signal.aborted || !isRetryable(error)) throw error;
      onOffline(offlineMessage(error));
    }
    await pause(PAUSES_MS[Math.min(fails, PAUSES_MS.length - 1)], signal);
    signal.throwIfAborted();
  }
}

function offlineMessage(error) {
  if (!error.status) return "The gateway does not respond. Runs continue; this page reconnects by itself.";
  return `${error.message.replace(/\.$/, "")}. This page tries again by itself.`;
}

/**
 * Runs `run(mine, alive)`; its signal `mine` is aborted with `signal`, and if `alive` was not called for too long.
 *
 * The watchdog starts with the first call of `alive`.
 */
export async function watched(signal, run) {
  const connection = new AbortController();
  const stop = () => connection.abort();
  signal.addEventListener("abort", stop);
  let watch = null;
  const alive = () => {
    clearTimeout(watch);
    watch = setTimeout(stop, SILENCE_MS);
  };
  try {
    return await run(connection.signal, alive);
  } finally {
    clearTimeout(watch);
    signal.removeEventListener("abort", stop);
  }
}

/**
 * Follows the events at a URL until they end.
 *
 * onEvent: called with each event as {name, id, data}; data is the JSON of the event.
 * onState: called with "open", "offline" (with a text; it retries), "ended", or "refused" (with a text; it stops).
 * after: the last received event ID.
 *
 * Returns a function that stops it.
 */
export function follow(path, { onEvent, onState = () => {}, after = null }) {
  const leaving = new AbortController();
  const { signal } = leaving;
  let seen = after;

  async function once(came, mine, alive) {
    const headers = { Accept: "text/event-stream", ...keyHeaders() };
    if (seen) headers["Last-Event-ID"] = seen;
    alive();
    const response = await fetch(path, { headers, signal: mine });
    if (response.status === 204) return;
    if (!response.ok) {
      const error = await errorOf(response);
      const hasKey = response.status === 401 && (await askForKey(error.message));
      throw hasKey ? new Error("it has a key by now") : error;
    }
    onState("open");
    came();
    for await (const event of eventsOf(response.body, alive)) {
      if (event.name === "error") throw errorIn(event.data);
      onEvent(event);
      if (event.id) seen = event.id;
      if (isEnd(event.name)) return;
    }
    throw new Error("the stream ended early");
  }

  persist((came) => watched(signal, (mine, alive) => once(came, mine, alive)), {
    signal,
    isRetryable,
    onOffline: (message) => onState("offline", message),
  }).then(
    () => signal.aborted || onState("ended"),
    (error) => signal.aborted || onState("refused", error.message),
  );
  return () => leaving.abort();
}

/** Whether an event is the last one of a run. */
export function isEnd(name) {
  return ["run.completed", "run.failed", "run.cancelled"].includes(name);
}

/** Whether a retry may succeed after an error. Network errors are not ApiErrors. */
export function isRetryable(error) {
  return !(error instanceof ApiError) || error.isRetryable;
}

/** The error in a stream event, which has no status. */
export function errorIn({ error: { message, code } }) {
  return new ApiError(message, { status: STATUSES[code] ?? 422, code });
}

/** Waits, but at most until the network or the page is back. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      window.removeEventListener("online", done);
      document.removeEventListener("visibilitychange", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    window.addEventListener("online", done);
    document.addEventListener("visibilitychange", done);
    signal.addEventListener("abort", done);
  });
}

/** The events of a response body; `onLife` is called for every chunk, including comments. */
export async function* eventsOf(body, onLife = () => {}) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onLife();
    // A large event arrives in many chunks; they are joined once its end has arrived.
    parts.push(value);
    const joint = (parts.length > 1 ? parts[parts.length - 2].slice(-1) : "") + value;
    if (!joint.includes("\n\n")) continue;
    const blocks = parts.join("").split("\n\n");
    parts = [blocks.pop()];
    for (const block of blocks) {
      const event = parsed(block);
      if (event) yield event;
    }
  }
}

function parsed(block) {
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
