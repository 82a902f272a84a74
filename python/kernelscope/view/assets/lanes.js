/* Ranks, or something else, one below the other, with bars on one axis. */

import { element } from "./shared.js";
import { relative, ticks } from "./ticks.js";

const TICKS = 5;

/** A share of a whole, as CSS has it. @param {number} part @param {number} whole */
const percent = (part, whole) => `${(100 * part) / Math.max(whole, 1)}%`;

/** Puts a bar at its place. @param {HTMLElement} bar @param {number} start @param {number} long @param {number} whole */
export function placed(bar, start, long, whole) {
  bar.style.left = percent(start, whole);
  bar.style.width = `max(1px, ${percent(long, whole)})`;
  return bar;
}

export class Lanes {
  /**
   * @param {string} title
   * @param {string} along what the axis is
   * @param {string[]} heads of the columns: the first is before the bars, the others are after them
   */
  constructor(title, along, [first, ...others]) {
    this.rows = element("tbody", {});
    this.axis = element("span", { class: "axis-line", "aria-hidden": "true" });
    const head = (text) => element("th", { scope: "col", class: "number", text });
    const track = element("th", { scope: "col", class: "track" }, element("span", { class: "hidden", text: along }), this.axis);
    this.root = element("div", { class: "table-holder lanes", tabindex: "0", role: "region", "aria-label": title },
      element("table", { "aria-label": `${title}, ${along.toLowerCase()}` }, element("thead", {}, element("tr", {}, head(first), track, ...others.map(head))), this.rows));
  }

  /** Marks the axis. @param {number[]} places @param {number} whole @param {(place: number) => string} words */
  mark(places, whole, words) {
    this.axis.replaceChildren(...places.map((place) => {
      const mark = element("span", { text: words(place) });
      mark.style.left = percent(place, whole);
      return mark;
    }));
  }

  /** Marks the axis with times. @param {number} length ns */
  time(length) {
    const { places, step } = ticks(0, length, TICKS);
    this.mark(places, length, (place) => relative(place, step, length));
  }
}

/**
 * A row: the bars lead where its name does, so that one of both is enough for the keyboard.
 * @param {HTMLElement} name @param {HTMLElement} bars @param {string[]} texts @param {boolean} [isCurrent]
 */
export const lane = (name, bars, texts, isCurrent = false) => element("tr", { "aria-current": isCurrent ? "true" : null }, element("th", { scope: "row", class: "number" }, name),
  element("td", { class: "track", "aria-hidden": "true" }, bars), ...texts.map((text) => element("td", { class: "number", text })));
