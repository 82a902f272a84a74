/* Views of the report: facts, notes and tables whose rows the server sorts, filters and sends by page. */

import { element, show } from "./shared.js";
import { RowTable } from "./row-table.js";

export class TablesView {
  /** @param {any} view of /api/view @param {(error: unknown) => void} failed */
  constructor(view, failed) {
    this.view = view;
    /** @type {RowTable[]} */
    this.tables = [];
    const parts = view.parts.map((part) => this.part(part, failed));
    this.root = element("div", { class: "report" }, element("h1", { text: view.title, tabindex: "-1" }), element("p", { class: "note", text: view.what }), ...parts);
  }

  part(part, failed) {
    if (part.kind === "note") return element("p", { class: part.missing ? "note missing" : "note", text: part.text });
    if (part.kind === "facts") {
      return element("section", { class: "card" }, part.title ? element("h2", { text: part.title }) : null,
        element("dl", { class: "file-facts" }, ...part.items.map(([name, value, what]) => element("div", { title: what }, element("dt", { text: name }), element("dd", { text: value, dir: "auto" })))));
    }
    if (part.kind === "group") return this.group(part, failed);
    return this.table(part, failed).root;
  }

  table(part, failed) {
    const made = new RowTable(this.view.id, part, failed);
    this.tables.push(made);
    return made;
  }

  /** Tables of which one is shown. */
  group(part, failed) {
    const tables = part.choices.map((choice) => (choice.part.kind === "table" ? this.table(choice.part, failed).root : this.part(choice.part, failed)));
    const choice = element("select", { "aria-label": part.title }, ...part.choices.map(({ label }, place) => element("option", { value: place, text: label })));
    const put = () => tables.forEach((one, place) => { one.hidden = place !== Number(/** @type {HTMLSelectElement} */ (choice).value); });
    choice.addEventListener("change", put);
    put();
    return element("section", { class: "group" }, element("label", {}, `${part.title} `, choice), ...tables);
  }

  /** Asks for the rows anew, as the fields have it. */
  async renew() {
    await Promise.all(this.tables.map((table) => table.load()));
  }

  /** @param {Record<string, string>} values of the address */
  async follow(values) {
    await Promise.all(this.tables.map((table, place) => table.follow(place === 0 ? values : {})));
  }
}
