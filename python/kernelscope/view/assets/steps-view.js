/* The ranks of a lake step by step: a heat map, and the same as a table. */

import { counted, element, show } from "./shared.js";
import { Latest, ask } from "./requests.js";
import { addressOf, note } from "./state.js";
import { HeatMap, heatLegend, roomFor } from "./heat-map.js";
import { RowTable } from "./row-table.js";
import { signed } from "./waterfall.js";

const WAIT_MS = 150;

export class StepsView {
  /** @param {any} known of /api/cluster @param {HTMLElement | null} runs @param {(error: unknown) => void} failed */
  constructor(known, runs, failed) {
    this.known = known;
    this.failed = failed;
    this.latest = new Latest("heat");
    /** What the map shows now. */
    this.value = "";
    this.room = "";
    this.timer = 0;
    this.map = new HeatMap("Steps of all ranks: arrow keys move, Enter opens the rank at the step", { open: (at) => { this.open(at).catch(failed); }, words: (at) => this.words(at) });
    this.choice = /** @type {HTMLSelectElement} */ (element("select", { "aria-label": "Value of a cell" }, ...known.values.map(([key, title]) => element("option", { value: key, text: title }))));
    this.choice.addEventListener("change", () => {
      note({ value: this.choice.value }, true);
      this.load(this.choice.value).catch(failed);
    });
    this.what = element("p", { class: "note" });
    this.legend = element("div", {});
    const nothing = element("p", { class: "note missing", text: "No step is recorded completely in any rank: mark steps with torch.profiler.profile(schedule=...)." });
    const inside = known.steps ? [this.what, this.map.holder, this.legend] : [nothing];
    this.table = new RowTable("steps", { ...known.tables.cells, asked: { run: known.run } }, failed);
    this.root = element("div", { class: "report choose" }, element("h1", { text: "Ranks and steps", tabindex: "-1" }),
      element("section", { class: "card" }, element("div", { class: "card-head" }, element("h2", { text: `${counted(known.ranks, "rank")}, ${counted(known.steps, "step")}` }), runs, element("label", {}, "Colour by ", this.choice)), ...inside),
      ...(known.steps ? [this.table.root] : []));
    new ResizeObserver(() => this.resized()).observe(this.map.holder);
  }

  /** Asks for other cells where there is room for more, or for fewer. */
  resized() {
    if (!this.value || !this.map.holder.clientWidth || this.room === this.fitting()) return;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.load(this.value).catch(this.failed), WAIT_MS);
  }

  fitting() {
    const { down, across } = roomFor(this.map.holder.clientWidth);
    return `${down} ${across}`;
  }

  /** @param {string} value */
  async load(value) {
    this.room = this.fitting();
    const answer = await this.latest.ask({ run: this.known.run, value, ...roomFor(this.map.holder.clientWidth) });
    if (!answer) return;
    this.value = this.choice.value = value;
    const { ranks, steps } = answer;
    const [, title, what] = this.known.values.find(([key]) => key === value);
    const shared = ranks.together > 1 || steps.together > 1 ? ` There are more cells than fit: each is the longest of up to ${counted(ranks.together, "rank")} and ${counted(steps.together, "step")}, and hatched.` : "";
    this.what.textContent = `${title}: ${what} One row per rank, one column per step; click a cell to open the rank at the step.${shared}`;
    this.legend.replaceChildren(heatLegend(answer.scale));
    this.map.show(answer);
  }

  /** What is said of a cell. @param {number} at @returns {string[]} */
  words(at) {
    const { cells, ranks, steps } = /** @type {any} */ (this.map.answer);
    const [value, median, cause] = [cells.value_ns[at], cells.median_ns[at], cells.cause[at]];
    const title = this.known.values.find(([key]) => key === this.value)?.[1] ?? "";
    const share = median && value !== median ? ` (${value > median ? "+" : "−"}${show(Math.abs(value - median) / median, "share")})` : "";
    const apart = value === median ? "the median of the step" : `${signed(value - median)}${share} from the median of the step, ${show(median, "ns")}`;
    const shared = ranks.together > 1 || steps.together > 1 ? ["the longest of several cells"] : [];
    return [`Rank ${cells.rank[at]}, step ${cells.step[at]}`, `${title} ${show(value, "ns")}`, apart, ...(cause ? [`straggles: ${cause}`] : []), ...shared];
  }

  /** Opens the rank of a cell at its step. @param {number} at */
  async open(at) {
    const { cells } = /** @type {any} */ (this.map.answer);
    const [rank, step] = [cells.rank[at], cells.step[at]];
    const found = await ask("opening", { run: this.known.run, rank, step });
    // Who comes back finds the cell again.
    note({ rank, step });
    location.href = `${found.open}/${addressOf("timeline", { step })}`;
  }

  /** @param {Record<string, string>} values of the address */
  async follow(values) {
    if (!this.known.steps) return;
    const value = this.known.values.some(([key]) => key === values.value) ? values.value : this.known.values[0][0];
    await Promise.all([value === this.value ? null : this.load(value), this.table.follow(values)]);
    if (values.rank !== undefined && values.step !== undefined) this.map.find(Number(values.rank), Number(values.step));
  }

  recolor() {
    this.map.draw();
  }
}
