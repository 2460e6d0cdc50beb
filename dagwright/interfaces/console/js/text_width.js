// Cuts text to a width in pixels.

const MAX_MEASURED = 200; // maximum number of characters that are measured
const context = document.createElement("canvas").getContext("2d");
const family = getComputedStyle(document.documentElement).fontFamily;

/** The text, cut with a `…` if it does not fit; width and font size in px. */
export function cutToWidth(caption, width, size) {
  context.font = `${size}px ${family}`;
  const fits = (text) => context.measureText(text).width <= width;
  if (caption.length <= MAX_MEASURED && fits(caption)) return caption;
  const letters = [...new Intl.Segmenter().segment(caption.slice(0, MAX_MEASURED))].map(({ segment }) => segment);
  let [lower, upper] = [0, letters.length];
  while (lower < upper) {
    const half = Math.ceil((lower + upper) / 2);
    if (fits(`${letters.slice(0, half).join("")}…`)) lower = half;
    else upper = half - 1;
  }
  return `${letters.slice(0, lower).join("")}…`;
}
