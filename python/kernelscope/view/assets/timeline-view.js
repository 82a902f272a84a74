/* The view of the timeline: its tools, the timeline itself, and the details of what is selected. */

import { element, show } from "./shared.js";
import { Latest, Refusal, ask } from "./requests.js";
import { note, go } from "./state.js";
import { categoryColor } from "./draw.js";
import { Timeline } from "./timeline.js";
import { Search } from "./search.js";
import { listen } from "./input.js";
import { panel, rangeDetails, sliceDetails } from "./details.js";
import { whatIfPanel } from "./what-if.js";

const NOTE_MS = 250;
const LONGEST_NAME = 256;
const STEP_MARGIN = 0.02;
/** What the address says of how tracks are shown. */
const ARRANGED = ["fold", "pins", "marks", "color", "faded", "path"];
/** Reasons of the critical path that are named beside its button. */
const MOST_REASONS = 3;

export class TimelineView {
  /** @param {any} info of /api/timeline @param {{ failed: (error: unknown) => void, help: () => void }} events */
  constructor(info, events) {
    this.events = events;
    this.timeline = new Timeline(info, { moved: () => this.moved(), failed: events.failed, arranged: () => this.noteArrangement() });
    this.search = new Search({
      from: () => this.timeline.range[0],
      goTo: (place, step) => this.pick(place.row, place, step),
      changed: (text) => this.searched(text),
      failed: events.failed,
    });
    this.key = listen(this.timeline, {
      pick: (row) => this.pick(row), choose: (start, end) => this.choose(start, end), clear: () => this.clear(),
      search: () => this.search.input.focus(), next: (forward) => this.search.step(forward), help: events.help,
    });
    this.panel = element("div", { class: "details", "aria-live": "polite" });
    this.root = element("div", { class: "timeline-view" }, element("h1", { class: "hidden", text: "Timeline", tabindex: "-1" }), this.tools(), this.timeline.root, this.panel);
    /** @type {AbortController | null} What is asked for the details. */
    this.asking = null;
    this.timer = 0;
    this.pathAsked = new Latest("path");
    this.hint();
  }

  tools() {
    const { timeline } = this;
    const button = (text, label, act) => element("button", { type: "button", text, "aria-label": label, title: label, onclick: act });
    const filter = element("input", { type: "search", placeholder: "Filter tracks", "aria-label": "Filter tracks", class: "filter", spellcheck: "false" });
    filter.addEventListener("input", () => {
      timeline.tracks.filter = /** @type {HTMLInputElement} */ (filter).value;
      timeline.tracks.place();
      note({ tracks: timeline.tracks.filter });
      timeline.draw();
    });
    this.filter = /** @type {HTMLInputElement} */ (filter);
    const colors = element("select", { "aria-label": "Colour by" }, element("option", { value: "", text: "Colour: category" }), element("option", { value: "name", text: "Colour: name" }));
    this.colors = /** @type {HTMLSelectElement} */ (colors);
    this.colors.addEventListener("change", () => {
      timeline.byName = this.colors.value === "name";
      this.noteArrangement();
      timeline.draw();
    });
    return element("div", { class: "tools" }, this.search.root,
      element("div", { class: "zooms" }, button("+", "Zoom in (W)", () => timeline.zoom(0.5)), button("−", "Zoom out (S)", () => timeline.zoom(2)),
        button("◀", "Earlier (A)", () => timeline.move(-0.4)), button("▶", "Later (D)", () => timeline.move(0.4)), button("All", "The whole trace (0)", () => timeline.showAll())),
      filter, colors, this.pathTool(), this.legend());
  }

  /** What highlights the critical path, and says what it is bound by in sight. */
  pathTool() {
    this.pathButton = element("button", { type: "button", "aria-pressed": "false", text: "Critical path", title: "Highlight the events that must be faster for the trace to end sooner" });
    this.pathButton.addEventListener("click", () => {
      this.pressPath(!this.isOnPath);
      this.noteArrangement();
    });
    this.reasons = element("span", { class: "note", role: "status" });
    const tryOut = element("button", { type: "button", text: "What if", title: "Try out what would be faster", onclick: () => { this.select({ whatif: 1 }); this.showLevers(); } });
    return element("div", { class: "path-tool" }, this.pathButton, this.reasons, tryOut);
  }

  get isOnPath() {
    return this.pathButton.getAttribute("aria-pressed") === "true";
  }

  /** @param {boolean} pressed */
  pressPath(pressed) {
    if (pressed === this.isOnPath) return;
    this.pathButton.setAttribute("aria-pressed", String(pressed));
    this.followPath();
  }

  /** Fetches the critical path where the screen is. */
  async followPath() {
    const { timeline } = this;
    if (!this.isOnPath) {
      this.pathAsked.stop();
      timeline.path = null;
      this.reasons.textContent = "";
      timeline.draw();
      return;
    }
    const [start, end] = timeline.range.map(Math.round);
    if (timeline.path === null) this.reasons.textContent = "computing …";
    try {
      const answer = await this.pathAsked.ask({ start, end, pixels: timeline.width });
      if (!answer) return;
      /** @type {Map<number, [number, number][]>} */
      const spans = new Map();
      for (const [track, from, to] of answer.spans) {
        if (!spans.has(track)) spans.set(track, []);
        spans.get(track)?.push([from, to]);
      }
      timeline.path = { rows: new Set(answer.rows), spans, arrows: answer.arrows };
      const total = answer.parts.reduce((sum, [, ns]) => sum + ns, 0);
      const named = answer.parts.slice(0, MOST_REASONS).map(([reason, ns]) => `${reason} ${show(ns / total, "share")}`);
      this.reasons.textContent = named.length ? `${named.join(", ")}${answer.parts.length > MOST_REASONS ? ", …" : ""}` : "no events here";
      timeline.draw();
    } catch (error) {
      this.events.failed(error);
    }
  }

  /** Notes folds, pins, marks, colours and what is faded. */
  noteArrangement() {
    const { timeline } = this;
    note({
      ...timeline.tracks.arrangement, marks: timeline.marked.map((range) => range.join("-")).join("."),
      color: timeline.byName ? "name" : null, path: this.isOnPath ? 1 : null, faded: [...timeline.hidden].map((place) => timeline.info.categories[place]).join("."),
    });
  }

  /** @param {Record<string, string>} values of the address */
  arrange({ fold, pins, marks = "", color, faded = "", path }) {
    const { timeline } = this;
    timeline.tracks.arrange({ fold, pins });
    timeline.marked = marks.split(".").map((range) => /** @type {[number, number]} */ (range.split("-").map(Number))).filter(([start, end]) => end > start);
    timeline.byName = color === "name";
    this.colors.value = timeline.byName ? "name" : "";
    timeline.hidden = new Set(faded.split(".").map((name) => timeline.info.categories.indexOf(name)).filter((place) => place >= 0));
    this.pressLegend();
    this.pressPath(path === "1");
  }

  pressLegend() {
    for (const [place, button] of this.keys) button.setAttribute("aria-pressed", String(!this.timeline.hidden.has(place)));
  }

  /** The categories that the trace has; a click fades one. */
  legend() {
    const { timeline } = this;
    /** @type {Map<number, HTMLElement>} */
    this.keys = new Map();
    return element("div", { class: "legend", role: "group", "aria-label": "Categories" }, ...timeline.info.present.map((name) => {
      const place = timeline.info.categories.indexOf(name);
      const key = element("i");
      key.style.background = `var(${categoryColor(name)})`;
      const button = element("button", { type: "button", "aria-pressed": "true", title: `Fade or show: ${name}` }, key, name);
      button.addEventListener("click", () => {
        if (!timeline.hidden.delete(place)) timeline.hidden.add(place);
        this.noteArrangement();
        this.pressLegend();
        timeline.draw();
      });
      this.keys.set(place, button);
      return button;
    }));
  }

  /** The address follows the zoom, without a step for Back at each pixel. */
  moved() {
    clearTimeout(this.timer);
    this.root.dataset.moved = "";
    this.timer = window.setTimeout(() => this.noteRange(), NOTE_MS);
  }

  noteRange() {
    clearTimeout(this.timer);
    delete this.root.dataset.moved;
    if (!this.root.isConnected) return;
    const [from, to] = this.timeline.range.map(Math.round);
    const whole = this.timeline.whole;
    const all = from <= whole[0] && to >= whole[1];
    note({ from: all ? null : from, to: all ? null : to });
    if (this.isOnPath) this.followPath();
  }

  /**
   * Notes what is selected; Back then shows what was there before, unless it is not a `step` of its own.
   * @param {Record<string, unknown>} values
   * @param {boolean} [step]
   */
  select(values, step = true) {
    this.noteRange();
    note({ row: null, begin: null, end: null, evidence: null, device: null, whatif: null, ...values }, step);
  }

  /**
   * Shows the details of an event, and the event.
   * @param {number} row
   * @param {any} [place] if it is known
   * @param {boolean} [step] for Back
   */
  async pick(row, place = null, step = true) {
    if (place) this.shown(place);
    this.timeline.span = null;
    this.select({ row, ...this.evidence }, step);
    await this.showSlice(row);
  }

  shown(place) {
    this.timeline.selected = place;
    this.timeline.arrows = [];
    this.timeline.goTo(place);
  }

  async showSlice(row) {
    const answer = await this.ask("details", { row });
    if (!answer) return;
    this.timeline.span = null;
    this.shown(answer.place);
    this.timeline.arrows = answer.links.filter((link) => link.arrow).map((link) => (link.arrow === "from" ? { from: link.place, to: answer.place } : { from: answer.place, to: link.place }));
    this.put(sliceDetails(answer, {
      flame: () => this.inFlame(row), pick: (other) => this.pick(other), same: (name) => this.same(name), close: () => this.clear(),
      table: (name) => go(answer.table === "gpu_ops" ? "kernels" : "operators", { search: name }),
    }));
    this.timeline.draw();
  }

  /** Shows the frame of the flame graph that an event is in. @param {number} row */
  async inFlame(row) {
    const found = await this.ask("framed", { row });
    if (found) go("flame", { by: found.by, metric: found.metric, frame: found.n });
  }

  /** Looks for all events of a name, and goes to the next. @param {string} name */
  async same(name) {
    await this.search.find(name, true);
    await this.search.step(true);
  }

  /** Selects a range, and shows what it is made of. @param {number} start @param {number} end */
  async choose(start, end) {
    const range = [Math.floor(start), Math.max(Math.ceil(end), Math.floor(start) + 1)];
    this.select({ begin: range[0], end: range[1] });
    await this.showRange(range[0], range[1]);
  }

  async showRange(start, end) {
    this.timeline.selected = null;
    this.timeline.arrows = [];
    this.timeline.span = [start, end];
    this.timeline.draw();
    const answer = await this.ask("selection", { start, end });
    if (!answer) return;
    this.put(rangeDetails(answer, {
      same: (name) => this.same(name), close: () => this.clear(),
      zoom: () => this.timeline.show(start, end),
    }));
  }

  /**
   * An answer for the details, or null if something else was asked for meanwhile or there is none.
   * @param {string} name
   * @param {Record<string, any>} parameters
   */
  async ask(name, parameters) {
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    this.panel.setAttribute("aria-busy", "true");
    try {
      return await ask(name, parameters, asking.signal);
    } catch (error) {
      if (!asking.signal.aborted) this.events.failed(error);
      return null;
    } finally {
      if (this.asking === asking) this.panel.setAttribute("aria-busy", "false");
    }
  }

  /** @param {HTMLElement} content */
  put(content) {
    this.panel.replaceChildren(content);
    // The panel takes room from the tracks: what is selected must not end up below it.
    const { selected } = this.timeline;
    if (selected?.track != null) this.timeline.scrollTo(selected.track, selected.lane ?? 0);
    this.timeline.draw();
  }

  clear() {
    this.select({});
    this.forget();
  }

  /** Shows no selection. */
  forget() {
    this.asking?.abort();
    Object.assign(this.timeline, { selected: null, arrows: [], span: null, cited: null });
    this.evidence = null;
    this.hint();
    this.timeline.draw();
  }

  hint() {
    this.panel.setAttribute("aria-busy", "false");
    this.panel.replaceChildren(element("p", { class: "note hint", text: "Click a slice for its details. Drag on the axis to select a range. Hatched areas contain several events that are too short to be drawn separately." }));
  }

  /** @param {string} text */
  searched(text) {
    // Names of marks are cut, too.
    this.timeline.wantedName = text ? text.toLowerCase().slice(0, LONGEST_NAME) : null;
    note({ find: text, exact: this.search.exact && text ? 1 : null });
    this.timeline.draw();
  }

  /** What an address says, with the range of the step that it names. @param {Record<string, string>} values */
  resolved({ step, ...values }) {
    if (step === undefined) return values;
    const found = this.timeline.info.steps.find(([number]) => number === Number(step));
    const [, start, length] = found ?? [];
    const margin = Math.ceil(length * STEP_MARGIN);
    // An event of the step is selected itself.
    const chosen = values.row === undefined ? { begin: start, end: start + length } : {};
    const range = found ? { ...chosen, from: start - margin, to: start + length + margin } : {};
    if (!found && values.row === undefined) this.events.failed(new Refusal(`This trace has no complete step ${step.slice(0, 20)}.`));
    note({ step: null, ...range });
    return { ...values, ...Object.fromEntries(Object.entries(range).map(([name, value]) => [name, String(value)])) };
  }

  /** Shows what an address says. @param {Record<string, string>} address */
  async follow(address) {
    const values = this.resolved(address);
    const { timeline } = this;
    const number = (name) => (values[name] === undefined ? null : Number(values[name]));
    const [from, to] = [number("from"), number("to")];
    if (values.tracks !== undefined || timeline.tracks.filter) {
      this.filter.value = timeline.tracks.filter = values.tracks ?? "";
      timeline.tracks.place();
    }
    // A link to an event says nothing of tracks, which then stay as they are.
    if (from !== null && to !== null && to > from) timeline.show(from, to);
    // The path is asked for where the screen is.
    if (ARRANGED.some((name) => values[name] !== undefined)) this.arrange(values);
    else this.noteArrangement();
    const find = values.find ?? "";
    const exact = values.exact === "1";
    if (find !== this.search.text || exact !== this.search.exact) await this.search.find(find, exact);
    if (values.whatif) await this.showLevers();
    if (values.evidence) await this.showEvidence(values.evidence, values.device ?? "", from !== null);
    else this.evidence = timeline.cited = null;
    const [row, begin, end] = ["row", "begin", "end"].map(number);
    if (row !== null) await this.showSlice(row);
    else if (begin !== null && end !== null) await this.showRange(begin, end);
    else if (!values.evidence && !values.whatif) this.forget();
    if (from === null && row === null && begin === null && !values.evidence) {
      timeline.showAll();
      // A name leads to the first event that has it.
      if (find) await this.search.step(true, false);
    }
    timeline.draw();
  }

  /** Highlights the events on which a finding rests. @param {string} id @param {string} device @param {boolean} stay */
  async showEvidence(id, device, stay) {
    const answer = await this.ask("evidence", { id, device });
    if (!answer) return;
    this.evidence = { evidence: id, device };
    this.timeline.span = null;
    this.timeline.selected = null;
    this.timeline.arrows = [];
    this.timeline.cited = new Set(answer.rows.map((one) => one.row));
    const list = element("ol", { class: "links" }, ...answer.rows.map((one) => element("li", {},
      element("button", { type: "button", class: "link", title: one.name, onclick: () => this.pick(one.row) }, element("bdi", { text: one.short })), ` ${show(one.length, "ns")} at ${show(one.start, "ns")}`)));
    const left = answer.cited - answer.rows.length;
    const inside = [element("section", { class: "box-part wide" }, element("p", { text: answer.evidence }), element("p", {}, element("b", { text: "Remedy: " }), answer.remedy)),
      element("section", { class: "box-part wide" }, element("h3", { text: left > 0 ? `The ${answer.rows.length} most important of ${show(answer.cited, "count")} events` : `${answer.rows.length} events` }), list)];
    this.put(panel(answer.title, answer.saving_share === null ? "" : `at most ${show(answer.saving_share, "share")} of the step time can be saved`, element("div", { class: "buttons" }), () => this.clear(), ...inside));
    if (!stay && answer.rows.length) this.timeline.goTo(answer.place);
  }

  /** Shows sliders for what could be faster. */
  async showLevers() {
    const answer = await this.ask("levers", {});
    if (!answer) return;
    this.forget();
    this.put(whatIfPanel(answer, { close: () => this.clear(), failed: this.events.failed }));
  }

  recolor() {
    this.timeline.recolor();
  }
}
