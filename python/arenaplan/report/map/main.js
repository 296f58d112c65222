// The page: panels, search, selection, keys, deep links.

import { CHANGES, decode, KINDS, programsOf, short, size } from "./data.js";
import { element, showDetails } from "./details.js";
import { Panel, themeOf } from "./draw.js";
import { Table } from "./table.js";

const MOST_FOUND = 12;
const MOST_HELD = 100;
const DARK = matchMedia("(prefers-color-scheme: dark)");
const byId = (id) => document.getElementById(id);

class Page {
  constructor(content) {
    this.content = content;
    this.programs = programsOf(content);
    this.hasChanges = content.changes !== null;
    this.panels = [];
    /** The selected value: a program's position and an item; the second one is compared. */
    this.at = 0;
    this.selected = null;
    this.compared = null;
    this.conflicts = [];
    this.hover = null;
    this.found = null;
    /** The scheme of colors that was chosen, or "" for that of the system. */
    this.choice = "";
    this.colorBy = this.hasChanges ? "change" : this.programs[0].layers > 1 ? "layer" : "size";
    this.#summary();
    this.#panels();
    this.#table();
    this.#held();
    this.#controls();
    this.#keys();
    this.#scheme("");
    new ResizeObserver(() => this.resize()).observe(byId("figures"));
    DARK.addEventListener("change", () => this.#scheme(this.choice));
    addEventListener("hashchange", () => this.follow());
    addEventListener("beforeprint", () => this.#scheme("light"));
    addEventListener("afterprint", () => this.#scheme(this.choice));
    this.resize();
    this.follow();
    document.body.dataset.ready = "yes";
  }

  // -- parts of the page -------------------------------------------------------

  #summary() {
    const { report } = this.programs[0];
    const names = [...new Set(this.programs.map((of) => of.report.model || "model"))];
    byId("title").textContent = `${names.join(", ")} for ${report.target}`;
    document.title = `${names.join(", ")}: memory map`;
    const rows = this.programs.map((of, at) => {
      const { report: each } = of;
      const label = this.content.labels[at];
      const proof = each.status === "optimal" ? "minimal" : `bound ${size(each.lower_bound)}`;
      const peak = each.peak_step === null ? "" :
        `; peak at ${of.stepLabel(each.peak_step)}: ${size(each.peak_bytes)} live`;
      const total = each.total_bytes === null ? "" : `; ${size(each.total_bytes)} in all for the runtime`;
      const part = each.covers.whole ? "" : `; covers ${each.covers.part} alone`;
      return element("p", {}, label ? element("strong", {}, `${label}: `) : null,
        `arena ${size(each.arena_bytes)}, ${proof}${total}${part}${peak}`);
    });
    byId("summary").append(...rows);
    this.#techniques(report.techniques);
  }

  #techniques(techniques) {
    if (techniques === null) return;
    const rows = [["none", techniques.without]];
    for (const [name, point] of Object.entries(techniques.levels)) rows.push([`and ${name}`, point]);
    const table = element("table", {}, element("caption", {}, "One technique after another"));
    const hasTimes = techniques.without.seconds !== null;
    table.append(element("tr", {}, ...["technique", "arena", ...(hasTimes ? ["time"] : [])]
      .map((title) => element("th", { scope: "col" }, title))));
    for (const [name, point] of rows) {
      const cells = [name, size(point.bytes)];
      if (hasTimes) cells.push(`${(1e3 * (point.seconds ?? 0)).toFixed(3)} ms`);
      table.append(element("tr", {}, ...cells.map((text) => element("td", {}, text))));
    }
    byId("techniques").append(table);
    byId("techniques").hidden = false;
  }

  #panels() {
    this.programs.forEach((program, at) => {
      const column = element("section", { className: "program" });
      const label = this.content.labels[at];
      if (label) column.append(element("h2", {}, label));
      const arenas = program.spaces.map((space, number) => [space, [number]]);
      const groups = arenas.filter(([space]) => !space.caller);
      const callers = arenas.filter(([space]) => space.caller).map(([, [number]]) => number);
      if (callers.length > 0) groups.push([null, callers]);
      for (const [space, numbers] of groups) {
        column.append(this.#panel(program, at, space, numbers));
      }
      byId("figures").append(column);
    });
  }

  #panel(program, at, space, numbers) {
    const name = space === null ? "buffers of the caller, stacked" : space.name;
    const limit = space?.capacity ? ` of ${size(space.capacity)}` : "";
    const facts = space === null ? "" : `, ${size(space.arena_bytes)}${limit}, ${space.status}`;
    const frame = element("div", { className: space === null ? "frame callers" : "frame" });
    const canvases = [0, 1].map(() => element("canvas"));
    canvases[0].tabIndex = 0;
    canvases[0].setAttribute("role", "application");
    canvases[0].setAttribute("aria-roledescription", "memory map");
    canvases[0].setAttribute("aria-label",
      `Map of ${name}: steps to the right, addresses up. Keys: n and p for the next and previous ` +
      "value, arrows to move, plus and minus to zoom. The table below has the same values.");
    frame.append(...canvases);
    const bound = space === null ? null : space.lower_bound;
    const panel = new Panel(program, numbers, name, bound, canvases);
    panel.at = at;
    this.panels.push(panel);
    this.#pointer(panel, canvases[0]);
    return element("figure", {}, element("figcaption", {}, `${name}${facts}`), frame);
  }

  #table() {
    this.table = new Table(byId("table"), this.programs[0], this.hasChanges,
      (item, isCompared) => this.choose(0, item, isCompared, true));
    byId("table-view").addEventListener("toggle", () => {
      if (byId("table-view").open) this.table.draw();
    });
  }

  /** List what is live at the peak of the first program; the bytes sum to the live bytes. */
  #held() {
    const { report, itemByName } = this.programs[0];
    const place = byId("held");
    place.hidden = report.peak_held.length === 0;
    const rows = [...report.peak_held].sort((a, b) => b.counted - a.counted);
    const body = element("tbody");
    const row = (name, counted, note) => element("tr", {}, element("th", { scope: "row" }, name),
      element("td", { className: "number" }, counted.toLocaleString("en-US"), note));
    for (const { name, bytes, counted } of rows.slice(0, MOST_HELD)) {
      const item = itemByName.get(name);
      const button = element("button", { type: "button", className: "link" }, name);
      button.addEventListener("click", (event) => this.choose(0, item, event.shiftKey, true));
      const shares = counted < bytes ? element("small", {}, ` of ${bytes.toLocaleString("en-US")}`) : null;
      body.append(row(item === undefined ? name : button, counted, shares));
    }
    const rest = rows.slice(MOST_HELD).reduce((sum, { counted }) => sum + counted, 0);
    if (rows.length > MOST_HELD) body.append(row(`and ${rows.length - MOST_HELD} more`, rest, null));
    const sum = rows.reduce((all, { counted }) => all + counted, 0);
    body.append(row(element("strong", {}, "sum"), sum, null));
    const caption = element("caption", {},
      `${this.programs[0].stepLabel(report.peak_step)}; bytes that values share count once`);
    place.append(element("table", {}, caption, body));
  }

  #controls() {
    const search = byId("search");
    search.addEventListener("input", () => this.search(search.value));
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && this.found?.length > 0) {
        this.choose(0, this.found[0], event.shiftKey, true);
      }
      if (event.key === "Escape") this.search((search.value = ""));
    });
    const colors = byId("color");
    if (!this.hasChanges) colors.querySelector("[value=change]").remove();
    colors.value = this.colorBy;
    colors.addEventListener("change", () => {
      this.colorBy = colors.value;
      this.recolor();
    });
    const act = {
      peak: () => this.showPeak(),
      largest: () => this.showLargest(),
      "zoom-in": () => this.zoom(1.5),
      "zoom-out": () => this.zoom(1 / 1.5),
      whole: () => this.reset(),
      theme: () => this.#toggleScheme(),
    };
    for (const [id, does] of Object.entries(act)) byId(id).addEventListener("click", does);
  }

  /** Use a scheme of colors: "light", "dark", or that of the system if it is empty. */
  #scheme(choice) {
    const system = DARK.matches ? "dark" : "light";
    document.documentElement.dataset.theme = choice || system;
    this.theme = themeOf(document.documentElement);
    this.recolor();
  }

  #toggleScheme() {
    this.choice = this.theme.isDark ? "light" : "dark";
    this.#scheme(this.choice);
  }

  #pointer(panel, canvas) {
    let from = null;
    const place = (event) => [event.offsetX, event.offsetY];
    canvas.addEventListener("pointerdown", (event) => {
      from = { x: event.offsetX, y: event.offsetY, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = place(event);
      if (from !== null) {
        from.moved ||= Math.hypot(x - from.x, y - from.y) > 3;
        if (!from.moved) return;
        panel.view.pan(((from.x - x) * panel.ratio) / panel.scale.perX,
          ((y - from.y) * panel.ratio) / panel.scale.perY);
        [from.x, from.y] = [x, y];
        this.moved(panel);
        return;
      }
      this.#point(panel, panel.itemAt(x, y), event);
    });
    canvas.addEventListener("pointerup", (event) => {
      const isClick = from !== null && !from.moved;
      from = null;
      if (isClick) this.choose(panel.at, panel.itemAt(...place(event)), event.shiftKey, false);
    });
    canvas.addEventListener("pointerleave", () => this.#point(panel, null, null));
    canvas.addEventListener("dblclick", () => this.reset());
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const factor = Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0016));
      const x = panel.scale.step(event.offsetX * panel.ratio);
      const y = panel.scale.address(event.offsetY * panel.ratio);
      panel.view.zoom(event.altKey ? 1 : factor, event.shiftKey ? 1 : factor, x, y);
      this.moved(panel);
    }, { passive: false });
  }

  #point(panel, item, event) {
    const tip = byId("tip");
    tip.hidden = item === null;
    if (item !== null) {
      const { program } = panel;
      const row = program.rows[item];
      tip.replaceChildren(element("strong", {}, row.name), element("br"),
        `${size(row.bytes)} at ${row.offset.toLocaleString("en-US")}, steps ${row.live[0]} to ${row.live[1] - 1}`);
      const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
      tip.style.left = `${Math.max(left, 4)}px`;
      tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
    }
    if (this.hover?.item === item && this.hover?.panel === panel) return;
    this.hover = item === null ? null : { panel, item };
    this.mark();
  }

  #keys() {
    addEventListener("keydown", (event) => {
      const isTyping = event.target.matches("input, select, textarea");
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      const act = {
        "/": () => byId("search").focus(),
        k: () => this.showPeak(),
        l: () => this.showLargest(),
        n: () => this.next(1, event),
        p: () => this.next(-1, event),
        "+": () => this.zoom(1.5),
        "=": () => this.zoom(1.5),
        "-": () => this.zoom(1 / 1.5),
        0: () => this.reset(),
        t: () => {
          byId("table-view").open = !byId("table-view").open;
          byId("table-view").scrollIntoView();
        },
        Escape: () => this.choose(this.at, null, false, false),
        ArrowLeft: () => this.pan(-0.15, 0),
        ArrowRight: () => this.pan(0.15, 0),
        ArrowUp: () => this.pan(0, 0.15),
        ArrowDown: () => this.pan(0, -0.15),
      }[event.key];
      const isArrow = event.key.startsWith("Arrow");
      if (act === undefined || (isArrow && event.target.tagName !== "CANVAS")) return;
      event.preventDefault();
      act();
    });
  }

  // -- actions -------------------------------------------------------------------

  /** Select an item, or compare it with the selected one. */
  choose(at, item, isCompared, isShown) {
    if (isCompared && item !== null && this.selected !== null && at === this.at) {
      this.compared = item === this.selected ? null : item;
    } else {
      [this.at, this.selected, this.compared] = [at, item, null];
    }
    const program = this.programs[this.at];
    const panel = this.#panelOf(this.at, this.selected);
    this.conflicts = showDetails(byId("details"), program, panel.tree, this.selected, this.compared,
      (other, shift) => this.choose(this.at, other, shift, !shift));
    if (isShown && item !== null) this.#reveal(at, item);
    if (item !== null) this.#tell(program, item);
    this.#link();
    this.mark();
  }

  /** Say to screen readers what was selected. */
  #tell(program, item) {
    const row = program.rows[item];
    byId("status").textContent = `${row.name}: ${size(row.bytes)} at ${row.offset}, ` +
      `steps ${row.live[0]} to ${row.live[1] - 1}`;
  }

  #panelOf(at, item) {
    return this.panels.find((panel) => panel.at === at &&
      (item === null || panel.has(item))) ?? this.panels[0];
  }

  /** Zoom to an item that is out of sight or too small to see. */
  #reveal(at, item) {
    const panel = this.#panelOf(at, item);
    const { program, view, scale } = panel;
    const sides = [program.start[item], program.stop[item], program.offset[item], program.end[item]];
    const isInside = sides[0] >= view.x0 && sides[1] <= view.x1 && sides[2] >= view.y0 && sides[3] <= view.y1;
    const isSmall = (sides[1] - sides[0]) * scale.perX < 6 || (sides[3] - sides[2]) * scale.perY < 6;
    if (isInside && !isSmall) return;
    view.show(...sides);
    this.moved(panel);
  }

  next(direction, event) {
    const { items, program } = this.panels.find((panel) => panel.canvas === event.target) ??
      this.#panelOf(this.at, this.selected);
    const order = [...items].sort((a, b) => program.start[a] - program.start[b] || a - b);
    const at = order.indexOf(this.selected);
    const to = at < 0 ? 0 : (at + direction + order.length) % order.length;
    const position = this.programs.indexOf(program);
    if (order.length > 0) this.choose(position, order[to], false, true);
  }

  search(text) {
    this.found = text === "" ? null : this.programs[0].search(text);
    const list = byId("found");
    list.replaceChildren();
    const found = this.found ?? [];
    for (const item of found.slice(0, MOST_FOUND)) {
      const name = element("button", { type: "button", className: "link" }, this.programs[0].name(item));
      name.addEventListener("click", (event) => this.choose(0, item, event.shiftKey, true));
      list.append(element("li", {}, name, ` ${short(this.programs[0].bytes(item))}`));
    }
    const count = found.length.toLocaleString("en-US");
    byId("status").textContent = this.found === null ? "" : `${count} found`;
    if (byId("table-view").open) this.table.filter(this.found);
    else this.table.items = this.found ?? [...Array(this.programs[0].count).keys()];
    this.mark();
  }

  /** Select the largest value of those that make the peak, and show the peak. */
  showPeak() {
    const program = this.programs[0];
    const step = program.report.peak_step;
    if (step === null) return;
    let largest = null;
    for (let item = program.count - 1; item >= 0; item--) {
      const isArena = !program.spaces[program.space[item]].caller;
      if (isArena && program.start[item] <= step && step < program.stop[item]) largest = item;
    }
    if (largest === null) return;
    const panel = this.#panelOf(0, largest);
    const room = Math.max(3, Math.min(12, program.steps.length / 4));
    panel.view.reset();
    panel.view.zoom(Math.max(1, program.steps.length / (2 * room)), 1, step + 0.5, 0);
    const middle = (panel.view.x0 + panel.view.x1) / 2;
    panel.view.pan(step + 0.5 - middle, 0);
    this.moved(panel);
    this.choose(0, largest, false, false);
    byId("status").textContent = `Peak at ${program.stepLabel(step)}: ` +
      `${size(program.report.peak_bytes)} live; the largest is ${program.name(largest)}`;
  }

  showLargest() {
    if (this.programs[0].count > 0) this.choose(0, 0, false, true);
  }

  zoom(factor) {
    const panel = this.#panelOf(this.at, this.selected);
    const { x0, x1, y0, y1 } = panel.view;
    panel.view.zoom(factor, factor, (x0 + x1) / 2, (y0 + y1) / 2);
    this.moved(panel);
  }

  pan(x, y) {
    const panel = this.#panelOf(this.at, this.selected);
    panel.view.pan(x * (panel.view.x1 - panel.view.x0), y * (panel.view.y1 - panel.view.y0));
    this.moved(panel);
  }

  reset() {
    for (const panel of this.panels) panel.view.reset();
    this.redraw();
  }

  /** Memories of one program show the same steps; then draw. */
  moved(panel) {
    for (const other of this.panels) {
      if (other.at === panel.at) [other.view.x0, other.view.x1] = [panel.view.x0, panel.view.x1];
    }
    this.redraw();
  }

  // -- drawing -------------------------------------------------------------------

  recolor() {
    for (const panel of this.panels) panel.colors(this.theme, this.colorBy);
    this.#legend();
    if (this.panels[0].scale !== undefined) this.redraw();
  }

  #legend() {
    const used = new Map();
    for (const program of this.programs) {
      const names = this.colorBy === "change" ? program.change : program.kind;
      for (const number of names) used.set(number, true);
    }
    const colors = this.colorBy === "change" ? this.theme.changes : this.theme.kinds;
    const words = this.colorBy === "change" ? CHANGES : KINDS;
    const hasEntries = this.colorBy === "kind" || this.colorBy === "change";
    const entries = hasEntries ? [...used.keys()].sort((a, b) => a - b) : [];
    const key = (color, text, mark = "box") => {
      const sample = element("span", { className: `sample ${mark}`, "aria-hidden": "true" });
      sample.style.setProperty("--color", color);
      return element("li", {}, sample, text);
    };
    byId("legend").replaceChildren(
      ...entries.map((number) => key(colors[number], words[number])),
      ...(this.colorBy === "layer" ? [element("li", {}, "one color per layer, gray without")] : []),
      ...(this.colorBy === "size" ? [element("li", {}, "large values red, small ones blue")] : []),
      key(this.theme.live, "live bytes", "curve"),
      key(this.theme.own, "of the step itself", "curve"),
      key(this.theme.top, "highest address", "curve"),
      key(this.theme.bound, "lower bound, and the peak", "dashed"),
    );
  }

  resize() {
    for (const panel of this.panels) panel.resize();
    this.drawNow();
  }

  /** Draw before the next frame, once however often it is asked for. */
  redraw() {
    this.frame ??= requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    if (this.frame !== undefined) cancelAnimationFrame(this.frame);
    this.frame = undefined;
    for (const panel of this.panels) panel.draw(this.theme);
    this.mark();
  }

  mark() {
    const name = this.selected === null ? null : this.programs[this.at].name(this.selected);
    for (const panel of this.panels) {
      if (panel.scale === undefined) continue;
      const { program } = panel;
      const isHere = panel.at === this.at;
      const twin = name === null ? null : (program.itemByName.get(name) ?? null);
      const selected = isHere ? this.selected : this.hasChanges ? twin : null;
      const inside = (item) => item !== null && panel.has(item);
      const here = (item) => (inside(item) ? item : null);
      panel.mark(this.theme, {
        hover: this.hover?.panel === panel ? this.hover.item : null,
        selected: here(selected),
        compared: isHere ? here(this.compared) : null,
        conflicts: isHere && inside(this.selected) ? this.conflicts : [],
        partners: selected === null ? [] : this.#partners(program, selected).filter(inside),
        matches: panel.at === 0 ? (this.found ?? []).filter(inside) : [],
      });
    }
  }

  #partners(program, item) {
    return program.shares
      .filter((share) => share.source === item || share.result === item)
      .map((share) => (share.source === item ? share.result : share.source));
  }

  // -- deep links ----------------------------------------------------------------

  /** Write the selection into the address of the page. */
  #link() {
    const parameters = new URLSearchParams();
    const program = this.programs[this.at];
    if (this.selected !== null) parameters.set("value", program.name(this.selected));
    if (this.compared !== null) parameters.set("with", program.name(this.compared));
    if (this.at > 0) parameters.set("program", this.at);
    const hash = parameters.toString();
    if (location.hash.slice(1) !== hash) history.replaceState(null, "", hash ? `#${hash}` : "#");
  }

  /** Do what the address of the page asks for. */
  follow() {
    const parameters = new URLSearchParams(location.hash.slice(1));
    const at = Number(parameters.get("program") ?? 0);
    const program = this.programs[at] ?? this.programs[0];
    const position = this.programs.indexOf(program);
    const item = program.itemByName.get(parameters.get("value"));
    const other = program.itemByName.get(parameters.get("with"));
    if (parameters.has("table")) byId("table-view").open = true;
    this.choose(position, item ?? null, false, item !== undefined);
    const isPair = item !== undefined && other !== undefined;
    if (isPair) this.choose(position, other, true, false);
  }
}

const page = new Page(await decode(byId("content").textContent));
/** For tests and the console of the browser. */
globalThis.arenaplan = page;
