// Renders Markdown from models, plans and people. It is untrusted, so the parser accepts no HTML, and the sanitizer keeps
// only a fixed list of elements: no scripts, styles or forms, and nothing that is loaded from another server.

import DOMPurify from "../vendor/purify.es.mjs";
import MarkdownIt from "../vendor/markdown-it.esm.min.mjs";
import { el, jsonBlock } from "./dom.js";

const TAGS = "a blockquote br code del em h3 h4 h5 h6 hr li ol p pre s strong table tbody td th thead tr ul".split(" ");
const ATTRIBUTES = ["align", "href", "start"];
const ALLOWED_LINK = /^(?:https?:|mailto:)/i;
/** Longer texts are shown as plain text, because parsing them would take too long while an answer is streamed. */
const MAX_CHARACTERS = 200_000;
/** Levels that are added to the headings of a text, since the page has headings of its own. */
const HEADING_OFFSET = 2;
/** The pause between two renderings of a streamed answer is at least five times as long as a rendering. */
const PAUSE_FACTOR = 5;
const FRAME_MS = 16;

const parser = new MarkdownIt({ html: false, breaks: true, linkify: true });
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
parser.core.ruler.push("for_the_console", ({ tokens }) => {
  for (const token of tokens) {
    if (/^heading_(open|close)$/.test(token.type)) token.tag = `h${Math.min(6, Number(token.tag[1]) + HEADING_OFFSET)}`;
    const style = token.attrGet("style");
    // The security policy of the page allows no styles in markup.
    if (style) token.attrs = [["align", style.replace("text-align:", "")]];
  }
});
// The browser would load an image when the text is shown, and the server of the image would learn that the text is shown.
parser.renderer.rules.image = (tokens, index) => {
  const image = tokens[index];
  const { escapeHtml } = parser.utils;
  return `<a href="${escapeHtml(image.attrGet("src") ?? "")}">${escapeHtml(image.content || "image")}</a>`;
};

const sanitizer = DOMPurify(window);
sanitizer.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A" || !node.hasAttribute("href")) return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
});

function sanitize(html) {
  return sanitizer.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOWED_URI_REGEXP: ALLOWED_LINK,
    // The values of these attributes are not addresses.
    ADD_URI_SAFE_ATTR: ["align", "start"],
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
}

/** An element with a text rendered as Markdown. JSON and very long texts are shown unchanged. */
export function markdown(text) {
  if (text.length > MAX_CHARACTERS) return el("div", { class: "plain" }, text);
  if (isJson(text)) return jsonBlock(text, "Answer as JSON");
  return el("div", { class: "markdown" }, sanitize(parser.render(text)));
}

/** One line of Markdown, for a heading. */
export function inlineMarkdown(text) {
  return sanitize(parser.renderInline(text));
}

function isJson(text) {
  if (!/^\s*[[{]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Renders a growing text in an element. */
export class GrowingMarkdown {
  #timer = null;
  #renderMs = 0;

  constructor(element) {
    this.element = element;
    this.text = "";
  }

  /** Replaces the text, which is rendered after a short pause. */
  set(text) {
    this.text = text;
    this.#timer ??= setTimeout(() => this.#render(), Math.max(FRAME_MS, PAUSE_FACTOR * this.#renderMs));
  }

  #render() {
    this.#timer = null;
    const startMs = performance.now();
    this.element.replaceChildren(...(this.text ? [markdown(this.text)] : []));
    this.#renderMs = performance.now() - startMs;
  }
}
