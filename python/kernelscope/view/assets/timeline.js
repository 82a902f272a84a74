/* The timeline: what it shows of the trace, and how it is put on the screen. */

import { element, show } from "./shared.js";
import { AXIS_HEIGHT, MINIMAP_HEIGHT, busyShares, dayOf, drawAxis, drawMinimap, drawSteps } from "./axis.js";
import { drawSoon, prepared } from "./canvas.js";
import { Palette, drawArrow, drawFrame, drawLane } from "./draw.js";
import { LANE, Tracks, labels } from "./tracks.js";
import { Windows } from "./windows.js";
import { markAt } from "./marks.js";

/** @typedef {import("./marks.js").Marks} Marks */
/**
 * @typedef {{ row: number, start: number, length: number, track: number | null, lane: number | null, name: string }} Place
 */

const SHORTEST = 20;
const LOOK_AHEAD = 400;
const MINIMAP_TRACKS = 64;
const REACH = 3;
/** How much of the screen a slice has that is gone to. */
const SLICE_SHARE = 0.12;

export class Timeline {
  /**
   * @param {any} info the answer of /api/timeline
   * @param {{ moved: () => void, failed: (error: unknown) => void, arranged?: () => void }} events
   * @param {string} [at] where the trace is, as of `ask`
   */
  constructor(info, events, at = "") {
    this.info = info;
    this.events = events;
    /** @type {[number, number]} */
    this.whole = [info.start, Math.max(info.end, info.start + 1)];
    /** @type {[number, number]} */
    this.range = [...this.whole];
    /** What can be shown: more than the whole where another timeline shows more. @type {[number, number]} */
    this.bounds = this.whole;
    /** From where on the axis counts. */
    this.zero = 0;
    this.epoch = info.epoch === null ? null : BigInt(info.epoch);
    this.tracks = new Tracks(info.tracks);
    this.windows = new Windows(this.whole, () => this.draw(), (error) => this.failed(error), at);
    /** @type {Place | null} */
    this.selected = null;
    /** @type {{ from: Place, to: Place }[]} */
    this.arrows = [];
    /** @type {[number, number] | null} */
    this.span = null;
    /** @type {[number, number][]} */
    this.marked = [];
    /** @type {Set<number> | null} Rows of the evidence that is shown. */
    this.cited = null;
    /** @type {import("./draw.js").Path | null} The critical path where the screen is, if it is shown. */
    this.path = null;
    /** @type {Set<number>} */
    this.hidden = new Set();
    this.byName = false;
    /** @type {string | null} What names are looked for, in small letters. */
    this.wantedName = null;
    /** @type {number[]} */
    this.busy = [];
    this.hasMinimap = false;
    /** Is called when the screen shows something else. */
    this.drawn = () => {};
    this.build();
    this.fetchMinimap();
  }

  build() {
    const canvas = (name, label) => /** @type {HTMLCanvasElement} */ (element("canvas", { class: name, role: "img", "aria-label": label }));
    this.minimap = canvas("minimap", "GPU utilisation over the whole trace, and the visible part");
    this.axis = canvas("axis", "Time");
    this.canvas = canvas("marks", "Timeline of streams and threads");
    this.day = element("div", { class: "day" });
    this.gutter = element("div", { class: "gutter" });
    this.spacer = element("div", { class: "spacer" }, this.canvas, this.gutter);
    this.scroller = element("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Timeline: W and S zoom, A and D move, ? lists all keys" }, this.spacer);
    this.tip = element("div", { class: "tip", hidden: true });
    this.root = element("div", { class: "timeline", "aria-busy": "true" }, element("div", { class: "head-row" }, element("div", { class: "corner", text: "" }), this.minimap),
      element("div", { class: "head-row" }, this.day, this.axis), this.scroller, this.tip);
    this.scroller.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.scroller);
  }

  async fetchMinimap() {
    const streams = this.info.tracks.filter((track) => track.kind === "stream");
    const shown = (streams.length ? streams : this.info.tracks).slice(0, MINIMAP_TRACKS);
    try {
      const pixels = 600;
      const marks = await this.windows.overview(pixels, shown.map((track) => track.track));
      this.busy = busyShares(marks, this.whole, pixels);
      this.draw();
    } catch (error) {
      this.failed(error);
    } finally {
      this.hasMinimap = true;
    }
  }

  /** What is not there does not come any more. @param {unknown} error */
  failed(error) {
    this.root.setAttribute("aria-busy", "false");
    this.events.failed(error);
  }

  /** Pixels for time, beside the labels. */
  get width() {
    return Math.max(this.canvas.clientWidth, 1);
  }

  /** @param {number} x from the left edge of the axis */
  timeAt(x) {
    return this.range[0] + (x / this.width) * (this.range[1] - this.range[0]);
  }

  /** Shows a range of time. @param {number} start @param {number} end */
  show(start, end) {
    const [first, last] = this.bounds;
    const whole = last - first;
    const length = Math.min(Math.max(end - start, Math.min(SHORTEST, whole)), whole * 1.02);
    const middle = (start + end) / 2;
    const slack = whole * 0.01;
    const from = Math.min(Math.max(middle - length / 2, first - slack), last + slack - length);
    this.range = [from, from + length];
    this.events.moved();
    this.draw();
  }

  showAll() {
    this.show(...this.bounds);
  }

  /** @param {number} factor below 1 to see less @param {number} [at] share of the screen that stays */
  zoom(factor, at = 0.5) {
    const [start, end] = this.range;
    const fixed = start + (end - start) * at;
    const least = Math.min(SHORTEST, this.bounds[1] - this.bounds[0]) / (end - start);
    const used = Math.max(factor, least);
    this.show(fixed - (fixed - start) * used, fixed + (end - fixed) * used);
  }

  /** @param {number} share of the screen */
  move(share) {
    const step = (this.range[1] - this.range[0]) * share;
    this.show(this.range[0] + step, this.range[1] + step);
  }

  /** Goes to a slice, so near that it is seen. @param {Place} place @param {boolean} [near] even if it is in sight */
  goTo(place, near = false) {
    if (place.track !== null) {
      this.tracks.open(place.track, place.lane ?? 0);
      this.scrollTo(place.track, place.lane ?? 0);
    }
    const [start, end] = this.range;
    const wide = (place.length / (end - start)) * this.width;
    const inside = place.start >= start && place.start + place.length <= end;
    if (inside && wide > 8 && !near) return this.draw();
    const length = wide > 8 && wide < this.width * 0.8 && !near ? end - start : Math.max(place.length / SLICE_SHARE, SHORTEST);
    const middle = place.start + place.length / 2;
    return this.show(middle - length / 2, middle + length / 2);
  }

  /** @param {number} track @param {number} lane */
  scrollTo(track, lane) {
    const row = this.tracks.rowOf(track);
    if (!row) return;
    this.spacer.style.height = `${this.tracks.height}px`;
    const y = row.top + lane * LANE;
    const { scrollTop, clientHeight } = this.scroller;
    if (y < scrollTop || y + LANE > scrollTop + clientHeight) this.scroller.scrollTop = Math.max(y - clientHeight / 3, 0);
  }

  /** @param {string | number} what */
  toggle(what) {
    this.tracks.toggle(what);
    this.events.arranged?.();
    this.draw();
  }

  /** @param {number} track */
  pin(track) {
    this.tracks.pin(track);
    this.events.arranged?.();
    this.draw();
  }

  /** What is drawn at a place of the scroller; null where there is nothing. @param {number} x @param {number} y */
  at(x, y) {
    const found = this.tracks.at(y + this.scroller.scrollTop);
    const time = this.timeAt(x);
    if (!found) return null;
    const reach = (REACH * (this.range[1] - this.range[0])) / this.width;
    for (const [marks, from, to] of this.windows.parts(this.range[0], this.range[1], found.track.track)) {
      if (time < from || time > to) continue;
      const index = markAt(marks, found.track.track, found.lane, time, reach);
      if (index >= 0) return { marks, index, ...found };
    }
    return null;
  }

  /** What stands beside the pointer. @param {{ marks: Marks, index: number }} found */
  static words({ marks, index }, categories) {
    const name = marks.name[index];
    const text = name === null ? "(no name)" : marks.names[name];
    const events = marks.events[index];
    const length = show(marks.lengths[index], "ns");
    const kind = categories[marks.category[index]];
    return events === 1 ? [text, `${kind}, ${length}`] : [`${events.toLocaleString("en-US")} events in ${length}`, `busy ${marks.busy[index]} %, mostly ${text}`];
  }

  draw() {
    drawSoon(this);
  }

  recolor() {
    this.palette = null;
    this.draw();
  }

  drawNow() {
    const { width, scroller, tracks, range } = this;
    const height = scroller.clientHeight;
    if (!height || width < 2) return;
    this.palette ??= new Palette(this.info.categories);
    const palette = this.palette;
    this.spacer.style.height = `${Math.max(tracks.height, height)}px`;
    const top = scroller.scrollTop;
    const rows = tracks.between(top, top + height);
    this.drawLabels(rows);
    const paint = prepared(this.canvas, width, height);
    paint.save();
    paint.beginPath();
    paint.rect(0, 0, width, height);
    paint.clip();
    this.drawSpans(paint, palette, height);
    const look = {
      paint, palette, from: range[0], to: range[1], width, byName: this.byName, hidden: this.hidden, rows: this.cited, name: this.wantedName,
      path: this.path, spans: [],
    };
    for (const row of rows) this.drawRow(look, row, top);
    this.drawSelection(look, top);
    paint.restore();
    drawAxis(this.preparedAxis(width), palette, [range[0] - this.zero, range[1] - this.zero], width, this.epoch);
    drawSteps(/** @type {CanvasRenderingContext2D} */ (this.axis.getContext("2d")), palette, range, width, this.info.steps);
    this.axis.setAttribute("aria-label", `Time from ${show(Math.round(range[0] - this.zero), "ns")} to ${show(Math.round(range[1] - this.zero), "ns")}`);
    this.day.textContent = dayOf(range[0], this.epoch);
    drawMinimap(prepared(this.minimap, width, MINIMAP_HEIGHT), palette, this.busy, this.whole, range, width);
    const near = tracks.between(top - LOOK_AHEAD, top + height + LOOK_AHEAD).flatMap((row) => (row.track ? [row.track.track] : []));
    const lacking = this.windows.want(range[0], range[1], width, near);
    this.root.setAttribute("aria-busy", String(lacking || !this.hasMinimap));
    this.drawn();
  }

  /** Made anew only where they change: who points at one, or has the keyboard on it, stays there. */
  drawLabels(rows) {
    const key = JSON.stringify(rows.map((row) => [row.track?.track ?? row.group, row.top, row.height, this.tracks.pinned.has(row.track?.track ?? -1)]));
    if (key === this.labelled) return;
    this.labelled = key;
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset?.row;
    this.gutter.replaceChildren(...labels(this.tracks, rows, (what) => this.toggle(what), (track) => this.pin(track)));
    if (focused) /** @type {HTMLElement | null} */ (this.gutter.querySelector(`[data-row="${CSS.escape(focused)}"]`))?.focus({ preventScroll: true });
  }

  preparedAxis(width) {
    return prepared(this.axis, width, AXIS_HEIGHT);
  }

  /** @param {import("./draw.js").Look} look @param {import("./tracks.js").Row} row @param {number} top */
  drawRow(look, row, top) {
    const { paint, palette, width } = look;
    if (!row.track) {
      paint.fillStyle = palette.grid;
      paint.fillRect(0, row.top - top, width, row.height - 3);
      return;
    }
    look.spans = look.path?.spans.get(row.track.track) ?? [];
    for (const [marks, from, to] of this.windows.parts(look.from, look.to, row.track.track)) {
      const lanes = marks.lanes.get(row.track.track) ?? [];
      for (let lane = 0; lane < Math.min(lanes.length, row.lanes); lane += 1) {
        if (lanes[lane]) drawLane(look, marks, lanes[lane], row.top - top + lane * LANE, from, to);
      }
    }
  }

  /** The selected range, and those that were marked. */
  drawSpans(paint, palette, height) {
    const scale = this.width / (this.range[1] - this.range[0]);
    for (const [span, alpha] of [...this.marked.map((one) => [one, 0.1]), ...(this.span ? [[this.span, 0.2]] : [])]) {
      const x = (span[0] - this.range[0]) * scale;
      const wide = Math.max((span[1] - span[0]) * scale, 1);
      paint.globalAlpha = alpha;
      paint.fillStyle = palette.accent;
      paint.fillRect(x, 0, wide, height);
      paint.globalAlpha = 0.9;
      paint.fillRect(x, 0, 1, height);
      paint.fillRect(x + wide, 0, 1, height);
    }
    paint.globalAlpha = 1;
  }

  /** @param {import("./draw.js").Look} look @param {number} top */
  drawSelection(look, top) {
    const yOf = (place) => {
      const row = place.track === null ? null : this.tracks.rowOf(place.track);
      return row && (place.lane ?? 0) < row.lanes ? row.top - top + (place.lane ?? 0) * LANE : null;
    };
    for (const { from, to } of [...this.arrows, ...(this.path?.arrows ?? [])]) {
      const [fromY, toY] = [yOf(from), yOf(to)];
      if (fromY !== null && toY !== null) drawArrow(look, [from.start, fromY + LANE / 2], [to.start, toY + LANE / 2]);
    }
    if (!this.selected) return;
    const y = yOf(this.selected);
    if (y !== null) drawFrame(look, this.selected.start, this.selected.length, y);
  }
}
