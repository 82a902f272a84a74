/* Starts the page of many traces: a list of them, of which each leads to the page of one; of ranks, what they do together, too. */

import { element, show } from "./shared.js";
import { ask } from "./requests.js";
import { begin, failed, main, untilRead } from "./page.js";
import { addressOf, again, current, follow, go } from "./state.js";
import { TablesView } from "./tables.js";
import { StepsView } from "./steps-view.js";
import { CollectivesView } from "./collectives-view.js";
import { PathView } from "./path-view.js";
import { LayoutView } from "./layout-view.js";
import { PipelineView } from "./pipeline-view.js";

const AGAIN_MS = 500;
const TOGETHER = { steps: StepsView, collectives: CollectivesView, path: PathView, layout: LayoutView, pipeline: PipelineView };
const TABS = [["", "Ranks"], ["steps", "Steps"], ["collectives", "Collectives"], ["path", "Critical path"], ["layout", "Parallelism"], ["pipeline", "Pipeline"]];
/** @typedef {StepsView | CollectivesView | PathView | LayoutView | PipelineView} Together */
/** @type {any} */
let listed = null;
/** @type {TablesView | null} */
let tables = null;
/** The views of what ranks do together, by view and run. @type {Map<string, Together>} */
const together = new Map();
/** What is shown is what was wished last. */
let wish = 0;
const progress = element("p", { class: "note", role: "status" });
const content = element("div", {});
const tabs = element("nav", { class: "tabs", "aria-label": "Views of the ranks" }, ...TABS.map(([view, title]) => element("a", { href: addressOf(view), "data-view": view, text: title })));
tabs.addEventListener("click", (event) => {
  const view = /** @type {HTMLElement} */ (event.target).dataset?.view;
  if (view === undefined || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  again(view);
});

/** The list, with the columns that are known by now. */
function makeList() {
  tables = new TablesView({ id: "traces", title: document.getElementById("file")?.textContent, what: listed.what, parts: [listed.table] }, failed);
  tables.root.classList.add("choose");
  tables.root.querySelector(".note")?.after(progress);
  return tables;
}

/** Chooses one of several runs. @param {string} view @param {any} known of /api/cluster */
function runs(view, { run, runs: names }) {
  if (names.length < 2) return null;
  const choice = /** @type {HTMLSelectElement} */ (element("select", { "aria-label": "Run" }, ...names.map(([name, text]) => element("option", { value: name, text }))));
  choice.value = run;
  choice.addEventListener("change", () => {
    go(view, { run: choice.value });
    // The view keeps the run that it is of.
    choice.value = run;
  });
  return element("label", {}, "Run ", choice);
}

/** What ranks do together. @param {string} view @param {string} run @returns {Promise<Together>} */
async function viewOf(view, run) {
  const key = `${view} ${run}`;
  const made = together.get(key);
  if (made) return made;
  content.replaceChildren(element("p", { class: "report note", role: "status", text: "Reading the steps and the collectives of all ranks." }));
  const known = await ask("cluster", { run });
  const added = new TOGETHER[view](known, runs(view, known), failed);
  together.set(key, added);
  return added;
}

/** Shows what the address says. @param {import("./state.js").State} state */
async function showView({ view, values }) {
  const own = ++wish;
  const id = listed.cluster && Object.hasOwn(TOGETHER, view) ? view : "";
  for (const link of tabs.children) {
    if (/** @type {HTMLElement} */ (link).dataset.view === id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.setAttribute("aria-busy", "true");
  try {
    const shown = id ? await viewOf(id, values.run ?? "") : tables ?? makeList();
    if (own !== wish) return;
    if (content.firstChild !== shown.root) content.replaceChildren(shown.root);
    await shown.follow(values);
  } catch (error) {
    if (own === wish && id) content.replaceChildren(element("div", { class: "report" }, element("p", { class: "note missing", text: error instanceof Error ? error.message : String(error) })));
    failed(error);
  }
  if (own === wish) main.setAttribute("aria-busy", "false");
}

/** Shows what the traces say of themselves, once that is known. */
async function watch() {
  const columns = listed.table.columns.length;
  while (!listed.complete) {
    progress.textContent = `Read ${show(listed.done, "count")} of ${show(listed.total, "count")} traces.`;
    await new Promise((resolve) => { setTimeout(resolve, AGAIN_MS); });
    listed = await ask("listing");
  }
  progress.textContent = "";
  const isShown = tables?.root.isConnected;
  // The fields are ahead of the address until it is renewed.
  const renewed = isShown ? tables?.renew() : null;
  // Who types into a field keeps it.
  if (listed.table.columns.length !== columns && !main.querySelector("input:focus")) {
    tables = null;
    if (isShown) await showView(current());
  }
  await renewed;
}

async function start() {
  await untilRead("Looking for traces");
  listed = await ask("listing");
  main.replaceChildren(...(listed.cluster ? [tabs] : []), content);
  await showView(current());
  follow((state) => { showView(state); });
  if (!listed.complete) watch().catch(failed);
}

begin(start, "There are no traces to open", () => {
  for (const view of together.values()) view.recolor();
});
