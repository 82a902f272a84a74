/* Starts the page of two traces: their timelines, aligned by a step of each, and below what changed. */

import { element, show } from "./shared.js";
import { ask } from "./requests.js";
import { begin, failed, main, untilRead } from "./page.js";
import { addressOf, current, follow, go, note } from "./state.js";
import { KEYS, keyHelp } from "./input.js";
import { TablesView } from "./tables.js";
import { Aligned } from "./aligned.js";
import { waterfall } from "./waterfall.js";
import { FlameDiff } from "./flame-diff.js";

const SIDES = ["Before", "After"];
const TITLES = { changes: "What changed", operators: "Operators", kernels: "Kernels", phases: "Phases", dimensions: "Dimensions" };
/** @type {Aligned | null} */
let aligned = null;
/** @type {TablesView | null} */
let tables = null;
/** @type {FlameDiff | null} */
let flame = null;
/** What the chosen row is about, below the timelines. */
const chosen = element("section", { class: "chosen", "aria-live": "polite", "aria-busy": "false" });
/** The last wish for events: what comes later for another one is not shown. */
let wish = 0;

/**
 * The events of a row, or of a click, in both timelines.
 * @param {string} question
 * @param {Record<string, any>} parameters
 */
async function find(question, parameters) {
  const own = ++wish;
  chosen.setAttribute("aria-busy", "true");
  try {
    const { sides } = await ask(question, parameters);
    if (own !== wish || !aligned) return;
    aligned.select(sides.map((side) => side.place));
    chosen.replaceChildren(...sides.map(side));
  } catch (error) {
    failed(error);
  } finally {
    if (own === wish) chosen.setAttribute("aria-busy", "false");
  }
}

function side({ place, count }, number) {
  const title = element("span", { class: "kind", text: SIDES[number] });
  if (!place) return element("p", {}, title, " has no such event.");
  const more = count > 1 ? `, the longest of ${show(count, "count")}` : "";
  return element("p", {}, title, " ", element("bdi", { text: place.short, title: place.name }), ` ${show(place.length, "ns")}${more} `,
    element("a", { href: `${number}/${addressOf("timeline", { row: place.row })}`, text: "Open in its own page", "aria-label": `Open ${SIDES[number]} at this event` }));
}

function hint() {
  wish += 1;
  chosen.setAttribute("aria-busy", "false");
  chosen.replaceChildren(element("p", { class: "note", text: "Click a row below, or a slice, to find it in both timelines. Zoom or move one timeline, and the other follows." }));
}

/** @param {Record<string, string>} values of the address */
async function showValues(values) {
  if (!aligned || !tables) return;
  main.setAttribute("aria-busy", "true");
  aligned.follow(values);
  const { change, table, side: number, row, by, metric, frame } = values;
  if (change !== undefined) {
    await find("events", { table, change, steps: aligned.places.join(",") });
    aligned.root.scrollIntoView({ block: "nearest" });
  }
  if (row !== undefined) await find("partners", { side: number, row });
  await flame?.follow(values);
  if (frame !== undefined) await find("frame", { by, metric, n: frame });
  if (change === undefined && row === undefined && frame === undefined) {
    aligned.select([null, null]);
    hint();
  }
  main.setAttribute("aria-busy", "false");
}

const forget = { change: null, table: null, row: null, side: null, frame: null };

/** @param {any} known of /api/comparison */
function build(known) {
  const view = new Aligned(known.sides, {
    names: known.names, failed,
    pick: (number, row) => {
      note({ ...forget, side: number, row }, true);
      find("partners", { side: number, row });
    },
    clear: () => {
      note(forget, true);
      view.select([null, null]);
      hint();
    },
    stepped: (places) => {
      const { change, table } = current().values;
      if (change !== undefined) find("events", { table, change, steps: places.join(",") });
    },
  });
  aligned = view;
  tables = new TablesView({ id: "comparison", title: TITLES.changes, what: "", parts: [{ kind: "group", id: "tables", title: "Changes of", choices: known.tables.map((part) => ({ label: TITLES[part.id], part })) }] }, failed);
  tables.root.querySelector("h1")?.remove();
  flame = new FlameDiff({
    failed,
    chosen: (frame) => {
      note(frame ? { ...forget, by: frame.by, metric: frame.metric, frame: frame.n } : forget, true);
      if (frame) find("frame", frame);
      else hint();
    },
  });
  const parts = element("section", { class: "card" }, element("h2", { text: "From the previous step to the next step" }), waterfall(known, (change) => go("timeline", { table: "parts", change })));
  const opens = SIDES.map((name, number) => element("a", { href: `${number}/`, text: `${name}: ${known.names[number]}` }));
  main.replaceChildren(element("div", { class: "compare" }, element("h1", { class: "hidden", text: "Two traces", tabindex: "-1" }), element("p", { class: "verdict", text: known.verdict }),
    element("p", { class: "opens" }, "Moved separately: ", ...opens), view.root, chosen, parts, flame.root, tables.root));
  hint();
}

function onKey(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  const help = /** @type {HTMLDialogElement} */ (document.getElementById("help"));
  if (help.open || event.defaultPrevented || target.closest("input, select, textarea")) return;
  if (event.key === "?") showHelp();
  else if (target.closest(".timeline")) aligned?.key(event);
}

function showHelp() {
  keyHelp(KEYS.filter(([key]) => !["/", "?"].includes(key)));
}

async function start() {
  document.getElementById("help-button")?.addEventListener("click", showHelp);
  document.addEventListener("keydown", onKey);
  const { names } = await untilRead("Reading two traces");
  const [known, ...infos] = await Promise.all([ask("comparison"), ...SIDES.map((_, number) => ask("timeline", {}, undefined, `${number}/`))]);
  build({ ...known, names, sides: known.sides.map((one, number) => ({ ...one, info: infos[number] })) });
  follow(({ values }) => { showValues(values).catch(failed); });
  await tables?.follow(current().values);
  await showValues(current().values);
}

begin(start, "These traces cannot be compared", () => {
  aligned?.recolor();
  flame?.recolor();
});
