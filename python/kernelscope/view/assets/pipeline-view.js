/* The schedule of a pipeline: which rank computes which micro-batch when, and its bubble. */

import { counted, element, show, stepOptions } from "./shared.js";
import { Latest } from "./requests.js";
import { addressOf, current, note } from "./state.js";
import { Lanes, lane, placed } from "./lanes.js";
import { RowTable } from "./row-table.js";

const NAMES = { gpipe: "GPipe", "1f1b": "1F1B", interleaved: "interleaved 1F1B", zero_bubble: "zero bubble", dualpipe: "DualPipe" };
const DIRECTIONS = [["forward", "forward"], ["backward", "backward"], ["weight", "backward, weights alone"]];
const MOST_NAMED = 8;

export class PipelineView {
  /** @param {any} known of /api/cluster @param {HTMLElement | null} runs @param {(error: unknown) => void} failed */
  constructor(known, runs, failed) {
    this.known = known;
    this.failed = failed;
    this.latest = new Latest("pipeline");
    /** @type {any} */
    this.answer = null;
    this.asked = "";
    const choice = (title, key) => {
      const made = /** @type {HTMLSelectElement} */ (element("select", { "aria-label": title }));
      made.addEventListener("change", () => {
        note({ [key]: made.value }, true);
        this.follow(current().values).catch(failed);
      });
      return made;
    };
    this.pipelines = choice("Pipeline", "pipeline");
    this.steps = choice("Step", "step");
    this.said = element("p", { role: "status", text: "Reading the ranks of the pipeline." });
    this.legend = element("ul", { class: "legend", "aria-label": "Directions" });
    this.lanes = new Lanes("Stages of the pipeline", "On one clock", ["Rank", "In slots", "Bubble", "Transfers"]);
    this.holder = element("div", {});
    /** @type {RowTable | null} */
    this.table = null;
    const what = "Colours are micro-batches, from the first (blue) to the last (yellow). Gaps are bubbles. Click a bar to open the rank at the step.";
    this.root = element("div", { class: "report choose" }, element("h1", { text: "Pipeline", tabindex: "-1" }),
      element("section", { class: "card collective" }, element("div", { class: "card-head" }, element("h2", { text: "Schedule" }), runs, element("label", {}, "Pipeline ", this.pipelines), element("label", {}, "Step ", this.steps)), element("p", { class: "note", text: what }), this.said, this.legend, this.lanes.root), this.holder);
  }

  /** @param {Record<string, string>} values of the address */
  async follow(values) {
    const { pipeline = "", step = "" } = values;
    if (!this.answer || `${pipeline} ${step}` !== this.asked) await this.load({ pipeline, step });
    await this.table?.follow(values);
  }

  /** @param {{ pipeline: string, step: string }} wanted numbers, or nothing for the slowest pipeline and the longest step */
  async load({ pipeline, step }) {
    const given = Object.fromEntries(Object.entries({ pipeline, step }).filter(([, value]) => value));
    const answer = await this.latest.ask({ run: this.known.run, ...given });
    if (!answer) return;
    const isOther = answer.pipeline !== this.answer?.pipeline;
    this.answer = answer;
    this.asked = `${pipeline} ${step}`;
    this.describe(answer);
    this.lanes.time(answer.length);
    this.lanes.rows.replaceChildren(...answer.stages.map((stage) => this.row(stage)));
    if (!isOther) return;
    this.table = new RowTable("pipeline", { ...answer.table, asked: { run: this.known.run, pipeline: answer.pipeline } }, this.failed);
    this.holder.replaceChildren(this.table.root);
  }

  describe(answer) {
    const { length, micro_batches: batches, pipelines, schedule, slots, stages, step, steps } = answer;
    const ranks = (all) => (all.length > MOST_NAMED ? `${all.slice(0, MOST_NAMED).join(", ")} … (${show(all.length, "count")})` : all.join(", "));
    this.pipelines.replaceChildren(...pipelines.map(([first, all]) => element("option", { value: first, text: `ranks ${ranks(all)}` })));
    this.pipelines.value = answer.pipeline;
    this.steps.replaceChildren(...stepOptions(steps));
    this.steps.value = step ?? "";
    const mean = stages.reduce((sum, one) => sum + one.bubble_share, 0) / stages.length;
    const ideal = answer.ideal_share === null ? "" : `, ${show(answer.ideal_share, "share")} with equal stages and no transfers`;
    const slowest = stages.reduce((one, other) => (other.over_mean_share > one.over_mean_share ? other : one));
    const longer = slowest.over_mean_share > 0 ? ` Stage ${slowest.stage} (rank ${slowest.rank}) computes longest: ${show(slowest.over_mean_share, "share")} of the step more than the mean.` : "";
    const cut = answer.left ? ` ${counted(answer.left, "more slot")} are not drawn.` : "";
    this.said.textContent = `${step === null ? "All steps take" : `Step ${step} takes`} ${show(length, "ns")}: ${NAMES[schedule] ?? schedule} with ${counted(batches, "micro-batch")}${answer.chunks > 1 ? ` and ${counted(answer.chunks, "chunk")} per rank` : ""}. The bubble is ${show(mean, "share")}${ideal}.${longer}${cut}`;
    const known = new Set(slots.direction);
    this.legend.replaceChildren(...DIRECTIONS.filter(([name]) => known.has(name)).map(([name, text]) => element("li", {}, element("i", { class: "slot", "data-direction": name }), text)));
  }

  /** The slots of a rank. @param {any} stage */
  row(stage) {
    const { length, micro_batches: batches, slots, step } = this.answer;
    const { open, rank } = stage;
    const link = (options, text) => (open === null ? element("span", { ...options, text }) : element("a", { ...options, href: `${open}/${addressOf("timeline", { step })}`, text }));
    const own = slots.rank.flatMap((other, at) => (other === rank ? [at] : []));
    const made = own.map((at) => {
      const [batch, direction] = [slots.micro_batch[at], slots.direction[at]];
      const title = `${direction} of micro-batch ${batch} in stage ${slots.stage[at]}: ${show(slots.length[at], "ns")} at ${show(slots.start[at], "ns")}`;
      const bar = link({ class: "slot", "data-direction": direction, title, tabindex: "-1" }, `${batch}`);
      bar.style.setProperty("--at", `${(100 * batch) / Math.max(batches - 1, 1)}%`);
      return placed(bar, slots.start[at], slots.length[at], length);
    });
    return lane(link({ title: `Stage ${stage.stage}: open rank ${rank} at the step` }, `${rank}`), element("span", { class: "bars" }, ...made), [show(stage.slots_ns, "ns"), show(stage.bubble_share, "share"), show(stage.bubble_transfer_ns, "ns")]);
  }

  recolor() {}
}
