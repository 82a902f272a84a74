/* A heat map on a canvas: a row for each rank, a column for each step. It takes the mouse and the keys. */

import { element, show, themeColor } from "./shared.js";
import { drawSoon, prepared } from "./canvas.js";
import { hatching, mixed } from "./draw.js";
import { tickStep } from "./ticks.js";

/**
 * @typedef {{ row: number[], column: number[], rank: number[], step: number[], value_ns: number[], median_ns: number[], cause: (string | null)[] }} Cells
 * @typedef {{ first: number[], last: number[], together: number }} Side
 * @typedef {{ cells: Cells, ranks: Side, steps: Side, scale: [number, number, number] }} Answer
 * @typedef {{ open: (at: number) => void, words: (at: number) => string[] }} Acts
 */

/** Below that, cells are hit by nobody, and neighbours share one. */
const LEAST = 4;
const WIDEST = 96;
const HIGHEST = 24;
const MOST_HIGH = 460;
const ROOM = { left: 52, bottom: 20, top: 8, right: 2 };
const LABEL_HIGH = 14;
const LETTER = 7;
const SHADES = 16;
/** A cell as large as this has room for a frame. */
const FRAMED = 6;

/** How many rows and columns of cells have room. @param {number} width of the map */
export const roomFor = (width) => ({ down: Math.floor(MOST_HIGH / LEAST), across: Math.max(Math.floor((width - ROOM.left - ROOM.right) / LEAST), 1) });

export class HeatMap {
  /** @param {string} label @param {Acts} acts */
  constructor(label, acts) {
    this.acts = acts;
    /** @type {Answer | null} */
    this.answer = null;
    /** The cell at a row and a column. @type {Map<string, number>} */
    this.places = new Map();
    /** Where the keyboard is, or who comes back: a row and a column. @type {[number, number] | null} */
    this.cursor = null;
    this.pending = 0;
    this.canvas = /** @type {HTMLCanvasElement} */ (element("canvas", { "aria-hidden": "true" }));
    this.item = element("div", { role: "gridcell", id: "heat-cell" });
    this.line = element("div", { role: "row", class: "hidden" }, this.item);
    this.tip = element("div", { class: "tip", hidden: true });
    this.root = element("div", { class: "heat", tabindex: "0", role: "grid", "aria-label": label, "aria-activedescendant": this.item.id, "aria-busy": "true" }, this.canvas, this.line);
    this.holder = element("div", { class: "heat-holder" }, this.root, this.tip);
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.root.addEventListener("focus", () => this.point(this.cursor ?? [0, 0]));
    this.root.addEventListener("blur", () => {
      this.tip.hidden = true;
      this.draw();
    });
    this.canvas.addEventListener("pointermove", (event) => this.hover(this.at(event.offsetX, event.offsetY)));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (event) => {
      const place = this.at(event.offsetX, event.offsetY);
      const at = place && this.cell(place);
      if (at !== null && at !== undefined) this.acts.open(at);
    });
    new ResizeObserver(() => this.draw()).observe(this.holder);
  }

  /** @param {Answer} answer */
  show(answer) {
    const { cells, ranks, steps } = answer;
    this.answer = answer;
    this.places = new Map(cells.row.map((row, at) => [`${row} ${cells.column[at]}`, at]));
    this.root.setAttribute("aria-rowcount", String(ranks.first.length));
    this.root.setAttribute("aria-colcount", String(steps.first.length));
    this.point(this.cursor ?? [0, 0], false);
    this.draw();
  }

  /** Puts the cursor where a rank and a step are, if they are shown. @param {number} rank @param {number} step */
  find(rank, step) {
    const place = ({ first }, wanted) => first.filter((one) => one <= wanted).length - 1;
    if (!this.answer || Number.isNaN(rank) || Number.isNaN(step)) return;
    const found = /** @type {[number, number]} */ ([place(this.answer.ranks, rank), place(this.answer.steps, step)]);
    if (this.cell(found) !== null) this.point(found, false);
  }

  /** The cell at a row and a column; null where the rank has no such step. @param {[number, number]} place */
  cell([row, column]) {
    return this.places.get(`${row} ${column}`) ?? null;
  }

  /** The size of the cells. @param {Answer} answer */
  size({ ranks, steps }) {
    const width = Math.max(this.holder.clientWidth - ROOM.left - ROOM.right, 1);
    const high = Math.min(Math.max(Math.floor(MOST_HIGH / ranks.first.length), LEAST), HIGHEST);
    return { wide: Math.min(width / steps.first.length, WIDEST), high };
  }

  /** The row and column at a place of the canvas. @param {number} x @param {number} y @returns {[number, number] | null} */
  at(x, y) {
    if (!this.answer) return null;
    const { wide, high } = this.size(this.answer);
    const [row, column] = [Math.floor((y - ROOM.top) / high), Math.floor((x - ROOM.left) / wide)];
    const { ranks, steps } = this.answer;
    return row >= 0 && column >= 0 && row < ranks.first.length && column < steps.first.length ? [row, column] : null;
  }

  /** @param {[number, number]} place @returns {string[]} what is said of a cell */
  words(place) {
    const at = this.cell(place);
    if (at !== null) return this.acts.words(at);
    const { ranks, steps } = /** @type {Answer} */ (this.answer);
    return [`Rank ${ranks.first[place[0]]}, step ${steps.first[place[1]]}`, "not recorded completely"];
  }

  /** Moves the cursor. @param {[number, number]} place */
  point(place, said = true) {
    if (!this.answer?.ranks.first.length) return;
    const { ranks, steps } = this.answer;
    this.cursor = [Math.min(place[0], ranks.first.length - 1), Math.min(place[1], steps.first.length - 1)];
    this.line.setAttribute("aria-rowindex", String(this.cursor[0] + 1));
    this.item.setAttribute("aria-colindex", String(this.cursor[1] + 1));
    this.item.textContent = this.words(this.cursor).join(", ");
    if (said) this.hover(this.cursor);
    this.draw();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.answer || !this.cursor) return;
    const [row, column] = this.cursor;
    const { ranks, steps } = this.answer;
    const to = {
      ArrowDown: [row + 1, column], ArrowUp: [row - 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      Home: [row, 0], End: [row, steps.first.length - 1], PageUp: [0, column], PageDown: [ranks.first.length - 1, column],
    }[event.key];
    const at = this.cell(this.cursor);
    if (to) this.point([Math.max(to[0], 0), Math.max(to[1], 0)]);
    else if ((event.key === "Enter" || event.key === " ") && at !== null) this.acts.open(at);
    else return;
    event.preventDefault();
  }

  /** Says what a cell is, beside it. @param {[number, number] | null} place */
  hover(place) {
    this.tip.hidden = place === null;
    this.canvas.style.cursor = place && this.cell(place) !== null ? "pointer" : "default";
    if (place === null || !this.answer) return;
    const [first, ...others] = this.words(place);
    this.tip.replaceChildren(element("strong", { text: first }), ...others.map((text) => element("span", { text })));
    const { wide, high } = this.size(this.answer);
    const [x, y] = [ROOM.left + place[1] * wide, ROOM.top + place[0] * high];
    const [long, tall] = [this.tip.offsetWidth, this.tip.offsetHeight];
    const right = x + wide + 6;
    // Beside the cell, and on a narrow screen above or below it.
    const beside = right + long <= this.holder.clientWidth ? right : x - long - 6;
    const below = y + high + tall + 4 <= this.holder.clientHeight ? y + high + 4 : y - tall - 4;
    this.tip.style.left = `${Math.max(beside, 0)}px`;
    this.tip.style.top = `${Math.max(beside >= 0 ? Math.min(y, this.holder.clientHeight - tall) : below, 0)}px`;
  }

  draw() {
    drawSoon(this);
  }

  drawNow() {
    const { answer } = this;
    if (!answer) return;
    const { cells, ranks, steps } = answer;
    const { wide, high } = this.size(answer);
    const width = this.holder.clientWidth;
    if (width < ROOM.left * 2) return;
    const bottom = ROOM.top + ranks.first.length * high;
    const paint = prepared(this.canvas, width, bottom + ROOM.bottom);
    const color = this.shades(answer.scale);
    const gap = Math.min(wide, high) >= FRAMED ? 1 : 0;
    const [frame, text] = [themeColor("--text"), themeColor("--faint")];
    paint.strokeStyle = frame;
    cells.row.forEach((row, at) => {
      const [x, y] = [ROOM.left + cells.column[at] * wide, ROOM.top + row * high];
      paint.fillStyle = color(cells.value_ns[at]);
      paint.fillRect(x, y, wide - gap, high - gap);
    });
    if (ranks.together > 1 || steps.together > 1) {
      paint.globalAlpha = 0.3;
      paint.fillStyle = hatching(themeColor("--panel"));
      paint.fillRect(ROOM.left, ROOM.top, steps.first.length * wide, bottom - ROOM.top);
      paint.globalAlpha = 1;
    }
    // A straggler has a frame, so that it is told not by colour alone; that of a small cell lies around it.
    cells.cause.forEach((cause, at) => {
      if (!cause) return;
      const [x, y] = [ROOM.left + cells.column[at] * wide, ROOM.top + cells.row[at] * high];
      paint.fillStyle = color(cells.value_ns[at]);
      if (!gap) paint.fillRect(x, y, wide, high);
      if (gap) paint.strokeRect(x + 0.5, y + 0.5, wide - 2, high - 2);
      else paint.strokeRect(x - 1, y - 1, wide + 2, high + 2);
    });
    this.labels(paint, answer, wide, high, bottom, text);
    if (this.cursor && document.activeElement === this.root) {
      paint.lineWidth = 2;
      paint.strokeStyle = themeColor("--accent");
      paint.strokeRect(ROOM.left + this.cursor[1] * wide, ROOM.top + this.cursor[0] * high, Math.max(wide - gap, 3), Math.max(high - gap, 3));
    }
    this.root.setAttribute("aria-busy", "false");
  }

  /** @param {CanvasRenderingContext2D} paint @param {Answer} answer */
  labels(paint, { ranks, steps }, wide, high, bottom, color) {
    paint.fillStyle = color;
    paint.textAlign = "right";
    const every = Math.ceil(LABEL_HIGH / high);
    ranks.first.forEach((rank, row) => {
      if (row % every === 0) paint.fillText(String(rank), ROOM.left - 6, ROOM.top + (row + 0.5) * high);
    });
    paint.textAlign = "center";
    const letters = String(Math.max(...steps.last, ...steps.first.slice(-1), 0)).length + 1;
    const apart = tickStep(Math.ceil((letters * LETTER) / wide));
    steps.first.forEach((step, column) => {
      if (column % apart === 0) paint.fillText(String(step), ROOM.left + (column + 0.5) * wide, bottom + 11);
    });
    paint.textAlign = "left";
  }

  /** The colour of a value: grey at the median, red above it, blue below. @param {[number, number, number]} scale */
  shades([, middle, most]) {
    const [longer, same, shorter] = ["--longer", "--grid", "--shorter"].map(themeColor);
    /** @type {Map<number, string>} */
    const made = new Map();
    return (value) => {
      const shade = Math.round(Math.max(Math.min((value - middle) / Math.max(most - middle, 1), 1), -1) * SHADES);
      if (!made.has(shade)) made.set(shade, mixed(same, shade > 0 ? longer : shorter, Math.abs(shade) / SHADES));
      return /** @type {string} */ (made.get(shade));
    };
  }
}

/** What the colours mean. @param {[number, number, number]} scale */
export function heatLegend([least, middle, most]) {
  const text = (value, more = "") => element("span", { text: `${show(Math.round(value), "ns")}${more}` });
  return element("p", { class: "heat-legend" }, text(least), element("i", { "aria-hidden": "true" }), text(most, " and more"), element("span", { class: "said", text: `grey: the median, ${show(Math.round(middle), "ns")}; framed: a straggler` }));
}
