/* A flame graph as a tree: what lies below what, how wide each frame is, and which frames are meant by a search. */

/**
 * @typedef {{ texts: string[], short: (string | null)[], of: (number | null)[] }} Names
 * @typedef {{ n: number[], parent: (number | null)[], name: Names, category: string[], total: number[], own: number[], calls: (number | null)[] }} Frames
 * @typedef {{ root: number, top: number, rows: number }} Band
 */

/** What is shown as a blank, or as _ in folded stacks, is one. @param {string} text */
const searchable = (text) => text.toLowerCase().replace(/[\s_;\p{Cc}\p{Cf}]+/gu, "_");

export class FlameTree {
  /**
   * @param {Frames} frames each behind its caller
   * @param {number[]} [widths] what frames are as wide as; their total time by default
   */
  constructor(frames, widths = frames.total) {
    this.frames = frames;
    this.widths = widths;
    /** @type {number[]} */
    this.roots = [];
    /** @type {number[][]} The wider first. */
    this.children = frames.parent.map(() => []);
    frames.parent.forEach((parent, at) => (parent === null ? this.roots : this.children[parent]).push(at));
    for (const list of [this.roots, ...this.children]) list.sort((one, other) => widths[other] - widths[one] || one - other);
    /** Where each begins, in the unit of its width, from the left of its root. @type {number[]} */
    this.starts = new Array(frames.parent.length).fill(0);
    this.depth = new Array(frames.parent.length).fill(0);
    /** How many rows there are below each, itself included. */
    this.rows = new Array(frames.parent.length).fill(1);
    this.measure();
  }

  measure() {
    const { parent } = this.frames;
    this.children.forEach((children, at) => {
      let start = this.starts[at];
      for (const child of children) {
        this.starts[child] = start;
        this.depth[child] = this.depth[at] + 1;
        start += this.widths[child];
      }
    });
    for (let at = parent.length - 1; at >= 0; at -= 1) {
      const above = parent[at];
      if (above !== null && this.widths[at] > 0) this.rows[above] = Math.max(this.rows[above], this.rows[at] + 1);
    }
  }

  get size() {
    return this.widths.length;
  }

  /** @param {number} at */
  text(at) {
    const { name } = this.frames;
    const of = name.of[at];
    return of === null ? "(no name)" : name.texts[of];
  }

  /** @param {number} at */
  short(at) {
    const { name } = this.frames;
    const of = name.of[at];
    return of === null ? "(no name)" : name.short[of] ?? name.texts[of];
  }

  /** The frames around one, the outermost first. @param {number} at */
  above(at) {
    const found = [];
    for (let one = this.frames.parent[at]; one !== null; one = this.frames.parent[one]) found.unshift(one);
    return found;
  }

  /** @param {number} at */
  rootOf(at) {
    return this.above(at)[0] ?? at;
  }

  /** The frames beside one and itself. @param {number} at */
  beside(at) {
    const parent = this.frames.parent[at];
    return (parent === null ? this.roots : this.children[parent]).filter((one) => this.widths[one] > 0);
  }

  /** Where a frame with a number is; -1 where it is not. @param {number} number */
  find(number) {
    return this.frames.n.indexOf(number);
  }

  /** A frame and all below it. @param {number} at */
  *below(at) {
    const open = [at];
    while (open.length) {
      const one = /** @type {number} */ (open.pop());
      yield one;
      open.push(...this.children[one]);
    }
  }

  /**
   * The frames whose names have a text in them, and how wide these are together; what lies in another counts once.
   * @param {string} text
   */
  search(text) {
    const wanted = searchable(text);
    const names = this.frames.name.texts.map((name) => searchable(name).includes(wanted));
    const meant = new Set();
    let width = 0;
    const inside = new Array(this.size).fill(false);
    for (let at = 0; at < this.size; at += 1) {
      const parent = this.frames.parent[at];
      const isIn = parent !== null && inside[parent];
      const of = this.frames.name.of[at];
      const hits = of !== null && names[of] && this.widths[at] > 0;
      if (hits) {
        meant.add(at);
        if (!isIn) width += this.widths[at];
      }
      inside[at] = isIn || hits;
    }
    return { meant, width };
  }

  /** The names that have the most time of their own in a frame. @param {number | null} at @param {number} most */
  heaviest(at, most) {
    /** @type {Map<number | null, { own: number, at: number, widest: number, calls: number | null }>} */
    const found = new Map();
    const { own, name, calls } = this.frames;
    for (const root of at === null ? this.roots : [at]) {
      for (const one of this.below(root)) {
        if (own[one] <= 0) continue;
        const known = found.get(name.of[one]);
        if (!known) found.set(name.of[one], { own: own[one], at: one, widest: own[one], calls: calls[one] });
        else {
          known.own += own[one];
          known.calls = known.calls === null || calls[one] === null ? null : known.calls + /** @type {number} */ (calls[one]);
          if (own[one] > known.widest) Object.assign(known, { at: one, widest: own[one] });
        }
      }
    }
    return [...found.values()].sort((one, other) => other.own - one.own).slice(0, most);
  }
}
