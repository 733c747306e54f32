// Starts a run: an agent, perhaps with another model, limits or policies than its own.

import * as api from "./api.js";
import { limitFields } from "./actions.js";
import { openDialog } from "./dialog.js";
import { h } from "./dom.js";
import { actionForm, choice, field, limitsOf, numberOf, textArea, textInput } from "./forms.js";

const POLICIES = {
  approval: ["Calls that need approval", ["ask", "auto", "deny"]],
  dedupe: ["Repeated calls", ["off", "read_only", "all"]],
  tool_errors: ["Tool errors", ["worded", "vague", "fatal"]],
  on_permanent_error: ["Permanent errors", ["tell_once", "stop", "tell_model"]],
  refusal: ["Refusals", ["worded", "silent"]],
};

let opening = false;

/** `like` fills the form in as another run was started. */
export async function startDialog(like = {}) {
  if (opening) return;
  opening = true;
  try {
    const [agents, models] = await Promise.all([agentsOf(), modelsOf()]);
    show(agents, models, like);
  } finally {
    opening = false;
  }
}

async function agentsOf() {
  try {
    return (await api.get("/v1/agents")).agents;
  } catch {
    return [];
  }
}

/** Names to suggest: the models of the newest runs. */
async function modelsOf() {
  try {
    const { runs } = await api.get("/v1/runs?limit=100");
    return [...new Set(runs.map((run) => run.model))].sort();
  } catch {
    return [];
  }
}

function show(agents, models, like) {
  const chosen = agents.find((agent) => agent.name === like.agent) ?? agents[0];
  const own = h("div", { class: "own" });
  const names = agents.map((agent) => [agent.name, agent.about ? `${agent.name}: ${agent.about}` : agent.name]);
  const agent = field("agent", "Agent", agents.length ? choice(names, { onchange: (event) => fill(event.target.value) }) : textInput());
  if (chosen) agent.querySelector("select").value = chosen.name;
  const fill = (name) => own.replaceChildren(...ownFields(agents.find((each) => each.name === name), models, like));
  const start = async (values) => {
    const run = await api.post("/v1/runs", orderOf(values));
    dialog.close();
    location.hash = `#/runs/${encodeURIComponent(run.id)}`;
  };
  const input = field("input", "Input", textArea({ rows: 4, value: like.input ?? "", autofocus: true, placeholder: "What is to be done?" }));
  const form = actionForm([input, agent, own], [["Start the run", "start", "primary"]], start);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  fill(chosen?.name);
  const dialog = openDialog("New run", form, { wide: true });
}

/** The fields whose defaults are the agent's. */
function ownFields(agent, models, like) {
  const list = h("datalist", { id: "models" }, models.map((name) => h("option", { value: name })));
  const model = like.agent === agent?.name ? like.model ?? "" : "";
  return [
    h("div", { class: "grid" },
      field("model", "Model", textInput({ list: "models", value: model, placeholder: agent?.model ?? "the provider's default" })),
      ...limitFields(agent?.limits).slice(0, 1)),
    list,
    h("details", { class: "more" }, h("summary", null, "More limits and stop rules"),
      h("div", { class: "grid" },
        ...limitFields(agent?.limits).slice(1),
        field("stop_rules.repeated_calls", "Stop at repeated calls", textInput({ inputmode: "numeric", placeholder: String(agent?.stop_rules.repeated_calls ?? "off") })),
        field("stop_rules.repeated_failures", "Stop at repeated failures", textInput({ inputmode: "numeric", placeholder: String(agent?.stop_rules.repeated_failures ?? "off") })))),
    h("details", { class: "more" }, h("summary", null, "Policies"),
      h("div", { class: "grid" }, Object.entries(POLICIES).map(([name, [label, values]]) =>
        field(`policies.${name}`, label, choice([["", `as the agent: ${agent?.policies[name] ?? "?"}`], ...values.map((value) => [value, value])]))))),
    h("details", { class: "more" }, h("summary", null, "System prompt"),
      field("system", "Instead of the agent's own", textArea({ rows: 3, value: "" }))),
  ];
}

/** What was filled in, as the API takes it; what was left empty is left out. */
function orderOf(values) {
  const order = { input: values.input, stream: true };
  for (const name of ["agent", "model", "system"]) if (values[name]?.trim()) order[name] = values[name].trim();
  const limits = limitsOf(values);
  if (Object.keys(limits).length) order.limits = limits;
  const policies = group(values, "policies.", (value) => value || undefined);
  if (policies) order.policies = policies;
  const rules = group(values, "stop_rules.", numberOf);
  if (rules) order.stop_rules = rules;
  return order;
}

function group(values, prefix, read) {
  const given = Object.entries(values).filter(([name]) => name.startsWith(prefix))
    .map(([name, value]) => [name.slice(prefix.length), read(value)]).filter(([, value]) => value !== undefined);
  return given.length ? Object.fromEntries(given) : null;
}
