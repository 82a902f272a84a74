/* The critical path over the ranks of a lake: on which rank it is during a step, and why. */

import { element, show, stepOptions } from "./shared.js";
import { Latest } from "./requests.js";
import { addressOf, note } from "./state.js";
import { Lanes, lane, placed } from "./lanes.js";

export class PathView {
  /** @param {any} known of /api/cluster @param {HTMLElement | null} runs @param {(error: unknown) => void} failed */
  constructor(known, runs, failed) {
    this.known = known;
    this.latest = new Latest("rank_path");
    /** @type {any} */
    this.answer = null;
    this.asked = "";
    this.steps = /** @type {HTMLSelectElement} */ (element("select", { "aria-label": "Step" }));
    this.steps.addEventListener("change", () => {
      note({ step: this.steps.value }, true);
      this.load(this.steps.value).catch(failed);
    });
    this.said = element("p", { role: "status", text: "Reading the ranks for their critical path." });
    this.legend = element("ul", { class: "legend", "aria-label": "Reasons" });
    this.lanes = new Lanes("Ranks on the critical path", "On one clock", ["Rank", "On the path", "Share"]);
    const what = "Events that must be faster for the step to end sooner. Where ranks meet in a collective, the path moves to the rank that arrived last. Click a bar to open the rank at the event.";
    this.root = element("div", { class: "report choose" }, element("h1", { text: "Critical path", tabindex: "-1" }),
      element("section", { class: "card collective" }, element("div", { class: "card-head" }, element("h2", { text: "From rank to rank" }), runs, element("label", {}, "Step ", this.steps)), element("p", { class: "note", text: what }), this.said, this.legend, this.lanes.root));
  }

  /** @param {Record<string, string>} values of the address */
  async follow(values) {
    const step = values.step ?? "";
    if (!this.answer || step !== this.asked) await this.load(step);
  }

  /** @param {string} step its number, or nothing for the longest */
  async load(step) {
    const answer = await this.latest.ask({ run: this.known.run, ...(step ? { step } : {}) });
    if (!answer) return;
    this.answer = answer;
    this.asked = step;
    const { length, parts, ranks, steps } = answer;
    this.steps.replaceChildren(...stepOptions(steps));
    this.steps.value = answer.step ?? "";
    const named = parts.slice(0, 3).map(([reason, ns]) => `${reason} ${show(ns / length, "share")}`);
    this.said.textContent = `${answer.step === null ? "All steps take" : `Step ${answer.step} takes`} ${show(length, "ns")}: ${named.join(", ")}${parts.length > 3 ? " …" : "."}`;
    this.legend.replaceChildren(...parts.map(([reason]) => element("li", {}, element("i", { "data-reason": reason }), reason)));
    this.lanes.time(length);
    this.lanes.rows.replaceChildren(...ranks.map((rank) => this.row(rank)));
  }

  /** The time in which the path is on a rank. @param {{ rank: number, ns: number, open: number | null }} of */
  row({ rank, ns, open }) {
    const { bars, length, step } = this.answer;
    const own = bars.rank.flatMap((other, at) => (other === rank ? [at] : []));
    const made = own.map((at) => {
      const title = `${bars.reason[at]}: ${show(bars.length[at], "ns")} at ${show(bars.start[at], "ns")}`;
      const event = bars.row[at] === null ? {} : { row: bars.row[at] };
      const bar = open === null ? element("i", { "data-reason": bars.reason[at], title }) : element("a", { "data-reason": bars.reason[at], title, tabindex: "-1", href: `${open}/${addressOf("timeline", { ...event, step, path: 1 })}` });
      return placed(bar, bars.start[at], bars.length[at], length);
    });
    const title = `Open rank ${rank} at the step`;
    const name = open === null ? element("span", { text: `${rank}` }) : element("a", { href: `${open}/${addressOf("timeline", { step, path: 1 })}`, title, text: `${rank}` });
    return lane(name, element("span", { class: "bars" }, ...made), [show(ns, "ns"), show(ns / length, "share")]);
  }

  recolor() {}
}
