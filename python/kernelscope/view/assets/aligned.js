/* Two timelines on one axis that counts from a step of each: they zoom and move together. */

import { element, show } from "./shared.js";
import { note } from "./state.js";
import { listen } from "./input.js";
import { Timeline } from "./timeline.js";

const NOTE_MS = 250;
const SIDES = ["before", "after"];
const STEP_MARGIN = 0.02;
/** How much of the screen both events have that a row leads to. */
const SHARE = 0.3;
const SHORTEST = 100;

/** @typedef {import("./timeline.js").Place} Place */
/**
 * @typedef {{ names: string[], failed: (error: unknown) => void, pick: (side: number, row: number) => void,
 *   clear: () => void, stepped: (places: number[]) => void }} Acts
 */

export class Aligned {
  /** @param {any[]} sides with `info` of /api/timeline, `steps` and `first` @param {Acts} acts */
  constructor(sides, acts) {
    this.sides = sides;
    this.acts = acts;
    this.places = sides.map((side) => side.first);
    this.busy = false;
    this.timer = 0;
    this.timelines = sides.map((side, number) => new Timeline(side.info, { moved: () => this.moved(number), failed: acts.failed }, `${number}/`));
    this.keys = this.timelines.map((timeline, number) => listen(timeline, {
      pick: (row) => acts.pick(number, row), choose: (start, end) => this.choose(number, start, end), clear: acts.clear,
      search: () => {}, next: () => {}, help: () => {},
    }));
    this.timelines.forEach((timeline, number) => {
      // The times of day of two recordings have nothing in common.
      timeline.epoch = null;
      timeline.scroller.setAttribute("aria-label", `Timeline ${SIDES[number]}: W and S zoom, A and D move`);
    });
    this.choices = sides.map((side, number) => this.choice(side, number));
    const button = (text, label, act) => element("button", { type: "button", text, "aria-label": label, title: label, onclick: act });
    const [first] = this.timelines;
    this.root = element("section", { class: "aligned", "aria-label": "Both timelines" },
      element("div", { class: "tools" }, ...this.choices.map((choice, number) => element("label", {}, `Step ${SIDES[number]} `, choice)),
        element("div", { class: "zooms" }, button("+", "Zoom in (W)", () => first.zoom(0.5)), button("−", "Zoom out (S)", () => first.zoom(2)),
          button("◀", "Earlier (A)", () => first.move(-0.4)), button("▶", "Later (D)", () => first.move(0.4)),
          button("Steps", "Both steps", () => this.showSteps()), button("All", "Both traces (0)", () => first.showAll()))),
      ...this.timelines.map((timeline, number) => element("div", { class: "side" }, element("h2", {}, `${number ? "After" : "Before"}: `, element("bdi", { text: acts.names[number] })), timeline.root)));
    this.align();
  }

  choice(side, number) {
    const label = ([step, , length], place) => `${step === null ? `period ${place + 1}` : step}, ${show(length, "ns")}`;
    const choice = /** @type {HTMLSelectElement} */ (element("select", { "aria-label": `Step ${SIDES[number]}` }, ...side.steps.map((step, place) => element("option", { value: place, text: label(step, place) }))));
    choice.value = String(this.places[number]);
    choice.addEventListener("change", () => {
      this.places[number] = Number(choice.value);
      note({ a: this.places[0], b: this.places[1] }, true);
      this.align();
      this.showSteps();
      this.acts.stepped(this.places);
    });
    return choice;
  }

  /** The chosen step of a side: its start and its length. @param {number} number @returns {[number, number]} */
  step(number) {
    const [, start, length] = this.sides[number].steps[this.places[number]];
    return [start, length];
  }

  /** Has both axes count from the chosen steps, and reach as far as either trace does. */
  align() {
    const zeros = this.timelines.map((_, number) => this.step(number)[0]);
    const from = Math.min(...this.timelines.map(({ whole }, number) => whole[0] - zeros[number]));
    const to = Math.max(...this.timelines.map(({ whole }, number) => whole[1] - zeros[number]));
    this.timelines.forEach((timeline, number) => {
      timeline.zero = zeros[number];
      timeline.bounds = [from + zeros[number], to + zeros[number]];
    });
  }

  /** @param {number} from since the steps began @param {number} to */
  show(from, to) {
    const [first] = this.timelines;
    first.show(from + first.zero, to + first.zero);
  }

  showSteps() {
    const longest = Math.max(...this.timelines.map((_, number) => this.step(number)[1]), 1);
    this.show(-STEP_MARGIN * longest, (1 + STEP_MARGIN) * longest);
  }

  /** The other timeline follows. @param {number} number */
  moved(number) {
    if (this.busy) return;
    const moved = this.timelines[number];
    const other = this.timelines[1 - number];
    this.busy = true;
    other.show(...this.shifted(moved.range, moved, other));
    this.busy = false;
    clearTimeout(this.timer);
    this.root.dataset.moved = "";
    this.timer = window.setTimeout(() => {
      delete this.root.dataset.moved;
      const [from, to] = moved.range.map((time) => Math.round(time - moved.zero));
      note({ a: this.places[0], b: this.places[1], from, to });
    }, NOTE_MS);
  }

  /** A range of one timeline in the other's time. @returns {[number, number]} */
  shifted([start, end], from, to) {
    return [start - from.zero + to.zero, end - from.zero + to.zero];
  }

  /** Marks a range in both. */
  choose(number, start, end) {
    const own = this.timelines[number];
    for (const timeline of this.timelines) {
      timeline.span = this.shifted([start, end], own, timeline);
      timeline.draw();
    }
  }

  /** Frames an event on each side, and goes to where both are seen. @param {(Place | null)[]} places */
  select(places) {
    this.timelines.forEach((timeline, number) => {
      const place = places[number];
      timeline.selected = place;
      timeline.span = null;
      if (place && place.track !== null) {
        timeline.tracks.open(place.track, place.lane ?? 0);
        timeline.scrollTo(place.track, place.lane ?? 0);
      }
      timeline.draw();
    });
    const found = places.flatMap((place, number) => (place ? [[place.start - this.timelines[number].zero, place.length]] : []));
    if (!found.length) return;
    const from = Math.min(...found.map(([start]) => start));
    const to = Math.max(...found.map(([start, length]) => start + length));
    const [{ range, zero }] = this.timelines;
    const wide = range[1] - range[0];
    if (from + zero >= range[0] && to + zero <= range[1] && (to - from) / wide > SHARE / 3) return;
    const length = Math.max((to - from) / SHARE, SHORTEST);
    const middle = (from + to) / 2;
    this.show(middle - length / 2, middle + length / 2);
  }

  /** Shows what an address says. @param {Record<string, string>} values */
  follow({ a, b, from, to, change }) {
    [a, b].forEach((value, number) => {
      const { steps, first } = this.sides[number];
      // A row of a table names no steps: it is looked for in those that are shown.
      const place = value !== undefined ? Number(value) : change === undefined ? first : this.places[number];
      this.places[number] = place in steps ? place : first;
      this.choices[number].value = String(this.places[number]);
    });
    this.align();
    if (from !== undefined && to !== undefined && Number(to) > Number(from)) this.show(Number(from), Number(to));
    else this.showSteps();
  }

  /** A key is for the timeline that has the keyboard; the other follows. @param {KeyboardEvent} event */
  key(event) {
    const number = this.timelines.findIndex((timeline) => timeline.root.contains(/** @type {Node} */ (event.target)));
    if (event.key !== "Enter" && event.key !== " ") this.keys[Math.max(number, 0)](event);
  }

  recolor() {
    for (const timeline of this.timelines) timeline.recolor();
  }
}
