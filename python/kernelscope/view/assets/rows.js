/* The rows of a table as the server sends them. */

import { element, show } from "./shared.js";
import { addressOf, current, go } from "./state.js";

/** @param {string} unit */
export const isNumber = (unit) => unit !== "text" && unit !== "sentence";

/**
 * The rows of an answer; the first cell of each leads to its events, and opens what lies below it.
 * @param {{ key: string, title: string, unit: string, what: string }[]} columns
 * @param {any} answer
 * @param {(number: number) => void} [turn] gets the number of a row that is to be opened or closed
 */
export function bodyRows(columns, answer, turn = () => {}) {
  const cell = (at, row) => {
    const { unit } = columns[at];
    const data = answer.data[at];
    const isText = !Array.isArray(data);
    const place = isText ? data.of[row] : 0;
    const whole = isText ? (place === null ? null : data.texts[place]) : data[row];
    const text = isText && place !== null && unit !== "sentence" && data.short[place] ? data.short[place] : show(whole, unit);
    return element(at === 0 ? "th" : "td", { role: at === 0 ? "rowheader" : "cell", scope: at === 0 ? "row" : null, class: isNumber(unit) ? "number" : unit, title: isText ? whole : null, "data-title": columns[at].title }, at === 0 ? branch(answer.branches?.[row], text, turn) : null, at === 0 ? lead(answer.leads[row], text) : element("bdi", { text }));
  };
  return Array.from({ length: answer.rows }, (_, row) => element("tr", { role: "row" }, ...columns.map((_column, at) => cell(at, row))));
}

/** A text that leads to the events of its row in the timeline, where there are such, or to the trace or the collective that it names. */
function lead(where, text) {
  const inside = element("bdi", { text });
  if (!where) return inside;
  const { open, collective, ...at } = where;
  if (open !== undefined) return element("a", { href: `${open}/${Object.keys(at).length ? addressOf("timeline", at) : ""}`, title: `Open ${text}` }, inside);
  if (collective !== undefined) {
    const show = () => go(current().view, { ...current().values, collective, rank: null });
    return element("button", { type: "button", class: "link", title: `Show the ranks of ${text}`, onclick: show }, inside);
  }
  const values = where.name === undefined ? where : { find: where.name, exact: 1 };
  return element("button", { type: "button", class: "link", title: `Show in the timeline: ${where.name ?? text}`, onclick: () => go("timeline", values) }, inside);
}

/** What opens and closes the rows below a row; null where there are none. */
function branch(place, name, turn) {
  if (!place) return null;
  const [number, , inner, open] = place;
  if (!inner) return element("span", { class: "branch" });
  return element("button", { type: "button", class: "branch", "aria-expanded": String(open), "aria-label": `Contents of ${name.trim()}`, text: open ? "▾" : "▸", onclick: () => turn(number) });
}
