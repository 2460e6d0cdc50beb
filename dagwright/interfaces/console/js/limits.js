// Changes how much of a run runs at once, how long it may take, or its budget.

import { runPath } from "./api.js";
import { openDialog } from "./dialog.js";
import { el, say } from "./dom.js";
import { schemaForm } from "./forms.js";
import { onThisPage } from "./page.js";
import { timeWords } from "./times.js";
import { who, whoField } from "./who.js";

const COUNT = { type: "integer", minimum: 1 };
const KINDS = { tokens: COUNT, money: { type: "string" }, calls: COUNT, nodes: COUNT, time: { type: "string", examples: ["2h"] } };

/** Opens the dialog, which shows what the limits are now. */
export async function openLimits(run, { api }) {
  const isHere = onThisPage();
  const path = runPath(run.run_id, "/limits");
  let now;
  try {
    now = await api.get(path);
  } catch (error) {
    if (isHere()) say(error.message);
    return;
  }
  if (!isHere()) return;
  const form = schemaForm(schemaOf(now));
  const send = async () => {
    const { value, problems } = form.read();
    if (problems.length) return undefined;
    return (await api.post(path, { ...value, by: who() })).message;
  };
  const words = "What is left empty stays as it is. A lower limit stops nothing that runs.";
  openDialog("Limits of the run", { run, content: [el("p", {}, words), form.element, whoField()], acts: [{ words: "Set them", isMain: true, run: send }] });
}

function schemaOf(now) {
  const deadline = now.deadline ? timeWords(now.deadline) : "none";
  const properties = {
    max_parallel: { ...COUNT, maximum: 500, title: "Steps at once", description: `now ${now.max_parallel}` },
    deadline: { type: "string", title: "Deadline, from the start of the run", description: `now ${deadline}`, examples: ["4h"] },
  };
  // A run that was started without a budget has none to change.
  if (now.budget) properties.budget = { type: "object", title: "Budget, in all", properties: budgetOf(now.budget) };
  return { type: "object", properties };
}

function budgetOf(budget) {
  return Object.fromEntries(
    Object.entries(KINDS).map(([kind, schema]) => [kind, { ...schema, description: `now ${budget[kind] ?? "without a limit"}` }]),
  );
}
