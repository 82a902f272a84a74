/* What is shown, as the address has it: #view?name=value&... Back and a copied address show the same again. */

/** @typedef {{ view: string, values: Record<string, string> }} State */

/** @type {Set<(state: State) => void>} */
const listeners = new Set();
let known = "";
/** The last address of each view. @type {Map<string, string>} */
const left = new Map();

function remember() {
  known = location.hash;
  left.set(current().view, known);
}

/** @returns {State} */
export function current() {
  const [view, query] = location.hash.slice(1).split("?", 2);
  return { view, values: Object.fromEntries(new URLSearchParams(query || "")) };
}

/**
 * The address of a view.
 * @param {string} view
 * @param {Record<string, unknown>} [values] without those that are null
 */
export function addressOf(view, values = {}) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
  return `#${view}${query ? `?${query}` : ""}`;
}

/**
 * Shows a view; Back shows again what was there.
 * @param {string} view
 * @param {Record<string, unknown>} [values]
 */
export function go(view, values = {}) {
  const address = addressOf(view, values);
  if (address === location.hash) return;
  history.pushState(null, "", address);
  tell();
}

/**
 * Notes values of the view that is shown, without a step for Back unless `step` says so.
 * @param {Record<string, unknown>} changes
 * @param {boolean} [step]
 */
export function note(changes, step = false) {
  const { view, values } = current();
  const address = addressOf(view, { ...values, ...changes });
  if (address === location.hash) return;
  if (step) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  remember();
}

/** Shows a view as it was when it was left. @param {string} view */
export function again(view) {
  const address = left.get(view) ?? addressOf(view);
  if (address === location.hash) return;
  history.pushState(null, "", address);
  tell();
}

/** @param {(state: State) => void} listener */
export function follow(listener) {
  listeners.add(listener);
}

function tell() {
  if (location.hash === known) return;
  remember();
  for (const listener of listeners) listener(current());
}

window.addEventListener("popstate", tell);
window.addEventListener("hashchange", tell);
remember();
