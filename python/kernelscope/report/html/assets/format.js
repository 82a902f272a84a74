"use strict";

/* Numbers as text for people, the same as kernelscope.units, and the texts of a table's cells. */

const UNKNOWN = "–";
const TIME_UNITS = [["s", 1e9], ["ms", 1e6], ["us", 1e3]];
const BYTE_UNITS = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
const PREFIXES = [["E", 1e18], ["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];

// Made once: to make one takes longer than to write a number.
const PLAIN = new Intl.NumberFormat("en-US");
const FIXED = [0, 1, 2, 3].map((digits) => new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }));

function fourDigits(value) {
  const size = Math.abs(value);
  return FIXED[size < 9.9995 ? 3 : size < 99.995 ? 2 : size < 999.95 ? 1 : 0].format(value);
}

function scaled(value, units, smallest) {
  for (const [unit, factor] of units) {
    if (Math.abs(value) >= factor * 0.99995) return `${fourDigits(value / factor)} ${unit}`;
  }
  return `${Number.isInteger(value) ? value : fourDigits(value)} ${smallest}`;
}

function amount(value, unit) {
  for (const [prefix, factor] of PREFIXES) {
    if (Math.abs(value) >= factor * 0.9995) return `${Number((value / factor).toPrecision(3))} ${prefix}${unit}`;
  }
  return `${Number(value.toPrecision(3))} ${unit}`;
}

const FORMATS = {
  ns: (value) => scaled(value, TIME_UNITS, "ns"),
  bytes: (value) => scaled(value, BYTE_UNITS, "B"),
  count: (value) => PLAIN.format(value),
  number: (value) => PLAIN.format(Number(value.toPrecision(4))),
  percent: (value) => `${value.toFixed(1)} %`,
  share: (value) => `${(100 * value).toFixed(1)} %`,
  FLOP: (value) => amount(value, "FLOP"),
  "FLOP/s": (value) => amount(value, "FLOP/s"),
  "B/s": (value) => amount(value, "B/s"),
  "FLOP/B": (value) => `${PLAIN.format(Number(value.toPrecision(3)))} FLOP/B`,
  flag: (value) => (value ? "yes" : "no"),
  text: (value) => value,
  sentence: (value) => value,
};

/* The text of a cell; a dash for what is not known. */
function show(value, unit) {
  if (value === null || value === undefined) return UNKNOWN;
  const format = FORMATS[unit];
  return format ? format(value) : String(value);
}

/* The short form of a long name, where it has one. */
function shortOf(table, column, row) {
  const data = table.data[column];
  return table.columns[column].unit === "sentence" || Array.isArray(data) || data.of[row] === null ? null : data.short[data.of[row]];
}

/* The value of a cell of a table that the page holds by columns. */
function cellOf(table, column, row) {
  const data = table.data[column];
  if (!Array.isArray(data)) {
    const index = data.of[row];
    return index === null ? null : data.texts[index];
  }
  return data[row];
}
