// From the events of a run to what its timeline shows. Pure: it draws nothing and asks nobody.

const TEXT_MAX = 100_000;
const COST_MIN = 1e-12; // of sums of costs, what is less is rounding

export function emptyTrace() {
  return { blocks: [], calls: new Map(), points: [], cost: 0, unconfirmed: 0, stopped: null, version: 0 };
}

/** Takes one event of the run, or a piece of text that is being said. */
export function take(trace, event) {
  trace.version += 1;
  HANDLERS[event.type]?.(trace, event);
}

const HANDLERS = {
  run_started(trace, event) {
    add(trace, { kind: "started", event });
  },

  turn_start(trace, event) {
    const known = turnOf(trace, event.turn);
    const block = known ?? add(trace, { kind: "turn", turn: event.turn, calls: [], said: "", before: trace.unconfirmed });
    trace.stopped = null;
    trace.unconfirmed = Number(event.unconfirmedCostUsd);
    touch(trace, Object.assign(block, { state: "asking", said: "", attempt: event.attempt ?? 1, began: event.time }));
  },

  text_delta(trace, event) {
    const block = lastTurn(trace);
    if (block?.state === "asking") touch(trace, Object.assign(block, { said: (block.said + event.text).slice(-TEXT_MAX) }));
  },

  turn(trace, event) {
    const block = turnOf(trace, event.turn) ?? add(trace, { kind: "turn", turn: event.turn, said: "", before: trace.unconfirmed });
    block.calls = (event.message.tool_calls ?? []).map((call, at) => asked(trace, event, call, at));
    trace.cost = event.costUsd;
    trace.unconfirmed = Number(event.unconfirmedCostUsd ?? 0);
    trace.points.push({ turn: event.turn, prompt: event.prompt_tokens, completion: event.completion_tokens, cost: event.costUsd });
    touch(trace, Object.assign(block, { state: "replied", said: "", event }));
  },

  tool_start(trace, event) {
    change(trace, event, { state: "running", began: event.time });
  },

  tool_progress(trace, event) {
    change(trace, event, { progress: event.label });
  },

  tool_result(trace, event) {
    change(trace, event, { state: event.ok ? "done" : "failed", result: event });
    if (event.childCostUsd) trace.cost = Number(trace.cost) + event.childCostUsd;
    trace.unconfirmed += Number(event.childUnconfirmedCostUsd ?? 0);
  },

  approval_required(trace, event) {
    change(trace, event, { state: "waiting" });
  },

  verdict(trace, event) {
    change(trace, event, { verdict: event, state: event.approved ? "approved" : "rejected" });
  },

  run_resumed(trace, event) {
    trace.stopped = null;
    add(trace, { kind: "resumed", event });
  },

  run_stopped(trace, event) {
    trace.stopped = event;
    trace.cost = event.costUsd;
    trace.unconfirmed = Number(event.unconfirmedCostUsd ?? 0);
    const last = lastTurn(trace);
    if (last?.state === "asking") touch(trace, Object.assign(last, { state: "lost", ...unanswered(trace, last, event) }));
    for (const call of last?.calls ?? []) if (call.state === "running") changed(trace, call, { state: "cut" });
    add(trace, { kind: "stopped", event });
  },
};

/** Why a request has no reply, and whether it may have been billed: only then does the run's unconfirmed cost hold it. */
function unanswered(trace, block, stop) {
  const billed = trace.unconfirmed - block.before > COST_MIN;
  return { billed, error: stop.error ?? stop.interruption?.message ?? null };
}

function asked(trace, event, call, at) {
  const id = `${event.runId}:${event.turn}:${at}`;
  const check = event.checks?.[at];
  const made = { id, tool: call.function.name, arguments: call.function.arguments, problem: check?.problem ?? null, state: "asked", turn: event.turn };
  trace.calls.set(id, made);
  return made;
}

function change(trace, event, parts) {
  const call = trace.calls.get(event.call);
  if (call) changed(trace, call, parts);
}

function changed(trace, call, parts) {
  Object.assign(call, parts);
  const block = turnOf(trace, call.turn);
  if (block) touch(trace, block);
}

function add(trace, block) {
  block.key = `${block.kind}-${trace.blocks.length}`;
  block.version = trace.version;
  trace.blocks.push(block);
  return block;
}

function touch(trace, block) {
  block.version = trace.version;
}

function turnOf(trace, turn) {
  return trace.blocks.findLast((block) => block.kind === "turn" && block.turn === turn);
}

const lastTurn = (trace) => trace.blocks.findLast((block) => block.kind === "turn");

/** The id of the subagent's run that answers a call. */
export const childIdOf = (call) => call.id.replaceAll(":", "-");

/** The tools that were pinned at the start, by name. */
export function toolOf(trace, name) {
  const started = trace.blocks.find((block) => block.kind === "started");
  return started?.event.tools.find((tool) => tool.name === name) ?? null;
}

/** What the run was asked: the first words of a person. */
export function inputOf(trace) {
  const started = trace.blocks.find((block) => block.kind === "started");
  return started?.event.messages.findLast((message) => message.role === "user")?.content ?? "";
}

/** The system prompt that was pinned at the start. */
export function systemOf(trace) {
  const started = trace.blocks.find((block) => block.kind === "started");
  return started?.event.messages.find((message) => message.role === "system")?.content ?? null;
}
