// The user's name, which is recorded with answers and commands. With keys, the owner of the key is recorded instead.

import { el } from "./dom.js";

const NAME = "dagwright.name";

/** The name, or null. */
export function who() {
  return localStorage.getItem(NAME) || null;
}

/** A field for the name, which all pages of this browser use. */
export function whoField() {
  const field = el("input", { type: "text", id: "who", autocomplete: "name", maxlength: "100", value: who() ?? "" });
  field.addEventListener("input", () => localStorage.setItem(NAME, field.value.trim()));
  return el("div", { class: "who" }, el("label", { for: "who" }, "Your name"), field);
}
