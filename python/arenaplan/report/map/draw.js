// Drawing of one memory: rectangles of address and time, and its curves below.

import { CHANGES, KINDS, short } from "./data.js";
import { Cover, marks, Raster, RectTree, Scale, View } from "./geometry.js";

const LEFT = 78;
const RIGHT = 10;
const TOP = 16;
const AXIS = 20;
const CURVES = 84;
const GAP = 14;
const FONT = "11px system-ui, sans-serif";
const LETTER = 6.4;
const MOST_MATCHES = 2000;
const SHADES = [1, 0.93, 0.86];

/** The colors of the page, as its style sheet has them now. */
export function themeOf(element) {
  const style = getComputedStyle(element);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["ink", "muted", "paper", "plot", "line", "live", "top", "own", "bound", "select"];
  const theme = Object.fromEntries([...names, "compare"].map((name) => [name, color(name)]));
  theme.kinds = KINDS.map((name) => color(name));
  theme.changes = CHANGES.map((name) => color(`change-${name}`));
  theme.isDark = style.colorScheme === "dark";
  return theme;
}

/** Red, green and blue of a color such as "#3366cc". */
function parts(color) {
  return [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
}

/** A color as a pixel of ImageData. */
function pixel([red, green, blue], shade = 1) {
  const bytes = [red, green, blue, 255].map((part, at) => (at < 3 ? part * shade : part));
  return new Uint32Array(Uint8ClampedArray.from(bytes).buffer)[0];
}

/** Red, green and blue of a hue from 0 to 1. */
function hue(at, isDark) {
  const [least, range] = isDark ? [0.2, 0.42] : [0.52, 0.44];
  return [0, 1 / 3, 2 / 3].map((shift) => {
    const wave = 0.5 + 0.5 * Math.cos(2 * Math.PI * (at + shift));
    return 255 * (least + range * wave);
  });
}

/** A name with room for some letters, with the letter at a position that tells it from others. */
export function fitted(name, letters, at = 0) {
  const room = Math.max(1, Math.floor(letters));
  if (name.length <= room) return name;
  if (at < room - 1) return `${name.slice(0, room - 1)}…`;
  if (name.length - at <= room / 2 || room < 3) return room > 1 ? `…${name.slice(1 - room)}` : "…";
  const start = at - Math.floor((room - 2) / 2);
  return `…${name.slice(start, start + room - 2)}…`;
}

/** A number from 0 to 1 that depends on a text alone. */
function hash(text) {
  let state = 2166136261;
  for (let at = 0; at < text.length; at++) {
    state = Math.imul(state ^ text.charCodeAt(at), 16777619);
  }
  // Names that differ in one letter get colors far from each other.
  state = Math.imul(state ^ (state >>> 15), 2246822507);
  return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
}

/** The drawing of one memory of one program; several memories share the range of steps. */
export class Panel {
  constructor(program, spaces, title, bound, canvases) {
    this.program = program;
    this.title = title;
    this.bound = bound;
    [this.canvas, this.above] = canvases;
    this.spaces = new Set(spaces);
    const items = [...Array(program.count).keys()].filter((item) => this.has(item));
    /** The items of these memories, the largest first. */
    this.items = Int32Array.from(items);
    const { start, stop, offset, end } = program;
    this.tree = new RectTree(items, start, stop, offset, end);
    this.curve = program.curves.find((curve) => curve.space === program.spaces[spaces[0]].name);
    const sizes = spaces.map((space) => program.spaces[space].arena_bytes);
    this.bytes = program.spaces[spaces[0]].caller
      ? sizes.reduce((sum, bytes) => sum + bytes, 0)
      : program.base + sizes[0];
    this.view = new View({
      x0: 0,
      x1: Math.max(1, program.steps.length),
      y0: 0,
      y1: Math.max(1, this.bytes),
    });
    /** Left, right, top and bottom of the rectangle at hand. */
    this.pixels = new Int32Array(4);
    /** Of the items that are seen: item, left, right, top and bottom, the uppermost first. */
    this.seen = new Int32Array(5 * items.length);
  }

  /** Whether an item of the program is in one of these memories. */
  has(item) {
    return this.spaces.has(this.program.space[item]);
  }

  /** Fit the canvases to their element, in pixels of the device. */
  resize() {
    const frame = this.canvas.parentElement;
    const [width, height] = [frame.clientWidth, frame.clientHeight];
    this.ratio = globalThis.devicePixelRatio || 1;
    for (const canvas of [this.canvas, this.above]) {
      canvas.width = Math.round(width * this.ratio);
      canvas.height = Math.round(height * this.ratio);
    }
    const round = (number) => Math.round(number * this.ratio);
    const box = {
      left: round(LEFT),
      top: round(TOP),
      width: Math.max(1, round(width - LEFT - RIGHT)),
      height: Math.max(1, round(height - TOP - AXIS - (this.curve ? GAP + CURVES : 0))),
    };
    this.scale = new Scale(this.view, box);
    const top = box.top + box.height + round(AXIS + GAP);
    this.chart = { ...box, top, height: Math.max(1, round(height) - top - 1) };
    this.raster = new Raster(box.width, box.height);
    this.cover = new Cover(box.width);
    this.image = new ImageData(new Uint8ClampedArray(this.raster.pixels.buffer), box.width);
  }

  /** Call `visit(item)` for the items in view, the smallest first; returns their number. */
  #visible(visit) {
    const { view, items } = this;
    const { x0, x1, y0, y1 } = view;
    const part = ((x1 - x0) / (view.whole.x1 - view.whole.x0)) *
      ((y1 - y0) / (view.whole.y1 - view.whole.y0));
    let count = 0;
    if (part > 1 / 8) {
      // Most are in view: a look at each is quicker than a query and sorting.
      const { start, stop, offset, end } = this.program;
      for (let at = items.length - 1; at >= 0; at--) {
        const item = items[at];
        if (start[item] < x1 && stop[item] > x0 && offset[item] < y1 && end[item] > y0) {
          visit(item);
          count++;
        }
      }
      return count;
    }
    const found = [];
    this.tree.query(x0, x1, y0, y1, (item) => found.push(item));
    Int32Array.from(found).sort().reverse().forEach(visit);
    return found.length;
  }

  /** The colors of items, by the choice of the page: pixels of fill and border. */
  colors(theme, by) {
    const { program } = this;
    const fills = new Uint32Array(program.count);
    const borders = new Uint32Array(program.count);
    const hues = new Map();
    const most = Math.log1p(this.items.length > 0 ? program.bytes(this.items[0]) : 0) || 1;
    for (const item of this.items) {
      let base;
      if (by === "layer") {
        const layer = program.layer(item);
        if (!hues.has(layer)) hues.set(layer, hue(hash(layer), theme.isDark));
        base = layer === "" ? parts(theme.kinds[KINDS.indexOf("workspace")]) : hues.get(layer);
      } else if (by === "size") {
        base = hue(0.33 * (1 - Math.log1p(program.bytes(item)) / most), theme.isDark);
      } else if (by === "change") {
        base = parts(theme.changes[program.change[item]]);
      } else {
        base = parts(theme.kinds[program.kind[item]]);
      }
      // Neighbors of one kind are told apart by their shade.
      fills[item] = pixel(base, SHADES[(program.start[item] + item) % SHADES.length]);
      borders[item] = pixel(base, theme.isDark ? 0.6 : 0.68);
    }
    this.fills = fills;
    this.borders = borders;
  }

  /** Draw everything but the selection. */
  draw(theme) {
    const { program, raster } = this;
    const { box } = (this.scale = new Scale(this.view, this.scale.box));
    // Pixels come from the processor: a canvas in its memory takes them without a copy.
    const context = this.canvas.getContext("2d", { alpha: false, willReadFrequently: true });
    context.fillStyle = theme.paper;
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    raster.clear(pixel(parts(theme.plot)));
    // The last ones first, which tell whether those below them can be seen.
    const { seen } = this;
    let last = 0;
    this.cover.clear();
    this.drawn = this.#visible((item) => {
      this.#place(item);
      const { 0: l, 1: r, 2: t, 3: b } = this.pixels;
      if (this.cover.hides(l, r, t, b)) return;
      seen[last] = item;
      seen[last + 1] = l;
      seen[last + 2] = r;
      seen[last + 3] = t;
      seen[last + 4] = b;
      last += 5;
    });
    const labels = [];
    for (let at = last - 5; at >= 0; at -= 5) {
      const item = seen[at];
      const l = seen[at + 1];
      const r = seen[at + 2];
      const t = seen[at + 3];
      const b = seen[at + 4];
      raster.bordered(l, r, t, b, this.fills[item], this.borders[item]);
      if (r - l > 44 * this.ratio && b - t > 13 * this.ratio) labels.push([item, l, r, t, b]);
    }
    context.putImageData(this.image, box.left, box.top);
    this.#labels(context, theme, labels);
    this.#axes(context, theme);
    if (this.curve !== undefined) this.#curves(context, theme);
    this.#peak(context, theme, program.report.peak_step);
  }

  #place(item) {
    const { start, stop, offset, end } = this.program;
    this.scale.pixels(start[item], stop[item], offset[item], end[item], this.pixels);
  }

  #labels(context, theme, labels) {
    const { box } = this.scale;
    context.font = this.#font();
    context.textBaseline = "middle";
    context.fillStyle = theme.ink;
    for (const [item, l, r, t, b] of labels) {
      context.save();
      context.beginPath();
      context.rect(box.left + l + 3, box.top + t, r - l - 6, b - t);
      context.clip();
      const room = (r - l) / (LETTER * this.ratio);
      const text = fitted(this.program.name(item), room, this.program.marks[item]);
      context.fillText(text, box.left + l + 4 * this.ratio, box.top + (t + b) / 2);
      if (b - t > 30 * this.ratio) {
        context.globalAlpha = 0.75;
        const y = box.top + (t + b) / 2 + 13 * this.ratio;
        const bytes = this.program.bytes(item);
        context.fillText(short(bytes), box.left + l + 4 * this.ratio, y);
      }
      context.restore();
    }
  }

  #font() {
    return FONT.replace("11", String(11 * this.ratio));
  }

  #axes(context, theme) {
    const { box, view } = this.scale;
    context.font = this.#font();
    context.fillStyle = theme.muted;
    context.strokeStyle = theme.line;
    context.lineWidth = 1;
    context.strokeRect(box.left - 0.5, box.top - 0.5, box.width + 1, box.height + 1);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const address of marks(view.y0, view.y1, box.height / (36 * this.ratio), true)) {
      const y = Math.round(this.scale.y(address));
      context.fillText(short(address), box.left - 6 * this.ratio, y);
      context.fillRect(box.left - 4 * this.ratio, y, 4 * this.ratio, 1);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    const bottom = box.top + box.height;
    for (const step of marks(view.x0, view.x1, box.width / (70 * this.ratio))) {
      const x = Math.round(this.scale.x(step));
      context.fillRect(x, bottom, 1, 4 * this.ratio);
      const text = step.toLocaleString("en-US");
      const half = context.measureText(text).width / 2;
      const middle = Math.min(x, this.canvas.width - half - 1);
      context.fillText(text, middle, bottom + 5 * this.ratio);
    }
    context.textAlign = "left";
    context.fillText("step", 4 * this.ratio, bottom + 5 * this.ratio);
    context.textBaseline = "top";
    context.fillText("address", 4 * this.ratio, 0);
    // The bound: no placement of these values ends lower.
    if (this.bound !== null) {
      this.#level(context, this.scale.y(this.program.base + this.bound), theme.bound, box);
    }
  }

  /** A dashed line at a height, where it is in view. */
  #level(context, y, color, box) {
    if (y < box.top - 1 || y > box.top + box.height) return;
    context.save();
    context.strokeStyle = color;
    context.lineWidth = 1.5 * this.ratio;
    context.setLineDash([6 * this.ratio, 4 * this.ratio]);
    context.beginPath();
    context.moveTo(box.left, Math.max(y, box.top + 1));
    context.lineTo(box.left + box.width, Math.max(y, box.top + 1));
    context.stroke();
    context.restore();
  }

  /** The step with most live bytes: a line through map and curves. */
  #peak(context, theme, step) {
    const x = Math.round(this.scale.x(step + 0.5));
    const { box } = this.scale;
    if (step === null || x < box.left || x > box.left + box.width) return;
    context.fillStyle = theme.bound;
    context.globalAlpha = 0.8;
    context.fillRect(x, box.top, Math.max(1, this.ratio), box.height);
    if (this.curve !== undefined) {
      context.fillRect(x, this.chart.top, Math.max(1, this.ratio), this.chart.height);
    }
    context.globalAlpha = 1;
  }

  #curves(context, theme) {
    const { chart } = this;
    const highest = Math.max(this.bytes - this.program.base, 1);
    const y = (bytes) => chart.top + chart.height * (1 - bytes / (highest * 1.06));
    context.strokeStyle = theme.line;
    context.lineWidth = 1;
    context.strokeRect(chart.left - 0.5, chart.top - 0.5, chart.width + 1, chart.height + 1);
    const columns = this.#columns();
    const bottom = chart.top + chart.height;
    for (const [name, alpha] of [["live", 0.35], ["own", 0.55]]) {
      context.fillStyle = theme[name];
      context.globalAlpha = alpha;
      for (const column of columns) {
        const height = y(column[name]);
        context.fillRect(column.left, height, column.right - column.left, bottom - height);
      }
      context.globalAlpha = 1;
    }
    for (const name of ["top", "live"]) {
      context.strokeStyle = theme[name];
      context.lineWidth = 1.5 * this.ratio;
      context.beginPath();
      for (const column of columns) {
        context.lineTo(column.left, y(column[name]));
        context.lineTo(column.right, y(column[name]));
      }
      context.stroke();
    }
    if (this.bound !== null) this.#level(context, y(this.bound), theme.bound, chart);
    context.fillStyle = theme.muted;
    context.font = this.#font();
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillText(short(highest), chart.left - 6 * this.ratio, y(highest));
    context.fillText("0", chart.left - 6 * this.ratio, chart.top + chart.height - 5);
    context.textAlign = "left";
  }

  /** Ranges of pixels, with the highest point of each curve among their steps. */
  #columns() {
    const { scale, view, curve } = this;
    const { left, width } = scale.box;
    const inside = (x) => Math.min(Math.max(Math.round(x), left), left + width);
    const to = Math.min(Math.ceil(view.x1), curve.live.length);
    const columns = [];
    let column = null;
    for (let step = Math.floor(view.x0); step < to; step++) {
      const right = inside(scale.x(step + 1));
      if (column === null || right > column.right) {
        column = { left: column?.right ?? inside(scale.x(step)), right, live: 0, top: 0, own: 0 };
        columns.push(column);
      }
      if (curve.live[step] > column.live) column.live = curve.live[step];
      if (curve.top[step] > column.top) column.top = curve.top[step];
      if (curve.own[step] > column.own) column.own = curve.own[step];
    }
    return columns;
  }

  /** Draw what the pointer, the selection and the search mark; the rest stays as it is. */
  mark(theme, { hover, selected, compared, conflicts, partners, matches }) {
    const context = this.above.getContext("2d");
    context.clearRect(0, 0, this.above.width, this.above.height);
    const { left, top, width, height } = this.scale.box;
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    if (conflicts.length > 0) {
      context.fillStyle = theme.compare;
      context.globalAlpha = 0.28;
      for (const item of conflicts.slice(0, MOST_MATCHES)) this.#rect(context, item, "fillRect", 0);
      context.globalAlpha = 1;
    }
    context.lineWidth = 1.5 * this.ratio;
    context.strokeStyle = theme.ink;
    for (const item of matches.slice(0, MOST_MATCHES)) this.#rect(context, item, "strokeRect", 0.5);
    context.lineWidth = 2 * this.ratio;
    context.setLineDash([4 * this.ratio, 3 * this.ratio]);
    context.strokeStyle = theme.select;
    for (const item of partners) this.#rect(context, item, "strokeRect", 1);
    context.setLineDash([]);
    for (const [item, color, thick] of [
      [hover, theme.ink, 1.5],
      [compared, theme.compare, 3],
      [selected, theme.select, 3],
    ]) {
      context.strokeStyle = color;
      context.lineWidth = thick * this.ratio;
      if (item !== null) this.#rect(context, item, "strokeRect", thick / 2);
    }
    context.restore();
  }

  #rect(context, item, method, inset) {
    this.#place(item);
    const [l, r, t, b] = this.pixels;
    const { left, top } = this.scale.box;
    const { x0, x1, y0, y1 } = this.view;
    const { start, stop, offset, end } = this.program;
    if (start[item] >= x1 || stop[item] <= x0 || offset[item] >= y1 || end[item] <= y0) return;
    const more = Math.min(inset * this.ratio, (r - l) / 2, (b - t) / 2);
    context[method](left + l + more, top + t + more, r - l - 2 * more, b - t - 2 * more);
  }

  /** The smallest item at a point of the canvas, in pixels of the page; null if there is none. */
  itemAt(x, y) {
    const step = this.scale.step(x * this.ratio);
    const address = this.scale.address(y * this.ratio);
    // A pixel wide, so that values narrower than a pixel are found, too.
    const half = [0.5 / this.scale.perX, 0.5 / this.scale.perY];
    let found = null;
    const { x0, x1, y0, y1 } = this.view;
    if (step < x0 || step > x1 || address < y0 || address > y1) return null;
    this.tree.query(step - half[0], step + half[0], address - half[1], address + half[1], (item) => {
      found = found === null ? item : Math.max(found, item);
    });
    return found;
  }
}
