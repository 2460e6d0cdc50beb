// Client of the gateway's public API.

import { el } from "./dom.js";

/** Name of the entry of `sessionStorage` with the API key. */
const KEY_ENTRY = "dagwright.key";
/** Statuses after which a retry may succeed; 0 means no response. */
const RETRYABLE_STATUSES = [0, 429, 502, 503, 504];
/** Error codes of the model service that are not retried: the call would fail again, or cost as much again. */
const PERMANENT_CODES = /^(model_.*|insufficient_quota)$/;

/** An error response of the gateway. */
export class ApiError extends Error {
  /** shouldRetry: value of the header `x-should-retry`. */
  constructor(message, { status = 0, code = null, param = null, shouldRetry = null } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.param = param;
    this.isRetryable = RETRYABLE_STATUSES.includes(status) && shouldRetry !== "false" && !PERMANENT_CODES.test(code ?? "");
  }
}

/** The headers of every request: the key, if the user has entered one. */
export function keyHeaders() {
  const key = sessionStorage.getItem(KEY_ENTRY);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** The error of a response. */
export async function errorOf(response) {
  const text = await response.text().catch(() => "");
  const { status, headers } = response;
  const shouldRetry = headers.get("x-should-retry");
  try {
    const { message, code, param } = JSON.parse(text).error;
    return new ApiError(message, { status, code, param, shouldRetry });
  } catch {
    return new ApiError(`the gateway returned status ${status}`, { status, shouldRetry });
  }
}

let pendingKeyDialog = null;

/** Ask for a key, once for all requests that need a key; return whether a key was entered. */
export function askForKey(message) {
  pendingKeyDialog ??= openKeyDialog(message).finally(() => {
    pendingKeyDialog = null;
  });
  return pendingKeyDialog;
}

function openKeyDialog(message) {
  const field = el("input", { type: "password", id: "key", autocomplete: "off", required: true });
  const dialog = el(
    "dialog",
    { class: "key", "aria-labelledby": "key-title" },
    el(
      "form",
      { method: "dialog" },
      el("h2", { id: "key-title" }, "This gateway needs a key"),
      el("p", {}, message),
      el("label", { for: "key" }, "Key"),
      field,
      el("p", { class: "hint" }, "The key is kept in this tab until the tab is closed."),
      el("button", { class: "main" }, "Use the key"),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const key = field.value.trim();
      if (key) sessionStorage.setItem(KEY_ENTRY, key);
      dialog.remove();
      resolve(Boolean(key));
    });
  });
}

/**
 * Send a request with the key, ask for a key if the gateway requires one, and return a successful response.
 *
 * Throws an ApiError, with status 0 if the gateway does not respond.
 */
export async function send(path, { method = "GET", body, headers = {}, signal } = {}) {
  for (;;) {
    const authHeaders = keyHeaders();
    const allHeaders = { ...headers, ...authHeaders };
    if (body !== undefined) allHeaders["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(path, { method, headers: allHeaders, body: body === undefined ? undefined : JSON.stringify(body), signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("the gateway does not respond");
    }
    if (response.ok) return response;
    const error = await errorOf(response);
    // The user may have entered a key for another request in the meantime.
    const hasNewKey = keyHeaders().Authorization !== authHeaders.Authorization;
    if (response.status !== 401 || !(hasNewKey || (await askForKey(error.message)))) throw error;
  }
}

/** The API: both methods return JSON, or throw an ApiError. */
export const api = {
  get: async (path, options) => (await send(path, options)).json(),
  post: async (path, body, options) => (await send(path, { ...options, method: "POST", body: body ?? {} })).json(),
};

/** The path of a run in the API. */
export function runPath(runId, rest = "") {
  return `/v1/runs/${encodeURIComponent(runId)}${rest}`;
}

/** The path of a node in the API. The ID of a node in a sub-plan has slashes, which are not encoded. */
export function nodePath(runId, nodeId, rest = "") {
  return runPath(runId, `/nodes/${nodeId.split("/").map(encodeURIComponent).join("/")}${rest}`);
}
