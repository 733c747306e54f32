// Fields with their labels, and what the API says about them beside them, in its own words.

import { h } from "./dom.js";

let count = 0;

/** A labelled field. `name` is what the API calls it. `control` makes the input out of its attributes. */
export function field(name, label, control, { hint } = {}) {
  const id = `field-${++count}`;
  const words = h("p", { class: "wrong", id: `${id}-wrong`, hidden: true });
  return h("div", { class: "field", "data-field": name },
    h("label", { for: id }, label),
    control({ id, name, "aria-describedby": `${id}-wrong${hint ? ` ${id}-hint` : ""}` }),
    hint && h("p", { class: "hint", id: `${id}-hint` }, hint),
    words);
}

export const textInput = (more) => (attributes) => h("input", { type: "text", autocomplete: "off", spellcheck: "false", ...attributes, ...more });

export const textArea = (more) => (attributes) => h("textarea", { rows: 3, spellcheck: "false", ...attributes, ...more });

export const choice = (options, more) => (attributes) => h("select", { ...attributes, ...more },
  options.map(([value, name]) => h("option", { value }, name)));

/**
 * A form that does `work(values, button)` when it is sent, once at a time. What is refused is said beside its field; if it
 * is about no field, it is told to `refused`, or said at the end. `buttons` are `[label, value, kind]`.
 */
export function actionForm(fields, buttons, work, { className = "", refused } = {}) {
  const general = h("p", { class: "wrong general", role: "alert", hidden: true });
  const made = buttons.map(([label, value, kind = ""]) => h("button", { class: kind, name: "verb", value }, label));
  const form = h("form", { class: `action ${className}`, novalidate: true, onsubmit: submit }, fields, general, h("div", { class: "buttons" }, made));

  async function submit(event) {
    event.preventDefault();
    const verb = event.submitter?.value ?? buttons[0][1];
    clear(form, general);
    lock(made, true);
    try {
      await work(valuesOf(form), verb);
    } catch (error) {
      if (error.name !== "AbortError") say(form, error, refused ?? ((words) => show(general, words)));
    } finally {
      lock(made, false);
    }
  }
  return form;
}

function lock(buttons, locked) {
  for (const button of buttons) button.disabled = locked;
}

export function valuesOf(form) {
  const values = {};
  for (const control of form.elements) {
    if (control.name && control.name !== "verb") values[control.name] = control.type === "checkbox" ? control.checked : control.value;
  }
  return values;
}

function clear(form, general) {
  for (const words of form.querySelectorAll(".wrong")) words.hidden = true;
  for (const control of form.querySelectorAll("[aria-invalid]")) control.removeAttribute("aria-invalid");
  general.textContent = "";
}

function say(form, error, elsewhere) {
  const place = error.param && fieldOf(form, error.param);
  if (!place) return elsewhere(error.message);
  show(place.querySelector(".wrong"), error.message);
  for (let around = place.closest("details"); around; around = around.parentElement.closest("details")) around.open = true;
  const control = place.querySelector("input, textarea, select");
  control?.setAttribute("aria-invalid", "true");
  control?.focus();
}

function show(words, text) {
  words.textContent = text;
  words.hidden = false;
}

/** The field that the API names, or the one that it lies within. */
function fieldOf(form, param) {
  const parts = param.split(".");
  for (let length = parts.length; length > 0; length -= 1) {
    const found = form.querySelector(`[data-field="${CSS.escape(parts.slice(0, length).join("."))}"]`);
    if (found) return found;
  }
  return null;
}

/** What was typed for a number: nothing is undefined, `none` is null, and what is no number goes as it is, so that the
 * API says what is wrong with it. */
export function numberOf(text) {
  const typed = text.trim();
  if (!typed) return undefined;
  if (typed.toLowerCase() === "none") return null;
  return Number.isFinite(Number(typed)) ? Number(typed) : typed;
}

/** Money goes as the digits that were typed: a float would round it. */
export function moneyOf(text) {
  const typed = text.trim().replace(/^\$/, "");
  if (!typed) return undefined;
  return typed.toLowerCase() === "none" ? null : typed;
}

/** The limits that were typed; what was left empty is left out. */
export function limitsOf(values) {
  const limits = {
    max_turns: numberOf(values["limits.max_turns"] ?? ""),
    max_budget_usd: moneyOf(values["limits.max_budget_usd"] ?? ""),
    deadline_seconds: numberOf(values["limits.deadline_seconds"] ?? ""),
    budget_mode: values["limits.budget_mode"] || undefined,
  };
  return Object.fromEntries(Object.entries(limits).filter(([, value]) => value !== undefined));
}
