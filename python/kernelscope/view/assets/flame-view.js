/* The view of flame graphs: which stacks, the graph itself, and what is known of the frame that is chosen. */

import { element, show, themeColor } from "./shared.js";
import { Latest, ask } from "./requests.js";
import { say } from "./page.js";
import { addressOf, note } from "./state.js";
import { NAME_COLORS, categoryColor, hash } from "./draw.js";
import { Flame } from "./flame.js";
import { FlameTree } from "./flame-tree.js";

const HEAVIEST = 12;
const COLORS = { category: "Colour: category", name: "Colour: name" };

export class FlameView {
  /** @param {(error: unknown) => void} failed */
  constructor(failed) {
    this.failed = failed;
    this.latest = new Latest("flame");
    /** What is shown, as by the server. @type {any} */
    this.answer = null;
    /** @type {Flame | null} */
    this.flame = null;
    this.by = "category";
    /** @type {Map<string, string>} */
    this.palette = new Map();
    this.find = "";
    this.kind = /** @type {HTMLSelectElement} */ (element("select", { "aria-label": "Stacks of" }));
    this.kind.addEventListener("change", () => {
      const { by, metric } = this.answer.choices[Number(this.kind.value)];
      note({ by, metric, frame: null }, true);
      this.follow({ by, metric, find: this.find, color: this.by }).catch(failed);
    });
    this.colors = /** @type {HTMLSelectElement} */ (element("select", { "aria-label": "Colour by" }, ...Object.entries(COLORS).map(([value, text]) => element("option", { value, text }))));
    this.colors.addEventListener("change", () => {
      this.by = this.colors.value;
      note({ color: this.by === "category" ? null : this.by });
      this.flame?.recolor();
      this.fillLegend();
    });
    this.field = /** @type {HTMLInputElement} */ (element("input", { type: "search", placeholder: "Search frames", "aria-label": "Search frames", spellcheck: "false", autocomplete: "off" }));
    this.field.addEventListener("input", () => {
      note({ find: this.field.value || null });
      this.search(this.field.value);
    });
    this.said = element("span", { class: "said", role: "status" });
    this.all = element("button", { type: "button", text: "All", title: "All threads (Esc goes one frame up)", onclick: () => this.choose(null) });
    this.legend = element("ul", { class: "legend keys-of-colors", "aria-label": "Colours" });
    this.graph = element("div", { class: "graph" });
    this.side = element("section", { class: "frame-details", "aria-live": "polite" });
    this.notes = element("div", {});
    this.root = element("div", { class: "flame-view" }, element("h1", { class: "hidden", text: "Flame graph", tabindex: "-1" }),
      element("div", { class: "tools" }, this.kind, element("div", { class: "search", role: "search" }, this.field, this.said), this.all, this.colors, this.legend), this.notes, this.graph, this.side);
  }

  /** @param {Record<string, string>} values of the address */
  async follow({ by = "", metric = "", frame, find = "", color = "category" }) {
    const { answer } = this;
    if (!answer || (by && (by !== answer.by || metric !== answer.metric)) || (!by && answer.by !== answer.choices[0].by)) {
      const found = await this.latest.ask({ by, metric });
      if (!found) return;
      this.put(found);
    }
    this.by = this.colors.value = Object.hasOwn(COLORS, color) ? color : "category";
    this.fillLegend();
    this.field.value = find;
    this.search(find);
    const at = frame === undefined || !this.tree ? -1 : this.tree.find(Number(frame));
    this.zoom(at < 0 ? null : at);
    if (frame !== undefined && at < 0) say("This frame is too small to be drawn and is part of the omitted frames.");
  }

  /** @param {any} answer of /api/flame */
  put(answer) {
    this.answer = answer;
    this.tree = new FlameTree(answer.frames);
    this.kind.replaceChildren(...answer.choices.map(({ title }, place) => element("option", { value: place, text: `Stacks of ${title}` })));
    const chosen = answer.choices.findIndex(({ by, metric }) => by === answer.by && metric === answer.metric);
    this.kind.value = String(chosen);
    const title = answer.choices[chosen]?.title ?? "";
    this.flame = new Flame(this.tree, `Flame graph of ${title}: arrow keys move, Enter enlarges, Escape goes up`, {
      choose: (at) => this.choose(at), color: (at) => this.color(at), words: (at) => this.words(at),
    });
    const left = [
      answer.left ? `${show(answer.left, "count")} small frames are omitted.` : "",
      answer.left_ns ? `${show(answer.left_ns, "ns")} of small stacks are not drawn.` : "",
    ].filter(Boolean).join(" ");
    this.notes.replaceChildren(...[...(this.tree.size ? [] : ["No event of the trace has time of this kind."]), ...answer.notes].map((text) => element("p", { class: "note missing", text })), ...(left ? [element("p", { class: "note", text: left })] : []));
    this.graph.replaceChildren(...(this.tree.size ? [this.flame.holder] : []));
  }

  fillLegend() {
    const names = this.by === "category" && this.tree ? [...new Set(this.tree.frames.category)].filter((name) => name !== "thread") : [];
    this.legend.replaceChildren(...names.map((name) => {
      const key = element("i");
      key.style.background = `var(${categoryColor(name)})`;
      return element("li", {}, key, name);
    }));
  }

  /** @param {number} at */
  color(at) {
    const tree = /** @type {FlameTree} */ (this.tree);
    const category = tree.frames.category[at];
    const name = this.by === "name" && category !== "thread" ? `--c${hash(tree.text(at)) % NAME_COLORS}` : categoryColor(category);
    // The style sheet is asked once for each, and not for each frame.
    if (!this.palette.has(name)) this.palette.set(name, themeColor(name));
    return /** @type {string} */ (this.palette.get(name));
  }

  /** What is said of a frame. @param {number} at */
  words(at) {
    const tree = /** @type {FlameTree} */ (this.tree);
    const { total, own, calls, category } = tree.frames;
    const share = show(total[at] / Math.max(total[tree.rootOf(at)], 1), "share");
    const called = calls[at] === null ? "" : `, ${show(calls[at], "count")} ${calls[at] === 1 ? "event" : "events"}`;
    return [tree.text(at), `${category[at]}: ${show(total[at], "ns")}, ${share} of the thread`, `${show(own[at], "ns")} of its own${called}`];
  }

  /** Enlarges a frame; Back goes back. @param {number | null} at */
  choose(at) {
    const { by, metric } = this.answer;
    note({ by, metric, frame: at === null ? null : this.answer.frames.n[at] }, true);
    this.zoom(at);
  }

  /** @param {number | null} at */
  zoom(at) {
    this.flame?.zoom(at);
    this.all.toggleAttribute("disabled", at === null);
    this.describe(at);
  }

  /** @param {string} text */
  search(text) {
    this.find = text;
    if (!this.flame || !this.tree) return;
    const found = text ? this.tree.search(text) : null;
    this.flame.meant = found && found.meant;
    const whole = this.tree.roots.reduce((sum, root) => sum + this.tree.widths[root], 0);
    this.said.textContent = found ? (found.meant.size ? `${show(found.meant.size, "count")} ${found.meant.size === 1 ? "frame" : "frames"}, ${show(found.width / Math.max(whole, 1), "share")}` : "none") : "";
    this.flame.draw();
  }

  /** What is known of the chosen frame, and what takes the time in it. @param {number | null} at */
  describe(at) {
    const tree = /** @type {FlameTree} */ (this.tree);
    const head = at === null ? [element("h2", { text: "All threads" })] : [element("h2", {}, element("bdi", { text: tree.text(at), title: tree.text(at) })), ...this.words(at).slice(1).map((text) => element("p", { class: "note", text }))];
    const links = element("p", { class: "occurrences" });
    this.side.replaceChildren(...head, links, this.table(at));
    if (at !== null && tree.frames.category[at] !== "thread") this.fillLinks(at, links).catch(this.failed);
  }

  /** @param {number} at @param {HTMLElement} links */
  async fillLinks(at, links) {
    const { by, metric } = this.answer;
    links.setAttribute("aria-busy", "true");
    const { first, longest } = await ask("frame", { by, metric, n: this.answer.frames.n[at] });
    const link = (text, place) => element("a", { class: "button", href: addressOf("timeline", { row: place.row }), text });
    links.replaceChildren(...(first ? [link("First in the timeline", first), " ", link("Longest", longest), ` ${show(longest.length, "ns")}`] : ["The timeline has no single event for it."]));
    links.setAttribute("aria-busy", "false");
  }

  /** @param {number | null} at */
  table(at) {
    const tree = /** @type {FlameTree} */ (this.tree);
    const whole = at === null ? tree.roots.reduce((sum, root) => sum + tree.frames.total[root], 0) : tree.frames.total[at];
    const head = element("tr", {}, ...["Frame", "Own time", "Share"].map((text, place) => element("th", { scope: "col", class: place ? "number" : null, text })));
    const rows = tree.heaviest(at, HEAVIEST).map((one) => element("tr", {},
      element("th", { scope: "row" }, element("button", { type: "button", class: "link", title: tree.text(one.at), onclick: () => this.choose(one.at) }, element("bdi", { text: tree.short(one.at) }))),
      element("td", { class: "number", text: show(one.own, "ns") }), element("td", { class: "number", text: show(one.own / Math.max(whole, 1), "share") })));
    return element("div", { class: "table-holder", tabindex: "0", role: "region", "aria-label": "Frames with the most time" }, element("table", { "aria-label": "Own time by name" }, element("thead", {}, head), element("tbody", {}, ...rows)));
  }

  recolor() {
    this.palette.clear();
    this.flame?.recolor();
  }
}
