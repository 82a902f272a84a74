/* The mouse, the fingers and the keys of the timeline. */

import { element } from "./shared.js";
import { stepAt } from "./axis.js";
import { placeTip } from "./tip.js";
import { Timeline } from "./timeline.js";

/**
 * @typedef {{ pick: (row: number) => void, choose: (start: number, end: number) => void, clear: () => void,
 *   search: () => void, next: (forward: boolean) => void, help: () => void }} Acts
 */

const CLICK = 4;
const SPEED = 1.1;
const ZOOM_SPEED = 2.2;
const FIRST_MS = 60;
const SCROLL = 60;
const HELD = new Set(["w", "a", "s", "d"]);

/** Keys, and what they do. */
export const KEYS = [
  ["W, S", "zoom in and out; hold to continue"],
  ["A, D", "earlier and later; also ← and →"],
  ["↑, ↓", "scroll the tracks"],
  ["wheel", "scroll the tracks, or zoom if all are visible; with Ctrl zoom, with Shift move"],
  ["drag", "move; on the axis, or with Shift: select a range"],
  ["Alt and drag", "zoom to the box"],
  ["double click", "zoom to the event"],
  ["click", "details of the event"],
  ["F", "fit the selection, or the whole trace"],
  ["0", "the whole trace"],
  ["M", "mark the selection, or remove the mark"],
  ["/", "search; Enter or N for the next match, Shift and Enter or P for the previous"],
  ["Esc", "clear the selection"],
  ["?", "this list"],
];

/** Lists keys. @param {string[][]} keys */
export function keyHelp(keys) {
  const help = /** @type {HTMLDialogElement} */ (document.getElementById("help"));
  const list = element("dl", { class: "keys" }, ...keys.flatMap(([key, what]) => [element("dt", {}, element("kbd", { text: key })), element("dd", { text: what })]));
  help.replaceChildren(element("h2", { id: "help-title", text: "Keys and the mouse in the timeline" }), list, element("form", { method: "dialog" }, element("button", { text: "Close" })));
  help.showModal();
}

/** @param {Timeline} timeline @param {Acts} acts */
export function listen(timeline, acts) {
  wheel(timeline);
  pointers(timeline, acts);
  axis(timeline, acts);
  minimap(timeline);
  return keys(timeline, acts);
}

/** @param {Timeline} timeline */
function wheel(timeline) {
  const turned = (event) => {
    const { scroller } = timeline;
    const fits = scroller.scrollHeight <= scroller.clientHeight + 1;
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (sideways) timeline.move((event.shiftKey ? event.deltaY || event.deltaX : event.deltaX) / timeline.width);
    else if (event.ctrlKey || event.metaKey || fits || event.currentTarget !== scroller) {
      const at = (event.clientX - timeline.axis.getBoundingClientRect().left) / timeline.width;
      timeline.zoom(Math.exp(Math.max(Math.min(event.deltaY, 200), -200) / 300), Math.min(Math.max(at, 0), 1));
    } else return;
    event.preventDefault();
  };
  for (const place of [timeline.scroller, timeline.axis, timeline.minimap]) place.addEventListener("wheel", turned, { passive: false });
}

/** @param {Timeline} timeline @param {Acts} acts */
function pointers(timeline, acts) {
  const { canvas, scroller, tip } = timeline;
  /** @type {Map<number, { x: number, y: number }>} */
  const down = new Map();
  /** @type {{ x: number, y: number, range: [number, number], scroll: number, mode: string, moved: boolean } | null} */
  let drag = null;
  let pinch = 0;
  /** @type {PointerEvent | null} Where the mouse is, and what is below it may change. */
  let resting = null;
  const box = element("div", { class: "box", hidden: true });
  timeline.root.append(box);
  const place = (event) => {
    const area = canvas.getBoundingClientRect();
    return { x: event.clientX - area.left, y: event.clientY - area.top };
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    down.set(event.pointerId, place(event));
    const mode = event.shiftKey ? "select" : event.altKey ? "box" : "move";
    drag = { ...place(event), range: [...timeline.range], scroll: scroller.scrollTop, mode, moved: false };
    pinch = 0;
    resting = null;
    tip.hidden = true;
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = place(event);
    if (!down.has(event.pointerId)) {
      resting = event;
      return hover(timeline, event, at);
    }
    down.set(event.pointerId, at);
    if (down.size === 2) {
      const [one, other] = [...down.values()];
      const wide = Math.max(Math.abs(one.x - other.x), 8);
      if (pinch) timeline.zoom(pinch / wide, Math.min(Math.max((one.x + other.x) / 2 / timeline.width, 0), 1));
      pinch = wide;
      if (drag) drag.moved = true;
      return undefined;
    }
    if (!drag || pinch) return undefined;
    drag.moved ||= Math.hypot(at.x - drag.x, at.y - drag.y) > CLICK;
    if (drag.moved) dragged(timeline, acts, drag, at, box, event.pointerType);
    return undefined;
  });
  const ended = (event) => {
    if (!down.delete(event.pointerId)) return;
    const at = place(event);
    const done = drag;
    if (down.size) return;
    drag = null;
    box.hidden = true;
    if (!done || event.type === "pointercancel") return;
    if (!done.moved) click(timeline, acts, at);
    else if (done.mode === "box" && Math.abs(at.x - done.x) > CLICK) timeline.show(...ordered(timeline.timeAt(done.x), timeline.timeAt(at.x)));
    else if (done.mode === "select") acts.choose(...ordered(timeline.timeAt(done.x), timeline.timeAt(at.x)));
  };
  canvas.addEventListener("pointerup", ended);
  canvas.addEventListener("pointercancel", ended);
  canvas.addEventListener("pointerleave", () => {
    resting = null;
    tip.hidden = true;
  });
  timeline.drawn = () => {
    if (resting) hover(timeline, resting, place(resting));
  };
  canvas.addEventListener("dblclick", (event) => {
    const at = place(event);
    const found = timeline.at(at.x, at.y);
    if (!found) return timeline.zoom(0.4, at.x / timeline.width);
    const { marks, index } = found;
    const margin = 0.1 * Math.max(marks.lengths[index], 10);
    return timeline.show(marks.starts[index] - margin, marks.starts[index] + marks.lengths[index] + margin);
  });
}

const ordered = (one, other) => /** @type {[number, number]} */ (one < other ? [one, other] : [other, one]);

function dragged(timeline, acts, drag, at, box, kind) {
  if (drag.mode === "move") {
    const step = ((drag.x - at.x) / timeline.width) * (drag.range[1] - drag.range[0]);
    // A finger scrolls the tracks by itself.
    if (kind === "mouse") timeline.scroller.scrollTop = drag.scroll + drag.y - at.y;
    return timeline.show(drag.range[0] + step, drag.range[1] + step);
  }
  if (drag.mode === "select") {
    timeline.span = ordered(timeline.timeAt(drag.x), timeline.timeAt(at.x));
    return timeline.draw();
  }
  const area = timeline.canvas.getBoundingClientRect();
  const root = timeline.root.getBoundingClientRect();
  box.hidden = false;
  box.style.left = `${area.left - root.left + Math.min(drag.x, at.x)}px`;
  box.style.top = `${area.top - root.top + Math.min(drag.y, at.y)}px`;
  box.style.width = `${Math.abs(at.x - drag.x)}px`;
  box.style.height = `${Math.abs(at.y - drag.y)}px`;
  return undefined;
}

function click(timeline, acts, at) {
  const found = timeline.at(at.x, at.y);
  if (!found) return acts.clear();
  const { marks, index } = found;
  timeline.scroller.focus({ preventScroll: true });
  // Several events as one: nearer, until they are single.
  if (marks.events[index] !== 1) acts.choose(marks.starts[index], marks.starts[index] + marks.lengths[index]);
  else acts.pick(marks.row[index]);
  return undefined;
}

/** @param {Timeline} timeline */
function hover(timeline, event, at) {
  const { tip } = timeline;
  const found = timeline.at(at.x, at.y);
  timeline.canvas.style.cursor = found ? "pointer" : "grab";
  tip.hidden = !found;
  if (!found) return;
  placeTip(tip, timeline.root, event, Timeline.words(found, timeline.info.categories));
}

/** A range is selected on the axis, and a click on a step shows it. @param {Timeline} timeline @param {Acts} acts */
function axis(timeline, acts) {
  const { axis: canvas } = timeline;
  /** @type {{ x: number, y: number } | null} */
  let begun = null;
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    begun = { x: event.offsetX, y: event.offsetY };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!begun || Math.abs(event.offsetX - begun.x) <= CLICK) return;
    timeline.span = ordered(timeline.timeAt(begun.x), timeline.timeAt(event.offsetX));
    timeline.draw();
  });
  canvas.addEventListener("pointerup", (event) => {
    const from = begun;
    begun = null;
    if (!from) return;
    if (Math.abs(event.offsetX - from.x) > CLICK) return void acts.choose(...ordered(timeline.timeAt(from.x), timeline.timeAt(event.offsetX)));
    const step = stepAt(timeline.info.steps, timeline.timeAt(event.offsetX), event.offsetY);
    if (!step) return;
    timeline.show(step[1] - 0.02 * step[2], step[1] + 1.02 * step[2]);
    acts.choose(step[1], step[1] + step[2]);
  });
}

/** @param {Timeline} timeline */
function minimap(timeline) {
  const { minimap: canvas } = timeline;
  const go = (event) => {
    const [first, last] = timeline.whole;
    const middle = first + (event.offsetX / canvas.clientWidth) * (last - first);
    const half = (timeline.range[1] - timeline.range[0]) / 2;
    timeline.show(middle - half, middle + half);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    go(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.buttons) go(event);
  });
}

/** @param {Timeline} timeline @param {Acts} acts @returns {(event: KeyboardEvent) => void} what takes a key */
function keys(timeline, acts) {
  /** @type {Set<string>} */
  const held = new Set();
  let before = 0;
  const go = (ms) => {
    const step = (SPEED * ms) / 1000;
    const factor = Math.exp((ZOOM_SPEED * ms) / 1000);
    if (held.has("a")) timeline.move(-step);
    if (held.has("d")) timeline.move(step);
    if (held.has("w")) timeline.zoom(1 / factor);
    if (held.has("s")) timeline.zoom(factor);
  };
  const frame = (now) => {
    if (!held.size) return;
    go(Math.min(now - before, 100));
    before = now;
    requestAnimationFrame(frame);
  };
  window.addEventListener("keyup", (event) => held.delete(event.key.toLowerCase()));
  window.addEventListener("blur", () => held.clear());
  const single = {
    arrowleft: () => timeline.move(-0.1), arrowright: () => timeline.move(0.1),
    arrowup: () => { timeline.scroller.scrollTop -= SCROLL; }, arrowdown: () => { timeline.scroller.scrollTop += SCROLL; },
    "+": () => timeline.zoom(0.6), "=": () => timeline.zoom(0.6), "-": () => timeline.zoom(1.6),
    0: () => timeline.showAll(), home: () => timeline.showAll(), f: () => fit(timeline), m: () => mark(timeline),
    "/": acts.search, n: () => acts.next(true), p: () => acts.next(false), escape: acts.clear, "?": acts.help,
  };
  return (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.toLowerCase();
    if (HELD.has(key)) {
      if (!held.size) {
        before = performance.now();
        requestAnimationFrame(frame);
      }
      if (!held.has(key)) {
        held.add(key);
        go(FIRST_MS);
      }
    } else if (single[key]) single[key]();
    else return;
    event.preventDefault();
  };
}

/** The selected slice or range, or all. @param {Timeline} timeline */
function fit(timeline) {
  const { selected, span } = timeline;
  if (span) timeline.show(span[0] - 0.05 * (span[1] - span[0]), span[1] + 0.05 * (span[1] - span[0]));
  else if (selected) timeline.goTo(selected, true);
  else timeline.showAll();
}

/** @param {Timeline} timeline */
function mark(timeline) {
  const { selected, span } = timeline;
  const chosen = span ?? (selected && [selected.start, selected.start + selected.length]);
  if (!chosen) return;
  const same = timeline.marked.findIndex(([start, end]) => start === chosen[0] && end === chosen[1]);
  if (same >= 0) timeline.marked.splice(same, 1);
  else timeline.marked.push([chosen[0], chosen[1]]);
  timeline.events.arranged?.();
  timeline.draw();
}
