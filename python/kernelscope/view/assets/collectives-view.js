/* The collectives of a lake: those that wait longest, and the ranks of one below one another on one clock. */

import { element, show } from "./shared.js";
import { Latest } from "./requests.js";
import { addressOf, note } from "./state.js";
import { RowTable } from "./row-table.js";
import { Lanes, lane, placed } from "./lanes.js";

const FACTS = [["Message", "message_bytes", "bytes"], ["Ranks seen", "ranks_seen", "count"], ["Waiting, all ranks", "wait_ns", "ns"],
  ["First to last", "skew_ns", "ns"], ["Transfer", "transfer_ns", "ns"], ["Bus bandwidth", "bus_bytes_per_s", "B/s"], ["Group", "group", "text"]];

const WAITING = [["wait", "waits for late ranks"], ["transfer", "transfer: all have come"]];
const CALLING = [["call", "the call; waiting is unknown"]];

export class CollectivesView {
  /** @param {any} known of /api/cluster @param {HTMLElement | null} runs @param {(error: unknown) => void} failed */
  constructor(known, runs, failed) {
    this.known = known;
    this.latest = new Latest("collective");
    /** @type {any} */
    this.answer = null;
    this.instance = "";
    this.rank = -1;
    this.order = /** @type {HTMLSelectElement} */ (element("select", { "aria-label": "Order of the ranks" }, element("option", { value: "", text: "By rank" }), element("option", { value: "start", text: "First to arrive first" }), element("option", { value: "wait", text: "Longest wait first" })));
    this.order.addEventListener("change", () => {
      note({ order: this.order.value });
      this.fill();
    });
    this.title = element("h2", {});
    this.said = element("p", { role: "status" });
    this.facts = element("dl", { class: "facts" });
    this.legend = element("ul", { class: "legend", "aria-label": "Colours" });
    this.lanes = new Lanes("Ranks of the collective", "On one clock", ["Rank", "Came", "Waited", "Transfer"]);
    this.card = element("section", { class: "card collective" }, element("div", { class: "card-head" }, this.title, runs, element("label", {}, "Order ", this.order)), this.said, this.facts,
      this.legend, this.lanes.root);
    this.table = new RowTable("collectives", { ...known.tables.collectives, asked: { run: known.run } }, failed);
    const nothing = element("p", { class: "note missing", text: "No trace has communication: record with ProfilerActivity.CUDA, or run on several ranks." });
    this.root = element("div", { class: "report choose" }, element("h1", { text: "Collectives", tabindex: "-1" }), ...(known.tables.collectives.all ? [this.card, this.table.root] : [nothing]));
  }

  /** @param {Record<string, string>} values of the address */
  async follow(values) {
    if (!this.known.tables.collectives.all) return;
    this.order.value = ["start", "wait"].includes(values.order) ? values.order : "";
    this.rank = values.rank === undefined ? -1 : Number(values.rank);
    const wanted = values.collective ?? "";
    const isOther = !this.answer || wanted !== this.instance;
    const [answer] = await Promise.all([isOther ? this.latest.ask({ run: this.known.run, instance: wanted }) : null, this.table.follow(values)]);
    if (answer) {
      this.answer = answer;
      this.instance = wanted;
      this.describe(answer);
    }
    if (this.answer) this.fill();
    if (isOther && wanted) this.card.scrollIntoView({ block: "nearest" });
    this.lanes.rows.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }

  describe(answer) {
    const { calls, left } = answer;
    const step = answer.step === null ? "" : `, step ${answer.step}`;
    this.title.replaceChildren(element("bdi", { text: answer.kind ?? answer.name }), step);
    const waited = answer.wait_ns === null ? "" : ` Waiting took ${show(answer.wait_ns, "ns")} in total.`;
    const missing = answer.group_size > answer.ranks_seen ? ` ${show(answer.group_size - answer.ranks_seen, "count")} ranks of the group have no trace here.` : "";
    const cut = left ? ` ${show(left, "count")} more ranks are not drawn.` : "";
    const most = calls.offset.reduce((sum, one) => Math.max(sum, Math.abs(one ?? 0)), 0);
    const clocks = most ? ` Clocks are corrected by up to ${show(most, "ns")}.` : "";
    this.said.textContent = answer.ranks_seen > 1 ? `Rank ${answer.last_rank} arrived last, ${show(answer.skew_ns, "ns")} after rank ${answer.first_rank}.${waited}${clocks}${missing}${cut}` : `Only rank ${answer.first_rank} has this collective, so waiting is unknown.${missing}`;
    const known = FACTS.filter(([, name]) => answer[name] !== null && answer[name] !== "");
    this.facts.replaceChildren(...known.map(([title, name, unit]) => element("div", { class: unit === "text" ? "long" : null }, element("dt", { text: title }), element("dd", {}, element("bdi", { text: show(answer[name], unit) })))));
    const kinds = calls.wait.some((one) => one !== null) ? WAITING : CALLING;
    this.legend.replaceChildren(...kinds.map(([kind, text]) => element("li", {}, element("i", { class: kind }), text)));
    this.lanes.time(answer.length);
  }

  fill() {
    const { calls } = this.answer;
    const places = calls.rank.map((_, at) => at);
    const by = { start: (one, other) => calls.start[one] - calls.start[other], wait: (one, other) => (calls.wait[other] ?? -1) - (calls.wait[one] ?? -1) }[this.order.value];
    if (by) places.sort(by);
    this.lanes.rows.replaceChildren(...places.map((at) => this.row(at)));
  }

  /** The part of a rank. @param {number} at */
  row(at) {
    const { calls, length } = this.answer;
    const [rank, start, wait, open] = [calls.rank[at], calls.start[at], calls.wait[at], calls.open[at]];
    const moved = calls.length[at] - (wait ?? 0);
    const bar = (kind, from, long) => placed(element("i", { class: kind }), from, long, length);
    const bars = [...(wait ? [bar("wait", start, wait)] : []), bar(wait === null ? "call" : "transfer", start + (wait ?? 0), moved)];
    const offset = calls.offset[at] === null ? "its clock is not corrected" : `its clock was ${show(Math.abs(calls.offset[at]), "ns")} ${calls.offset[at] < 0 ? "behind" : "ahead"}`;
    const title = `Open rank ${rank} at this time; ${offset}`;
    const link = (options, ...inside) => (open === null ? element("span", options, ...inside) : element("a", { ...options, href: `${open}/${addressOf("timeline", { row: calls.row[at], step: this.answer.step })}`, title, onclick: () => note({ collective: this.answer.instance, rank }) }, ...inside));
    return lane(link({}, `${rank}`), link({ tabindex: "-1", class: "bars" }, ...bars), [show(start, "ns"), wait === null ? "–" : show(wait, "ns"), show(moved, "ns")], rank === this.rank);
  }

  recolor() {}
}
