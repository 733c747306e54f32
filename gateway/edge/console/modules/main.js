// Puts the console together: the address says which page is shown, keys and buttons do the same things.

import { onKeys, showHelp } from "./keys.js";
import { runPage } from "./run_page.js";
import { runsPage } from "./runs_page.js";
import { startDialog } from "./start.js";
import { nextTheme, showTheme } from "./theme.js";
import { totalsPage } from "./totals.js";

const main = document.getElementById("main");
let shown = null;

/** `#/runs/ID?name=value` as its parts. */
function address() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [page, id] = path.split("/");
  return { page: page || "runs", id: id && decodeURIComponent(id), params: new URLSearchParams(query) };
}

function show() {
  const { page, id, params } = address();
  const place = `${page}/${id ?? ""}`;
  if (shown?.place === place) return shown.changed?.(params);
  shown?.close();
  main.replaceChildren();
  const opened = page === "totals" ? totalsPage(main, params) : id ? runPage(main, id) : runsPage(main, params);
  document.title = `${opened.title} · Agent gateway`;
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.dataset.page === page;
    here ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  if (shown) main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  shown = { place, ...opened };
}

const actions = {
  "?": showHelp,
  n: () => startDialog(),
  t: nextTheme,
  "g r": () => { location.hash = "#/runs"; },
  "g t": () => { location.hash = "#/totals"; },
};

document.getElementById("start").onclick = () => startDialog();
document.getElementById("help").onclick = showHelp;
document.getElementById("theme").onclick = nextTheme;
document.getElementById("skip").onclick = (event) => {
  event.preventDefault(); // the fragment is the page's address
  main.focus();
};
showTheme();
onKeys((keys) => actions[keys] ?? shown?.keys?.[keys]);
addEventListener("hashchange", show);
show();
