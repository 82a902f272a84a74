/* What the page shares with the one that `analyze --format html` writes, which knows no modules. */

/** @type {(tag: string, options?: object | null, ...children: (Node | string | null)[]) => HTMLElement} */
export const element = globalThis.element;
/** @type {(value: unknown, unit: string) => string} A value as text; a dash for what is not known. */
export const show = globalThis.show;
/** @type {(name: string) => string} A colour of the theme that holds now. */
export const themeColor = globalThis.themeColor;
/** @type {(redraw: () => void) => void} */
export const themeButton = globalThis.themeButton;
