/* SQL over the tables of the trace: a box with names that complete themselves, and the answer as a table. */

import { element, show } from "./shared.js";
import { Latest, Refusal } from "./requests.js";
import { note } from "./state.js";
import { bodyRows } from "./rows.js";
import { Completion } from "./completion.js";

const EXAMPLE = "select row, name, dur_ns\nfrom gpu_ops\norder by dur_ns desc\nlimit 20";

const rowsOf = (count) => `${show(count, "count")} ${count === 1 ? "row" : "rows"}`;

export class SqlView {
  /** @param {any} names of /api/names @param {(error: unknown) => void} failed */
  constructor(names, failed) {
    this.failed = failed;
    this.latest = new Latest("sql");
    this.field = /** @type {HTMLTextAreaElement} */ (element("textarea", { rows: "6", "aria-label": "A SELECT about the tables", spellcheck: "false", autocapitalize: "off", autocomplete: "off" }));
    this.field.value = EXAMPLE;
    this.completion = new Completion(this.field, names.tables);
    this.button = element("button", { type: "button", class: "main", text: "Run", title: "Ctrl and Enter", onclick: () => this.run() });
    this.said = element("span", { class: "said", role: "status" });
    this.answer = element("div", { class: "answer" });
    this.root = element("div", { class: "report sql" }, element("h1", { text: "SQL", tabindex: "-1" }),
      element("p", { class: "note", text: "Query the tables of the trace with a SELECT in the SQL dialect of Polars. A row with an event number (row, op_row) links to the timeline." }),
      element("div", { class: "asking" }, element("div", { class: "box-of-sql" }, this.field, this.completion.root, element("div", { class: "card-head" }, this.button, element("kbd", { text: "Ctrl Enter" }), this.said)), this.tables(names.tables)), this.answer);
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.run();
    });
  }

  /** What there is to be asked; a click on a name writes it. */
  tables(tables) {
    const name = (text, what) => element("button", { type: "button", class: "link", text, title: what, onclick: () => this.completion.write(text) });
    return element("div", { class: "names", tabindex: "0", role: "region", "aria-label": "Tables and columns" }, ...tables.map((table) => element("details", {},
      element("summary", { title: table.what }, element("b", { text: table.name }), ` ${rowsOf(table.rows)}`),
      element("p", { class: "note", text: table.what }), element("ul", { class: "columns" }, ...table.columns.map(([column, what]) => element("li", {}, name(column, what)))))));
  }

  run() {
    note({ q: this.field.value }, true);
    return this.ask();
  }

  /** @param {Record<string, string>} values */
  follow({ q }) {
    if (q === undefined) return undefined;
    this.field.value = q;
    return this.ask();
  }

  async ask() {
    this.completion.close();
    this.root.setAttribute("aria-busy", "true");
    this.said.textContent = "computing …";
    try {
      const answer = await this.latest.ask({ statement: this.field.value });
      if (answer) this.fill(answer);
    } catch (error) {
      this.said.textContent = "";
      // It belongs to the statement, and stays until that is another.
      if (error instanceof Refusal) this.answer.replaceChildren(element("p", { class: "note missing", role: "alert", text: error.message }));
      else this.failed(error);
    }
    this.root.setAttribute("aria-busy", "false");
  }

  fill(answer) {
    this.said.textContent = `${answer.more ? "the first " : ""}${rowsOf(answer.rows)}`;
    const head = element("tr", {}, ...answer.columns.map(({ title, unit }) => element("th", { scope: "col", class: unit === "text" ? null : "number" }, element("bdi", { text: title }))));
    const table = element("table", { "aria-label": "Answer" }, element("thead", {}, head), element("tbody", {}, ...bodyRows(answer.columns, answer)));
    this.answer.replaceChildren(element("section", { class: "card table" }, element("div", { class: "table-holder", tabindex: "0", role: "region", "aria-label": "Answer" }, table)));
  }
}
