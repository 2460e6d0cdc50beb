// The user's name, which is recorded with answers and commands. If the gateway requires a key, the key's owner is recorded
// instead.

import { el } from "./dom.js";

const NAME_KEY = "dagwright.name";

/** The name, or null. */
export function userName() {
  return localStorage.getItem(NAME_KEY) || null;
}

/** A field for the name, which all pages of this browser use. */
export function userNameField() {
  const field = el("input", { type: "text", id: "user-name", autocomplete: "name", maxlength: "100", value: userName() ?? "" });
  field.addEventListener("input", () => localStorage.setItem(NAME_KEY, field.value.trim()));
  return el("div", { class: "user-name" }, el("label", { for: "user-name" }, "Your name"), field);
}
