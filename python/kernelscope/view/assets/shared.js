/* What the page shares with the one that `analyze --format html` writes, which knows no modules. */

/** @type {(tag: string, options?: object | null, ...children: (Node | string | null)[]) => HTMLElement} */
export const element = globalThis.element;
/** @type {(value: unknown, unit: string) => string} A value as text; a dash for what is not known. */
export const show = globalThis.show;
/** @type {(name: string) => string} A colour of the theme that holds now. */
export const themeColor = globalThis.themeColor;
/** @type {(redraw: () => void) => void} */
export const themeButton = globalThis.themeButton;

/** A number of things, such as "2 ranks". @param {number} count @param {string} what */
export const counted = (count, what) => `${show(count, "count")} ${what}${count === 1 ? "" : what.endsWith("ch") ? "es" : "s"}`;

/** A choice among steps, with the time of each. @param {[number | null, number][]} steps */
export const stepOptions = (steps) => steps.map(([number, ns]) => element("option", { value: number ?? "", text: number === null ? "all" : `${number}: ${show(ns, "ns")}` }));
