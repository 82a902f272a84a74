/* How the ranks of a job divide the work: the place of each in each dimension of parallelism. */

import { element, show } from "./shared.js";
import { Latest } from "./requests.js";
import { Lanes, lane, placed } from "./lanes.js";
import { RowTable } from "./row-table.js";
import { tickStep } from "./ticks.js";

const NAMES = { tp: "tensor", cp: "context", ep: "expert", dp: "data", fsdp: "sharded data", pp: "pipeline" };
const MARKS = 8;

export class LayoutView {
  /** @param {any} known of /api/cluster @param {HTMLElement | null} runs @param {(error: unknown) => void} failed */
  constructor(known, runs, failed) {
    this.known = known;
    this.failed = failed;
    this.latest = new Latest("layout");
    /** @type {RowTable[]} */
    this.tables = [];
    this.said = element("p", { role: "status", text: "Looking at the process groups." });
    this.lanes = new Lanes("Places of the ranks", "By rank", ["Dimension", "Places"]);
    this.holder = element("div", {});
    this.root = element("div", { class: "report choose" }, element("h1", { text: "Parallelism", tabindex: "-1" }),
      element("section", { class: "card collective layout" }, element("div", { class: "card-head" }, element("h2", { text: "Layout" }), runs), this.said, this.lanes.root), this.holder);
  }

  /** @param {Record<string, string>} values of the address */
  async follow(values) {
    if (!this.tables.length) {
      const answer = await this.latest.ask({ run: this.known.run });
      if (!answer) return;
      this.fill(answer);
    }
    await Promise.all(this.tables.map((table, place) => table.follow(place === 0 ? values : {})));
  }

  fill({ left, open, places, ranks, tables }) {
    const cut = left ? ` ${show(left, "count")} more ranks are not drawn.` : "";
    this.said.textContent = `A column per rank, a row per dimension. Ranks of the same colour have the same place in it; the first is blue. Click one to open the rank.${cut}`;
    const step = tickStep(Math.ceil(ranks.length / MARKS));
    this.lanes.mark(ranks.flatMap((_, at) => (at % step === 0 ? [at] : [])), ranks.length, (at) => `${ranks[at]}`);
    const described = (at) => Object.entries(places).map(([name, own]) => `${name} ${own[at] ?? "–"}`).join(", ");
    const words = ranks.map((rank, at) => `Rank ${rank}: ${described(at)}`);
    this.lanes.rows.replaceChildren(...Object.entries(places).map(([name, own]) => {
      const count = new Set(own.filter((place) => place !== null)).size;
      const made = ranks.flatMap((_, at) => {
        if (own[at] === null) return [];
        const options = { class: "slot", title: words[at], tabindex: "-1", text: `${own[at]}` };
        const bar = open[at] === null ? element("span", options) : element("a", { ...options, href: `${open[at]}/` });
        bar.style.setProperty("--at", `${(100 * own[at]) / Math.max(count - 1, 1)}%`);
        return [placed(bar, at, 1, ranks.length)];
      });
      return lane(element("span", { text: name, title: `${NAMES[name] ?? name} parallelism` }), element("span", { class: "bars" }, ...made), [show(count, "count")]);
    }));
    this.tables = tables.map((head) => new RowTable("layout", { ...head, asked: { run: this.known.run } }, this.failed));
    this.holder.replaceChildren(...this.tables.map((table) => table.root));
  }

  recolor() {}
}
