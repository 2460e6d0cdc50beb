// Creates elements. Children that are strings become text, never HTML, so texts from runs and people are harmless.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; `null` and `false` are skipped. */
export function el(tag, attrs = {}, ...children) {
  return initialize(document.createElement(tag), attrs, children);
}

/** Like `el`, for SVG elements. */
export function svg(tag, attrs = {}, ...children) {
  return initialize(document.createElementNS(SVG, tag), attrs, children);
}

function initialize(element, attrs, children) {
  for (const [name, value] of Object.entries(attrs ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...childNodes(children));
  return element;
}

function childNodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : String(child)));
}

/** Replaces the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...childNodes(children));
  return element;
}

/** Shows a message in the status line, which screen readers announce. */
export function announce(message) {
  document.getElementById("status-line").textContent = message;
}

/** An element with a value as indented JSON; it can be scrolled with the keyboard. */
export function jsonBlock(value, label) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return el("pre", { class: "json", tabindex: "0", role: "region", "aria-label": label ?? "value" }, text ?? "null");
}
