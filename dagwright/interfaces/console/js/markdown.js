// Renders Markdown that a model, a plan or a person wrote. None of them is trusted: the parser takes no HTML, and the
// sanitizer keeps a fixed list of elements, without scripts, styles, forms or anything that loads from elsewhere.

import DOMPurify from "../vendor/purify.es.mjs";
import MarkdownIt from "../vendor/markdown-it.esm.min.mjs";
import { el, json } from "./dom.js";

const TAGS = "a blockquote br code del em h3 h4 h5 h6 hr li ol p pre s strong table tbody td th thead tr ul".split(" ");
const ATTRIBUTES = ["align", "href", "start"];
const LINK = /^(?:https?:|mailto:)/i;
/** Longer texts stay plain: parsing takes too long while an answer is still being written. */
const MOST_CHARACTERS = 200_000;
/** Headings of a text are below those of the page. */
const BELOW = 2;
/** Rendering while an answer is written takes at most a fifth of the time. */
const SHARE = 5;
const FRAME_MS = 16;

const parser = new MarkdownIt({ html: false, breaks: true, linkify: true });
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
parser.core.ruler.push("for_the_console", ({ tokens }) => {
  for (const token of tokens) {
    if (/^heading_(open|close)$/.test(token.type)) token.tag = `h${Math.min(6, Number(token.tag[1]) + BELOW)}`;
    const style = token.attrGet("style");
    // The security policy of the page allows no styles in markup.
    if (style) token.attrs = [["align", style.replace("text-align:", "")]];
  }
});
// An image would be fetched as soon as the text is shown, and its server would know that it was read.
parser.renderer.rules.image = (tokens, at) => {
  const image = tokens[at];
  const { escapeHtml } = parser.utils;
  return `<a href="${escapeHtml(image.attrGet("src") ?? "")}">${escapeHtml(image.content || "image")}</a>`;
};

const sanitizer = DOMPurify(window);
sanitizer.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A" || !node.hasAttribute("href")) return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer nofollow");
});

function sanitized(html) {
  return sanitizer.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOWED_URI_REGEXP: LINK,
    // Their values are no addresses.
    ADD_URI_SAFE_ATTR: ["align", "start"],
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
}

/** A text as blocks of Markdown; JSON and very long texts as they are. */
export function markdown(text) {
  if (text.length > MOST_CHARACTERS) return el("div", { class: "plain" }, text);
  if (isJson(text)) return json(text, "Answer as JSON");
  return el("div", { class: "markdown" }, sanitized(parser.render(text)));
}

/** One line of Markdown, for a heading. */
export function inlineMarkdown(text) {
  return sanitized(parser.renderInline(text));
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

/** Renders a text that grows into an element. */
export class GrowingMarkdown {
  #timer = null;
  #tookMs = 0;

  constructor(element) {
    this.element = element;
    this.text = "";
  }

  /** Replaces the text; what is shown follows soon. */
  set(text) {
    this.text = text;
    this.#timer ??= setTimeout(() => this.#render(), Math.max(FRAME_MS, SHARE * this.#tookMs));
  }

  #render() {
    this.#timer = null;
    const began = performance.now();
    this.element.replaceChildren(...(this.text ? [markdown(this.text)] : []));
    this.#tookMs = performance.now() - began;
  }
}
