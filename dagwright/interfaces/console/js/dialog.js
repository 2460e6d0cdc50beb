// A dialog that asks for the parameters of a command, sends the command, and shows errors.

import { announce, el } from "./dom.js";
import { createPageCheck } from "./page.js";

let dialogCount = 0;
const openDialogs = new Set();

/** Closes all dialogs; to be called when the user leaves the page. */
export function closeDialogs() {
  for (const dialog of [...openDialogs]) dialog.close();
}

/** The title and the ID of a run in one text. */
export function runName(run) {
  return run.title ? `'${run.title}' (${run.run_id})` : run.run_id;
}

/**
 * Opens a dialog.
 *
 * run: the run of the command, `{run_id, title}`, which the dialog shows.
 * content: elements of the dialog.
 * focus: the element that gets the focus first. Default: the first field.
 * actions: buttons, [{label, isMain, isDangerous, perform}]. If `perform` returns a text, the dialog is closed and the
 *     text is announced. If `perform` returns undefined, the dialog stays open. If `perform` throws an error, the dialog
 *     shows the error.
 *
 * Returns the dialog.
 */
export function openDialog(title, { run, content, actions, isWide = false, focus }) {
  dialogCount += 1;
  const id = `dialog-${dialogCount}`;
  const isSamePage = createPageCheck();
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const buttons = actions.map((action) => {
    const cssClass = [action.isMain && "main", action.isDangerous && "danger"].filter(Boolean).join(" ");
    return el("button", { type: "button", class: cssClass, onclick: () => performAction(action) }, action.label);
  });
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = el(
    "dialog",
    { class: isWide ? "act wide" : "act", "aria-labelledby": id, "aria-describedby": `${id}-run` },
    el("h2", { id }, title),
    el("p", { class: "dialog-run", id: `${id}-run` }, "Run ", run.title && [el("strong", {}, run.title), " "], el("code", {}, run.run_id)),
    el("div", { class: "dialog-content" }, content),
    problem,
    el("div", { class: "actions" }, buttons, close),
  );

  async function performAction(action) {
    showError("");
    setEnabled(false);
    try {
      const message = await action.perform();
      if (message !== undefined) {
        dialog.close();
        report(message);
      }
    } catch (error) {
      if (isSamePage()) showError(error.message);
      else report(error.message);
    }
    setEnabled(true);
  }

  // On another page, the message names the run.
  function report(message) {
    announce(isSamePage() ? message : `${title}, ${runName(run)}: ${message}`);
  }

  function showError(message) {
    problem.textContent = message;
    problem.hidden = !message;
  }

  function setEnabled(isEnabled) {
    for (const button of buttons) button.disabled = !isEnabled;
  }

  dialog.addEventListener("close", () => {
    openDialogs.delete(dialog);
    dialog.remove();
  });
  openDialogs.add(dialog);
  document.body.append(dialog);
  dialog.showModal();
  (focus ?? dialog.querySelector("input, textarea, select"))?.focus();
  return dialog;
}
