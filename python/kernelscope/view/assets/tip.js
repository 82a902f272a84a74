/* What stands beside the pointer. */

import { element } from "./shared.js";

/**
 * Fills a tip and puts it beside the pointer, or above it where there is no room below.
 * @param {HTMLElement} tip @param {HTMLElement} holder that the tip stays within
 * @param {PointerEvent} event @param {string[]} words the first of which stands out
 */
export function placeTip(tip, holder, event, [first, ...others]) {
  tip.replaceChildren(element("strong", { text: first, dir: "auto" }), ...others.map((text) => element("span", { text, dir: "auto" })));
  const area = holder.getBoundingClientRect();
  const [x, y] = [event.clientX - area.left, event.clientY - area.top];
  tip.style.left = `${Math.max(Math.min(x + 14, area.width - tip.offsetWidth - 8), 0)}px`;
  tip.style.top = `${y + 20 + tip.offsetHeight > area.height ? Math.max(y - tip.offsetHeight - 10, 0) : y + 20}px`;
}
