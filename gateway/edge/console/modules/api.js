// Calls the gateway. A gateway with keys answers 401: the key is asked for once, kept for this tab, and sent as Bearer.

import { askForKey } from "./key.js";

const KEPT = "gateway-key";

/** What the API said was wrong, in its own words. `param` names the field. */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `The gateway answered ${status}.`);
    this.status = status;
    this.code = problem.error?.code ?? null;
    this.param = problem.error?.param ?? null;
  }
}

/** The gateway cannot be reached at all. */
export class Unreachable extends Error {
  constructor() {
    super("The gateway cannot be reached. What you did was not carried out, or its answer was lost: look again.");
    this.status = 0;
    this.param = null;
  }
}

export const get = (path, options) => call("GET", path, undefined, options);

export const post = (path, body, options) => call("POST", path, body ?? {}, options);

async function call(method, path, body, options = {}) {
  const response = await open(method, path, { ...options, body });
  return response.status === 204 ? null : response.json();
}

/** The response, once it is a good one. Raises ApiError, Unreachable, or AbortError. */
export async function open(method, path, { body, headers, signal } = {}) {
  let refused = null;
  for (;;) {
    const key = refused ? await askForKey(refused) : sessionStorage.getItem(KEPT);
    if (refused) sessionStorage.setItem(KEPT, key);
    const response = await sent(method, path, { body, headers, signal, key });
    if (response.ok) return response;
    const error = new ApiError(response.status, await problemOf(response));
    if (response.status !== 401) throw error;
    // Another call may have been given a key meanwhile: that one is tried before anybody is asked.
    refused = sessionStorage.getItem(KEPT) === key ? error.message : null;
  }
}

async function sent(method, path, { body, headers, signal, key }) {
  const given = { ...headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  if (body !== undefined) given["Content-Type"] = "application/json";
  try {
    return await fetch(path, { method, headers: given, signal, body: body && JSON.stringify(body), cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable();
  }
}

async function problemOf(response) {
  try {
    return await response.json();
  } catch {
    return {};
  }
}
