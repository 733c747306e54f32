// Charts as inline SVG, drawn to a fixed grid and scaled by the page. Each says in words what it shows.

import { h, svg } from "./dom.js";
import { compact, number, usd } from "./format.js";

const WIDTH = 320;
const HEIGHT = 150;
const TALL = 200;
const LEFT = 40;
const BOTTOM = 20;
const TOP = 10;
const LABEL = 52;
const POINTS_MAX = 400;

/** A ceiling for the axis that is a round number. */
export function ceiling(value) {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * size).find((round) => round >= value);
}

function frame(label, most, write, content, { width = WIDTH, height = HEIGHT } = {}) {
  const lines = [0, 0.5, 1].map((part) => {
    const y = TOP + (1 - part) * (height - TOP - BOTTOM);
    return svg("g", null,
      svg("line", { class: "grid", x1: LEFT, x2: width, y1: y, y2: y }),
      svg("text", { class: "tick", x: LEFT - 6, y: y + 3, "text-anchor": "end" }, write(most * part)));
  });
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, lines, content);
}

/** Prompt tokens growing turn by turn; the completion stands on top. */
export function promptChart(points) {
  const few = thinned(points);
  const most = ceiling(Math.max(...few.map((point) => point.prompt + point.completion)));
  const span = Math.max(1, few.length - 1);
  const x = (at) => LEFT + 6 + (few.length === 1 ? 0.5 : at / span) * (WIDTH - LEFT - 12);
  const y = (value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM);
  const line = (value) => few.map((point, at) => `${at ? "L" : "M"}${x(at).toFixed(1)} ${y(value(point)).toFixed(1)}`).join("");
  const prompt = line((point) => point.prompt);
  const [first, last] = [few[0], few.at(-1)];
  const label = `Prompt tokens by turn: from ${number(first.prompt)} in turn ${first.turn} to ${number(last.prompt)} in turn ${last.turn}.`;
  return frame(label, most, compact, [
    svg("path", { class: "area", d: `${prompt}L${x(few.length - 1)} ${HEIGHT - BOTTOM}L${x(0)} ${HEIGHT - BOTTOM}Z` }),
    svg("path", { class: "second line", d: line((point) => point.prompt + point.completion) }),
    svg("path", { class: "line", d: prompt }),
    few.length <= 40 && few.map((point, at) => svg("circle", { class: "point", cx: x(at), cy: y(point.prompt), r: few.length > 20 ? 2 : 3 },
      svg("title", null, `turn ${point.turn}: ${number(point.prompt)} prompt, ${number(point.completion)} completion tokens`))),
    svg("text", { class: "tick", x: LEFT + 6, y: HEIGHT - 5 }, `turn ${first.turn}`),
    few.length > 1 && svg("text", { class: "tick", x: WIDTH, y: HEIGHT - 5, "text-anchor": "end" }, `turn ${last.turn}`),
  ]);
}

function thinned(points) {
  const every = Math.ceil(points.length / POINTS_MAX);
  return points.filter((_, at) => at % every === 0 || at === points.length - 1);
}

/** One bar for each item: `{name, value, label, tip}`. */
export function barChart(label, items, write, width) {
  const most = ceiling(Math.max(...items.map((item) => item.value), 0));
  const room = (width - LEFT - 4) / Math.max(items.length, 1);
  const bar = Math.min(room * 0.72, 46);
  const every = Math.ceil((items.length * LABEL) / width);
  return frame(label, most, write, items.map((item, at) => {
    const height = (item.value / most) * (TALL - TOP - BOTTOM);
    const x = LEFT + 4 + at * room + (room - bar) / 2;
    return svg("g", { class: "bar" },
      svg("rect", { x, width: bar, y: TALL - BOTTOM - height, height: Math.max(height, item.value ? 1.5 : 0), rx: Math.min(3, bar / 4) },
        svg("title", null, item.tip)),
      at % every === 0 && svg("text", { class: "tick", x: x + bar / 2, y: TALL - 5, "text-anchor": "middle" }, item.name));
  }), { width, height: TALL });
}

/** Lying bars with their names, as a list: it reads well on a narrow page and aloud. */
export function ranking(label, items) {
  const most = Math.max(...items.map((item) => item.value)) || 1;
  return h("ul", { class: "ranking", "aria-label": label }, items.map((item) => h("li", null,
    h("span", { class: "name" }, item.sign, item.name),
    svg("svg", { class: `meter ${item.kind ?? ""}`, viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { class: "rest", width: 100, height: 6, rx: 1 }),
      svg("rect", { width: (item.value / most) * 100, height: 6, rx: 1 })),
    h("span", { class: "value" }, item.label ?? number(item.value)))));
}

/** How much of a cap is used. */
export function meter(name, used, cap, write) {
  const part = Math.min(used / cap, 1);
  return svg("svg", { class: `meter ${part >= 1 ? "full" : ""}`, viewBox: "0 0 100 4", preserveAspectRatio: "none", role: "img", "aria-label": `${name}: ${write(used)} of ${write(cap)}` },
    svg("rect", { class: "rest", width: 100, height: 4, rx: 1 }),
    svg("rect", { width: part * 100, height: 4, rx: 1 }));
}

export const dollars = (value) => (value === 0 ? "$0" : usd(value));

