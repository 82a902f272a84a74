/* The roofline: operators as bubbles on two logarithmic axes, below the roofs of the GPUs. */

import { element, show } from "./shared.js";
import { addressOf, note } from "./state.js";
import { decades, magnitude } from "./ticks.js";

/**
 * @typedef {{ name: string, short: string, share: number, device_ns: number, calls: number, intensity: number, flops_per_s: number,
 *   bytes_per_s: number, attained_pct: number | null, bound: string | null, limit_type: string | null, saveable_ns: number | null }} Bubble
 */

const HEIGHT = 440;
const ROOM = { left: 78, right: 14, top: 16, bottom: 44 };
const SMALLEST = 4;
const LARGEST = 30;
const LETTER = 6.2;
const LINE = 13;
/** Of a decade, around what is drawn. */
const MARGIN = 0.35;
const FACTS = [["GPU time", "device_ns", "ns"], ["Share", "share", "share"], ["Calls", "calls", "count"], ["Achieved", "flops_per_s", "FLOP/s"], ["Traffic", "bytes_per_s", "B/s"],
  ["Intensity", "intensity", "FLOP/B"], ["Of the attainable", "attained_pct", "percent"], ["Bound by", "bound", "text"], ["Type of the roof", "limit_type", "text"], ["Possible saving", "saveable_ns", "ns"]];

const svg = (tag, values = {}, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(values)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
};

export class Roofline {
  /** @param {{ bubbles: Bubble[], roofs: { label: string, bandwidth: number, rates: [string, number][] }[], left: number }} answer */
  constructor(answer) {
    this.answer = answer;
    this.chosen = -1;
    this.plot = svg("svg", { class: "roofline-plot", role: "group", "aria-label": "Roofline: operators by arithmetic intensity and FLOP/s; arrow keys move between them, starting with the largest time" });
    this.details = element("div", { class: "bubble-details", "aria-live": "polite" });
    const left = answer.left ? [element("p", { class: "note", text: `${show(answer.left, "count")} smaller operators are only in the table.` })] : [];
    const nothing = element("p", { class: "note missing", text: "FLOPs and bytes are unknown for all operators, so there is nothing to draw." });
    this.root = element("section", { class: "card roofline" }, element("h2", { text: "Roofline" }), ...(answer.bubbles.length ? [this.plot, this.details] : [nothing]), ...left);
    if (!answer.roofs.length && answer.bubbles.length) this.root.append(element("p", { class: "note missing", text: "The limits of this GPU are unknown, so no roof is drawn." }));
    this.plot.addEventListener("keydown", (event) => this.key(/** @type {KeyboardEvent} */ (event)));
    new ResizeObserver(() => this.draw()).observe(this.root);
    this.describe();
  }

  /** @param {Record<string, string>} values of the address */
  follow({ bubble }) {
    this.chosen = this.answer.bubbles.findIndex(({ name }) => name === bubble);
    this.draw();
    this.describe();
  }

  /** The ranges that hold all that is drawn, as powers of ten. */
  ranges() {
    const { bubbles, roofs } = this.answer;
    const ridges = roofs.flatMap(({ bandwidth, rates }) => rates.map(([, rate]) => rate / bandwidth));
    const heights = roofs.flatMap(({ rates }) => rates.map(([, rate]) => rate));
    const range = (values) => [Math.log10(Math.min(...values)) - MARGIN, Math.log10(Math.max(...values)) + MARGIN];
    return [range([...bubbles.map((one) => one.intensity), ...ridges]), range([...bubbles.map((one) => one.flops_per_s), ...heights])];
  }

  draw() {
    const width = this.plot.clientWidth || this.root.clientWidth - 30;
    if (!this.answer.bubbles.length || width < 60) return;
    const [[left, right], [low, high]] = this.ranges();
    const x = (value) => ROOM.left + ((Math.log10(value) - left) / (right - left)) * (width - ROOM.left - ROOM.right);
    const y = (value) => HEIGHT - ROOM.bottom - ((Math.log10(value) - low) / (high - low)) * (HEIGHT - ROOM.top - ROOM.bottom);
    this.plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const taken = [];
    const focused = this.plot.contains(document.activeElement);
    this.plot.replaceChildren(...this.axes(x, y, [left, right], [low, high], width), ...this.roofs(x, y, 10 ** left, 10 ** right, width, taken), ...this.bubbles(x, y, width, taken));
    if (focused) /** @type {SVGElement | null} */ (this.plot.querySelector("[tabindex='0']"))?.focus({ preventScroll: true });
  }

  axes(x, y, [left, right], [low, high], width) {
    const bottom = HEIGHT - ROOM.bottom;
    const across = decades(left, right, (width - ROOM.left) / 70).map((value) => svg("g", { class: "tick" }, svg("line", { x1: x(value), x2: x(value), y1: ROOM.top, y2: bottom }), svg("text", { x: x(value), y: bottom + 15, "text-anchor": "middle" }, magnitude(value))));
    const up = decades(low, high, HEIGHT / 40).map((value) => svg("g", { class: "tick" }, svg("line", { x1: ROOM.left, x2: width - ROOM.right, y1: y(value), y2: y(value) }), svg("text", { x: ROOM.left - 6, y: y(value) + 4, "text-anchor": "end" }, show(value, "FLOP/s"))));
    return [...across, ...up, svg("text", { x: (ROOM.left + width) / 2, y: HEIGHT - 8, "text-anchor": "middle", class: "axis-name" }, "arithmetic intensity, FLOP per byte")];
  }

  /** The slope of the memory, and a flat roof for each type. */
  roofs(x, y, first, last, width, taken) {
    const clip = HEIGHT - ROOM.bottom;
    return this.answer.roofs.flatMap(({ label, bandwidth, rates }) => {
      const ridge = rates[0][1] / bandwidth;
      // Below the axis there is nothing to be drawn.
      const from = Math.max(first, this.at(y, clip) / bandwidth);
      const slope = svg("line", { class: "roof", x1: x(from), y1: y(from * bandwidth), x2: x(ridge), y2: y(ridge * bandwidth) });
      const text = `${label}: memory, ${show(bandwidth, "B/s")}`;
      // Below the slope, which rises.
      const under = Math.min(y(from * bandwidth) + LINE + 3, clip - 6);
      const memory = svg("text", { class: "roof-name", x: x(from) + 8, y: under }, text);
      taken.push([x(from) + 8, under - LINE, x(from) + 8 + text.length * LETTER, under]);
      const flat = rates.flatMap(([type, rate]) => {
        const words = `${label}: ${type}, ${show(rate, "FLOP/s")}`;
        const top = y(rate) - 5;
        taken.push([width - ROOM.right - words.length * LETTER, top - LINE, width - ROOM.right, top]);
        return [svg("line", { class: "roof", x1: x(rate / bandwidth), y1: y(rate), x2: x(last), y2: y(rate) }), svg("text", { class: "roof-name", x: width - ROOM.right, y: top, "text-anchor": "end" }, words)];
      });
      return [slope, memory, ...flat];
    });
  }

  /** The value at a height. */
  at(y, height) {
    const [, [low, high]] = this.ranges();
    return 10 ** (low + ((y(10 ** low) - height) / (y(10 ** low) - y(10 ** high))) * (high - low));
  }

  bubbles(x, y, width, taken) {
    const focus = Math.max(this.chosen, 0);
    const circles = this.answer.bubbles.map((bubble, place) => {
      const radius = Math.max(SMALLEST, LARGEST * Math.sqrt(bubble.share));
      const circle = svg("circle", { cx: x(bubble.intensity), cy: y(bubble.flops_per_s), r: radius });
      const words = `${bubble.name}: ${show(bubble.device_ns, "ns")}, ${show(bubble.share, "share")} of the GPU time, ${show(bubble.flops_per_s, "FLOP/s")}, ${bubble.attained_pct === null ? "attainable not known" : `${show(bubble.attained_pct, "percent")} of the attainable`}`;
      const one = svg("g", { class: `bubble bound-${bubble.bound ?? "unknown"}${place === this.chosen ? " chosen" : ""}`, role: "button", tabindex: place === focus ? 0 : -1, "aria-label": words, "aria-pressed": place === this.chosen, "data-place": place }, circle, svg("title", {}, words));
      one.addEventListener("click", () => this.choose(place));
      return one;
    });
    // Names of the largest, as far as none covers another.
    const names = this.answer.bubbles.flatMap((bubble) => {
      const radius = Math.max(SMALLEST, LARGEST * Math.sqrt(bubble.share));
      const long = bubble.short.length * LETTER;
      const middle = Math.min(Math.max(x(bubble.intensity), ROOM.left + long / 2), width - ROOM.right - long / 2);
      const bottom = y(bubble.flops_per_s) - radius - 3;
      const own = [middle - long / 2, bottom - LINE, middle + long / 2, bottom];
      if (bottom < LINE || taken.some((other) => own[0] < other[2] && own[2] > other[0] && own[1] < other[3] && own[3] > other[1])) return [];
      taken.push(own);
      return [svg("text", { class: "bubble-name", x: middle, y: bottom - 2, "text-anchor": "middle", "aria-hidden": "true" }, bubble.short)];
    });
    // The largest lie below the others, so that they hide none.
    return [...circles, ...names];
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const place = Number(/** @type {HTMLElement} */ (event.target).dataset?.place ?? NaN);
    if (Number.isNaN(place)) return;
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (steps[event.key]) {
      const next = (place + steps[event.key] + this.answer.bubbles.length) % this.answer.bubbles.length;
      this.plot.querySelectorAll(".bubble").forEach((one) => one.setAttribute("tabindex", "-1"));
      const bubble = /** @type {SVGElement} */ (this.plot.querySelector(`[data-place='${next}']`));
      bubble.setAttribute("tabindex", "0");
      bubble.focus();
    } else if (event.key === "Enter" || event.key === " ") this.choose(place);
    else if (event.key === "Escape") this.choose(-1);
    else return;
    event.preventDefault();
  }

  /** Shows a bubble, and its row in the table below. @param {number} place */
  choose(place) {
    this.chosen = place === this.chosen ? -1 : place;
    note({ bubble: this.answer.bubbles[this.chosen]?.name ?? null }, true);
    this.draw();
    this.describe();
  }

  describe() {
    const bubble = this.answer.bubbles[this.chosen];
    if (!bubble) {
      this.details.replaceChildren(element("p", { class: "note", text: "A bubble is an operator; its area is its GPU time. To the right of the ridge computation is the limit, to the left memory. Click a bubble for its figures." }));
      return;
    }
    const facts = FACTS.map(([title, key, unit]) => element("div", {}, element("dt", { text: title }), element("dd", { text: bubble[key] === null ? "unknown" : show(bubble[key], unit) })));
    this.details.replaceChildren(element("div", { class: "card-head" }, element("h3", {}, element("bdi", { text: bubble.name })),
      element("a", { class: "button", href: addressOf("timeline", { find: bubble.name, exact: 1 }), text: "In the timeline" }), element("a", { class: "button", href: addressOf("roofline", { bubble: bubble.name, search: bubble.name }), text: "In the table" }),
      element("a", { class: "button", href: addressOf("operators", { search: bubble.name }), text: "All figures" })), element("dl", { class: "facts" }, ...facts));
  }
}
