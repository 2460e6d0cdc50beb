// Links to the Temporal UI: to one run, or to all runs.

import { api } from "./api.js";
import { el } from "./dom.js";

const RUNS_PATH = "/v1/runs?limit=1"; // the response has the URL of all runs in the Temporal UI
let pendingUrl = null;

/** A link to a run in the Temporal UI, or to all runs; hidden while the URL is unknown. */
export function temporalLink(run = null) {
  const link = el("a", { target: "_blank", rel: "noreferrer", hidden: true }, "Temporal UI");
  runsUrl().then((url) => {
    if (url === null) return;
    link.href = run === null ? url : `${url}/${encodeURIComponent(run)}`;
    link.hidden = false;
  });
  return link;
}

function runsUrl() {
  pendingUrl ??= api.get(RUNS_PATH).then(
    ({ ui_url: url }) => url ?? null,
    () => {
      // The gateway does not respond, or the user has not entered a key yet. The URL is requested again for the next link.
      pendingUrl = null;
      return null;
    },
  );
  return pendingUrl;
}
