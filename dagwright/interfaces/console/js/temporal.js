// Links to the Temporal UI: to one run, or to all runs.

import { api } from "./api.js";
import { el } from "./dom.js";

const ADDRESS = "/v1/runs?limit=1"; // its response has the URL of all runs
let asking = null;

/** A link to a run in the Temporal UI, or to all runs; hidden while the URL is unknown. */
export function temporalLink(run = null) {
  const link = el("a", { target: "_blank", rel: "noreferrer", hidden: true }, "Temporal UI");
  pageOfRuns().then((page) => {
    if (page === null) return;
    link.href = run === null ? page : `${page}/${encodeURIComponent(run)}`;
    link.hidden = false;
  });
  return link;
}

function pageOfRuns() {
  asking ??= api.get(ADDRESS).then(
    ({ ui_url: page }) => page ?? null,
    () => {
      // The gateway did not respond, or has no key yet: the next link tries again.
      asking = null;
      return null;
    },
  );
  return asking;
}
