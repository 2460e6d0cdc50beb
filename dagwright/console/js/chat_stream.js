// The answer of a run as it is written, over the protocol that every chat client speaks.
//
// A request that was broken off is sent again with the key that it had, and finds the run that is there. A run that
// goes on is joined by its id: nobody needs to have asked it from this page.

import { ApiError, runPath, send } from "./api.js";
import { eventsOf } from "./events.js";

const PAUSES_MS = [300, 1000, 2000, 4000, 8000];
const SILENCE_MS = 30000; // the gateway gives a sign of life every 10 s

/** A key for a request, so that it starts one run however often it is sent. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `console-${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** What asks for an answer: a request, which `key` starts once, or the run that writes it. */
export function asking(body, key) {
  const headers = key ? { "Idempotency-Key": key } : {};
  return { path: "/v1/chat/completions", method: "POST", headers, body: { ...body, stream: true, stream_progress: "progress" } };
}

export function joining(run) {
  return { path: runPath(run, "/answer?stream_progress=progress") };
}

/**
 * Asks, and tells what comes until the answer is there or the run asks something.
 *
 * request: as `asking` or `joining` returns it.
 * on: {begun() when an answer begins, run(id), text(words), event(event), away(words)}.
 *
 * Returns {calls, about}: what is asked, as ids of requests, and what is told of the run. Throws an ApiError.
 */
export async function follow(request, { on, signal }) {
  for (let fails = 0; ; fails += 1) {
    try {
      return await once(request, { on, signal, came: () => (fails = 0) });
    } catch (error) {
      if (signal.aborted || !isPassing(error)) throw error;
      on.away("The gateway does not answer. The run goes on; this page comes back by itself.");
      await pause(PAUSES_MS[Math.min(fails, PAUSES_MS.length - 1)], signal);
    }
  }
}

async function once({ path, headers = {}, ...rest }, { on, signal, came }) {
  const connection = new AbortController();
  const stop = () => connection.abort();
  signal.addEventListener("abort", stop);
  let watch = setTimeout(stop, SILENCE_MS);
  const alive = () => {
    clearTimeout(watch);
    watch = setTimeout(stop, SILENCE_MS);
  };
  try {
    const response = await send(path, { ...rest, headers: { Accept: "text/event-stream", ...headers }, signal: connection.signal });
    came();
    on.begun();
    const mode = response.headers.get("X-Routing-Mode");
    const run = response.headers.get("X-Run-Id");
    if (run) on.run(run);
    try {
      return await read(response, { on, alive });
    } catch (error) {
      // A model that answers by itself would be asked a second time.
      throw mode === "direct" && isPassing(error) ? new ApiError("the connection was lost before the whole answer was there", { status: 499 }) : error;
    }
  } catch (error) {
    if (error.name === "AbortError" && !signal.aborted) throw new ApiError("the gateway does not answer");
    throw error;
  } finally {
    clearTimeout(watch);
    signal.removeEventListener("abort", stop);
  }
}

async function read(response, { on, alive }) {
  const calls = [];
  let about = null;
  for await (const { data } of eventsOf(response.body, alive)) {
    if (data === "[DONE]") return { calls, about };
    if (data.error) throw new ApiError(data.error.message, { status: statusOf(data.error), code: data.error.code });
    const choice = data.choices?.[0];
    if (choice?.delta?.content) on.text(choice.delta.content);
    for (const call of choice?.delta?.tool_calls ?? []) calls.push(JSON.parse(call.function.arguments));
    if (data.dagwright?.events) {
      for (const event of data.dagwright.events) {
        on.run(event.run_id);
        on.event(event);
      }
    } else if (data.dagwright) {
      about = data.dagwright;
    }
  }
  // Without its end: the gateway has ended.
  throw new ApiError("the stream was broken off");
}

function statusOf(error) {
  return error.code === "unavailable" ? 503 : 422;
}

/** Whether trying again may help. A break of the network is no ApiError. */
function isPassing(error) {
  return !(error instanceof ApiError) || [0, 429, 502, 503, 504].includes(error.status);
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      window.removeEventListener("online", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    window.addEventListener("online", done);
    signal.addEventListener("abort", done);
  });
}
