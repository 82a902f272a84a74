/* What can be done with a table: columns chosen, and its rows copied or saved. */

import { element, show } from "./shared.js";
import { ask } from "./requests.js";
import { say } from "./page.js";

export class TableTools {
  /**
   * @param {{ id: string, title: string, columns: { key: string, title: string, what: string }[] }} head
   * @param {{ question: () => Record<string, any>, hidden: (keys: Set<string>) => void, failed: (error: unknown) => void }} acts
   */
  constructor(head, acts) {
    this.head = head;
    this.acts = acts;
    /** Keys of the columns that are left out. @type {Set<string>} */
    this.hidden = new Set();
    this.boxes = head.columns.slice(1).map(({ key, title, what }) => {
      const box = /** @type {HTMLInputElement} */ (element("input", { type: "checkbox", value: key }));
      box.checked = true;
      box.addEventListener("change", () => {
        if (box.checked) this.hidden.delete(key);
        else this.hidden.add(key);
        acts.hidden(this.hidden);
      });
      return { box, label: element("label", { title: what }, box, ` ${title}`) };
    });
    const chooser = element("details", { class: "chooser" }, element("summary", { text: "Columns", "aria-label": `Columns of ${head.title}` }), element("div", { class: "choices" }, ...this.boxes.map(({ label }) => label)));
    chooser.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      chooser.removeAttribute("open");
      /** @type {HTMLElement} */ (chooser.firstChild).focus();
      event.preventDefault();
    });
    const button = (text, label, act) => element("button", { type: "button", text, "aria-label": `${label} ${head.title}`, onclick: () => act().catch(acts.failed) });
    this.root = element("span", { class: "table-tools" }, this.boxes.length ? chooser : null, button("Copy", "Copy", () => this.copy()), button("CSV", "Save as CSV:", () => this.save()));
  }

  /** @param {string[]} keys of columns to leave out */
  choose(keys) {
    this.hidden = new Set(keys.filter((key) => this.boxes.some(({ box }) => box.value === key)));
    for (const { box } of this.boxes) box.checked = !this.hidden.has(box.value);
  }

  /** All rows that match, of the columns that are shown. @param {boolean} tabs */
  rows(tabs) {
    const columns = this.head.columns.map(({ key }) => key).filter((key) => !this.hidden.has(key)).join(",");
    return ask("csv", { ...this.acts.question(), columns, tabs: tabs ? 1 : 0 });
  }

  async copy() {
    const { text, rows, matches } = await this.rows(true);
    try {
      await navigator.clipboard.writeText(text);
      say(`${this.counted(rows, matches)} copied.`);
    } catch {
      say("The browser does not allow this page to copy: save the rows as CSV.");
    }
  }

  async save() {
    const { text, rows, matches } = await this.rows(false);
    const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    element("a", { href: url, download: `${this.head.id}.csv` }).click();
    URL.revokeObjectURL(url);
    say(`${this.counted(rows, matches)} saved.`);
  }

  counted(rows, matches) {
    return `${show(rows, "count")}${rows < matches ? ` of ${show(matches, "count")}` : ""} ${matches === 1 ? "row" : "rows"}`;
  }
}
