// All values as a table, sorted by any column: the map for those who do not see it, and for copying.

import { CHANGES, KINDS } from "./data.js";
import { element } from "./details.js";

const PAGE = 200;

const COLUMNS = [
  ["name", "name", (program, item) => program.name(item)],
  ["kind", "kind", (program, item) => KINDS[program.kind[item]]],
  ["memory", "memory", (program, item) => program.spaces[program.space[item]].name],
  ["bytes", "bytes", (program, item) => program.rows[item].bytes],
  ["offset", "offset", (program, item) => program.rows[item].offset],
  ["first step", "first", (program, item) => program.start[item]],
  ["last step", "last", (program, item) => program.stop[item] - 1],
  ["written by", "writer", (program, item) => writer(program, item)],
  ["readers", "readers", (program, item) => program.reads.of(item).length],
];

function writer(program, item) {
  const step = program.writes.of(item)[0];
  return step === undefined ? "" : (program.steps[step]?.node ?? "");
}

/** A table of the items of one program. */
export class Table {
  /** `select(item, isCompared)` is called for a row that is chosen. */
  constructor(place, program, hasChanges, select) {
    this.program = program;
    this.select = select;
    this.columns = [...COLUMNS];
    if (hasChanges) {
      this.columns.push(["change", "change", (of, item) => CHANGES[of.change[item]]]);
    }
    this.by = 3;
    this.isDown = true;
    this.items = [...Array(program.count).keys()];
    this.limit = PAGE;
    this.head = element("tr");
    this.body = element("tbody");
    this.more = element("button", { type: "button" }, "more rows");
    this.more.addEventListener("click", () => {
      this.limit += 5 * PAGE;
      this.draw();
    });
    const caption = element("caption", {}, `Values of ${program.report.model || "the model"}`);
    place.append(element("table", {}, caption, element("thead", {}, this.head), this.body), this.more);
    this.columns.forEach(([title, name], at) => {
      const button = element("button", { type: "button", "data-column": name }, title);
      button.addEventListener("click", () => this.sort(at));
      this.head.append(element("th", { scope: "col" }, button));
    });
  }

  /** Sort by a column; the same one again turns the order. */
  sort(at) {
    this.isDown = at === this.by ? !this.isDown : at >= 3 && at <= 4;
    this.by = at;
    this.draw();
  }

  /** Show only some items; null for all. */
  filter(items) {
    this.items = items ?? [...Array(this.program.count).keys()];
    this.limit = PAGE;
    this.draw();
  }

  draw() {
    const value = this.columns[this.by][2];
    const keyed = this.items.map((item) => [value(this.program, item), item]);
    const sign = this.isDown ? -1 : 1;
    keyed.sort(([a, i], [b, j]) => (a < b ? -sign : a > b ? sign : i - j));
    [...this.head.children].forEach((cell, at) => {
      const order = this.isDown ? "descending" : "ascending";
      cell.setAttribute("aria-sort", at === this.by ? order : "none");
    });
    this.body.replaceChildren(...keyed.slice(0, this.limit).map(([, item]) => this.#row(item)));
    this.more.hidden = keyed.length <= this.limit;
    const left = (keyed.length - this.limit).toLocaleString("en-US");
    this.more.textContent = `${left} more rows`;
  }

  #row(item) {
    const cells = this.columns.map(([, , value], at) => {
      const content = value(this.program, item);
      if (at > 0) {
        const text = typeof content === "number" ? content.toLocaleString("en-US") : content;
        return element("td", { className: typeof content === "number" ? "number" : "" }, text);
      }
      const button = element("button", { type: "button", className: "link" }, content);
      button.addEventListener("click", (event) => this.select(item, event.shiftKey));
      return element("th", { scope: "row" }, button);
    });
    return element("tr", {}, ...cells);
  }
}
