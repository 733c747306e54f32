// One key, or two in a row, do what a button does. Never while somebody types, and never behind a dialog.

import { dialogIsOpen, openDialog } from "./dialog.js";
import { h } from "./dom.js";

const SECOND_KEY_MS = 900;

const HELP = [
  ["Everywhere", [["n", "start a run"], ["g r", "go to the runs"], ["g t", "go to the totals"], ["t", "change the theme"], ["?", "show this"]]],
  ["List of runs", [["/", "search"], ["j", "next run"], ["k", "run before"], ["Enter", "open the run"], ["m", "load more"]]],
  ["A run", [["a", "go to what waits for you"], ["s", "stop it, or resume it"], ["f", "fold or unfold every turn"], ["Esc", "back to the list"]]],
];

/** `find(keys)` gives what to do, if anything. */
export function onKeys(find) {
  let before = "";
  let since = 0;
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || dialogIsOpen() || types(event)) return;
    const pair = Date.now() - since < SECOND_KEY_MS ? `${before} ${event.key}` : "";
    const work = (pair && find(pair)) || find(event.key);
    before = event.key;
    since = Date.now();
    if (!work) return;
    event.preventDefault();
    work();
  });
}

function types(event) {
  const field = event.target.closest("input, textarea, select");
  if (!field) return event.key === "Enter" && event.target.closest("a, button, summary") !== null;
  if (event.key === "Escape") field.blur();
  return true;
}

export function showHelp() {
  openDialog("Keyboard shortcuts", HELP.map(([title, keys]) => h("section", { class: "shortcuts" },
    h("h3", null, title),
    h("dl", null, keys.map(([names, does]) => h("div", null,
      h("dt", null, names.split(" ").map((name) => h("kbd", null, name))),
      h("dd", null, does)))))));
}
