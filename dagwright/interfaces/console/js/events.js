// Follows a stream of server-sent events by `fetch`, for the key travels in a header, which EventSource cannot send.
// It comes back after each break with the id it saw last, so that nothing is lost and nothing told twice.

import { ApiError, askForKey, errorOf, keyHeaders } from "./api.js";

const PAUSES_MS = [300, 1000, 2000, 4000, 8000];
const SILENCE_MS = 30000; // the gateway gives a sign of life every 10 s
const STATUSES = { unavailable: 503, server_busy: 429 }; // code of an error in a stream, where trying again may help

/**
 * Does something until it is done, again and again with pauses that grow.
 *
 * once: does it, `once(came)`; it calls `came` as soon as the gateway answers.
 * isPassing: whether doing it again may help after an error. onAway: told, in words, before each pause.
 *
 * Returns what `once` does; throws what does not pass, and whatever there is once `signal` says that it is left.
 */
export async function persist(once, { signal, isPassing, onAway }) {
  for (let fails = 0; ; fails += 1) {
    try {
      return await once(() => (fails = 0));
    } catch (error) {
      if (signal.aborted || !isPassing(error)) throw error;
      onAway(awayWords(error));
    }
    await pause(PAUSES_MS[Math.min(fails, PAUSES_MS.length - 1)], signal);
    signal.throwIfAborted();
  }
}

function awayWords(error) {
  if (!error.status) return "The gateway does not answer. What runs goes on; this page comes back by itself.";
  return `${error.message.replace(/\.$/, "")}. This page tries again by itself.`;
}

/**
 * Runs `run(mine, alive)`; its signal `mine` is that of `signal`, and given too when it was not `alive` for long.
 *
 * The watch begins when it is `alive` for the first time.
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
 * Follows the events at an address until they end.
 *
 * onEvent: told each event as {name, id, data}; data is the JSON of the event.
 * onState: told "open", "away" (with words; it tries again), "ended", or "refused" (with words; it does not).
 * after: the id of the last event that was seen.
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
    throw new Error("the stream was broken off");
  }

  persist((came) => watched(signal, (mine, alive) => once(came, mine, alive)), {
    signal,
    isPassing,
    onAway: (words) => onState("away", words),
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

/** Whether trying again may help. A break of the network is no ApiError. */
export function isPassing(error) {
  return !(error instanceof ApiError) || error.isPassing;
}

/** The error that a stream tells, in which there is no status. */
export function errorIn({ error: { message, code } }) {
  return new ApiError(message, { status: STATUSES[code] ?? 422, code });
}

/** Waits, but not longer than until the network or the page is back. */
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

/** Yields the events of a body of server-sent events; `onLife` is called whenever something came, a comment too. */
export async function* eventsOf(body, onLife = () => {}) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onLife();
    // A large event comes in many pieces: they are joined once, when its end is there.
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
  const told = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("data: ")) told.push(line.slice(6));
    else if (line.startsWith("event: ")) event.name = line.slice(7);
    else if (line.startsWith("id: ")) event.id = line.slice(4);
  }
  if (!told.length) return null;
  const text = told.join("\n");
  event.data = text === "[DONE]" ? text : JSON.parse(text);
  return event;
}
