/* Sliders for the largest parts of the critical path: the step is replayed as they move. */

import { element, show } from "./shared.js";
import { Latest } from "./requests.js";
import { panel } from "./details.js";

/**
 * The panel of the sliders.
 * @param {any} answer of /api/levers
 * @param {{ close: () => void, failed: (error: unknown) => void }} acts
 */
export function whatIfPanel({ levers, mean, steps }, { close, failed }) {
  const replays = new Latest("what_if");
  const result = element("p", { class: "what-if-result", role: "status", text: `Mean step: ${show(mean, "ns")}` });
  /** @type {HTMLInputElement[]} */
  const inputs = [];
  const replay = async () => {
    try {
      const found = await replays.ask({ by: inputs.map((input) => input.value).join(",") });
      if (!found) return;
      const change = found.mean / mean - 1;
      const sign = change > 0 ? "+" : "−";
      result.textContent = `Mean step: ${show(found.mean, "ns")} instead of ${show(mean, "ns")} (${sign}${show(Math.abs(change), "share")})`;
    } catch (error) {
      failed(error);
    }
  };
  const rows = levers.map((lever) => {
    const share = element("output", { text: "100 %" });
    const input = /** @type {HTMLInputElement} */ (element("input", { type: "range", min: "0", max: String(lever.most), step: "5", value: "100", "aria-label": lever.title }));
    input.addEventListener("input", () => {
      share.textContent = `${input.value} %`;
      replay();
    });
    inputs.push(input);
    return element("li", {}, element("bdi", { class: "lever", text: lever.short, title: lever.title }), input, share, element("span", { class: "note", text: `${show(lever.path / steps, "ns")} of a step` }));
  });
  const reset = () => {
    inputs.forEach((input) => { input.value = "100"; input.dispatchEvent(new Event("input")); });
  };
  const buttons = element("div", { class: "buttons" }, element("button", { type: "button", text: "Reset", onclick: reset }));
  const empty = element("p", { class: "note", text: "The trace has no complete steps." });
  return panel("What if", "each part takes so much of its time", buttons, close, element("section", { class: "box-part wide" }, ...(rows.length ? [result, element("ul", { class: "levers" }, ...rows)] : [empty])));
}
