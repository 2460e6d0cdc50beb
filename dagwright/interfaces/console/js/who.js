// Who acts at this page: a name that is told with answers and acts. Where keys are needed, the owner of the key counts.

import { el } from "./dom.js";

const NAME = "dagwright.name";

/** The name, or null if none was given. */
export function who() {
  return localStorage.getItem(NAME) || null;
}

/** A field for the name, which every page of this browser takes from then on. */
export function whoField() {
  const field = el("input", { type: "text", id: "who", autocomplete: "name", maxlength: "100", value: who() ?? "" });
  field.addEventListener("input", () => localStorage.setItem(NAME, field.value.trim()));
  return el("div", { class: "who" }, el("label", { for: "who" }, "Your name"), field);
}
