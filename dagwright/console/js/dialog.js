// A dialog that asks what an act needs, sends it, and says what is wrong with it.

import { el, say } from "./dom.js";

let made = 0;

/**
 * Opens a dialog.
 *
 * content: elements; `focus` is the one that is gone to first, else it is the first field.
 * acts: buttons, [{words, isMain, isDangerous, run}]. `run` returns what happened in words, with which the dialog closes;
 *     undefined keeps it open. What it throws is shown.
 *
 * Returns the dialog, with `told(words)` for what is wrong and `enabled(isEnabled)` for its buttons.
 */
export function openDialog(title, { content, acts, isWide = false, focus }) {
  made += 1;
  const id = `dialog-${made}`;
  const wrong = el("p", { class: "wrong", role: "alert", hidden: true });
  const buttons = acts.map((act) => {
    const kind = [act.isMain && "main", act.isDangerous && "danger"].filter(Boolean).join(" ");
    return el("button", { type: "button", class: kind, onclick: () => run(act) }, act.words);
  });
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Leave it");
  const dialog = el(
    "dialog",
    { class: isWide ? "act wide" : "act", "aria-labelledby": id },
    el("h2", { id }, title),
    el("div", { class: "dialog-content" }, content),
    wrong,
    el("div", { class: "acts" }, buttons, close),
  );

  async function run(act) {
    told("");
    enabled(false);
    try {
      const words = await act.run();
      if (words !== undefined) {
        dialog.close();
        say(words);
      }
    } catch (error) {
      told(error.message);
    }
    enabled(true);
  }

  function told(words) {
    wrong.textContent = words;
    wrong.hidden = !words;
  }

  function enabled(is) {
    for (const button of buttons) button.disabled = !is;
  }

  dialog.told = told;
  dialog.enabled = enabled;
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  (focus ?? dialog.querySelector("input, textarea, select"))?.focus();
  return dialog;
}
