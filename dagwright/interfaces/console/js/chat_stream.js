// The answer of a run as it is written, over the protocol that every chat client speaks.
//
// A request that was broken off is sent again with the key that it had, and finds the run that is there. A run that
// goes on is joined by its id: nobody needs to have asked it from this page.

import { ApiError, runPath, send } from "./api.js";
import { errorIn, eventsOf, isPassing, persist, watched } from "./events.js";

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
export function follow(request, { on, signal }) {
  const once = (came) => watched(signal, (mine, alive) => ask(request, { on, came, alive, signal: mine }));
  return persist(once, { signal, isPassing, onAway: on.away });
}

async function ask({ path, headers = {}, ...rest }, { on, came, alive, signal }) {
  // A model may think for long about who answers, and would be asked a second time.
  if (rest.method !== "POST") alive();
  const response = await send(path, { ...rest, headers: { Accept: "text/event-stream", ...headers }, signal });
  came();
  alive();
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
}

async function read(response, { on, alive }) {
  const calls = [];
  let about = null;
  for await (const { data } of eventsOf(response.body, alive)) {
    if (data === "[DONE]") return { calls, about };
    if (data.error) throw errorIn(data);
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
