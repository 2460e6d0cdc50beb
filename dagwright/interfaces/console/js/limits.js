// Changes the parallelism, deadline or budget of a run.

import { runPath } from "./api.js";
import { openDialog } from "./dialog.js";
import { announce, el } from "./dom.js";
import { schemaForm } from "./forms.js";
import { createPageCheck } from "./page.js";
import { timeText } from "./times.js";
import { userName, userNameField } from "./user_name.js";

const COUNT_SCHEMA = { type: "integer", minimum: 1 };
const BUDGET_SCHEMAS = { tokens: COUNT_SCHEMA, money: { type: "string" }, calls: COUNT_SCHEMA, nodes: COUNT_SCHEMA, time: { type: "string", examples: ["2h"] } };

/** Opens the dialog with the current limits. */
export async function openLimits(run, { api }) {
  const isSamePage = createPageCheck();
  const path = runPath(run.run_id, "/limits");
  let currentLimits;
  try {
    currentLimits = await api.get(path);
  } catch (error) {
    if (isSamePage()) announce(error.message);
    return;
  }
  if (!isSamePage()) return;
  const form = schemaForm(limitsSchema(currentLimits));
  const send = async () => {
    const { value, problems } = form.read();
    if (problems.length) return undefined;
    return (await api.post(path, { ...value, by: userName() })).message;
  };
  const message = "An empty field leaves its limit unchanged. A lower limit does not stop running nodes.";
  openDialog("Limits of the run", { run, content: [el("p", {}, message), form.element, userNameField()], actions: [{ label: "Set them", isMain: true, perform: send }] });
}

function limitsSchema(currentLimits) {
  const deadline = currentLimits.deadline ? timeText(currentLimits.deadline) : "none";
  const properties = {
    max_parallel: { ...COUNT_SCHEMA, maximum: 500, title: "Running nodes", description: `now ${currentLimits.max_parallel}` },
    deadline: { type: "string", title: "Deadline, from the start of the run", description: `now ${deadline}`, examples: ["4h"] },
  };
  // The budget can be changed only if the run was started with a budget.
  if (currentLimits.budget) properties.budget = { type: "object", title: "Budget of the whole run", properties: budgetProperties(currentLimits.budget) };
  return { type: "object", properties };
}

function budgetProperties(budget) {
  return Object.fromEntries(
    Object.entries(BUDGET_SCHEMAS).map(([kind, schema]) => [kind, { ...schema, description: `now ${budget[kind] ?? "without a limit"}` }]),
  );
}
