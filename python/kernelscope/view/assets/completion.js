/* Names that complete themselves below a field of SQL. */

import { element } from "./shared.js";

const WORDS = ["select", "from", "where", "group by", "order by", "limit", "join", "left join", "desc", "count(*)", "sum(", "avg(", "min(", "max(", "like", "is null", "is not null", "between", "distinct", "having", "case when"];
const MOST = 12;
/** As the style sheet has them. */
const LINE = 19.5;
const PADDING = 9;

export class Completion {
  /** @param {HTMLTextAreaElement} field @param {{ name: string, what: string, columns: [string, string][] }[]} tables */
  constructor(field, tables) {
    this.field = field;
    this.tables = tables;
    /** @type {string[]} */
    this.found = [];
    this.at = -1;
    this.root = element("ul", { id: "completion", class: "completion", role: "listbox", "aria-label": "Names", hidden: true });
    for (const [name, value] of [["aria-autocomplete", "list"], ["aria-controls", "completion"]]) field.setAttribute(name, value);
    field.addEventListener("input", () => this.look());
    field.addEventListener("blur", () => this.close());
    field.addEventListener("keydown", (event) => this.key(event));
    // The field keeps the keyboard.
    this.root.addEventListener("mousedown", (event) => event.preventDefault());
  }

  /** The word in front of the cursor. */
  word() {
    return /\w*$/.exec(this.field.value.slice(0, this.field.selectionStart))?.[0] ?? "";
  }

  look() {
    const begun = this.word().toLowerCase();
    const used = new Set(this.field.value.toLowerCase().match(/\w+/g));
    const meant = this.tables.filter((table) => used.has(table.name));
    const columns = (meant.length ? meant : this.tables).flatMap((table) => table.columns.map(([name]) => name));
    const names = [...new Set([...columns, ...this.tables.map((table) => table.name), ...WORDS])];
    const found = begun ? names.filter((name) => name.startsWith(begun) && name !== begun) : [];
    this.offer(found.slice(0, MOST));
  }

  offer(found) {
    this.found = found;
    this.at = -1;
    this.root.hidden = !found.length;
    this.root.replaceChildren(...found.map((name, place) => element("li", { id: `completion-${place}`, role: "option", "aria-selected": "false", text: name, onclick: () => this.take(place) })));
    this.field.removeAttribute("aria-activedescendant");
    if (found.length) this.place();
  }

  /** Puts the names below the word that they complete; letters are of one width. */
  place() {
    const { field, root } = this;
    const lines = field.value.slice(0, field.selectionStart - this.word().length).split("\n");
    root.style.top = `${PADDING + lines.length * LINE - field.scrollTop + 3}px`;
    root.style.left = `min(${PADDING}px + ${lines[lines.length - 1].length}ch - ${field.scrollLeft}px, 100% - ${root.offsetWidth}px)`;
  }

  close() {
    this.offer([]);
  }

  /** @param {number} place */
  choose(place) {
    this.at = (place + this.found.length) % this.found.length;
    [...this.root.children].forEach((option, own) => option.setAttribute("aria-selected", String(own === this.at)));
    this.field.setAttribute("aria-activedescendant", `completion-${this.at}`);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!this.found.length || event.ctrlKey || event.metaKey) return;
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    if (moves[event.key]) this.choose(this.at < 0 && event.key === "ArrowUp" ? -1 : this.at + moves[event.key]);
    else if (event.key === "Tab" && !event.shiftKey) this.take(Math.max(this.at, 0));
    else if (event.key === "Enter" && this.at >= 0) this.take(this.at);
    else if (event.key === "Escape") this.close();
    else return;
    event.preventDefault();
  }

  /** @param {number} place */
  take(place) {
    const { field } = this;
    const end = field.selectionStart;
    field.setRangeText(this.found[place], end - this.word().length, end, "end");
    this.close();
  }

  /** Writes a name at the cursor. @param {string} name */
  write(name) {
    const { field } = this;
    field.setRangeText(name, field.selectionStart, field.selectionEnd, "end");
    field.focus();
  }
}
