// The column beside a timeline: figures, the chart of prompt tokens, limits, policies, and what the run belongs to.

import { meter, promptChart } from "./charts.js";
import { h, lazily } from "./dom.js";
import { compact, duration, exactUsd, number, usd } from "./format.js";

export function sidebar(run, trace) {
  return h("aside", { class: "facts", "aria-label": "Figures", key: "facts" },
    figures(run, trace),
    trace.points.length > 1 && lazily("chart", trace.points.length, () => h("section", { class: "panel" },
      h("h2", null, "Prompt tokens, turn by turn"),
      promptChart(trace.points),
      h("p", { class: "legend" }, h("span", { class: "one" }, "prompt"), h("span", { class: "two" }, "with the reply")))),
    lineage(run),
    settings(run));
}

function figures(run, trace) {
  const turns = Math.max(run.turns, trace.points.length);
  const cost = Math.max(run.cost_usd, Number(trace.cost) || 0);
  const { max_turns: maxTurns, max_budget_usd: maxBudget } = run.limits;
  const ms = Date.parse(run.updated_at) - Date.parse(run.created_at);
  return h("section", { class: "panel figures" },
    h("dl", null,
      figure("Turns", number(turns), maxTurns && `of ${number(maxTurns)}`, maxTurns && meter("Turns", turns, maxTurns, number)),
      figure("Cost", usd(cost), maxBudget && `of ${usd(maxBudget)}`, maxBudget && meter("Cost", cost, maxBudget, usd), exactUsd(cost)),
      figure("Tool runs", number(run.tool_runs)),
      figure("Tokens", compact(run.usage.total_tokens), `${compact(run.usage.prompt_tokens)} in, ${compact(run.usage.completion_tokens)} out`),
      run.status !== "running" && figure("From start to stop", duration(ms)),
      run.unconfirmed_cost_usd > 0 && figure("Unconfirmed cost", usd(run.unconfirmed_cost_usd), "sent, and no reply recorded")));
}

function figure(name, value, beside, picture, title) {
  return h("div", null, h("dt", null, name), h("dd", null, h("b", { title: title ?? null }, value), beside && h("small", null, beside), picture));
}

function lineage(run) {
  if (!run.parent) return null;
  return h("section", { class: "panel" }, h("h2", null, "Asked for by"),
    h("p", null, h("a", { class: "parent", href: `#/runs/${encodeURIComponent(run.parent.run_id)}` }, h("code", null, run.parent.run_id))));
}

function settings(run) {
  const rules = Object.entries(run.stop_rules ?? {}).filter(([, value]) => (Array.isArray(value) ? value.length : value !== null));
  const groups = [["Limits", Object.entries(run.limits)], ["Policies", Object.entries(run.policies)], ["Stop rules", rules], ["Metadata", Object.entries(run.metadata)]];
  return h("details", { class: "panel settings" }, h("summary", null, h("h2", null, "Limits and policies")),
    groups.filter(([, rows]) => rows.length).map(([name, rows]) => h("div", null, h("h3", null, name),
      h("dl", { class: "rows" }, rows.map(([key, value]) => h("div", null, h("dt", null, key), h("dd", null, value === null ? "none" : String(value))))))));
}
