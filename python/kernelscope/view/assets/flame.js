/* Draws a flame graph on a canvas, a root below the other, and takes the mouse and the keys. */

import { element, themeColor } from "./shared.js";
import { drawSoon, prepared } from "./canvas.js";
import { placeTip } from "./tip.js";
import { fitting, textOn } from "./draw.js";

/** @typedef {import("./flame-tree.js").FlameTree} FlameTree */
/** @typedef {import("./flame-tree.js").Band} Band */
/**
 * @typedef {{ choose: (at: number | null) => void, color: (at: number) => string, words: (at: number) => string[] }} Acts
 */

const ROW = 18;
const GAP = 10;
const LEAST = 0.5;
const LEAST_TEXT = 24;
const FAINT = 0.25;
let made = 0;

export class Flame {
  /** @param {FlameTree} tree @param {string} label @param {Acts} acts */
  constructor(tree, label, acts) {
    this.tree = tree;
    this.acts = acts;
    /** The frame that is as wide as the screen; null for the roots. @type {number | null} */
    this.chosen = null;
    /** Where the keyboard is. @type {number | null} */
    this.cursor = null;
    /** @type {Set<number> | null} */
    this.meant = null;
    /** @type {Band[]} */
    this.bands = [];
    this.pending = 0;
    this.text = this.grid = "";
    this.inks = new Map();
    made += 1;
    this.canvas = /** @type {HTMLCanvasElement} */ (element("canvas", { class: "frames", "aria-hidden": "true" }));
    this.item = element("div", { role: "treeitem", class: "hidden", id: `frame-${made}`, "aria-selected": "true" });
    this.tip = element("div", { class: "tip", hidden: true });
    this.spacer = element("div", { class: "spacer" }, this.canvas);
    this.root = element("div", { class: "flame", tabindex: "0", role: "tree", "aria-label": label, "aria-activedescendant": this.item.id, "aria-busy": "true" }, this.spacer, this.item);
    this.holder = element("div", { class: "flame-holder" }, this.root, this.tip);
    this.root.addEventListener("scroll", () => this.draw());
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.root.addEventListener("focus", () => this.point(this.cursor ?? this.chosen ?? this.tree.roots[0] ?? null));
    this.root.addEventListener("blur", () => this.draw());
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (event) => {
      const at = this.at(event.offsetX, event.offsetY);
      if (at !== null) this.acts.choose(at === this.chosen || this.tree.frames.parent[at] === null ? this.wider(at) : at);
    });
    new ResizeObserver(() => this.draw()).observe(this.root);
    this.zoom(null);
  }

  /** Where a click leads that changes nothing: the frame around it, or all roots. @param {number} at */
  wider(at) {
    return this.chosen === at ? this.tree.frames.parent[at] : at;
  }

  /** Makes a frame as wide as the screen, or all roots. @param {number | null} at */
  zoom(at) {
    const { tree } = this;
    this.chosen = at;
    const roots = at === null ? tree.roots.filter((root) => tree.widths[root] > 0) : [tree.rootOf(at)];
    this.bands = [];
    let top = 0;
    for (const root of roots) {
      const rows = at === null ? tree.rows[root] : tree.depth[at] + tree.rows[at];
      this.bands.push({ root, top, rows });
      top += rows * ROW + GAP;
    }
    this.spacer.style.height = `${Math.max(top - GAP, ROW)}px`;
    this.root.scrollTop = at === null ? 0 : Math.max(tree.depth[at] * ROW - 4 * ROW, 0);
    this.point(at ?? roots[0] ?? null, false);
    this.draw();
  }

  /** @param {number | null} at */
  point(at, scroll = true) {
    this.cursor = at;
    if (at === null) return;
    const { tree } = this;
    const beside = tree.beside(at);
    const set = { "aria-level": tree.depth[at] + 1, "aria-setsize": beside.length, "aria-posinset": beside.indexOf(at) + 1 };
    for (const [name, value] of Object.entries(set)) this.item.setAttribute(name, String(value));
    if (tree.children[at].length) this.item.setAttribute("aria-expanded", "true");
    else this.item.removeAttribute("aria-expanded");
    this.item.textContent = this.acts.words(at).join(", ");
    if (scroll) this.scrollTo(at);
    this.draw();
  }

  /** @param {number} at */
  scrollTo(at) {
    const band = this.bands.find((one) => one.root === this.tree.rootOf(at));
    if (!band) return;
    const y = band.top + this.tree.depth[at] * ROW;
    const { scrollTop, clientHeight } = this.root;
    if (y < scrollTop || y + ROW > scrollTop + clientHeight) this.root.scrollTop = Math.max(y - clientHeight / 3, 0);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { tree, cursor } = this;
    if (cursor === null) return;
    const beside = tree.beside(cursor);
    const place = beside.indexOf(cursor);
    const wide = (list) => list.find((one) => tree.widths[one] > 0);
    const to = {
      ArrowDown: () => wide(tree.children[cursor]), ArrowUp: () => tree.frames.parent[cursor], ArrowLeft: () => beside[place - 1], ArrowRight: () => beside[place + 1],
      Home: () => beside[0], End: () => beside[beside.length - 1],
    }[event.key];
    if (to) {
      const found = to();
      if (found !== undefined && found !== null) this.reach(found);
    } else if (event.key === "Enter" || event.key === " ") this.acts.choose(this.wider(cursor));
    else if (event.key === "Escape") this.acts.choose(this.chosen === null ? null : tree.frames.parent[this.chosen]);
    else return;
    event.preventDefault();
  }

  /** Goes to a frame, so that it is in sight. @param {number} at */
  reach(at) {
    const { tree, chosen } = this;
    // Beside what is as wide as the screen there is nothing to be seen.
    if (chosen !== null && at !== chosen && !tree.above(at).includes(chosen) && !tree.above(chosen).includes(at)) return;
    this.point(at);
  }

  /** @param {number} x @param {number} y of the canvas */
  at(x, y) {
    const { tree } = this;
    const height = y + this.root.scrollTop;
    const band = this.bands.find((one) => height >= one.top && height < one.top + one.rows * ROW);
    if (!band) return null;
    const wanted = Math.floor((height - band.top) / ROW);
    const focus = this.chosen ?? band.root;
    const above = tree.above(focus);
    if (wanted < above.length) return above[wanted];
    const place = tree.starts[focus] + (x / Math.max(this.canvas.clientWidth, 1)) * tree.widths[focus];
    let at = focus;
    while (tree.depth[at] < wanted) {
      const child = tree.children[at].find((one) => place >= tree.starts[one] && place < tree.starts[one] + tree.widths[one]);
      if (child === undefined) return null;
      at = child;
    }
    return at;
  }

  /** @param {PointerEvent} event */
  hover(event) {
    const at = this.at(event.offsetX, event.offsetY);
    this.canvas.style.cursor = at === null ? "default" : "pointer";
    this.tip.hidden = at === null;
    if (at === null) return;
    placeTip(this.tip, this.holder, event, this.acts.words(at));
  }

  draw() {
    drawSoon(this);
  }

  recolor() {
    this.inks.clear();
    this.draw();
  }

  drawNow() {
    const { tree, root } = this;
    const [width, height] = [this.spacer.clientWidth, root.clientHeight];
    if (width < 2 || !height) return;
    [this.text, this.grid] = [themeColor("--text"), themeColor("--grid")];
    const paint = prepared(this.canvas, width, height);
    const top = root.scrollTop;
    for (const band of this.bands) {
      if (band.top + band.rows * ROW < top || band.top > top + height) continue;
      const focus = this.chosen ?? band.root;
      tree.above(focus).forEach((one, row) => this.frame(paint, one, 0, width, band.top + row * ROW - top));
      this.subtree(paint, focus, width, band.top - top, height);
    }
    root.setAttribute("aria-busy", "false");
  }

  /** A frame as wide as the screen, and what lies below it. */
  subtree(paint, focus, width, top, height) {
    const { tree } = this;
    const scale = width / Math.max(tree.widths[focus], 1e-9);
    const open = [focus];
    while (open.length) {
      const at = /** @type {number} */ (open.pop());
      const y = top + tree.depth[at] * ROW;
      const wide = tree.widths[at] * scale;
      if (wide < LEAST || y > height) continue;
      if (y > -ROW) this.frame(paint, at, (tree.starts[at] - tree.starts[focus]) * scale, wide, y);
      open.push(...tree.children[at]);
    }
  }

  /** @param {CanvasRenderingContext2D} paint */
  frame(paint, at, x, wide, y) {
    // What lies around the chosen frame is as wide as the screen, and says nothing by its width.
    const around = this.chosen !== null && this.tree.depth[at] < this.tree.depth[this.chosen];
    const color = around ? this.grid : this.acts.color(at);
    const faint = this.meant !== null && !this.meant.has(at);
    paint.globalAlpha = faint ? FAINT : 1;
    paint.fillStyle = color;
    paint.fillRect(x, y, wide > 2 ? wide - 1 : wide, ROW - 1);
    paint.globalAlpha = 1;
    if (wide > LEAST_TEXT) {
      if (!this.inks.has(color)) this.inks.set(color, textOn(color));
      paint.fillStyle = faint ? this.text : this.inks.get(color);
      paint.fillText(fitting(paint, this.tree.short(at), wide - 8), x + 4, y + ROW / 2);
    }
    if (at === this.cursor && document.activeElement === this.root) {
      paint.strokeStyle = this.text;
      paint.lineWidth = 2;
      paint.strokeRect(x + 1, y + 1, Math.max(wide - 3, 2), ROW - 3);
    }
  }
}
