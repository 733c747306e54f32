// Draws the timeline of a run from its trace: one block a turn, and between them what people and limits did.

import { h, lazily } from "./dom.js";
import { brief, clock, columnUsd, duration, exactUsd, number, plural, textOf, usd } from "./format.js";
import { kindOf, sign, wordsOf } from "./status.js";
import { childIdOf, toolOf } from "./trace.js";

const SHOWN_MAX = 120;
const CHARACTERS_MAX = 20_000;
const UNFOLDED_MAX = 12;

/** The blocks to show. `view` remembers whether earlier ones were asked for, and whether turns are folded. */
export function timeline(trace, view) {
  const hidden = view.all ? 0 : Math.max(0, trace.blocks.length - SHOWN_MAX);
  const blocks = trace.blocks.slice(hidden);
  return h("ol", { class: "timeline", "aria-label": "Timeline" },
    hidden > 0 && h("li", { class: "earlier", key: "earlier" },
      h("button", { type: "button", onclick: view.showAll }, `Show ${number(hidden)} earlier steps`)),
    blocks.map((block) => lazily(block.key, `${block.version} ${view.fold}`, () => DRAW[block.kind](block, trace, view))));
}

const DRAW = { started, turn, resumed, stopped };

function step(kind, ...content) {
  return h("li", { class: `step ${kind}` }, ...content);
}

function started({ event }) {
  return step("started",
    h("p", { class: "mark" }, h("strong", null, "Started"), h("time", { datetime: event.time }, clock(event.time))),
    event.messages.map((message) => (message.role === "system" || message.role === "developer"
      ? h("details", { class: "prompt" }, h("summary", null, "System prompt"), text(textOf(message.content)))
      : said(message))),
    event.tools.length > 0 && h("details", { class: "prompt" },
      h("summary", null, plural(event.tools.length, "tool")),
      h("ul", { class: "tools" }, event.tools.map((tool) => h("li", null,
        h("code", null, tool.name), " ", h("span", null, tool.description), flags(tool))))));
}

function flags(tool) {
  const names = [["needs_approval", "needs approval"], ["read_only", "read-only"], ["client_side", "client-side"], ["subagent", "subagent"]];
  return names.filter(([flag]) => tool[flag]).map(([, name]) => h("span", { class: "tag" }, name));
}

function said(message) {
  return h("div", { class: `message ${message.role}` },
    h("p", { class: "who" }, message.role),
    text(textOf(message.content)),
    (message.tool_calls ?? []).map((call) => h("pre", null, `${call.function.name} ${call.function.arguments}`)));
}

function turn(block, trace, view) {
  const open = view.fold === "open" || (view.fold === "auto" && (trace.blocks.length <= UNFOLDED_MAX || block.key === trace.blocks.at(-1).key || block.state === "asking"));
  return step(`turn ${block.state}`,
    h("details", { class: "card", open, "data-turn": block.turn },
      h("summary", null,
        h("span", { class: "name" }, `Turn ${block.turn}`),
        h("span", { class: "calls" }, glimpse(block)),
        figures(block)),
      h("div", { class: "body" }, reply(block), block.calls.map((call) => toolCall(call, trace)))));
}

/** What a folded turn is about. */
function glimpse(block) {
  if (block.state === "asking") return block.attempt > 1 ? `asking the model, attempt ${block.attempt}…` : "asking the model…";
  if (block.state === "lost") return block.billed ? "no reply was recorded" : "no reply";
  return block.calls.length ? block.calls.map((call) => call.tool).join(", ") : "answer";
}

function figures(block) {
  const { event } = block;
  if (!event) return null;
  return h("span", { class: "figures" },
    h("span", { class: "tokens", title: tokensInWords(event) },
      h("span", { class: "unseen" }, "tokens: "), number(event.prompt_tokens), h("i", { "aria-label": "in," }, " → "), number(event.completion_tokens)),
    h("span", { class: "cost", title: `this turn ${exactUsd(event.turnCostUsd)}, so far ${exactUsd(event.costUsd)}` },
      `+${columnUsd(event.turnCostUsd)}`, h("b", null, columnUsd(event.costUsd))),
    h("span", { class: "ms", title: event.firstTokenMs ? `first text after ${duration(event.firstTokenMs)}` : null }, duration(event.ms)));
}

function tokensInWords(event) {
  const parts = [`${number(event.prompt_tokens)} prompt tokens`, `${number(event.completion_tokens)} completion tokens`];
  if (event.cached_tokens) parts.push(`${number(event.cached_tokens)} of the prompt were cached`);
  if (event.reasoning_tokens) parts.push(`${number(event.reasoning_tokens)} were reasoning`);
  if (event.estimated) parts.push("counted here: the provider reported none");
  return parts.join(", ");
}

function reply(block) {
  if (block.state === "asking") return block.said ? h("div", { class: "says live" }, text(block.said)) : h("p", { class: "thinking" }, "Waiting for the reply");
  if (block.state === "lost") return lost(block);
  const { message, finish, fault, maxTokens } = block.event;
  return [
    message.reasoning_content && h("details", { class: "prompt" }, h("summary", null, "Reasoning"), text(message.reasoning_content)),
    message.content && h("div", { class: "says" }, text(textOf(message.content))),
    message.refusal && h("div", { class: "says" }, text(`The model refused: ${message.refusal}`)),
    finish === "length" && h("p", { class: "note" }, maxTokens ? `Cut at ${plural(maxTokens, "token")} by the hard budget.` : "Cut: it reached the longest reply."),
    fault && h("p", { class: "note bad" }, fault),
  ];
}

function lost({ billed, error }) {
  return [
    error && h("p", { class: "note bad" }, error),
    billed && h("p", { class: "note" }, "The request was sent and no reply was recorded: it may have been billed."),
    !error && !billed && h("p", { class: "note" }, "No reply was recorded."),
  ];
}

const STATES = {
  asked: "not run yet",
  running: "running",
  waiting: "waits for approval",
  approved: "approved",
  rejected: "rejected",
  done: "done",
  failed: "failed",
  cut: "cut off",
};

const SOURCES = { cache: "from the log", refusal: "refused", invalid: "invalid call", settled: "settled by a person", client: "run by the client" };

function toolCall(call, trace) {
  const spec = toolOf(trace, call.tool);
  const { result } = call;
  const source = result && SOURCES[result.source];
  return h("div", { class: `call ${call.state}`, role: "group", "data-call": call.id, "aria-label": `${call.tool}: ${STATES[call.state]}` },
    h("header", null,
      h("code", { class: "tool" }, call.tool),
      h("span", { class: "state" }, source && source !== "refused" ? source : STATES[call.state]),
      result && h("span", { class: "ms" }, result.source === undefined ? duration(result.ms) : null),
      spec?.subagent && call.state !== "asked" && h("a", { class: "child", href: `#/runs/${encodeURIComponent(childIdOf(call))}` }, `run of ${spec.subagent}`)),
    call.arguments && call.arguments !== "{}" && block("Arguments", brief(call.arguments)),
    call.problem && !result && h("p", { class: "note bad" }, call.problem),
    call.verdict?.reason && h("p", { class: "note" }, `${call.verdict.approved ? "Approved" : "Rejected"}: ${call.verdict.reason}`),
    call.progress && !result && h("p", { class: "progress" }, call.progress),
    result && block(result.ok ? "Result" : "Error", brief(result.content), result.ok ? "" : "bad"));
}

/** A piece of text that scrolls by itself, cut where it would make the page slow. */
export function block(name, content, kind = "") {
  const cut = content.length > CHARACTERS_MAX;
  const pre = h("pre", { tabindex: "0", role: "group", "aria-label": name, class: kind }, cut ? content.slice(0, CHARACTERS_MAX) : content);
  const all = (event) => {
    pre.textContent = content;
    event.target.remove();
  };
  return h("div", { class: `piece ${kind}`, keep: cut },
    h("span", { class: "label", "aria-hidden": "true" }, name),
    pre,
    cut && h("button", { type: "button", onclick: all }, `Show all ${number(content.length)} characters`));
}

const text = (content) => h("p", { class: "text" }, content);

const CAUSES = {
  resume: "Resumed",
  verdict: "Went on after a verdict",
  settlement: "Went on with what came back",
  recovery: "Taken up again after the gateway's process had died",
  handover: "Taken over from the gateway that was closed",
  message: "The client went on",
};

function resumed({ event }) {
  const limits = event.limits && Object.entries(event.limits).filter(([, value]) => value !== null);
  return step("resumed", h("p", { class: "mark" },
    h("strong", null, CAUSES[event.cause] ?? event.cause),
    limits && h("span", null, limits.map(([name, value]) => `${name} ${value}`).join(" · ")),
    h("time", { datetime: event.time }, clock(event.time))));
}

function stopped({ event }) {
  const kind = kindOf(event);
  return step(`stopped ${kind}`, h("p", { class: "mark" },
    sign(kind), h("strong", null, wordsOf(event)),
    h("span", null, `${plural(event.turns, "turn")}, ${usd(event.costUsd)}`),
    h("time", { datetime: event.time }, clock(event.time))));
}
