// Figures, times and arguments as people read them.

const ONE_LINE_MAX = 76;
const WHOLE = new Intl.NumberFormat("en-US");

export const number = (value) => WHOLE.format(value);

export const plural = (count, noun, write = number) => `${write(count)} ${noun}${count === 1 ? "" : "s"}`;

/** US dollars, with as many digits as say something: a turn may cost a thousandth of a cent. */
export function usd(value) {
  const amount = Number(value);
  if (!amount) return "$0";
  if (amount >= 0.1) return `$${amount.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: amount >= 1 ? 2 : 3 })}`;
  return `$${amount.toLocaleString("en-US", { maximumSignificantDigits: 3, maximumFractionDigits: 20 })}`;
}

/** As in a column, where each figure has as many digits as the others, and as the command line. */
export const columnUsd = (value) => `$${Number(value).toLocaleString("en-US", { minimumFractionDigits: 6, maximumFractionDigits: 6 })}`;

/** To the last digit that was recorded, never in powers of ten. */
export function exactUsd(value) {
  return `$${Number(value).toLocaleString("en-US", { maximumFractionDigits: 12 })}`;
}

export function compact(value) {
  return value < 10_000 ? number(Math.round(value)) : Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 }).format(value);
}

export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  return minutes < 60 ? `${minutes} min ${Math.round((ms % 60_000) / 1000)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const AGES = [[60, "s"], [3600, "min", 60], [86_400, "h", 3600], [Infinity, "d", 86_400]];

export function age(time, now = Date.now()) {
  const seconds = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
  if (seconds < 3) return "now";
  const [, unit, size = 1] = AGES.find(([most]) => seconds < most);
  return `${Math.floor(seconds / size)} ${unit}`;
}

export const clock = (time) => new Date(time).toLocaleTimeString("en-GB");

export const moment = (time) => new Date(time).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** JSON with one member a line; what is no JSON as it came. */
export function pretty(value) {
  if (typeof value !== "string") return JSON.stringify(value, null, 2);
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}

/** JSON on one line where that is short, else with one member a line. */
export function brief(value) {
  const lines = pretty(value);
  if (lines.length > 400 || lines === value) return lines;
  const line = lines.replace(/\n\s*/g, " ").replace(/([[{]) | ([\]}])/g, "$1$2");
  return line.length <= ONE_LINE_MAX && JSON.stringify(JSON.parse(line)) === JSON.stringify(JSON.parse(lines)) ? line : lines;
}

/** A message's text, whether it is a string or parts. */
export function textOf(content) {
  if (!Array.isArray(content)) return content ?? "";
  return content.map((part) => part.text ?? `[${part.type}]`).join("");
}

/** The end of an id, which is where ids differ: they begin with the time. */
export const shortId = (id) => id.slice(-8);
