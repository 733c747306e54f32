// Says at the top of the page whether what it shows is live, and when the connection is tried again.

import { h, render } from "./dom.js";

const broken = new Map();
let timer = null;

export function up(source) {
  broken.delete(source);
  show("live");
}

/** The connection of `source` broke; it is tried again at this time, or at once by `now`. */
export function down(source, at, now) {
  broken.set(source, { at, now });
  show("live");
}

/** Nobody waits for this one any more. */
export function ended(source) {
  broken.delete(source);
  show(null);
}

function show(otherwise) {
  const state = broken.size ? "down" : otherwise;
  const live = document.getElementById("live");
  if (state) {
    live.dataset.state = state;
    live.lastElementChild.textContent = state === "down" ? "offline" : "live";
  }
  const banner = document.getElementById("banner");
  banner.hidden = !broken.size;
  clearInterval(timer);
  if (!broken.size) return render(banner);
  timer = setInterval(fill, 500);
  fill();
}

function fill() {
  const soonest = Math.min(...[...broken.values()].map((each) => each.at));
  const seconds = Math.ceil((soonest - Date.now()) / 1000);
  const retry = () => [...broken.values()].forEach((each) => each.now());
  render(document.getElementById("banner"),
    h("span", null, "The connection to the gateway is lost: reconnecting…"),
    h("span", { class: "soon", "aria-hidden": "true" }, seconds > 0 ? `next try in ${seconds} s` : "trying now"),
    h("button", { type: "button", onclick: retry }, "Try now"));
}
