/* A table whose rows the server sorts, searches, filters, folds and sends by page. */

import { element, show } from "./shared.js";
import { Latest, Refusal } from "./requests.js";
import { note } from "./state.js";
import { bodyRows, isNumber } from "./rows.js";
import { TableTools } from "./table-tools.js";

const PAGE = 50;
const WAIT_MS = 200;
const EXAMPLES = { ns: "> 1 ms", bytes: "> 1 MiB", percent: "> 5 %", share: "> 5 %", count: "> 10", text: "gemm", sentence: "GPU", flag: "yes" };

export class RowTable {
  constructor(view, head, failed) {
    Object.assign(this, { view, head, failed, sort: "", descending: true, search: "", offset: 0, filters: {} });
    /** Rows that are open though others of their depth are not, or the other way round. @type {Set<number>} */
    this.turned = new Set();
    this.latest = new Latest("table");
    this.timer = 0;
    // Phones show rows as cards, which a browser takes for no table unless it is told.
    this.body = element("tbody", { role: "rowgroup" });
    this.said = element("span", { class: "said", role: "status" });
    this.field = element("input", { type: "search", placeholder: "Search", "aria-label": `Search ${head.title}`, spellcheck: "false" });
    this.field.addEventListener("input", () => {
      this.search = this.field.value;
      this.later();
    });
    const step = (text, label, by) => element("button", { type: "button", text, "aria-label": label, onclick: () => this.step(by) });
    this.before = step("‹", "The previous page", -PAGE);
    this.after = step("›", "The next page", PAGE);
    this.heads = head.columns.map((column) => this.title(column));
    const fields = head.columns.map((column) => element("td", { "data-title": column.title }, this.filterField(column)));
    this.filterRow = element("tr", { class: "filters", hidden: true }, ...fields);
    const toggle = element("button", { type: "button", text: "Filter", "aria-expanded": "false", onclick: () => this.openFilters(Boolean(this.filterRow.hidden)) });
    this.toggle = toggle;
    this.tools = new TableTools(head, { question: () => this.question(), hidden: (keys) => this.hide(keys), failed });
    this.order = /** @type {HTMLSelectElement} */ (element("select", { class: "order", "aria-label": `Sort ${head.title} by` }, element("option", { value: "", text: "Sort by …" }), ...head.columns.map(({ key, title }) => element("option", { value: key, text: title }))));
    this.order.addEventListener("change", () => this.sortBy(this.order.value));
    this.trouble = element("p", { class: "note missing", role: "alert", hidden: true });
    const table = element("table", { role: "table", "aria-label": head.title }, element("thead", {}, element("tr", {}, ...this.heads), this.filterRow), this.body);
    this.root = element("section", { class: "card table" }, element("div", { class: "card-head" }, element("h2", { text: head.title, title: head.what }), this.field, this.order, toggle, this.tools.root, this.said, this.before, this.after), this.trouble,
      element("div", { class: "table-holder", tabindex: "0", role: "region", "aria-label": head.title }, table));
  }

  /** @param {boolean} wanted */
  openFilters(wanted) {
    this.filterRow.hidden = !wanted;
    this.toggle.setAttribute("aria-expanded", String(wanted));
  }

  title(column) {
    const text = !isNumber(column.unit);
    const button = element("button", { type: "button", text: column.title });
    button.addEventListener("click", () => this.sortBy(column.key));
    return element("th", { scope: "col", title: column.what, class: text ? null : "number", "data-key": column.key }, button);
  }

  /** Sorts by a column, or the other way round; by none as the server has it. @param {string} key */
  sortBy(key) {
    const column = this.head.columns.find((one) => one.key === key);
    // Of numbers the largest are looked for, of texts the first.
    this.descending = this.sort === key ? !this.descending : Boolean(column) && isNumber(column.unit);
    this.sort = key;
    this.offset = 0;
    this.load();
  }

  /** Leaves columns out. @param {Set<string>} keys */
  hide(keys) {
    note({ hide: [...keys].join(" ") || null });
    this.putColumns();
  }

  /** The first column names the rows, and stays. */
  putColumns() {
    this.head.columns.forEach(({ key }, at) => {
      const isHidden = at > 0 && this.tools.hidden.has(key);
      for (const row of [...this.body.rows, this.filterRow]) row.cells[at].hidden = isHidden;
      this.heads[at].hidden = isHidden;
    });
  }

  /** Opens or closes what lies below a row. @param {number} number */
  turn(number) {
    if (!this.turned.delete(number)) this.turned.add(number);
    this.load();
  }

  filterField(column) {
    const field = element("input", { type: "text", placeholder: EXAMPLES[column.unit] ?? "> 1", "aria-label": `Filter ${column.title}`, spellcheck: "false" });
    field.addEventListener("input", () => {
      this.filters[column.key] = field.value.trim();
      // What is cleared has no more letters to wait for.
      this.later(field.value ? WAIT_MS : 0);
    });
    return field;
  }

  /** Looks again once nobody types. @param {number} [wait] ms */
  later(wait = WAIT_MS) {
    clearTimeout(this.timer);
    this.root.setAttribute("aria-busy", "true");
    this.offset = 0;
    this.timer = window.setTimeout(() => this.load(), wait);
  }

  step(by) {
    this.offset = Math.max(this.offset + by, 0);
    this.load();
  }

  /** @param {Record<string, string>} values */
  follow({ search, sort, up, offset, filters, turned, hide }) {
    const known = new Map(this.head.columns.map((column, at) => [column.key, at]));
    const lines = (filters ?? "").split("\n").map((line) => line.split(/ (.*)/s)).filter(([key]) => known.has(key));
    this.filters = Object.fromEntries(lines.map(([key, text]) => [key, text ?? ""]));
    this.head.columns.forEach(({ key }, at) => { this.filterRow.cells[at].querySelector("input").value = this.filters[key] ?? ""; });
    if (lines.length) this.openFilters(true);
    this.turned = new Set((turned ?? "").split(",").filter(Boolean).map(Number).filter((number) => number >= 0));
    this.tools.choose((hide ?? "").split(" "));
    this.search = this.field.value = search ?? "";
    this.sort = sort ?? "";
    this.descending = up !== "1";
    this.offset = Number(offset ?? 0) || 0;
    return this.load(false);
  }

  /** What is asked for, but for the page of it. */
  question() {
    const { view, head, sort, search } = this;
    const filters = Object.entries(this.filters).filter(([, text]) => text).map(([key, text]) => `${key} ${text}`).join("\n");
    return { ...head.asked, view, table: head.id, sort, descending: this.descending ? 1 : 0, search, filters, turned: [...this.turned].join(",") };
  }

  /** Shows the rows as the fields have it, and the address, too, unless it is what was followed. */
  async load(noted = true) {
    clearTimeout(this.timer);
    this.root.setAttribute("aria-busy", "true");
    const question = this.question();
    const { sort, search, offset } = this;
    // Another view may have been chosen meanwhile.
    if (noted && this.root.isConnected) note({ search, sort, up: sort && !this.descending ? 1 : null, offset: offset || null, filters: question.filters, turned: question.turned });
    try {
      const answer = await this.latest.ask({ ...question, offset, limit: PAGE });
      if (!answer) return;
      this.trouble.hidden = true;
      this.fill(answer);
    } catch (error) {
      // It stays until the filter is another; what is shown is still what was shown before.
      this.trouble.hidden = !(error instanceof Refusal);
      this.trouble.textContent = error instanceof Refusal ? error.message : "";
      this.failed(error);
    }
    this.root.setAttribute("aria-busy", "false");
  }

  fill(answer) {
    const data = this.head.columns.map(({ key }) => answer.data[answer.keys.indexOf(key)]);
    this.body.replaceChildren(...bodyRows(this.head.columns, { ...answer, data }, (number) => this.turn(number)));
    this.putColumns();
    this.order.value = this.sort;
    this.heads.forEach((title) => {
      const own = title.dataset.key === this.sort;
      if (own) title.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else title.removeAttribute("aria-sort");
    });
    const last = answer.offset + answer.rows;
    const matches = answer.matches === answer.all ? show(answer.all, "count") : `${show(answer.matches, "count")} of ${show(answer.all, "count")}`;
    this.said.textContent = answer.matches > answer.rows ? `${show(answer.offset + 1, "count")} to ${show(last, "count")} of ${matches}` : `${matches} ${answer.all === 1 ? "row" : "rows"}`;
    this.before.hidden = this.after.hidden = answer.matches <= PAGE;
    this.before.disabled = !answer.offset;
    this.after.disabled = last >= answer.matches;
  }
}
