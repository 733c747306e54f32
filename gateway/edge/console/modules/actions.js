// What a person can do about a run: decide, settle, post outputs, raise a cap and resume, stop, start it again.

import { post } from "./api.js";
import { openDialog } from "./dialog.js";
import { h } from "./dom.js";
import { actionForm, choice, field, limitsOf, textArea, textInput } from "./forms.js";
import { pretty } from "./format.js";
import { block } from "./timeline.js";

const path = (run, verb) => `/v1/runs/${encodeURIComponent(run.id)}/${verb}`;

/**
 * The forms for what the run waits for, each with a key that names what was seen: another stop is another form. `told` is
 * `{ done, refused }`: a form may be gone before its answer comes, so what is refused is for the page to say.
 */
export function actionsFor(run, trace, told) {
  switch (run.reason) {
    case "approval": return approvals(run, trace).map((call) => approvalForm(run, call, told));
    case "in_doubt": return [doubtForm(run, told)];
    case "tool_outputs": return [outputsForm(run, trace, told)];
    case null: return [];
    default: return run.status === "running" ? [] : [resumeForm(run, told)];
  }
}

/** Every call that waits: this run's own, and those of its subagents. */
function approvals(run, trace) {
  const waiting = new Map(run.pending_approvals.map((call) => [call.call_id, call]));
  for (const inner of [run.interruption, ...(trace.stopped?.inner ?? [])]) {
    if (inner?.type === "approval" && !waiting.has(inner.call_id)) waiting.set(inner.call_id, inner);
  }
  return [...waiting.values()];
}

function approvalForm(run, call, told) {
  const reason = field("reason", "Reason", textInput({ maxlength: 2000, placeholder: "the model reads this" }), { hint: "Optional. Whatever is decided is written into the transcript." });
  const judge = async (values, verb) => {
    await post(path(run, verb), { call_id: call.call_id, args_hash: call.args_hash, reason: values.reason.trim() || null });
    told.done(verb === "approve" ? "Approved" : "Rejected");
  };
  const form = actionForm([about(run, call, "wants to run"), reason], [["Approve", "approve", "good"], ["Reject", "reject", "bad"]], judge, told);
  return keyed(form, `approve ${call.call_id} ${call.args_hash}`);
}

/** The call in full: what is approved is what is shown. */
function about(run, call, verb) {
  const via = (call.path ?? []).at(-1);
  return h("div", { class: "asked" },
    h("p", null, h("code", { class: "tool" }, call.tool_name), ` ${verb} with these arguments`,
      via && [", in the run of a subagent, ", h("a", { href: `#/runs/${encodeURIComponent(via)}` }, h("code", null, via))], ":"),
    block("Arguments", pretty(call.args)),
    call.args_hash && h("p", { class: "hint" }, "hash of the arguments ", h("code", null, call.args_hash)));
}

function doubtForm(run, told) {
  const call = run.interruption;
  const output = field("outputs", "It happened, and this came back", textArea({ placeholder: "what the tool said, or would have said" }), { hint: "Look at what it changed before you say so." });
  const reason = field("reason", "Reason", textInput({ maxlength: 2000, placeholder: "for running it again, or skipping it" }));
  const settle = async (values, verb) => {
    if (verb === "output") await post(path(run, "tool_outputs"), { outputs: [{ call_id: call.call_id, output: values.outputs }] });
    else await post(path(run, verb), { call_id: call.call_id, reason: values.reason.trim() || null });
    told.done("Settled");
  };
  const buttons = [["Use this output", "output", "good"], ["Run it again", "approve"], ["Skip it", "reject", "bad"]];
  return keyed(actionForm([about(run, call, "had begun"), output, reason], buttons, settle, told), `doubt ${call.call_id}`);
}

function outputsForm(run, trace, told) {
  const ids = run.interruption.call_ids;
  const fields = ids.map((id, at) => {
    const call = trace.calls.get(id);
    return h("fieldset", { "data-field": `outputs[${at}]` },
      h("legend", null, h("code", null, call?.tool ?? id)),
      call && block("Arguments", pretty(call.arguments)),
      field(`outputs.${at}`, "What came back", textArea({ rows: 2 })),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: `failed.${at}` }), "it failed"));
  });
  const send = async (values) => {
    const outputs = ids.map((id, at) => ({ call_id: id, output: values[`outputs.${at}`], ok: !values[`failed.${at}`] }));
    await post(path(run, "tool_outputs"), { outputs });
    told.done("Posted");
  };
  return keyed(actionForm(fields, [["Post the outputs", "post", "good"]], send, told), `outputs ${ids.join()}`);
}

/** What the gateway itself proposes is twice the cap. */
const SUGGESTED = {
  max_turns: (run) => ["max_turns", run.interruption.max_turns * 2],
  max_budget: (run) => ["max_budget_usd", tidy(Math.max(run.interruption.max_budget_usd, run.interruption.spent_usd) * 2)],
  deadline: (run) => ["deadline_seconds", tidy(run.interruption.deadline_seconds * 2)],
};

const tidy = (value) => Number(value.toPrecision(6)).toLocaleString("en-US", { useGrouping: false, maximumFractionDigits: 12 });

function resumeForm(run, told) {
  const [raised, value] = SUGGESTED[run.reason]?.(run) ?? [];
  const fields = limitFields(run.limits, raised && { [raised]: value });
  const first = fields.find((each) => each.dataset.field === `limits.${raised}`);
  const others = h("details", { class: "more" }, h("summary", null, raised ? "Other limits" : "Change its limits"),
    h("div", { class: "grid" }, fields.filter((each) => each !== first)));
  const resume = async (values) => {
    await post(path(run, "resume"), { limits: limitsOf(values) });
    told.done("Resumed");
  };
  const label = raised ? "Raise the cap and resume" : "Resume";
  return keyed(actionForm([first, others], [[label, "resume", "primary"]], resume, told), `resume ${run.reason} ${run.events}`);
}

/** Fields for the limits of a run. What is in force is shown in the empty field; `typed` is filled in. */
export function limitFields(limits, typed = {}) {
  const input = (name, unit) => textInput({ inputmode: "decimal", value: String(typed[name] ?? ""), placeholder: unit(limits?.[name]) });
  const plain = (value) => (value === null || value === undefined ? "none" : String(value));
  return [
    field("limits.max_turns", "Turns at most", input("max_turns", plain)),
    field("limits.max_budget_usd", "US dollars at most", input("max_budget_usd", plain)),
    field("limits.deadline_seconds", "Seconds at most", input("deadline_seconds", plain)),
    field("limits.budget_mode", "Budget mode", choice([["", `as it is (${limits?.budget_mode ?? "soft"})`], ["soft", "soft: over by one turn at most"], ["hard", "hard: never over"]])),
  ];
}

/** Asks for a reason and stops the run. */
export function stopDialog(run, done) {
  const reason = field("reason", "Reason", textInput({ maxlength: 2000, autofocus: true, placeholder: "cancelled in the console" }), { hint: "Stands in the run's record. It can be resumed." });
  const stop = async (values) => {
    await post(path(run, "cancel"), { reason: values.reason.trim() || "cancelled in the console" });
    dialog.close();
    done("Stopped");
  };
  const dialog = openDialog("Stop this run?", actionForm([reason], [["Stop the run", "cancel", "bad"]], stop));
}

/** Names a form so that it stays, with what was typed, for as long as it is about the same stop. */
function keyed(form, key) {
  return Object.assign(form, { key, keep: true });
}
