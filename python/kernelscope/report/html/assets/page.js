/* The page itself: its menu, its views, the address that names what is shown, and the theme. */

const MENU = JSON.parse(document.getElementById("views").textContent);
const PARTS = {
  table: (part, view) => (part.hidden ? null : tableElement(view, part)),
  figure: (part) => figureElement(part),
  facts: (part) => factsElement(part),
  note: (part) => element("p", { class: part.missing ? "note missing" : "note", text: part.text }),
  timeline: (part) => new TimelinePart(part).section,
  group: (part, view) => groupElement(part, view),
  glossary: (part) => glossaryElement(part),
};
/* Marks when the first view is drawn as far as the window shows it. */
const INTERACTIVE = "kernelscope-interactive";
let shown = null;

function factsElement(part) {
  const list = element("dl", { class: part.tiles ? "tiles" : "facts" });
  for (const [name, value, what, key] of part.items) {
    const label = key ? element("dt", {}, termLink(key, name)) : element("dt", { text: name });
    const inside = [label, element("dd", { text: value, dir: "auto" })];
    if (what && part.tiles) inside.push(element("dd", { class: "meaning", text: what }));
    list.append(element("div", what ? { title: what } : {}, ...inside));
  }
  return element("section", { class: part.wide ? "part wide" : "part", id: `part-${part.id}` }, heading(part), list);
}

/* The terms, where #glossary/key leads. */
function glossaryElement(part) {
  const list = element("dl", { class: "glossary" });
  for (const [key, title, unit, what] of part.terms) {
    const name = element("dt", { id: `part-${key}`, tabindex: "-1" }, title, " ", element("code", { text: key }));
    list.append(name, element("dd", { text: ["text", "sentence", "flag"].includes(unit) ? what : `${what} Unit: ${unit}.` }));
  }
  return element("section", { class: "part wide" }, list);
}

/* Parts of which one is shown at a time. */
function groupElement(part, view) {
  const choice = element("select", { id: `choice-${part.id}` });
  const label = element("label", { class: "choice", for: `choice-${part.id}`, text: `${part.title} ` });
  label.append(choice);
  const place = element("div");
  const section = element("section", { class: "group", id: `group-${part.id}` }, label, place);
  part.choices.forEach((entry, index) => choice.append(element("option", { value: index, text: entry.label })));
  const put = (index) => {
    choice.value = index;
    place.replaceChildren(PARTS[part.choices[index].part.kind](part.choices[index].part, view));
  };
  section.draw = async () => place.firstChild.draw?.();
  section.choose = (index) => {
    put(index);
    return section.draw();
  };
  section.choices = part.choices;
  choice.addEventListener("change", () => section.choose(Number(choice.value)));
  put(0);
  return section;
}

/* Every table of a view by its id, those inside groups too. */
function tablesOf(parts) {
  const found = new Map();
  for (const part of parts) {
    const inside = part.kind === "group" ? part.choices.map((entry) => entry.part) : [part];
    for (const item of inside) if (item.kind === "table") found.set(item.id, item);
  }
  return found;
}

async function showView(id) {
  const main = document.getElementById("main");
  if (shown === id) return;
  shown = id;
  main.setAttribute("aria-busy", "true");
  markMenu(id);
  const view = await viewOf(id);
  if (shown !== id) return;
  view.tables = tablesOf(view.parts);
  figures.clear();
  themed.clear();
  shownTables.clear();
  const made = view.parts.map((part) => PARTS[part.kind](part, view)).filter((item) => item !== null);
  const title = element("div", { class: "view-head" }, element("h1", { text: view.title, tabindex: "-1" }), element("p", { class: "note", text: view.what }));
  const body = element("div", { class: "parts" }, ...made);
  main.replaceChildren(title, body);
  document.title = `${view.title} - kernelscope`;
  // What the window shows comes first; who looks at it need not wait for the rest.
  const inSight = made.filter((item) => item.getBoundingClientRect().top < window.innerHeight);
  await drawn(inSight);
  if (shown !== id) return;
  if (!performance.getEntriesByName(INTERACTIVE).length) performance.mark(INTERACTIVE);
  await drawn(made.filter((item) => !inSight.includes(item)));
  if (shown === id) main.setAttribute("aria-busy", "false");
}

async function drawn(parts) {
  const ends = await Promise.allSettled(parts.map((part) => part.draw?.()));
  ends.forEach(complain);
}

/* A part that cannot be drawn says so, and costs no other. */
function complain(end) {
  if (end.status !== "rejected") return;
  console.error(end.reason);
  document.getElementById("main").append(element("p", { class: "note missing", text: `A part of this view could not be drawn: ${end.reason}` }));
}

function markMenu(id) {
  for (const link of document.querySelectorAll("#menu a")) {
    if (link.dataset.view === id) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function buildMenu() {
  const list = element("ul");
  for (const view of MENU) {
    const link = element("a", { href: `#${view.id}`, "data-view": view.id, class: view.empty ? "empty" : null }, view.title);
    if (view.empty) link.title = "Not recorded: the view describes how to record it";
    list.append(element("li", {}, link));
  }
  document.getElementById("menu").append(list);
  const button = document.getElementById("menu-button");
  const open = (wanted) => {
    document.body.classList.toggle("menu-open", wanted);
    button.setAttribute("aria-expanded", String(wanted));
  };
  button.addEventListener("click", () => open(!document.body.classList.contains("menu-open")));
  list.addEventListener("click", () => open(false));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") open(false);
  });
}

/* Shows what the address names: #view, #view/table or #view/table/row. */
async function follow() {
  const [id, table, row] = location.hash.slice(1).split("/");
  const known = MENU.some((view) => view.id === id);
  const isFirst = shown === null;
  if (id === "main" && !isFirst) return;
  await showView(known ? id : MENU[0].id);
  // A screen reader goes on with the view that was chosen.
  if (!isFirst && !table) document.querySelector("main h1")?.focus({ preventScroll: true });
  if (!known || !table) return;
  await chooseTable(table);
  if (row !== undefined) goToRow(table, Number(row));
  else {
    const place = document.getElementById(`part-${table}`);
    place?.scrollIntoView();
    if (place?.tabIndex === -1) place.focus({ preventScroll: true });
  }
}

/* Where the table stands in a group, shows it. */
async function chooseTable(id) {
  if (shownTables.has(id)) return;
  for (const group of document.querySelectorAll("section.group")) {
    const index = group.choices.findIndex((entry) => entry.part.id === id);
    if (index >= 0) await group.choose(index);
  }
}

/* Draws everything anew in the colours of the theme that now holds. */
function redrawAll() {
  for (const part of themed) part.draw();
  return recolorFigures();
}

async function start() {
  // Begun first: it takes longest.
  plotly();
  buildMenu();
  themeButton(redrawAll);
  window.addEventListener("hashchange", follow);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    // In the cell of a notebook the page has no address of its own, and links would lead to the notebook's.
    event.preventDefault();
    location.hash = link.getAttribute("href");
  });
  await follow();
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  console.error(error);
  document.getElementById("main").replaceChildren(element("p", { class: "note missing", text: `This page could not be shown: ${error}` }));
});
