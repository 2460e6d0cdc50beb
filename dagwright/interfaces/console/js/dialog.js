// A dialog that asks what an act needs, sends it, and says what is wrong with it.

import { el, say } from "./dom.js";
import { onThisPage } from "./page.js";

let made = 0;
const open = new Set();

/** Closes every dialog of an act, as the page that it belongs to is left. */
export function closeDialogs() {
  for (const dialog of [...open]) dialog.close();
}

/** The title and the ID of a run in one text. */
export function runName(run) {
  return run.title ? `'${run.title}' (${run.run_id})` : run.run_id;
}

/**
 * Opens a dialog.
 *
 * run: the run that it acts on, `{run_id, title}`; the dialog shows both.
 * content: elements; `focus` is the one that is gone to first, else it is the first field.
 * acts: buttons, [{words, isMain, isDangerous, run}]. `run` returns what happened in words, with which the dialog closes;
 *     undefined keeps it open. What it throws is shown.
 *
 * Returns the dialog, with `told(words)` for what is wrong and `enabled(isEnabled)` for its buttons.
 */
export function openDialog(title, { run: target, content, acts, isWide = false, focus }) {
  made += 1;
  const id = `dialog-${made}`;
  const isHere = onThisPage();
  const wrong = el("p", { class: "wrong", role: "alert", hidden: true });
  const buttons = acts.map((act) => {
    const kind = [act.isMain && "main", act.isDangerous && "danger"].filter(Boolean).join(" ");
    return el("button", { type: "button", class: kind, onclick: () => run(act) }, act.words);
  });
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Leave it");
  const dialog = el(
    "dialog",
    { class: isWide ? "act wide" : "act", "aria-labelledby": id, "aria-describedby": `${id}-run` },
    el("h2", { id }, title),
    el("p", { class: "dialog-run", id: `${id}-run` }, "Run ", target.title && [el("strong", {}, target.title), " "], el("code", {}, target.run_id)),
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
        report(words);
      }
    } catch (error) {
      if (isHere()) told(error.message);
      else report(error.message);
    }
    enabled(true);
  }

  // On another page the words alone would be about its run.
  function report(words) {
    say(isHere() ? words : `${title}, ${runName(target)}: ${words}`);
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
  dialog.addEventListener("close", () => {
    open.delete(dialog);
    dialog.remove();
  });
  open.add(dialog);
  document.body.append(dialog);
  dialog.showModal();
  (focus ?? dialog.querySelector("input, textarea, select"))?.focus();
  return dialog;
}
