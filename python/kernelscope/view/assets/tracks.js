/* The rows of the timeline: groups (a GPU, a process) with their tracks, which of them are open, and where. */

import { element } from "./shared.js";

export const LANE = 17;
const GROUP = 24;
const TRACK_GAP = 6;
const FOLDED_LANES = 1;
/** Lanes of Python frames are many and long: shown when asked for. */
const FOLDED_AT_FIRST = "python";
const PINNED = "Pinned";

/**
 * @typedef {{ track: number, kind: string, label: string, group: string, lanes: number }} Track
 * @typedef {{ group: string, track: Track | null, top: number, height: number, lanes: number }} Row
 */

export class Tracks {
  /** @param {Track[]} tracks */
  constructor(tracks) {
    this.all = tracks;
    /** Groups and tracks that are folded, by name and by number. @type {Set<string | number>} */
    this.folded = new Set(tracks.filter((track) => track.kind === FOLDED_AT_FIRST).map((track) => track.track));
    this.first = new Set(this.folded);
    /** Tracks that stand above all groups, in the order in which they were pinned. @type {Set<number>} */
    this.pinned = new Set();
    this.filter = "";
    /** @type {Row[]} */
    this.rows = [];
    this.height = 0;
    this.place();
  }

  /** Puts the rows below each other. */
  place() {
    const wanted = this.filter.toLowerCase();
    const shown = this.all.filter((track) => `${track.group} ${track.label} ${track.kind}`.toLowerCase().includes(wanted));
    const known = new Map(this.all.map((track) => [track.track, track]));
    // What is pinned stays in sight, whatever is filtered.
    const pins = [...this.pinned].flatMap((number) => known.get(number) ?? []);
    /** @type {Map<string, Track[]>} */
    const groups = new Map(pins.length ? [[PINNED, pins]] : []);
    for (const track of shown) {
      if (this.pinned.has(track.track)) continue;
      if (!groups.has(track.group)) groups.set(track.group, []);
      groups.get(track.group)?.push(track);
    }
    this.rows = [];
    let top = 0;
    for (const [group, tracks] of groups) {
      this.rows.push({ group, track: null, top, height: GROUP, lanes: 0 });
      top += GROUP;
      if (this.folded.has(group)) continue;
      for (const track of tracks) {
        const lanes = this.folded.has(track.track) ? FOLDED_LANES : track.lanes;
        const height = lanes * LANE + TRACK_GAP;
        this.rows.push({ group, track, top, height, lanes });
        top += height;
      }
    }
    this.height = top;
  }

  /** Opens what is folded and folds what is open. @param {string | number} what a group or a track */
  toggle(what) {
    if (!this.folded.delete(what)) this.folded.add(what);
    this.place();
  }

  /** Pins a track, or lets it go. @param {number} track */
  pin(track) {
    if (!this.pinned.delete(track)) this.pinned.add(track);
    this.place();
  }

  /** What is folded that was open at first, or the other way round, and what is pinned, as an address has it. */
  get arrangement() {
    const names = [...new Set(this.all.map((track) => track.group))];
    const turned = [...names.map((name, at) => [name, `g${at}`]), [PINNED, "p"], ...this.all.map(({ track }) => [track, String(track)])]
      .filter(([what]) => this.folded.has(what) !== this.first.has(what)).map(([, text]) => text);
    return { fold: turned.join("."), pins: [...this.pinned].join(".") };
  }

  /** Folds and pins as an address says. @param {{ fold?: string, pins?: string }} arrangement */
  arrange({ fold = "", pins = "" }) {
    const names = [...new Set(this.all.map((track) => track.group))];
    const tracks = new Set(this.all.map(({ track }) => track));
    this.folded = new Set(this.first);
    for (const text of fold.split(".").filter(Boolean)) {
      const what = text === "p" ? PINNED : text.startsWith("g") ? names[Number(text.slice(1))] : Number(text);
      if (what === undefined || (typeof what === "number" && !tracks.has(what))) continue;
      if (!this.folded.delete(what)) this.folded.add(what);
    }
    this.pinned = new Set(pins.split(".").filter(Boolean).map(Number).filter((track) => tracks.has(track)));
    this.place();
  }

  /** Opens a track so far that a lane is seen. @param {number} number @param {number} lane */
  open(number, lane) {
    const track = this.all.find((one) => one.track === number);
    if (!track) return;
    if (this.filter && !this.rowOf(number)) this.filter = "";
    this.folded.delete(this.pinned.has(number) ? PINNED : track.group);
    if (lane >= FOLDED_LANES) this.folded.delete(number);
    this.place();
  }

  /** @param {number} number of a track */
  rowOf(number) {
    return this.rows.find((row) => row.track?.track === number);
  }

  /** The rows between two heights. @param {number} from @param {number} to */
  between(from, to) {
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle].top + this.rows[middle].height <= from) low = middle + 1;
      else high = middle;
    }
    let until = low;
    while (until < this.rows.length && this.rows[until].top < to) until += 1;
    return this.rows.slice(low, until);
  }

  /** The track and lane at a height; null between them. @param {number} height */
  at(height) {
    const [row] = this.between(height, height + 1);
    if (!row?.track) return null;
    const lane = Math.floor((height - row.top) / LANE);
    return lane < row.lanes ? { track: row.track, lane } : null;
  }
}

const KINDS = { stream: "", thread: "", python: "Python, " };

/**
 * The labels of the rows that are in sight: buttons that fold and open them.
 * @param {Tracks} tracks
 * @param {Row[]} rows
 * @param {(what: string | number) => void} toggle
 * @param {(track: number) => void} pin
 */
export function labels(tracks, rows, toggle, pin) {
  return rows.flatMap((row) => {
    const what = row.track ? row.track.track : row.group;
    const text = row.track ? `${KINDS[row.track.kind]}${row.track.label}` : row.group;
    const folded = tracks.folded.has(what);
    const opens = !row.track || row.track.lanes > FOLDED_LANES;
    const label = opens
      ? element("button", { type: "button", "aria-expanded": String(!folded), onclick: () => toggle(what) }, element("bdi", { text }))
      : element("span", {}, element("bdi", { text }));
    label.title = text;
    label.dataset.row = String(what);
    label.className = row.track ? "label track" : "label group";
    label.style.top = `${row.top}px`;
    label.style.height = `${Math.min(row.height, row.track ? row.height - TRACK_GAP / 2 : GROUP)}px`;
    return row.track ? [label, pinButton(tracks, row, pin)] : [label];
  });
}

/** Pins a track, or lets it go. @param {Tracks} tracks @param {Row} row @param {(track: number) => void} pin */
function pinButton(tracks, row, pin) {
  const track = /** @type {Track} */ (row.track);
  const isPinned = tracks.pinned.has(track.track);
  const words = `Pin ${KINDS[track.kind]}${track.label}`;
  const button = element("button", { type: "button", class: "pin", "aria-pressed": String(isPinned), "aria-label": words, title: isPinned ? "Unpin it from the top" : "Pin it to the top", text: isPinned ? "★" : "☆", onclick: () => pin(track.track) });
  button.dataset.row = `pin ${track.track}`;
  button.style.top = `${row.top}px`;
  return button;
}
