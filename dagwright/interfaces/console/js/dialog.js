// A dialog that asks for the parameters of a command, sends it, and shows errors.

import { el, say } from "./dom.js";
import { onThisPage } from "./page.js";

let made = 0;
const open = new Set();

/** Closes all dialogs when their page is left. */
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
 * run: the run of the command, `{run_id, title}`; the dialog shows both.
 * content: elements; `focus` gets the focus first, by default the first field.
 * actions: buttons, [{label, isMain, isDangerous, run}]. `run` returns the result as text, which closes the dialog;
 *     undefined keeps it open. Errors that it throws are shown.
 *
 * Returns the dialog.
 */
export function openDialog(title, { run: target, content, actions, isWide = false, focus }) {
  made += 1;
  const id = `dialog-${made}`;
  const isHere = onThisPage();
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const buttons = actions.map((act) => {
    const kind = [act.isMain && "main", act.isDangerous && "danger"].filter(Boolean).join(" ");
    return el("button", { type: "button", class: kind, onclick: () => run(act) }, act.label);
  });
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Leave it");
  const dialog = el(
    "dialog",
    { class: isWide ? "act wide" : "act", "aria-labelledby": id, "aria-describedby": `${id}-run` },
    el("h2", { id }, title),
    el("p", { class: "dialog-run", id: `${id}-run` }, "Run ", target.title && [el("strong", {}, target.title), " "], el("code", {}, target.run_id)),
    el("div", { class: "dialog-content" }, content),
    problem,
    el("div", { class: "actions" }, buttons, close),
  );

  async function run(act) {
    showError("");
    enable(false);
    try {
      const message = await act.run();
      if (message !== undefined) {
        dialog.close();
        report(message);
      }
    } catch (error) {
      if (isHere()) showError(error.message);
      else report(error.message);
    }
    enable(true);
  }

  // On another page, the text without the run would be misleading.
  function report(message) {
    say(isHere() ? message : `${title}, ${runName(target)}: ${message}`);
  }

  function showError(message) {
    problem.textContent = message;
    problem.hidden = !message;
  }

  function enable(is) {
    for (const button of buttons) button.disabled = !is;
  }

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
