// Filters of the list. They stand in the address, so that a filtered list can be kept and sent to somebody. The gateway
// carries them out, except for what waits for a person; what it tells of changes is filtered here.

import { h } from "./dom.js";
import { waits } from "./status.js";

const VIEWS = [
  ["", "All"],
  ["running", "Running"],
  ["waiting", "Waiting for you"],
  ["completed", "Completed"],
  ["failed", "Failed"],
  ["max_turns_exceeded", "Turn cap"],
  ["budget_exceeded", "Budget"],
  ["interrupted", "Interrupted"],
];

/** The filters that the gateway carries out, as its query. */
export function queryOf(params) {
  const query = new URLSearchParams();
  const view = params.get("status");
  if (view) query.set("status", view === "waiting" ? "interrupted" : view);
  if (params.get("agent")) query.set("agent", params.get("agent"));
  if (params.get("q")) query.set("text", params.get("q"));
  return query.toString();
}

export function matches(run, params) {
  const view = params.get("status");
  if (view === "waiting" ? !waits(run) : view && run.status !== view) return false;
  if (params.get("agent") && run.agent !== params.get("agent")) return false;
  const words = (params.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const text = [run.id, run.agent, run.model, run.status, run.reason, run.parent?.run_id, run.task].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

export function filterBar(params, agents) {
  const search = (event) => change(params, "q", event.target.value, true);
  const enter = (event) => {
    if (event.key === "Enter" && /^run_\S+$/.test(event.target.value.trim())) location.hash = `#/runs/${encodeURIComponent(event.target.value.trim())}`;
  };
  return h("div", { class: "filters", role: "search", "aria-label": "Filter the runs" },
    h("input", { type: "search", placeholder: "Search", maxlength: 200, title: "In task, id, agent, model, status and reason", "aria-label": "Search", value: params.get("q") ?? "", oninput: search, onkeydown: enter }),
    h("select", { "aria-label": "Agent", onchange: (event) => change(params, "agent", event.target.value) },
      h("option", { value: "", selected: !params.get("agent") }, "Every agent"),
      agents.map((name) => h("option", { value: name, selected: params.get("agent") === name }, name))),
    h("div", { class: "views", role: "group", "aria-label": "Status" },
      VIEWS.map(([view, name]) => h("button", {
        type: "button",
        "data-view": view,
        "aria-pressed": String((params.get("status") ?? "") === view),
        onclick: () => change(params, "status", view),
      }, name))));
}

function change(params, name, value, replace = false) {
  const next = new URLSearchParams(params);
  value ? next.set(name, value) : next.delete(name);
  const hash = `#/runs${next.size ? `?${next}` : ""}`;
  if (!replace) location.hash = hash;
  else {
    history.replaceState(null, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
}
