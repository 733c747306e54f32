// Totals over days: what it cost, how runs ended, how many turns they took, and which were the most expensive.

import * as api from "./api.js";
import { barChart, dollars, ranking } from "./charts.js";
import { eachFrame, h, render } from "./dom.js";
import { columnUsd, compact, exactUsd, number, plural, usd } from "./format.js";
import { kindOf, pill, sign, wordsOf } from "./status.js";

const SPANS = [7, 30, 90];
const PANEL = 42;
const GAP = 16;
const WIDTH_MIN = 260;

export function totalsPage(root, params) {
  const page = { closed: false, draw: () => {} };
  const load = (query) => show(root, page, Number(query.get("days")) || 30);
  const resized = eachFrame(() => page.closed || page.draw());
  addEventListener("resize", resized);
  load(params);
  return { title: "Totals", changed: load, close: () => { page.closed = true; removeEventListener("resize", resized); } };
}

async function show(root, page, days) {
  page.days = days;
  const head = (sentence) => h("div", { class: "title", key: "head" }, h("h1", null, "Totals"), h("p", { class: "count" }, sentence), spans(days));
  render(root, head("loading…"));
  let content;
  let sentence = "";
  try {
    const stats = await api.get(`/v1/stats?days=${days}`);
    sentence = `the last ${days} days`;
    content = () => (stats.runs ? charts(stats, widths(root)) : h("p", { class: "empty" }, "No runs in these days."));
  } catch (error) {
    content = () => (error.status === 404
      ? h("p", { class: "empty" }, "No totals yet: this gateway does not count them.")
      : h("p", { class: "problem", role: "alert" }, error.message));
  }
  if (page.closed || page.days !== days) return;
  page.draw = () => render(root, head(sentence), content());
  page.draw();
}

/** How wide charts are drawn, so that their words are as large on a phone as on a desk. */
function widths(root) {
  const inside = Math.max(root.clientWidth - 2 * parseFloat(getComputedStyle(root).paddingLeft) - PANEL, WIDTH_MIN);
  return { wide: inside, half: innerWidth > 1000 ? (inside - PANEL - GAP) / 2 : inside };
}

function spans(days) {
  return h("div", { class: "views", role: "group", "aria-label": "Days" }, SPANS.map((span) => h("button", {
    type: "button",
    "aria-pressed": String(span === days),
    onclick: () => { location.hash = `#/totals?days=${span}`; },
  }, `${span} days`)));
}

function charts(stats, { wide, half }) {
  return h("div", { class: "totals" },
    h("section", { class: "panel figures wide", "aria-label": "Figures" }, h("dl", null,
      figure("Runs", number(stats.runs)),
      figure("Cost", usd(stats.cost_usd), exactUsd(stats.cost_usd)),
      figure("Cost of a run, median", usd(stats.cost?.p50 ?? 0)),
      figure("99 % cost at most", usd(stats.cost?.p99 ?? 0)),
      figure("Turns, median", number(stats.turns?.p50 ?? 0)),
      figure("99 % take at most", plural(stats.turns?.p99 ?? 0, "turn")))),
    panel("Cost per day", costPerDay(stats.by_day, wide), "wide"),
    panel("How runs ended", outcomes(stats.by_status)),
    panel("Turns of a run", histogram(stats.turns?.histogram ?? [], half)),
    panel("By agent", shares(stats.by_agent, "agent")),
    panel("By model", shares(stats.by_model, "model")),
    panel("The most expensive runs", expensive(stats.most_expensive), "wide"));
}

const panel = (title, content, kind = "") => h("section", { class: `panel ${kind}` }, h("h2", null, title), content);

function figure(name, value, title = null) {
  return h("div", null, h("dt", null, name), h("dd", null, h("b", { title }, value)));
}

function costPerDay(days, width) {
  const items = days.map(({ day, runs, cost_usd: cost }) => ({
    name: new Date(`${day}T12:00:00Z`).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" }),
    value: Number(cost),
    tip: `${day}: ${usd(cost)}, ${plural(runs, "run")}`,
  }));
  const total = days.reduce((sum, day) => sum + Number(day.cost_usd), 0);
  return barChart(`Cost per day over ${days.length} days, ${usd(total)} in all.`, items, dollars, width);
}

function outcomes(rows) {
  const sorted = [...rows].sort((a, b) => b.runs - a.runs);
  return ranking("Runs by status and reason", sorted.map((row) => ({ name: wordsOf(row), sign: sign(kindOf(row)), kind: kindOf(row), value: row.runs })));
}

function histogram(buckets, width) {
  const items = buckets.map(({ le, runs }, at) => {
    const from = at ? buckets[at - 1].le + 1 : 0;
    const name = le === null || le === "+Inf" ? `${from}+` : from < le && at ? `${from}–${le}` : String(le);
    return { name, value: runs, tip: `${name} ${name === "1" ? "turn" : "turns"}: ${plural(runs, "run")}` };
  });
  return barChart(`Runs by number of turns, in ${items.length} groups.`, items, compact, width);
}

function shares(rows, name) {
  const sorted = [...rows].sort((a, b) => b.cost_usd - a.cost_usd).slice(0, 12);
  return ranking(`Cost by ${name}`, sorted.map((row) => ({ name: row[name], value: Number(row.cost_usd), label: `${usd(row.cost_usd)} · ${plural(row.runs, "run", compact)}` })));
}

function expensive(runs) {
  return h("table", { class: "runs small" },
    h("thead", null, h("tr", null, ["Status", "Run", "Agent", "Model", "Turns", "Cost"].map((name, at) => h("th", { scope: "col", class: at > 3 ? "figure" : null }, name)))),
    h("tbody", null, runs.map((run) => h("tr", { key: run.id },
      h("td", { class: "status" }, pill(run)),
      h("th", { scope: "row", class: "id" }, h("a", { class: "open", href: `#/runs/${encodeURIComponent(run.id)}` }, h("code", { title: run.id }, run.id))),
      h("td", { class: "agent" }, run.agent),
      h("td", { class: "model" }, run.model),
      h("td", { class: "figure turns", "data-unit": "turns" }, number(run.turns)),
      h("td", { class: "figure cost", title: exactUsd(run.cost_usd) }, columnUsd(run.cost_usd))))));
}
