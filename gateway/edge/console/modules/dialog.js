// Modal dialogs on the browser's own <dialog>: it traps the focus and gives it back.

import { h } from "./dom.js";

let count = 0;

/** Shows a dialog and returns it. It is removed when it closes. */
export function openDialog(title, content, { escapable = true, wide = false } = {}) {
  const id = `dialog-${++count}`;
  const close = h("button", { type: "button", class: "icon", "aria-label": "Close", onclick: () => dialog.close() }, "✕");
  const dialog = h("dialog", { "aria-labelledby": id, class: wide ? "wide" : null },
    h("header", null, h("h2", { id }, title), escapable ? close : null),
    h("div", { class: "inside" }, content));
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("cancel", (event) => { if (!escapable) event.preventDefault(); });
  dialog.addEventListener("click", (event) => { if (escapable && event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

export const dialogIsOpen = () => document.querySelector("dialog[open]") !== null;
