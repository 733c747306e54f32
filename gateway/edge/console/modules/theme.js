// Light, dark, or as the system has it. A choice is kept in this browser.

import { announce } from "./dom.js";

const KEPT = "gateway-theme";
const THEMES = ["auto", "light", "dark"];
const SIGNS = { auto: "◐", light: "☀", dark: "☾" };

const theme = () => document.documentElement.dataset.theme ?? "auto";

export function nextTheme() {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  if (next === "auto") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem(KEPT);
  } else {
    document.documentElement.dataset.theme = next;
    localStorage.setItem(KEPT, next);
  }
  showTheme();
  announce(`Theme: ${next}`);
}

export function showTheme() {
  const button = document.getElementById("theme");
  button.textContent = SIGNS[theme()];
  button.setAttribute("aria-label", `Theme: ${theme()}`);
  button.title = `Theme: ${theme()} (t)`;
}
