/* What every page of the viewer does: it waits until there is something to show, and says what goes wrong. */

import { element, show, themeButton } from "./shared.js";
import { Refusal, ask } from "./requests.js";

const POLL_MS = 100;
const WATCH_MS = 10_000;
const NOTICE_MS = 8_000;
export const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const notice = /** @type {HTMLElement} */ (document.getElementById("notice"));
let noticed = 0;

/** Says something that does not go into the way. @param {string} text @param {boolean} [stays] */
export function say(text, stays = false) {
  clearTimeout(noticed);
  notice.textContent = text;
  notice.hidden = false;
  if (!stays) noticed = window.setTimeout(() => { notice.hidden = true; }, NOTICE_MS);
}

/** @param {unknown} error */
export function failed(error) {
  if (!(error instanceof Refusal)) console.error(error);
  say(error instanceof Error ? error.message : String(error));
}

/** A link to the page of several traces, if this one is of several. @param {HTMLElement} file @param {string | null | undefined} title */
function above(file, title) {
  if (title && !document.getElementById("above")) file.before(element("a", { id: "above", href: "../", text: title }), " ");
}

/** Waits until what is shown is read, and shows how far that is. @param {string} title @returns {Promise<any>} the status */
export async function untilRead(title) {
  const bar = /** @type {HTMLProgressElement} */ (element("progress", { "aria-label": title }));
  const text = element("p", { role: "status" });
  main.replaceChildren(element("div", { class: "reading" }, element("h1", { text: title }), bar, text));
  for (;;) {
    const status = await ask("status");
    const file = /** @type {HTMLElement} */ (document.getElementById("file"));
    file.textContent = file.title = status.name;
    document.title = `${status.name} - kernelscope`;
    above(file, status.above);
    if (status.state === "failed") throw new Refusal(status.error);
    if (status.state === "ready") return status;
    if (status.total) {
      bar.max = status.total;
      bar.value = Math.min(status.done, status.total);
    }
    text.textContent = status.total ? `${show(status.done, "bytes")} of ${show(status.total, "bytes")}` : show(status.done, "bytes");
    await new Promise((resolve) => { setTimeout(resolve, POLL_MS); });
  }
}

/** Says when a file is another one on disk, or the server is gone. */
async function watch() {
  try {
    const { changed } = await ask("status");
    if (changed) say("The file has changed since it was read: restart kernelscope view to see the new content.", true);
    setTimeout(watch, WATCH_MS);
  } catch (error) {
    say(error instanceof Error ? error.message : String(error), true);
  }
}

/**
 * Begins a page.
 * @param {() => Promise<void>} start
 * @param {string} failure what stands above the reason where there is nothing to show
 * @param {() => void} recolor is called when the theme is another one
 */
export function begin(start, failure, recolor) {
  themeButton(recolor);
  document.querySelector(".skip")?.addEventListener("click", (event) => {
    // The address names a view.
    event.preventDefault();
    main.focus();
  });
  start().then(() => {
    document.documentElement.dataset.ready = "yes";
    watch();
  }).catch((error) => {
    main.setAttribute("aria-busy", "false");
    main.replaceChildren(element("div", { class: "reading" }, element("h1", { text: failure }), element("p", { class: "note missing", text: error instanceof Error ? error.message : String(error) })));
    document.documentElement.dataset.ready = "failed";
  });
}
