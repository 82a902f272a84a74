/* Starts the page: waits for the trace, and shows the view that the address names. */

import { element } from "./shared.js";
import { ask } from "./requests.js";
import { begin, failed, main, untilRead } from "./page.js";
import { addressOf, again, current, follow } from "./state.js";
import { KEYS, keyHelp } from "./input.js";
import { TimelineView } from "./timeline-view.js";
import { overview } from "./overview.js";
import { TablesView } from "./tables.js";
import { SqlView } from "./sql.js";
import { FlameView } from "./flame-view.js";
import { Roofline } from "./roofline.js";

const help = /** @type {HTMLDialogElement} */ (document.getElementById("help"));
/** @type {TimelineView | null} */
let timeline = null;
/** @type {{ id: string, title: string }[]} */
let menu = [];
let shown = "";

function buildMenu() {
  const entry = ({ id, title }) => element("li", {}, element("a", { href: addressOf(id), "data-view": id }, title));
  const list = element("ul", {}, ...menu.map(entry));
  document.getElementById("menu")?.replaceChildren(list);
  const button = /** @type {HTMLElement} */ (document.getElementById("menu-button"));
  const open = (wanted) => {
    document.body.classList.toggle("menu-open", wanted);
    button.setAttribute("aria-expanded", String(wanted));
  };
  button.addEventListener("click", () => open(!document.body.classList.contains("menu-open")));
  list.addEventListener("click", (event) => {
    open(false);
    const view = /** @type {HTMLElement} */ (event.target).dataset?.view;
    if (!view || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    again(view);
  });
}

/** @param {import("./state.js").State} state */
async function showView({ view, values }) {
  const id = menu.some((entry) => entry.id === view) ? view : menu[0].id;
  for (const link of document.querySelectorAll("#menu a")) {
    if (/** @type {HTMLElement} */ (link).dataset.view === id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const isOther = shown !== id;
  shown = id;
  document.body.dataset.view = id;
  main.setAttribute("aria-busy", "true");
  try {
    if (id === "timeline") await showTimeline(values, isOther);
    else if (id === "overview") await put(id, await overview());
    else if (id === "sql") await showSql(values, isOther);
    else if (id === "flame") await showFlame(values, isOther);
    else await showTables(id, values, isOther);
  } catch (error) {
    main.replaceChildren(element("p", { class: "note missing", text: error instanceof Error ? error.message : String(error) }));
    failed(error);
  }
  if (shown === id) main.setAttribute("aria-busy", "false");
  // Who types already keeps the keyboard.
  if (isOther && !main.contains(document.activeElement)) /** @type {HTMLElement | null} */ (main.querySelector("h1"))?.focus({ preventScroll: true });
}

/** @param {string} id @param {HTMLElement} content */
async function put(id, content) {
  // Another view may have been chosen meanwhile.
  if (shown === id) main.replaceChildren(content);
}

async function showTimeline(values, isOther) {
  if (!timeline) {
    const info = await ask("timeline");
    if (!info.tracks.length) {
      const title = element("h1", { text: "Timeline", tabindex: "-1" });
      return put("timeline", element("div", { class: "report" }, title, element("p", { class: "note missing", text: "The trace has no events with a timestamp, so there is nothing to draw: the view Diagnostics lists the events that were read." })));
    }
    timeline = new TimelineView(info, { failed, help: showHelp });
  }
  if (isOther) await put("timeline", timeline.root);
  if (shown === "timeline") await timeline.follow(values);
  return undefined;
}

/** @type {TablesView | null} */
let tables = null;
/** @type {Roofline | null} */
let roofline = null;

async function showTables(id, values, isOther) {
  if (isOther || !tables) {
    const view = await ask("view", { id });
    if (shown !== id) return;
    tables = new TablesView(view, failed);
    roofline = id === "roofline" ? new Roofline(await ask("roofline")) : null;
    if (roofline) tables.root.children[1].after(roofline.root);
    await put(id, tables.root);
  }
  roofline?.follow(values);
  await tables.follow(values);
}

/** @type {SqlView | null} */
let sql = null;

async function showSql(values, isOther) {
  sql ??= new SqlView(await ask("names"), failed);
  if (isOther) await put("sql", sql.root);
  if (shown === "sql") await sql.follow(values);
}

/** @type {FlameView | null} */
let flame = null;

async function showFlame(values, isOther) {
  flame ??= new FlameView(failed);
  if (isOther) await put("flame", flame.root);
  if (shown === "flame") await flame.follow(values);
}

const showHelp = () => keyHelp(KEYS);

function onKey(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (help.open || event.defaultPrevented || target.closest("input, select, textarea")) return;
  if (shown === "timeline" && timeline && !(event.key === "Enter" || event.key === " ")) timeline.key(event);
  else if (event.key === "?") showHelp();
}

async function start() {
  document.getElementById("help-button")?.addEventListener("click", showHelp);
  document.addEventListener("keydown", onKey);
  const [known] = await Promise.all([ask("menu"), untilRead("Reading the trace")]);
  performance.mark("kernelscope-read");
  menu = known.views;
  buildMenu();
  follow(showView);
  await showView(current());
}

begin(start, "This trace cannot be shown", () => {
  timeline?.recolor();
  flame?.recolor();
});
