// One run: why it stopped and what to do next, its figures, and its timeline as it grows.

import { actionsFor, stopDialog } from "./actions.js";
import * as api from "./api.js";
import { announce, eachFrame, h, render } from "./dom.js";
import { moment, textOf } from "./format.js";
import { sidebar } from "./run_facts.js";
import { subscribe } from "./sse.js";
import { startDialog } from "./start.js";
import { pill, kindOf, wordsOf } from "./status.js";
import { timeline } from "./timeline.js";
import { emptyTrace, inputOf, take } from "./trace.js";

export function runPage(root, id) {
  const page = new RunPage(root, id);
  return { title: `Run ${id}`, keys: page.keys, close: () => page.close() };
}

class RunPage {
  constructor(root, id) {
    this.root = root;
    this.id = id;
    this.run = null;
    this.trace = emptyTrace();
    this.seen = 0;
    this.caughtUp = false;
    this.error = null;
    this.refusal = null;
    this.view = { all: false, fold: "auto", showAll: () => this.unhide() };
    this.draw = eachFrame(() => this.render());
    this.keys = {
      Escape: () => { location.hash = "#/runs"; },
      a: () => root.querySelector(".action input, .action textarea, .action button")?.focus(),
      s: () => this.stopOrResume(),
      f: () => this.fold(),
    };
    this.source = subscribe(`/v1/runs/${encodeURIComponent(id)}/events?follow=1`, {
      opened: () => this.look(),
      event: (type, event, seq) => this.take(event, seq),
      failed: (error) => this.fail(error),
    });
    this.draw();
  }

  close() {
    this.closed = true;
    this.source.close();
  }

  /** The run as it is recorded now: its words, and what it waits for. */
  async look() {
    const run = await api.get(`/v1/runs/${encodeURIComponent(this.id)}`);
    if (this.closed || (this.run && run.events < this.run.events)) return;
    this.run = run;
    this.draw();
  }

  take(event, seq) {
    if (seq !== null && Number(seq) <= this.seen) return; // sent again after a broken connection
    if (seq !== null) this.seen = Number(seq);
    take(this.trace, event);
    if (event.type === "run_stopped") announce(`The run stopped: ${wordsOf(event)}`);
    const isNews = seq !== null && this.run && Number(seq) > this.run.events;
    if (isNews && ["run_stopped", "run_resumed", "verdict", "tool_result", "turn"].includes(event.type)) this.lookSoon();
    this.draw();
  }

  /** Once, however many events came. */
  lookSoon() {
    this.timer ??= setTimeout(() => {
      this.timer = null;
      if (!this.closed) this.look().catch(() => {}); // the connection says it, and comes back
    }, 60);
  }

  fail(error) {
    this.error = error;
    this.draw();
  }

  unhide() {
    this.view.all = true;
    this.trace.version += 1;
    this.draw();
  }

  fold() {
    this.view.fold = this.view.fold === "closed" ? "open" : "closed";
    for (const card of this.root.querySelectorAll("details.card")) card.open = this.view.fold === "open";
  }

  stopOrResume() {
    if (this.canStop()) stopDialog(this.run, (words) => this.done(words));
    else this.root.querySelector(".action button.primary")?.focus();
  }

  canStop() {
    const waits = ["approval", "tool_outputs", "in_doubt", "provider_unavailable", "deadline", "stop_rule"];
    return this.run && (this.run.status === "running" || waits.includes(this.run.reason));
  }

  done(words) {
    announce(words);
    this.refusal = null;
    this.look().catch(() => {});
  }

  refused(words) {
    this.refusal = words;
    this.look().catch(() => {});
    this.draw();
  }

  render() {
    if (this.closed) return;
    if (this.error) return render(this.root, this.head(), h("p", { class: "problem", role: "alert" }, this.error.message));
    this.caughtUp ||= this.run !== null && this.seen >= this.run.events;
    if (!this.caughtUp) return render(this.root, this.head(), h("p", { class: "empty" }, "loading…"));
    render(this.root, this.head(),
      this.refusal && h("p", { class: "problem", role: "alert", key: "refusal" }, this.refusal),
      h("div", { class: "run" },
        this.outcome(),
        sidebar(this.run, this.trace),
        timeline(this.trace, this.view)));
  }

  head() {
    const { run } = this;
    return h("div", { class: "title run-title", key: "head" },
      h("a", { class: "back", href: "#/runs", "aria-label": "Back to the runs" }, "←"),
      h("div", { class: "names" },
        h("h1", null, h("code", null, this.id)),
        run && h("p", { class: "count" }, `${run.agent} · ${run.model} · `, h("time", { datetime: run.created_at }, moment(run.created_at)))),
      run && pill(run),
      run && h("div", { class: "buttons" }, this.buttons()));
  }

  buttons() {
    const again = () => startDialog({ agent: this.run.agent, model: this.run.model, input: textOf(inputOf(this.trace)) });
    return [
      this.canStop() && h("button", { type: "button", class: "bad", id: "stop", onclick: () => this.stopOrResume() }, "Stop"),
      h("button", { type: "button", id: "again", onclick: again }, "Start again"),
    ];
  }

  /** Why it stopped, what next, and the forms that do it; or what it answered. */
  outcome() {
    const { run } = this;
    if (run.status === "running") return null;
    return h("section", { class: `outcome ${kindOf(run)}`, "aria-label": "Why it stopped, and what next", key: "outcome" },
      h("p", { class: "why" }, run.why),
      run.output && run.status === "completed" && h("p", { class: "output" }, run.output),
      run.next && h("p", { class: "next" }, commandsIn(run.next)),
      actionsFor(run, this.trace, { done: (words) => this.done(words), refused: (words) => this.refused(words) }));
  }
}

const COMMAND = /(gateway (?:approve|reject|resume|settle) [^\s,]+(?: [^\s,]+:\d+:\d+)?(?: --[a-z-]+ [^\s,]+| OUTPUT)?)/;

/** A sentence of the API's, with its commands set apart. */
const commandsIn = (sentence) => sentence.split(COMMAND).map((part, at) => (at % 2 ? h("code", null, part) : part));
