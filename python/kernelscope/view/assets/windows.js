/* Fetches what the timeline shows: the whole at first, then what is in sight with margins, the newest wish only. */

import { Latest, ask } from "./requests.js";
import { fineness, marksOf } from "./marks.js";

/** @typedef {import("./marks.js").Marks} Marks */

const MARGIN = 0.75;
const LEAST_MARGIN = 0.2;
const TOO_COARSE = 1.35;
const MEASURED = "kernelscope-window";
const MOST_MEASURED = 2_000;

export class Windows {
  /**
   * @param {[number, number]} whole
   * @param {() => void} changed is called when there is more to draw
   * @param {(error: unknown) => void} failed
   * @param {string} at where the trace is, as of `ask`
   */
  constructor(whole, changed, failed, at) {
    this.whole = whole;
    this.at = at;
    this.changed = changed;
    this.failed = failed;
    this.latest = new Latest("window", at);
    /** @type {Marks | null} The whole trace, of the tracks that were last in sight of it. */
    this.coarse = null;
    /** @type {Marks | null} */
    this.fine = null;
    /** @type {[number, number, number, number[]] | null} */
    this.wanted = null;
    this.loading = false;
  }

  /**
   * Asks for a range on so many pixels of these tracks, unless it is there; says whether it has to be waited for.
   * @param {number} start
   * @param {number} end
   * @param {number} width
   * @param {number[]} tracks
   */
  want(start, end, width, tracks) {
    if (!tracks.length || this.has(start, end, width, tracks)) return false;
    this.wanted = [start, end, width, tracks];
    if (!this.loading) this.load();
    return true;
  }

  has(start, end, width, tracks) {
    const [first, last] = this.whole;
    const spare = LEAST_MARGIN * (end - start);
    return [this.fine, this.coarse].some((marks) => marks !== null
      && marks.start <= Math.max(start - spare, first) && marks.end >= Math.min(end + spare, last)
      && (fineness(marks) <= (TOO_COARSE * (end - start)) / width || marks.limit)
      && tracks.every((track) => marks.tracks.has(track)));
  }

  async load() {
    this.loading = true;
    try {
      while (this.wanted) {
        const [start, end, width, tracks] = this.wanted;
        this.wanted = null;
        const begun = performance.now();
        const [first, last] = this.whole;
        const margin = MARGIN * (end - start);
        // No wider than the whole: what lies outside has no marks.
        const from = Math.floor(Math.max(start - margin, Math.min(first, start)));
        const to = Math.ceil(Math.min(end + margin, Math.max(last, end))) + 1;
        const pixels = Math.ceil((width * (to - from)) / (end - start));
        const answer = await this.latest.ask({ start: from, end: to, pixels, tracks: tracks.join(",") });
        if (!answer) continue;
        this.take(answer, answer.pixels < pixels);
        this.measured(begun);
        this.changed();
      }
    } catch (error) {
      this.failed(error);
    } finally {
      this.loading = false;
    }
  }

  /** @param {any} answer @param {boolean} limit whether it is as fine as an answer can be */
  take(answer, limit) {
    const marks = { ...marksOf(answer), limit };
    if (marks.start <= this.whole[0] && marks.end >= this.whole[1]) this.coarse = marks;
    else this.fine = marks;
  }

  measured(begun) {
    performance.measure(MEASURED, { start: begun });
    if (performance.getEntriesByName(MEASURED).length > MOST_MEASURED) performance.clearMeasures(MEASURED);
  }

  /**
   * The marks to draw a track with, the best in each part of a range.
   * @param {number} start
   * @param {number} end
   * @param {number} track
   * @returns {[Marks, number, number][]}
   */
  parts(start, end, track) {
    const { fine, coarse } = this;
    const usable = fine?.tracks.has(track) && fine.start < end && fine.end > start ? fine : null;
    const behind = coarse?.tracks.has(track) ? coarse : null;
    // A coarse window that is as fine as the other knows all of it.
    if (!usable || (behind && fineness(behind) <= fineness(usable))) return behind ? [[behind, start, end]] : usable ? [[usable, start, end]] : [];
    const [from, to] = [Math.max(start, usable.start), Math.min(end, usable.end)];
    /** @type {[Marks, number, number][]} */
    const found = [[usable, from, to]];
    if (behind && from > start) found.unshift([behind, start, from]);
    if (behind && to < end) found.push([behind, to, end]);
    return found;
  }

  stop() {
    this.wanted = null;
    this.latest.stop();
  }

  /** What the minimap shows. @param {number} pixels @param {number[]} tracks */
  async overview(pixels, tracks) {
    return marksOf(await ask("window", { start: this.whole[0], end: this.whole[1], pixels, tracks: tracks.join(",") }, undefined, this.at));
  }
}
