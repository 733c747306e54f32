// Server-sent events read through fetch, because the browser's EventSource cannot send a key. Comes back by itself after
// a broken connection or a restarted gateway, with the last id it saw, and waits longer each time in vain.

import { ApiError, open } from "./api.js";
import * as connection from "./connection.js";

const SILENCE_MS = 40_000; // the gateway sends a comment every 15 s
const WAIT_MS = 400;
const WAIT_MS_MAX = 8_000;
const HIDDEN_MS = 30_000;

/** Takes text in any pieces and gives whole events. */
export class Parser {
  #rest = "";
  #event = blank();

  /** The events that these pieces complete. */
  push(text) {
    const events = [];
    const held = this.#rest + text;
    const until = held.endsWith("\r") ? held.length - 1 : held.length; // its \n may be in the next piece
    const lines = held.slice(0, until).split(/\r\n|\n|\r/);
    this.#rest = lines.pop() + held.slice(until);
    for (const line of lines) {
      if (line) this.#field(line);
      else if (this.#event.data.length) {
        events.push({ type: this.#event.type, id: this.#event.id, data: this.#event.data.join("\n") });
        this.#event = blank();
      } else this.#event = blank();
    }
    return events;
  }

  #field(line) {
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#event.data.push(value);
    else if (name === "event") this.#event.type = value;
    else if (name === "id") this.#event.id = value;
  }
}

const blank = () => ({ type: "message", id: null, data: [] });

/**
 * Listens until it is closed. `opened()` is called each time there is a connection, `event(type, data, id)` for each
 * event, `failed(error)` when coming back cannot help.
 */
export function subscribe(path, { opened, event, failed }) {
  const source = { path, lastId: null, attempts: 0, closed: false, abort: null, wake: null };
  const away = whileHidden(() => source.abort?.abort(), () => source.wake?.());
  const handlers = { opened, event };
  listen(source, handlers).catch((error) => {
    connection.ended(source);
    if (!source.closed) failed?.(error);
  });
  return {
    close() {
      source.closed = true;
      away();
      source.abort?.abort();
      source.wake?.();
      connection.ended(source);
    },
  };
}

async function listen(source, handlers) {
  while (!source.closed) {
    try {
      await once(source, handlers);
    } catch (error) {
      if (error instanceof ApiError && error.status < 500 && error.status !== 429) throw error;
    }
    if (source.closed) return;
    if (document.hidden) await shown(source);
    else await pause(source);
  }
}

async function once(source, { opened, event }) {
  source.abort = new AbortController();
  const headers = { Accept: "text/event-stream", ...(source.lastId ? { "Last-Event-ID": source.lastId } : {}) };
  const response = await open("GET", source.path, { headers, signal: source.abort.signal });
  connection.up(source);
  await opened?.();
  if (!response.body) return;
  const parser = new Parser();
  for await (const text of pieces(response.body, source.abort)) {
    source.attempts = 0;
    for (const one of parser.push(text)) {
      source.lastId = one.id ?? source.lastId;
      if (!source.closed) event(one.type, JSON.parse(one.data), one.id);
    }
  }
}

/** The text of a stream; one that is silent for too long is taken for broken. */
async function* pieces(body, abort) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const timer = setTimeout(() => abort.abort(), SILENCE_MS);
    try {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    } finally {
      clearTimeout(timer);
    }
  }
}

async function pause(source) {
  const least = Math.min(WAIT_MS * 2 ** source.attempts++, WAIT_MS_MAX);
  const wait = least * (0.75 + Math.random() / 2);
  connection.down(source, Date.now() + wait, () => source.wake?.());
  await new Promise((resolve) => {
    source.wake = resolve;
    setTimeout(resolve, wait);
  });
}

const shown = (source) => new Promise((resolve) => { source.wake = resolve; });

/** A page that nobody looks at holds no connection: browsers allow only a few to one server. */
function whileHidden(hide, show) {
  let timer = null;
  const changed = () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(hide, HIDDEN_MS);
    else show();
  };
  document.addEventListener("visibilitychange", changed);
  window.addEventListener("online", show);
  return () => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", changed);
    window.removeEventListener("online", show);
  };
}
