// The list of runs, live. The gateway says which runs changed; after each new connection the list is read again.

import * as api from "./api.js";
import { announce, eachFrame, h, render } from "./dom.js";
import { filterBar, matches, queryOf } from "./filters.js";
import { age, columnUsd, exactUsd, moment, number, plural, shortId } from "./format.js";
import { subscribe } from "./sse.js";
import { pill, waits, wordsOf } from "./status.js";

const PAGE = 50;
const RUNS_MAX = 1000;
const AGE_MS = 5_000;
const TYPING_MS = 200;
const NEVER = "9999";

export function runsPage(root, params) {
  const page = new RunsPage(root, params);
  return { title: "Runs", keys: page.keys, changed: (next) => page.changed(next), close: () => page.close() };
}

class RunsPage {
  constructor(root, params) {
    this.root = root;
    this.params = params;
    this.runs = new Map();
    this.fresh = new Set();
    this.cursor = null;
    this.loading = true;
    this.error = null;
    this.agents = [];
    this.draw = eachFrame(() => this.render());
    this.keys = {
      "/": () => root.querySelector("[type=search]").focus(),
      j: () => this.step(1),
      k: () => this.step(-1),
      m: () => this.more(),
    };
    this.source = subscribe("/v1/runs/changes", {
      opened: () => this.reload(),
      event: (type, data) => type === "runs" && this.take(data),
      failed: (error) => this.fail(error),
    });
    this.timer = setInterval(this.draw, AGE_MS);
    api.get("/v1/agents").then(({ agents }) => { this.agents = agents.map((agent) => agent.name); this.draw(); }, () => {});
    this.draw();
  }

  close() {
    this.closed = true;
    this.source.close();
    clearInterval(this.timer);
    clearTimeout(this.typing);
  }

  /** Of what is loaded, what matches is shown until the gateway has answered, which is asked when the typing pauses. */
  changed(params) {
    const again = queryOf(params) !== queryOf(this.params);
    const typed = params.get("q") !== this.params.get("q");
    this.params = params;
    if (again) {
      this.refiltered = true;
      this.cursor = null;
      this.loading = true;
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.reload().catch(() => {}), typed ? TYPING_MS : 0); // the connection says it, and comes back
    }
    this.draw();
  }

  /** The newest page again. What was loaded beyond it stays where it is, unless other filters hold now. */
  async reload() {
    const query = queryOf(this.params);
    try {
      const { runs, next_cursor: cursor } = await api.get(`/v1/runs?${query}&limit=${PAGE}`);
      if (this.closed || query !== queryOf(this.params)) return;
      if (this.refiltered) this.keepFrom(cursor ? runs.at(-1)?.created_at ?? NEVER : "");
      const older = this.runs.size > PAGE;
      for (const run of runs) this.put(run);
      if (!older) this.cursor = cursor;
      this.error = null;
    } catch (error) {
      if (error instanceof api.ApiError) this.error = error;
      else throw error;
    } finally {
      this.loading = false;
      this.draw();
    }
  }

  /** Forgets what other filters had shown, and what lies behind the page that these have given. */
  keepFrom(time) {
    for (const [id, run] of this.runs) if (run.created_at < time || !matches(run, this.params)) this.runs.delete(id);
    this.refiltered = false;
  }

  async more() {
    if (!this.cursor || this.loading || this.runs.size >= RUNS_MAX) return;
    this.loading = true;
    this.draw();
    const query = queryOf(this.params);
    try {
      const { runs, next_cursor: cursor } = await api.get(`/v1/runs?${query}&limit=${PAGE}&cursor=${encodeURIComponent(this.cursor)}`);
      if (query !== queryOf(this.params)) return;
      for (const run of runs) this.put(run);
      this.cursor = cursor;
      announce(`${plural(runs.length, "older run")} loaded`);
    } catch (error) {
      this.error = error;
    } finally {
      this.loading = false;
      this.draw();
    }
  }

  /** What the gateway says has changed. */
  take({ runs, missed }) {
    for (const run of runs) {
      const before = this.runs.get(run.id);
      this.put(run, true);
      if (waits(run) && !(before && waits(before))) announce(`${run.agent}, run ${shortId(run.id)}: ${wordsOf(run)}`);
    }
    if (missed) this.reload().catch(() => {});
    this.draw();
  }

  put(run, live = false) {
    const known = this.runs.get(run.id);
    if (known && known.updated_at > run.updated_at) return;
    if (live && !known && this.cursor && run.created_at < this.oldest()) return; // on a page that is not loaded
    if (live && !known) this.fresh.add(run.id);
    this.runs.set(run.id, run);
    if (this.runs.size > RUNS_MAX) this.forget();
  }

  /** The oldest run goes; `more` would begin behind it again, so the cursor goes with it. */
  forget() {
    this.runs.delete(this.sorted().at(-1).id);
    this.cursor = null;
  }

  oldest() {
    return this.sorted().at(-1)?.created_at ?? "";
  }

  sorted() {
    return [...this.runs.values()].sort((a, b) => compare(b.created_at, a.created_at) || compare(b.id, a.id));
  }

  fail(error) {
    this.error = error;
    this.loading = false;
    this.draw();
  }

  step(by) {
    const links = [...this.root.querySelectorAll(".runs a.open")];
    const at = links.indexOf(document.activeElement);
    links[Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
  }

  render() {
    if (this.closed) return;
    const all = this.sorted();
    const shown = all.filter((run) => matches(run, this.params));
    const agents = [...new Set([...this.agents, ...all.map((run) => run.agent)])];
    render(this.root,
      h("div", { class: "title" }, h("h1", null, "Runs"), this.count(shown, all)),
      filterBar(this.params, agents),
      this.error && h("p", { class: "problem", role: "alert" }, this.error.message),
      shown.length ? this.table(shown) : this.empty(all),
      this.foot(shown, all));
  }

  count(shown, all) {
    if (this.loading && !all.length) return h("p", { class: "count" }, "loading…");
    const more = this.cursor ? "+" : "";
    const text = shown.length === all.length ? `${number(all.length)}${more}` : `${number(shown.length)} of ${number(all.length)}${more} loaded`;
    return h("p", { class: "count" }, text);
  }

  table(runs) {
    const head = ["Status", "Run", "Agent", "Model", "Turns", "Cost", "Age"];
    return h("table", { class: "runs", key: "table" },
      h("caption", { class: "unseen" }, "Runs, newest first"),
      h("thead", null, h("tr", null, head.map((name, at) => h("th", { scope: "col", class: at > 3 ? "figure" : null }, name)))),
      h("tbody", null, runs.map((run) => this.row(run))));
  }

  row(run) {
    const href = `#/runs/${encodeURIComponent(run.id)}`;
    const fresh = this.fresh.has(run.id);
    return h("tr", { key: run.id, class: fresh ? "fresh" : null },
      h("td", { class: "status" }, pill(run)),
      h("th", { scope: "row", class: "id" },
        h("a", { class: "open", href },
          run.task && h("span", { class: "task", title: run.task }, run.task),
          h("code", { title: run.id }, run.id)),
        run.parent && h("span", { class: "tag", title: `asked for by ${run.parent.run_id}` }, "subagent")),
      h("td", { class: "agent" }, run.agent),
      h("td", { class: "model" }, run.model),
      h("td", { class: "figure turns", "data-unit": run.turns === 1 ? "turn" : "turns" }, number(run.turns)),
      h("td", { class: "figure cost", title: exactUsd(run.cost_usd) }, columnUsd(run.cost_usd)),
      h("td", { class: "figure age" }, h("time", { datetime: run.created_at, title: moment(run.created_at) }, age(run.created_at))));
  }

  empty(all) {
    if (this.loading || this.error) return null;
    if (this.cursor) return h("p", { class: "empty" }, "None of the newest runs is like that.");
    const filtered = this.params.size > 0;
    return h("div", { class: "empty" },
      h("p", null, filtered ? "No run is like that." : "No runs yet."),
      filtered ? null : h("p", null, "Start one with ", h("kbd", null, "n"), ", or point your app at this gateway."));
  }

  foot(shown, all) {
    if (!this.cursor) return null;
    if (all.length >= RUNS_MAX) return h("p", { class: "hint" }, `${number(RUNS_MAX)} runs are loaded: filter by status or agent to see older ones.`);
    const label = this.params.get("q") || shown.length < all.length ? "Search older runs" : "Load more";
    return h("div", { class: "foot" }, h("button", { type: "button", id: "more", disabled: this.loading, onclick: () => this.more() }, label));
  }
}

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
