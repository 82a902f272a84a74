/* What is known of the selected slice, range or evidence, below the timeline. */

import { element, show } from "./shared.js";
import { Refusal, ask } from "./requests.js";

const LONG = 90;
const PART_COLORS = ["--kernel", "--memcpy", "--memset", "--communication", "--runtime", "--dataloader", "--cpu-exec", "--other"];

/** @typedef {{ title: string, value: unknown, unit: string, what: string }} Fact */

/** Facts as a list of terms. @param {[string, unknown, string, string][]} facts */
function factList(facts) {
  const list = element("dl", { class: "facts" });
  for (const [label, value, unit, what] of facts) {
    const text = show(value, unit);
    const inside = element("dd", { text, dir: "auto" });
    list.append(element("div", { title: what, class: text.length > LONG ? "long" : null }, element("dt", { text: label }), inside));
  }
  return list;
}

const box = (title, ...inside) => element("section", { class: "box-part" }, element("h3", { text: title }), ...inside);

/**
 * The panel of a slice.
 * @param {any} answer of /api/details
 * @param {{ pick: (row: number) => void, same: (name: string) => void, table: (name: string) => void, flame: () => void, close: () => void }} acts
 */
export function sliceDetails(answer, acts) {
  const { place } = answer;
  const button = (text, act) => element("button", { type: "button", text, onclick: act });
  const buttons = element("div", { class: "buttons" }, button(answer.table === "gpu_ops" ? "Same kernel" : "Same name", () => acts.same(place.name)));
  if (answer.operator && answer.operator !== place.name) buttons.append(button("Same operator", () => acts.same(answer.operator)));
  if (answer.table === "gpu_ops" || answer.table === "ops") buttons.append(button("Show in table", () => acts.table(place.name)));
  buttons.append(button("Flame graph", acts.flame));
  const parts = answer.parts.map((part) => box(part.title, factList(part.facts)));
  if (answer.python.length) parts.push(box("Python, the innermost first", element("ol", { class: "stack-rows" }, ...answer.python.map((line) => element("li", {}, element("bdi", { text: line }))))));
  const costs = answer.op_row === null ? null : box("Costs of the operator", element("p", { class: "note", text: "computing …" }));
  if (costs) fill(costs, "cost", answer.op_row, (status) => `Unknown for this operator; ${status}.`);
  const path = box("Critical path", element("p", { class: "note", text: "computing …" }));
  fill(path, "slack", place.row, (status) => `Unknown: ${status}.`);
  const links = answer.links.length ? box("Leads to", linkList(answer.links, acts.pick)) : null;
  return panel(place.short, `${show(place.length, "ns")} from ${show(place.start, "ns")}`, buttons, acts.close, ...parts, path, costs, links);
}

function linkList(links, pick) {
  return element("ul", { class: "links" }, ...links.map(({ kind, place }) => element("li", {},
    element("span", { class: "kind", text: kind }), " ",
    element("button", { type: "button", class: "link", title: place.name, onclick: () => pick(place.row) }, element("bdi", { text: place.short })), ` ${show(place.length, "ns")}`)));
}

/**
 * Facts that come behind the rest: they may take a while the first time.
 * @param {HTMLElement} part
 * @param {string} question
 * @param {number} row
 * @param {(status: string) => string} unknown
 */
async function fill(part, question, row, unknown) {
  let inside;
  try {
    const { facts, status } = await ask(question, { row });
    inside = status === null ? factList(facts) : element("p", { class: "note", text: unknown(status) });
    if (status === null && !facts.length) inside = element("p", { class: "note", text: "Not known." });
  } catch (error) {
    inside = element("p", { class: "note", text: error instanceof Refusal ? error.message : String(error) });
  }
  part.replaceChildren(part.firstChild ?? "", inside);
}

/**
 * A bar of the parts of a time, with a legend.
 * @param {{ title: string, what: string, ns: number }[]} parts
 * @param {number} total
 */
export function partsBar(parts, total) {
  const bar = element("div", { class: "stack", role: "img", "aria-label": parts.filter((part) => part.ns > 0).map((part) => `${part.title} ${show(part.ns / total, "share")}`).join(", ") });
  const legend = element("ul", { class: "stack-legend" });
  parts.forEach((part, place) => {
    if (part.ns <= 0) return;
    const piece = element("span", { title: `${part.title}: ${show(part.ns, "ns")}` });
    piece.style.flexGrow = String(part.ns / total);
    piece.style.background = `var(${PART_COLORS[place]})`;
    bar.append(piece);
    const key = element("i");
    key.style.background = `var(${PART_COLORS[place]})`;
    legend.append(element("li", { title: part.what }, key, ` ${part.title} `, element("b", { text: show(part.ns / total, "share") }), ` ${show(part.ns, "ns")}`));
  });
  return element("div", {}, bar, legend);
}

/**
 * A small table whose rows can be chosen.
 * @param {any} table as the server sends it
 * @param {((name: string) => void) | null} choose gets the name of a row
 */
export function smallTable(table, choose) {
  const cell = (column, row) => {
    const data = table.data[column];
    if (Array.isArray(data)) return show(data[row], table.columns[column].unit);
    const at = data.of[row];
    return at === null ? show(null, "text") : data.short[at] ?? data.texts[at];
  };
  const whole = (column, row) => (Array.isArray(table.data[column]) || table.data[column].of[row] === null ? "" : table.data[column].texts[table.data[column].of[row]]);
  const isNumber = (column) => !["text", "sentence", "flag"].includes(table.columns[column].unit);
  const head = element("tr", {}, ...table.columns.map((column, at) => element("th", { scope: "col", class: isNumber(at) ? "number" : null, title: column.what, text: column.title })));
  const body = Array.from({ length: table.rows }, (_, row) => element("tr", {}, ...table.columns.map((_column, at) => {
    const text = cell(at, row);
    if (at === 0 && choose && whole(at, row)) {
      return element("td", {}, element("button", { type: "button", class: "link", title: whole(at, row), onclick: () => choose(whole(at, row)) }, element("bdi", { text })));
    }
    return element("td", { class: isNumber(at) ? "number" : null, title: whole(at, row) }, element("bdi", { text }));
  })));
  return element("table", { "aria-label": table.title }, element("thead", {}, head), element("tbody", {}, ...body));
}

/**
 * The panel of a range.
 * @param {any} answer of /api/selection
 * @param {{ same: (name: string) => void, close: () => void, zoom: () => void }} acts
 */
export function rangeDetails(answer, acts) {
  const total = answer.end - answer.start;
  const buttons = element("div", { class: "buttons" }, element("button", { type: "button", text: "Zoom to it", onclick: acts.zoom }));
  const tables = answer.tables.map((table) => box(table.title, smallTable(table, table.id === "idle" ? null : acts.same)));
  return panel(`${show(total, "ns")} selected`, `from ${show(answer.start, "ns")} to ${show(answer.end, "ns")}`, buttons, acts.close, box("Where the time goes", partsBar(answer.parts, total)), ...tables);
}

/** The frame of every panel. */
export function panel(title, subtitle, buttons, close, ...inside) {
  return element("div", { class: "panel" },
    element("div", { class: "panel-head" }, element("h2", {}, element("bdi", { text: title, title })), element("span", { class: "note", text: subtitle }), buttons,
      element("button", { type: "button", class: "close", "aria-label": "Close the details", text: "×", onclick: close })),
    element("div", { class: "panel-body", tabindex: "0", role: "region", "aria-label": "Details" }, ...inside));
}
