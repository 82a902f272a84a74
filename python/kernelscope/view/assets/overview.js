/* The first screen: the verdict, where the step goes, what could be won, and the largest kernels. */

import { element, show } from "./shared.js";
import { ask } from "./requests.js";
import { addressOf, go } from "./state.js";
import { partsBar, smallTable } from "./details.js";

/** @returns {Promise<HTMLElement>} */
export async function overview() {
  const answer = await ask("overview");
  const total = answer.step_ns;
  const step = total
    ? element("section", { class: "card wide" }, element("h2", { text: "The mean step by category" }), partsBar(answer.parts, total))
    : null;
  const notes = answer.notes.map((text) => element("p", { class: "note missing", text }));
  const more = answer.all_causes - answer.causes.length;
  const causes = element("section", { class: "card causes" }, element("h2", { text: "Possible savings" }), ...answer.causes.map(cause),
    answer.causes.length ? null : element("p", { class: "note", text: "No rule applies to this trace." }),
    more > 0 ? element("p", {}, element("a", { href: addressOf("recommendations"), text: `and ${more} more` })) : null);
  const kernels = answer.kernels.rows ? smallTable(answer.kernels, (name) => go("timeline", { find: name, exact: 1 })) : element("p", { class: "note", text: "The trace has no kernels." });
  const largest = element("section", { class: "card" }, element("h2", { text: "The largest kernels" }), element("div", { class: "table-holder", tabindex: "0", role: "region", "aria-label": "The largest kernels" }, kernels),
    answer.all_kernels > answer.kernels.rows ? element("p", {}, element("a", { href: addressOf("kernels"), text: `all ${show(answer.all_kernels, "count")} kernels` })) : null);
  const tiles = answer.tiles.length
    ? element("dl", { class: "tiles" }, ...answer.tiles.map(({ title, value, unit, what }) => element("div", { title: what }, element("dt", { text: title }), element("dd", { text: show(value, unit) }))))
    : null;
  const facts = element("dl", { class: "file-facts" }, ...answer.facts.map(([name, value]) => element("div", {}, element("dt", { text: name }), element("dd", { text: value, dir: "auto" }))));
  return element("div", { class: "overview" }, element("h1", { class: "hidden", text: "Overview", tabindex: "-1" }), element("p", { class: "verdict", text: answer.verdict }), ...notes, step, causes, largest,
    element("section", { class: "card wide" }, element("h2", { text: "The GPUs and the file" }), tiles, facts));
}

function cause(finding) {
  const won = finding.saving_share === null ? "unknown" : `at most ${show(finding.saving_share, "share")}`;
  const where = finding.cited ? element("a", { class: "button", href: addressOf("timeline", { evidence: finding.id, device: finding.device }), "aria-label": `Show me: ${finding.title}`, text: "Show me" }) : null;
  return element("article", { class: `cause ${finding.severity}` },
    element("div", { class: "cause-head" }, element("h3", { text: finding.device === null ? finding.title : `${finding.title} (GPU ${finding.device})` }),
      element("span", { class: "won", title: finding.saving_ns === null ? null : `${show(finding.saving_ns, "ns")} of all steps` }, element("b", { text: won }), finding.saving_share === null ? "" : " of the step time"), where),
    element("p", { text: finding.evidence }), element("p", { class: "note", text: finding.remedy }));
}
