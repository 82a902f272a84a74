/* The way from one mean step to another: what each part of it adds or takes away. */

import { element, show } from "./shared.js";

const ROOM = 0.06;

/** A change with its sign. @param {number} value */
export const signed = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${show(Math.round(Math.abs(value)), "ns")}`;

/**
 * The parts as bars; each leads to its longest event.
 * @param {{ before_ns: number, after_ns: number, parts: { key: string, title: string, what: string, before: number, after: number, is_noise: boolean | null }[] }} known
 * @param {(part: number) => void} choose
 */
export function waterfall(known, choose) {
  const changed = known.parts.map((part, at) => ({ ...part, at })).filter((part) => part.before !== part.after);
  let level = known.before_ns;
  const rows = changed.map((part) => {
    const delta = part.after - part.before;
    const row = { at: part.key === "other" ? null : part.at, title: part.title, what: part.what, from: level, to: level + delta, text: `${signed(delta)}${part.is_noise ? ", noise" : ""}`, kind: delta > 0 ? "more" : "less", is_noise: part.is_noise };
    level += delta;
    return row;
  });
  const ends = [known.before_ns, known.after_ns].map((value, place) => ({ at: null, title: place ? "After" : "Before", what: "The mean step.", from: 0, to: value, text: show(Math.round(value), "ns"), kind: "whole", is_noise: false }));
  const all = [ends[0], ...rows, ends[1]];
  const reached = [...rows.flatMap((row) => [row.from, row.to]), known.before_ns, known.after_ns];
  // Small changes of a long step would not be seen from 0.
  const [least, most] = [Math.min(...reached), Math.max(...reached)];
  const first = Math.max(least - Math.max((most - least) * (1 + ROOM), most * 0.01), 0);
  const place = (value) => (100 * (Math.max(value, first) - first)) / Math.max(most - first, 1);
  const list = element("ul", { class: "waterfall" }, ...all.map((row) => {
    const bar = element("span", { class: `bar ${row.kind}${row.is_noise ? " noise" : ""}` });
    const [left, right] = [place(Math.min(row.from, row.to)), place(Math.max(row.from, row.to))];
    bar.style.left = `${left}%`;
    bar.style.width = `max(2px, ${right - left}%)`;
    return element("li", { title: row.what }, titled(row, choose), element("span", { class: "track" }, bar), element("span", { class: "value", text: row.text }));
  }));
  const cut = first > 0 ? element("p", { class: "note", text: `Bars begin at ${show(Math.round(first), "ns")} to make small changes visible.` }) : null;
  return element("div", {}, list, cut);
}

/** What nothing was recorded of has no event. */
function titled({ at, title }, choose) {
  if (at === null) return element("span", { class: "title", text: title });
  return element("button", { type: "button", class: "link title", title: `Show in both timelines: ${title}`, text: title, onclick: () => choose(at) });
}
