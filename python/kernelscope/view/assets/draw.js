/* Draws marks, lines and arrows of the timeline. */

import { themeColor } from "./shared.js";
import { LANE } from "./tracks.js";
import { firstAfter } from "./marks.js";

/** @typedef {import("./marks.js").Marks} Marks */

/** The colour of a category, by its name in the style sheet. @param {string} category */
export const categoryColor = (category) => `--category-${category}`;

export const NAME_COLORS = 10;
const LEAST_LETTER = 4.5;
const LEAST_TEXT = 26;
const LEAST_COUNT = 70;
const THIN = 0.8;
/** Of what is not meant by a filter, or by the evidence that is shown. */
const FAINT = 0.22;

/** @param {string} color as the style sheet writes it: #rrggbb */
function luminance(color) {
  const parts = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16) / 255);
  const [red, green, blue] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Black or white, whichever is read better. @param {string} color */
export const textOn = (color) => (luminance(color) > 0.179 ? "#000000" : "#ffffff");

/** A colour between two, as #rrggbb. @param {string} one @param {string} other @param {number} share of the other */
export function mixed(one, other, share) {
  const part = (color, at) => parseInt(color.slice(at, at + 2), 16);
  return `#${[1, 3, 5].map((at) => Math.round(part(one, at) * (1 - share) + part(other, at) * share).toString(16).padStart(2, "0")).join("")}`;
}

/** A number that belongs to a text. @param {string} text */
export function hash(text) {
  let found = 0;
  for (let at = 0; at < text.length; at += 1) found = (found * 31 + text.charCodeAt(at)) >>> 0;
  return found;
}

/** The colours of what is drawn, in the theme that holds now. */
export class Palette {
  /** @param {string[]} categories */
  constructor(categories) {
    this.categories = categories.map((name) => themeColor(categoryColor(name)));
    this.names = Array.from({ length: NAME_COLORS }, (_, place) => themeColor(`--c${place}`));
    this.inks = new Map([...this.categories, ...this.names].map((color) => [color, textOn(color)]));
    this.text = themeColor("--text");
    this.faint = themeColor("--faint");
    this.grid = themeColor("--grid");
    this.accent = themeColor("--accent");
    this.panel = themeColor("--panel");
    this.hatch = hatching(this.panel);
  }
}

/** What is laid over several events, or cells, that are drawn as one. @param {string} color */
export function hatching(color) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const paint = tile.getContext("2d");
  if (!paint) return color;
  paint.strokeStyle = color;
  paint.lineWidth = 1.4;
  for (const shift of [-6, 0, 6]) {
    paint.moveTo(shift, 6);
    paint.lineTo(shift + 6, 0);
  }
  paint.stroke();
  return paint.createPattern(tile, "repeat") ?? color;
}

/**
 * @typedef {{ paint: CanvasRenderingContext2D, palette: Palette, from: number, to: number, width: number,
 *   byName: boolean, hidden: Set<number>, rows: Set<number> | null, name: string | null, path: Path | null, spans: [number, number][] }} Look
 */

/**
 * The critical path where the screen is: the events that it passes, when it is on each track, and where it changes tracks.
 * @typedef {{ rows: Set<number>, spans: Map<number, [number, number][]>, arrows: { from: any, to: any }[] }} Path
 */

/** Whether one of some spans, which come in order, has a part between two times. @param {[number, number][]} spans */
function crosses(spans, start, end) {
  let low = 0;
  let high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle][1] < start) low = middle + 1;
    else high = middle;
  }
  return low < spans.length && spans[low][0] <= end;
}

/**
 * Draws a lane between two times.
 * @param {Look} look
 * @param {Marks} marks
 * @param {[number, number]} place of the lane's marks
 * @param {number} y
 * @param {number} begin
 * @param {number} until
 */
export function drawLane(look, marks, place, y, begin, until) {
  const { paint, palette, from, width } = look;
  const scale = width / (look.to - from);
  /** @type {{ x: number, right: number, events: number } | null} */
  let run = null;
  for (let index = firstAfter(marks, place, begin); index < place[1]; index += 1) {
    const start = marks.starts[index];
    if (start > until) break;
    const x = Math.max((Math.max(start, begin) - from) * scale, -2);
    const right = Math.min((Math.min(start + marks.lengths[index], until) - from) * scale, width + 2);
    const wide = Math.max(right - x, THIN);
    const category = marks.category[index];
    const name = marks.name[index];
    const text = name === null ? "(no name)" : marks.names[name];
    const color = look.byName ? palette.names[hash(text) % NAME_COLORS] : palette.categories[category];
    const many = marks.events[index] !== 1;
    const isOff = look.path !== null && !(many ? crosses(look.spans, start, start + marks.lengths[index]) : look.path.rows.has(marks.row[index]));
    const faint = isOff || look.hidden.has(category) || (look.rows !== null && !look.rows.has(marks.row[index]))
      || (look.name !== null && !text.toLowerCase().includes(look.name));
    paint.globalAlpha = (faint ? FAINT : 1) * (many ? 0.4 + 0.006 * marks.busy[index] : 1);
    paint.fillStyle = color;
    paint.fillRect(x, y, wide > 3 ? wide - 0.75 : wide, LANE - 2);
    if (many) {
      if (run && x - run.right < 1.5) {
        run.right = x + wide;
        run.events += marks.events[index];
      } else {
        if (run) drawRun(look, run, y);
        run = { x, right: x + wide, events: marks.events[index] };
      }
    } else if (wide > LEAST_TEXT) {
      paint.globalAlpha = faint ? 0.6 : 1;
      paint.fillStyle = faint ? palette.text : /** @type {string} */ (palette.inks.get(color));
      paint.fillText(fitting(paint, name === null ? text : marks.short[name] ?? text, wide - 7), x + 4, y + LANE / 2 - 0.5);
    }
  }
  if (run) drawRun(look, run, y);
  paint.globalAlpha = 1;
}

/** As much of a text as has room. @param {CanvasRenderingContext2D} paint @param {string} text @param {number} room */
export function fitting(paint, text, room) {
  // To measure takes longer than to count: only what may fit is measured.
  let most = Math.min(Math.floor(room / LEAST_LETTER), text.length);
  let cut = most < text.length ? `${text.slice(0, most - 1)}…` : text;
  while (most > 1 && paint.measureText(cut).width > room) {
    most -= Math.max(1, Math.floor(most / 12));
    cut = `${text.slice(0, Math.max(most - 1, 0))}…`;
  }
  return cut;
}

/** Marks side by side that stand for several events each: hatched, with how many they are. */
function drawRun({ paint, palette }, { x, right, events }, y) {
  paint.globalAlpha = 0.5;
  paint.fillStyle = palette.hatch;
  paint.fillRect(x, y, right - x, LANE - 2);
  paint.globalAlpha = 1;
  if (right - x < LEAST_COUNT) return;
  const text = `${events.toLocaleString("en-US")} events`;
  const length = paint.measureText(text).width + 8;
  if (length > right - x - 8) return;
  const middle = Math.max((x + right - length) / 2, x + 2);
  paint.fillStyle = palette.panel;
  paint.fillRect(middle, y + 1.5, length, LANE - 5);
  paint.fillStyle = palette.text;
  paint.fillText(text, middle + 4, y + LANE / 2 - 0.5);
}

/** A frame around a mark. @param {Look} look */
export function drawFrame(look, start, length, y) {
  const { paint, palette, from, to, width } = look;
  const scale = width / (to - from);
  const x = Math.max((start - from) * scale, -4);
  const right = Math.min((start + length - from) * scale, width + 4);
  paint.strokeStyle = palette.text;
  paint.lineWidth = 2;
  paint.strokeRect(x - 1, y - 1, Math.max(right - x, 3) + 1, LANE);
}

/** An arrow between two places of the timeline. @param {Look} look */
export function drawArrow({ paint, palette, from, to, width }, [start, startY], [end, endY]) {
  const scale = width / (to - from);
  const [x, toX] = [(start - from) * scale, (end - from) * scale];
  if (Math.max(x, toX) < -width || Math.min(x, toX) > 2 * width) return;
  const bend = Math.max(Math.abs(toX - x) / 2, 20);
  paint.strokeStyle = paint.fillStyle = palette.text;
  paint.lineWidth = 1.6;
  paint.beginPath();
  paint.moveTo(x, startY);
  paint.bezierCurveTo(x + bend, startY, toX - bend, endY, toX - 5, endY);
  paint.stroke();
  paint.beginPath();
  paint.moveTo(toX, endY);
  paint.lineTo(toX - 8, endY - 4.5);
  paint.lineTo(toX - 8, endY + 4.5);
  paint.fill();
}
