/* The axis with its ticks and steps, and the minimap of the whole trace. */

import { DATED_NS, absolute, day, relative, ticks } from "./ticks.js";

/** @typedef {import("./draw.js").Palette} Palette */

export const AXIS_HEIGHT = 50;
export const MINIMAP_HEIGHT = 34;
const STEP_BAR = 16;
const TICK_ROOM = 130;
const LETTER = 6.3;

/**
 * @param {CanvasRenderingContext2D} paint
 * @param {Palette} palette
 * @param {[number, number]} range ns
 * @param {number} width
 * @param {bigint | null} epoch
 */
export function drawAxis(paint, palette, [start, end], width, epoch) {
  const { step, places } = ticks(start, end, width / TICK_ROOM);
  const largest = Math.max(Math.abs(start), Math.abs(end));
  paint.strokeStyle = palette.grid;
  for (const time of places) {
    const x = ((time - start) / (end - start)) * width;
    paint.fillStyle = palette.faint;
    paint.fillRect(x, 0, 1, AXIS_HEIGHT - STEP_BAR);
    const texts = [relative(time, step, largest), epoch === null ? "" : absolute(time, step, epoch, end - start >= DATED_NS)];
    // What has no room at the edge would be read as another time.
    if (x + 6 + Math.max(...texts.map((text) => paint.measureText(text).width)) > width) continue;
    paint.fillStyle = palette.text;
    paint.fillText(texts[0], x + 4, 9);
    paint.fillStyle = palette.faint;
    paint.fillText(texts[1], x + 4, 24);
  }
}

/** The day of the left edge. @param {number} start @param {bigint | null} epoch */
export const dayOf = (start, epoch) => (epoch === null ? "" : `${day(start, epoch)} UTC`);

/**
 * The steps below the ticks, each as long as it takes.
 * @param {CanvasRenderingContext2D} paint
 * @param {Palette} palette
 * @param {[number, number]} range
 * @param {number} width
 * @param {number[][]} steps number, start, length
 */
export function drawSteps(paint, palette, [start, end], width, steps) {
  const scale = width / (end - start);
  const y = AXIS_HEIGHT - STEP_BAR;
  let last = -Infinity;
  for (const [number, begin, length] of steps) {
    const x = Math.max((begin - start) * scale, 0);
    const right = Math.min((begin + length - start) * scale, width);
    if (right < 0 || x > width || right - last < 1) continue;
    last = right;
    paint.fillStyle = palette.grid;
    paint.fillRect(x, y, Math.max(right - x - 1, 1), STEP_BAR - 3);
    const text = `step ${number}`;
    paint.fillStyle = palette.text;
    if (right - x > text.length * LETTER + 6) paint.fillText(text, x + 4, y + 7);
  }
}

/** The step at a place of the axis; null if there is none. @param {number[][]} steps @param {number} time @param {number} y */
export function stepAt(steps, time, y) {
  if (y < AXIS_HEIGHT - STEP_BAR) return null;
  return steps.find(([, start, length]) => time >= start && time <= start + length) ?? null;
}

/**
 * How busy the GPUs (or where there is none, the threads) are all over the trace, and what of it is shown.
 * @param {CanvasRenderingContext2D} paint
 * @param {Palette} palette
 * @param {number[]} busy shares per pixel
 * @param {[number, number]} whole
 * @param {[number, number]} range
 * @param {number} width
 */
export function drawMinimap(paint, palette, busy, whole, range, width) {
  paint.fillStyle = palette.accent;
  const wide = width / busy.length;
  paint.globalAlpha = 0.55;
  busy.forEach((share, place) => {
    const high = share * (MINIMAP_HEIGHT - 6);
    paint.fillRect(place * wide, MINIMAP_HEIGHT - 2 - high, Math.ceil(wide), high);
  });
  const scale = width / (whole[1] - whole[0]);
  const x = (range[0] - whole[0]) * scale;
  const shown = Math.max((range[1] - range[0]) * scale, 3);
  paint.fillStyle = palette.faint;
  paint.globalAlpha = 0.3;
  paint.fillRect(0, 0, x, MINIMAP_HEIGHT);
  paint.fillRect(x + shown, 0, width - x - shown, MINIMAP_HEIGHT);
  paint.globalAlpha = 1;
  paint.strokeStyle = palette.text;
  paint.lineWidth = 1.5;
  paint.strokeRect(x + 0.75, 0.75, shown - 1.5, MINIMAP_HEIGHT - 1.5);
}

/**
 * How busy each of `pixels` parts of the whole is, by the outermost marks: the busiest track counts.
 * @param {import("./marks.js").Marks} marks
 * @param {[number, number]} whole
 * @param {number} pixels
 */
export function busyShares(marks, [first, last], pixels) {
  const part = (last - first) / pixels;
  const found = new Array(pixels).fill(0);
  for (const lanes of marks.lanes.values()) {
    const own = new Array(pixels).fill(0);
    const [begin, end] = lanes[0] ?? [0, 0];
    for (let index = begin; index < end; index += 1) {
      const start = marks.starts[index] - first;
      const until = start + marks.lengths[index];
      const share = marks.events[index] === 1 ? 1 : marks.busy[index] / 100;
      for (let place = Math.max(Math.floor(start / part), 0); place < pixels && place * part < until; place += 1) {
        const inside = Math.min(until, (place + 1) * part) - Math.max(start, place * part);
        own[place] += (share * inside) / part;
      }
    }
    own.forEach((value, place) => {
      found[place] = Math.max(found[place], Math.min(value, 1));
    });
  }
  return found;
}
