// Asks for an API key. However many calls were refused, there is one dialog.

import { h } from "./dom.js";
import { openDialog } from "./dialog.js";

let asked = null;

/** The key that was typed. `words` are why it is asked for. */
export function askForKey(words) {
  asked ??= ask(words).finally(() => { asked = null; });
  return asked;
}

function ask(words) {
  return new Promise((resolve) => {
    const input = h("input", { type: "password", id: "key-input", autocomplete: "off", required: true, spellcheck: "false" });
    const submit = (event) => {
      event.preventDefault();
      if (!input.value.trim()) return;
      resolve(input.value.trim());
      dialog.close();
    };
    const form = h("form", { onsubmit: submit, novalidate: true },
      h("p", { class: "words" }, words),
      h("label", { for: "key-input" }, "API key"),
      input,
      h("p", { class: "hint" }, "Kept in this tab until it is closed."),
      h("div", { class: "buttons" }, h("button", { class: "primary" }, "Continue")));
    const dialog = openDialog("This gateway wants a key", form, { escapable: false });
  });
}
