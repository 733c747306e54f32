// The five ways out, and running: each has a name, a sign of its own and a colour, so that colour alone never says it.

import { h, svg } from "./dom.js";

const KINDS = {
  running: { name: "running", sign: "M8 2.5a5.5 5.5 0 1 1-5.5 5.5" },
  completed: { name: "completed", sign: "M3.2 8.6l3.1 3.1 6.5-7.2" },
  failed: { name: "failed", sign: "M4 4l8 8M12 4l-8 8" },
  turns: { name: "turn cap", sign: "M12.6 6.2A5 5 0 1 0 13 8.6M13 3v3.4H9.6" },
  budget: { name: "budget", sign: "M11 5.2C10.4 4 9.3 3.6 8 3.6c-1.7 0-3 .8-3 2.2 0 3 6.2 1.4 6.2 4.5 0 1.5-1.5 2.2-3.2 2.2-1.5 0-2.7-.6-3.2-1.9M8 2v12" },
  waits: { name: "interrupted", sign: "M8 3.2v5.6M8 12v.6" },
  interrupted: { name: "interrupted", sign: "M5.6 4v8M10.4 4v8" },
};

export const WAITS = ["approval", "in_doubt", "tool_outputs"];

const WORDS = {
  approval: "approval",
  in_doubt: "in doubt",
  tool_outputs: "tool outputs",
  cancelled: "cancelled",
  deadline: "deadline",
  stop_rule: "stop rule",
  provider_unavailable: "provider unavailable",
};

/** What kind of state this is: the way out, and for an interruption whether it waits for a person. */
export function kindOf({ status, reason }) {
  if (status === "max_turns_exceeded") return "turns";
  if (status === "budget_exceeded") return "budget";
  if (status === "interrupted") return WAITS.includes(reason) ? "waits" : "interrupted";
  return status;
}

export const waits = (run) => run.status === "interrupted" && WAITS.includes(run.reason);

/** The state in words, as a person says it. */
export function wordsOf(run) {
  const name = KINDS[kindOf(run)].name;
  return run.status === "interrupted" ? `${name}: ${WORDS[run.reason] ?? run.reason}` : name;
}

export function sign(kind) {
  return svg("svg", { viewBox: "0 0 16 16", class: `sign ${kind}`, "aria-hidden": "true" }, svg("path", { d: KINDS[kind].sign }));
}

/** A coloured pill: the status, and the reason if it has one. */
export function pill(run) {
  const kind = kindOf(run);
  return h("span", { class: `pill ${kind}`, title: `${run.status}${run.reason ? ` · ${run.reason}` : ""}` },
    sign(kind),
    h("span", null, run.status === "interrupted" ? WORDS[run.reason] ?? run.reason : KINDS[kind].name));
}
