/* The marks of a window: what the server says of a stretch of time, ready to be drawn and looked up. */

/**
 * @typedef {{ start: number, end: number, pixels: number, tracks: Set<number>, names: string[], short: (string | null)[],
 *   lane: number[], starts: number[], lengths: number[], busy: number[], events: number[],
 *   category: number[], name: (number | null)[], row: number[], lanes: Map<number, [number, number][]> }} Marks
 */

/**
 * An answer of /api/window, with the places of each lane's marks.
 * @param {any} answer
 * @returns {Marks}
 */
export function marksOf(answer) {
  const { track, lane, start, length, busy, events, category, name, row } = answer.marks;
  /** @type {Map<number, [number, number][]>} */
  const lanes = new Map();
  // They come by track, lane and start.
  for (let index = 0; index < track.length; index += 1) {
    let own = lanes.get(track[index]);
    if (!own) lanes.set(track[index], (own = []));
    const place = own[lane[index]];
    if (place) place[1] = index + 1;
    else own[lane[index]] = [index, index + 1];
  }
  return {
    start: answer.start, end: answer.end, pixels: answer.pixels, tracks: new Set(answer.tracks), names: answer.names, short: answer.short,
    lane, starts: start, lengths: length, busy, events, category, name, row, lanes,
  };
}

/** ns per pixel of a window. @param {Marks} marks */
export const fineness = (marks) => (marks.end - marks.start) / marks.pixels;

/**
 * The first mark of a lane that ends behind a time; marks of a lane do not overlap.
 * @param {Marks} marks
 * @param {[number, number]} place
 * @param {number} time
 */
export function firstAfter(marks, [first, last], time) {
  let low = first;
  let high = last;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (marks.starts[middle] + marks.lengths[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The mark of a lane nearest to a time, at most `reach` away; -1 if there is none.
 * @param {Marks} marks
 * @param {number} track
 * @param {number} lane
 * @param {number} time
 * @param {number} reach
 */
export function markAt(marks, track, lane, time, reach) {
  const place = marks.lanes.get(track)?.[lane];
  if (!place) return -1;
  let best = -1;
  let nearest = reach;
  for (let index = firstAfter(marks, place, time - reach); index < place[1]; index += 1) {
    const start = marks.starts[index];
    if (start > time + reach) break;
    const away = Math.max(start - time, time - (start + marks.lengths[index]), 0);
    if (best < 0 || away < nearest) {
      nearest = away;
      best = index;
    }
  }
  return best;
}
