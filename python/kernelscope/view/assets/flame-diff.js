/* The flame graphs of two traces as one: as wide as the mean step after or before, red where it takes longer. */

import { element, show, themeColor } from "./shared.js";
import { Latest } from "./requests.js";
import { note } from "./state.js";
import { mixed } from "./draw.js";
import { Flame } from "./flame.js";
import { FlameTree } from "./flame-tree.js";
import { signed } from "./waterfall.js";

/** Steps of a colour: as many as can be told apart. */
const SHADES = 6;
const HEAVIEST = 12;

export class FlameDiff {
  /** @param {{ failed: (error: unknown) => void, chosen: (frame: { by: string, metric: string, n: number } | null) => void }} acts */
  constructor(acts) {
    this.acts = acts;
    this.latest = new Latest("flame");
    this.answer = null;
    this.wide = "after";
    /** @type {Map<string, string>} */
    this.palette = new Map();
    this.kind = /** @type {HTMLSelectElement} */ (element("select", { "aria-label": "Stacks of" }));
    this.kind.addEventListener("change", () => {
      const { by, metric } = this.answer.choices[Number(this.kind.value)];
      note({ by, metric, frame: null }, true);
      this.follow({ by, metric, wide: this.wide }).catch(acts.failed);
    });
    this.width = /** @type {HTMLSelectElement} */ (element("select", { "aria-label": "Width of frames" }, element("option", { value: "after", text: "Width: after" }), element("option", { value: "before", text: "Width: before" })));
    this.width.addEventListener("change", () => {
      note({ wide: this.width.value === "after" ? null : this.width.value });
      this.wide = this.width.value;
      this.build();
    });
    this.field = /** @type {HTMLInputElement} */ (element("input", { type: "search", placeholder: "Search frames", "aria-label": "Search frames", spellcheck: "false" }));
    this.said = element("span", { class: "said", role: "status" });
    this.field.addEventListener("input", () => this.search());
    this.all = element("button", { type: "button", text: "All", onclick: () => this.choose(null) });
    this.graph = element("div", { class: "graph" });
    this.table = element("div", { class: "table-holder", tabindex: "0", role: "region", "aria-label": "Frames with the largest change" });
    const key = (name, text) => {
      const color = element("i");
      color.style.background = `var(${name})`;
      return element("li", {}, color, text);
    };
    this.root = element("section", { class: "card flame-diff" }, element("h2", { text: "Flame graph of the difference" }),
      element("div", { class: "tools" }, this.kind, this.width, element("div", { class: "search", role: "search" }, this.field, this.said), this.all,
        element("ul", { class: "legend", "aria-label": "Colours" }, key("--longer", "longer in the later trace"), key("--shorter", "shorter"), key("--grid", "the same"))), this.graph, this.table);
  }

  /** @param {Record<string, string>} values of the address */
  async follow({ by = "", metric = "", frame, wide = "after" }) {
    if (!this.answer || (by && (by !== this.answer.by || metric !== this.answer.metric))) {
      const found = await this.latest.ask({ by, metric });
      if (!found) return;
      this.answer = found;
      this.wide = "";
    }
    const width = wide === "before" ? "before" : "after";
    if (width !== this.wide) {
      this.wide = this.width.value = width;
      this.build();
    }
    const at = frame === undefined || !this.tree ? -1 : this.tree.find(Number(frame));
    this.zoom(at < 0 || !this.tree?.widths[at] ? null : at);
  }

  build() {
    const { frames, choices, by, metric } = this.answer;
    this.tree = new FlameTree(frames, frames[this.wide]);
    this.most = Math.max(...frames.before.map((before, at) => Math.abs(frames.after[at] - before)), 1);
    const place = choices.findIndex((one) => one.by === by && one.metric === metric);
    this.kind.replaceChildren(...choices.map(({ title }, at) => element("option", { value: at, text: `Stacks of ${title}` })));
    this.kind.value = String(place);
    this.flame = new Flame(this.tree, `Changes of the stacks of ${choices[place]?.title ?? ""}: arrow keys move, Enter enlarges, Escape goes up`, {
      choose: (at) => this.choose(at), color: (at) => this.color(at), words: (at) => this.words(at),
    });
    this.graph.replaceChildren(this.tree.size ? this.flame.holder : element("p", { class: "note missing", text: "No event of the compared steps has time of this kind." }));
    this.table.replaceChildren(this.changes());
    this.search();
  }

  /** @param {string} name of the style sheet */
  theme(name) {
    if (!this.palette.has(name)) this.palette.set(name, themeColor(name));
    return /** @type {string} */ (this.palette.get(name));
  }

  /** Grey where nothing changed; the more it did, the redder or the bluer. @param {number} at */
  color(at) {
    const { before, after } = this.answer.frames;
    const change = (after[at] - before[at]) / this.most;
    // Differences of a hundredth are seen, too.
    const share = Math.ceil(Math.sqrt(Math.abs(change)) * SHADES) / SHADES;
    return share ? mixed(this.theme("--grid"), this.theme(change > 0 ? "--longer" : "--shorter"), share) : this.theme("--grid");
  }

  /** @param {number} at */
  words(at) {
    const { before, after } = this.answer.frames;
    const delta = after[at] - before[at];
    const share = before[at] ? ` (${delta > 0 ? "+" : delta < 0 ? "−" : ""}${show(Math.abs(delta) / before[at], "share")})` : " (new)";
    return [/** @type {FlameTree} */ (this.tree).text(at), `${show(before[at], "ns")} before, ${show(after[at], "ns")} after`, delta ? `${signed(delta)}${share}` : "no change"];
  }

  /** The frames whose own time changed most. */
  changes() {
    const { own_before: before, own_after: after } = this.answer.frames;
    const tree = /** @type {FlameTree} */ (this.tree);
    const order = before.map((_, at) => at).filter((at) => before[at] !== after[at]).sort((one, other) => Math.abs(after[other] - before[other]) - Math.abs(after[one] - before[one])).slice(0, HEAVIEST);
    const head = element("tr", {}, ...["Frame", "Own time changed by", "Before", "After"].map((text, place) => element("th", { scope: "col", class: place ? "number" : null, text })));
    const rows = order.map((at) => element("tr", {}, element("th", { scope: "row" }, element("button", { type: "button", class: "link", title: tree.text(at), onclick: () => this.choose(at) }, element("bdi", { text: tree.short(at) }))),
      ...[signed(after[at] - before[at]), show(before[at], "ns"), show(after[at], "ns")].map((text) => element("td", { class: "number", text }))));
    return element("table", { "aria-label": "Frames with the largest change of own time" }, element("thead", {}, head), element("tbody", {}, ...rows));
  }

  /** @param {number | null} at */
  choose(at) {
    const { by, metric, frames } = this.answer;
    this.acts.chosen(at === null ? null : { by, metric, n: frames.n[at] });
    this.zoom(at !== null && this.tree?.widths[at] ? at : null);
  }

  /** @param {number | null} at */
  zoom(at) {
    this.flame?.zoom(at);
    this.all.toggleAttribute("disabled", at === null);
  }

  search() {
    const text = this.field.value;
    if (!this.flame || !this.tree) return;
    const found = text ? this.tree.search(text) : null;
    this.flame.meant = found && found.meant;
    this.said.textContent = found ? (found.meant.size ? `${show(found.meant.size, "count")} ${found.meant.size === 1 ? "frame" : "frames"}` : "none") : "";
    this.flame.draw();
  }

  recolor() {
    this.palette.clear();
    this.flame?.recolor();
  }
}
