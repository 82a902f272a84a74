/* The search over all names of the trace, with the next and the one before. */

import { element, show } from "./shared.js";
import { Latest, ask } from "./requests.js";

const WAIT_MS = 120;

export class Search {
  /**
   * @param {{ from: () => number, goTo: (place: any, step: boolean) => void, changed: (text: string) => void, failed: (error: unknown) => void }} acts
   */
  constructor(acts) {
    this.acts = acts;
    this.latest = new Latest("search");
    this.text = "";
    this.exact = false;
    this.count = 0;
    /** The number of the event that is shown; -1 before the first. */
    this.at = -1;
    this.first = 0;
    /** @type {Promise<void>} */
    this.finding = Promise.resolve();
    this.timer = 0;
    this.input = /** @type {HTMLInputElement} */ (element("input", { type: "search", placeholder: "Search names", "aria-label": "Search all names", spellcheck: "false", autocomplete: "off" }));
    this.said = element("span", { class: "said", role: "status" });
    const button = (text, label, forward) => element("button", { type: "button", text, "aria-label": label, title: label, onclick: () => this.step(forward) });
    this.root = element("div", { class: "search", role: "search" }, this.input, button("‹", "The previous match", false), button("›", "The next", true), this.said);
    this.input.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.find(this.input.value), WAIT_MS);
    });
    this.input.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {KeyboardEvent} event */
  async key(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      const forward = !event.shiftKey;
      // Who presses Enter before the answer is there means what was typed.
      await (this.input.value === this.text ? this.finding : this.find(this.input.value));
      this.step(forward);
    } else if (event.key === "Escape") {
      this.input.value = "";
      this.find("");
      this.input.blur();
    }
  }

  /** Looks for a text; `exact` for events that are called that. @param {string} text @param {boolean} [exact] */
  find(text, exact = false) {
    this.finding = this.counted(text, exact);
    return this.finding;
  }

  /** @param {string} text @param {boolean} exact */
  async counted(text, exact) {
    clearTimeout(this.timer);
    this.text = text;
    this.exact = exact;
    this.input.value = text;
    this.at = -1;
    this.count = 0;
    this.acts.changed(text);
    if (!text) {
      this.latest.stop();
      this.said.textContent = "";
      return;
    }
    try {
      const answer = await this.latest.ask({ text, exact: exact ? 1 : 0, from: Math.floor(this.acts.from()) });
      if (!answer) return;
      this.count = answer.count;
      this.first = answer.at % Math.max(answer.count, 1);
      this.said.textContent = answer.count ? `${show(answer.count, "count")} found` : "none";
      this.said.title = answer.names.map((one) => `${show(one.count, "count")} × ${one.name}`).join("\n");
    } catch (error) {
      this.acts.failed(error);
    }
  }

  /**
   * Goes to the next one, or to the one before; round at the ends.
   * @param {boolean} forward
   * @param {boolean} [step] whether Back comes back from it
   */
  async step(forward, step = true) {
    if (!this.count) return;
    const from = this.at < 0 ? this.first - (forward ? 1 : 0) : this.at;
    this.at = (from + (forward ? 1 : -1) + this.count) % this.count;
    try {
      const { n, count, place } = await ask("hit", { text: this.text, exact: this.exact ? 1 : 0, n: this.at });
      if (n !== this.at) return;
      this.said.textContent = `${show(n + 1, "count")} of ${show(count, "count")}`;
      this.acts.goTo(place, step);
    } catch (error) {
      this.acts.failed(error);
    }
  }
}
