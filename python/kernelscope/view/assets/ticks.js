/* The marks of an axis of time: as many digits as tell each from the next, so that none repeats. */

const UNITS = /** @type {const} */ ([["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]]);
const DAY_S = 86_400;
/** From here on the time of day alone could repeat, ns. */
export const DATED_NS = DAY_S * 1e9;

/**
 * The distance between ticks, ns: 1, 2 or 5 of a power of ten.
 * @param {number} rough the least distance
 */
export function tickStep(rough) {
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? 10 * power;
}

/**
 * The ticks of a range.
 * @param {number} start ns
 * @param {number} end ns
 * @param {number} most how many have room
 */
export function ticks(start, end, most) {
  const step = tickStep((end - start) / Math.max(most, 1));
  const found = [];
  const first = Math.ceil(start / step);
  // Counted, not added up: sums of floating-point numbers drift.
  for (let place = first; place * step <= end; place += 1) found.push(place * step);
  return { step, places: found };
}

/**
 * A time since the start of the trace, in the unit of the range, with the digits that the distance needs.
 * @param {number} time ns
 * @param {number} step ns between ticks
 * @param {number} largest ns: of the range that is shown
 */
export function relative(time, step, largest) {
  const [unit, size] = UNITS.find(([, factor]) => Math.abs(largest) >= factor) ?? UNITS[3];
  const digits = Math.max(0, Math.min(Math.round(Math.log10(size)), Math.ceil(Math.log10(size / step) - 1e-9)));
  return `${(time / size).toFixed(digits)} ${unit}`;
}

/**
 * The time of day (UTC) of a moment, with the digits that the distance needs.
 * @param {number} time ns since the start of the trace
 * @param {number} step ns between ticks
 * @param {bigint} epoch ns since 1970 of the start
 * @param {boolean} [dated] with the day, where a range has several
 */
export function absolute(time, step, epoch, dated = false) {
  const at = epoch + BigInt(Math.round(time));
  const seconds = Number(at / 1_000_000_000n);
  const rest = String(at % 1_000_000_000n).padStart(9, "0");
  const since = ((seconds % DAY_S) + DAY_S) % DAY_S;
  const clock = [since / 3600, (since / 60) % 60, since % 60].map((part) => String(Math.floor(part)).padStart(2, "0")).join(":");
  const digits = Math.max(0, Math.min(9, Math.ceil(9 - Math.log10(Math.max(step, 1)) - 1e-9)));
  const text = digits ? `${clock}.${rest.slice(0, digits)}` : clock;
  return dated ? `${day(time, epoch)} ${text}` : text;
}

/**
 * The day (UTC) of a moment.
 * @param {number} time ns since the start of the trace
 * @param {bigint} epoch ns since 1970 of the start
 */
export function day(time, epoch) {
  const at = epoch + BigInt(Math.round(time));
  return new Date(Number(at / 1_000_000n)).toISOString().slice(0, 10);
}

/**
 * The ticks of a logarithmic axis: decades, or where these are few 1, 2 and 5 of each.
 * @param {number} low power of ten
 * @param {number} high power of ten
 * @param {number} most how many have room
 */
export function decades(low, high, most) {
  const factors = (high - low) * 3 <= most ? [1, 2, 5] : [1];
  const step = Math.max(1, Math.ceil((high - low) / Math.max(most, 1)));
  const found = [];
  for (let power = Math.ceil(Math.floor(low) / step) * step; power <= high; power += step) {
    for (const factor of factors) found.push(factor * 10 ** power);
  }
  return found.filter((value) => Math.log10(value) >= low && Math.log10(value) <= high);
}

/** A number of a logarithmic axis, however small or large. @param {number} value */
export const magnitude = (value) => (value >= 1e-3 && value < 1e6 ? value.toLocaleString("en-US", { maximumFractionDigits: 3 }) : value.toExponential(0));
