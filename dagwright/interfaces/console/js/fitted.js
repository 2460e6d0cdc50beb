// Cuts words so that they fit into a width, as wide as they are drawn.

const MOST = 200; // letters that are looked at
const pen = document.createElement("canvas").getContext("2d");
const family = getComputedStyle(document.documentElement).fontFamily;

/** The words, or as much of them as fits with a `…`; width and size of the letters in px. */
export function fitted(words, width, size) {
  pen.font = `${size}px ${family}`;
  const fits = (text) => pen.measureText(text).width <= width;
  if (words.length <= MOST && fits(words)) return words;
  const letters = [...new Intl.Segmenter().segment(words.slice(0, MOST))].map(({ segment }) => segment);
  let [fit, most] = [0, letters.length];
  while (fit < most) {
    const half = Math.ceil((fit + most) / 2);
    if (fits(`${letters.slice(0, half).join("")}…`)) fit = half;
    else most = half - 1;
  }
  return `${letters.slice(0, fit).join("")}…`;
}
