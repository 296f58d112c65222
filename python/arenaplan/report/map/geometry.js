// Geometry of the map: rectangles of address and time, the part of them in view, their pixels.
// Nothing here knows the page, so that tests can run it anywhere.

const FAN = 16;

/**
 * A static tree of rectangles [x0, x1) × [y0, y1), packed by sorting into tiles
 * (Leutenegger, Lopez, Edgington: STR, 1997). A query visits only boxes that intersect it.
 */
export class RectTree {
  /** `items` are the numbers of the rectangles; the arrays have the sides of all of them. */
  constructor(items, x0, x1, y0, y1) {
    const middleX = (item) => x0[item] + x1[item];
    const middleY = (item) => y0[item] + y1[item];
    const order = Int32Array.from(items).sort((a, b) => middleX(a) - middleX(b));
    const slice = FAN * Math.max(1, Math.ceil(Math.sqrt(order.length / FAN)));
    for (let at = 0; at < order.length; at += slice) {
      order.subarray(at, at + slice).sort((a, b) => middleY(a) - middleY(b));
    }
    this.order = order;
    this.sides = [x0, x1, y0, y1];
    /** Boxes of the levels, the leaves' first: four numbers each. */
    this.levels = [];
    let below = null;
    for (let count = order.length; ; count = Math.ceil(count / FAN)) {
      const boxes = new Float64Array(4 * Math.ceil(count / FAN));
      for (let box = 0; box < boxes.length / 4; box++) {
        const bounds = [Infinity, -Infinity, Infinity, -Infinity];
        for (let child = box * FAN; child < Math.min(count, (box + 1) * FAN); child++) {
          for (let side = 0; side < 4; side++) {
            const of = below === null ? this.sides[side][order[child]] : below[4 * child + side];
            bounds[side] = side % 2 === 0 ? Math.min(bounds[side], of) : Math.max(bounds[side], of);
          }
        }
        boxes.set(bounds, 4 * box);
      }
      this.levels.push(boxes);
      below = boxes;
      if (boxes.length <= 4) break;
    }
  }

  /** Call `visit(item)` for each rectangle that intersects [x0, x1) × [y0, y1), in any order. */
  query(x0, x1, y0, y1, visit) {
    const [left, right, low, high] = this.sides;
    const stack = [[this.levels.length - 1, 0]];
    while (this.order.length > 0 && stack.length > 0) {
      const [level, box] = stack.pop();
      const boxes = this.levels[level];
      const at = 4 * box;
      if (boxes[at] >= x1 || boxes[at + 1] <= x0 || boxes[at + 2] >= y1 || boxes[at + 3] <= y0) {
        continue;
      }
      const count = level === 0 ? this.order.length : this.levels[level - 1].length / 4;
      for (let child = box * FAN; child < Math.min(count, (box + 1) * FAN); child++) {
        if (level > 0) {
          stack.push([level - 1, child]);
          continue;
        }
        const item = this.order[child];
        if (left[item] < x1 && right[item] > x0 && low[item] < y1 && high[item] > y0) visit(item);
      }
    }
  }
}

/** The part of a plane that a rectangle of pixels shows: steps to the right, addresses up. */
export class View {
  /** `whole` and the view itself are {x0, x1, y0, y1}. */
  constructor(whole) {
    this.whole = { ...whole };
    this.reset();
  }

  reset() {
    Object.assign(this, this.whole);
  }

  get isWhole() {
    return ["x0", "x1", "y0", "y1"].every((side) => this[side] === this.whole[side]);
  }

  /** Zoom by a factor around a point that stays where it is; 2 halves the visible range. */
  zoom(factorX, factorY, x, y) {
    this.#range("x", x - (x - this.x0) / factorX, x + (this.x1 - x) / factorX, 1 / 16);
    this.#range("y", y - (y - this.y0) / factorY, y + (this.y1 - y) / factorY, 4);
  }

  /** Move by some steps and bytes, no further than the whole. */
  pan(x, y) {
    this.#range("x", this.x0 + x, this.x1 + x, 0);
    this.#range("y", this.y0 + y, this.y1 + y, 0);
  }

  /** Show a rectangle and some room around it. */
  show(x0, x1, y0, y1) {
    const roomX = Math.max(2, x1 - x0);
    const roomY = Math.max(16, y1 - y0);
    this.#range("x", x0 - roomX, x1 + roomX, 1);
    this.#range("y", y0 - roomY, y1 + roomY, 1);
  }

  /** Set one range: at least `least` wide, at most the whole, inside of the whole. */
  #range(axis, low, high, least) {
    const [first, last] = [this.whole[`${axis}0`], this.whole[`${axis}1`]];
    const length = Math.min(Math.max(high - low, least), last - first);
    const start = Math.min(Math.max(low, first), last - length);
    [this[`${axis}0`], this[`${axis}1`]] = [start, start + length];
  }
}

/** Pixels of a view: `left`, `top`, `width`, `height` are whole numbers of pixels. */
export class Scale {
  constructor(view, box) {
    this.view = view;
    this.box = box;
    this.perX = box.width / (view.x1 - view.x0 || 1);
    this.perY = box.height / (view.y1 - view.y0 || 1);
  }

  x(step) {
    return this.box.left + (step - this.view.x0) * this.perX;
  }

  y(address) {
    return this.box.top + this.box.height - (address - this.view.y0) * this.perY;
  }

  step(x) {
    return this.view.x0 + (x - this.box.left) / this.perX;
  }

  address(y) {
    return this.view.y0 + (this.box.top + this.box.height - y) / this.perY;
  }

  /**
   * Write the pixels of a rectangle into `into`: left, right, top, bottom, relative to the box and
   * inside of it; at least one pixel, so that no visible value vanishes. The array is the caller's,
   * since one per rectangle and frame would keep the garbage collector busy.
   */
  pixels(x0, x1, y0, y1, into) {
    const { width, height } = this.box;
    const { view, perX, perY } = this;
    const l = Math.min(Math.max(Math.round((x0 - view.x0) * perX), 0), width - 1);
    const t = Math.min(Math.max(Math.round(height - (y1 - view.y0) * perY), 0), height - 1);
    into[0] = l;
    into[1] = Math.min(Math.max(Math.round((x1 - view.x0) * perX), l + 1), width);
    into[2] = t;
    into[3] = Math.min(Math.max(Math.round(height - (y0 - view.y0) * perY), t + 1), height);
  }
}

/**
 * Columns of pixels, and of each the rows that rectangles of a pixel's width cover. Asked about the
 * last rectangle first, it tells which ones nobody sees: of 100,000 steps on 1,000 pixels most.
 */
export class Cover {
  constructor(width) {
    this.top = new Int32Array(width);
    this.bottom = new Int32Array(width);
  }

  clear() {
    this.top.fill(0);
    this.bottom.fill(0);
  }

  /** Whether later rectangles cover a rectangle; it covers those before it. */
  hides(l, r, t, b) {
    if (r - l !== 1) return false;
    const { top, bottom } = this;
    if (t >= top[l] && b <= bottom[l]) return true;
    if (t <= bottom[l] && b >= top[l]) {
      if (t < top[l]) top[l] = t;
      if (b > bottom[l]) bottom[l] = b;
    } else if (b - t > bottom[l] - top[l]) {
      [top[l], bottom[l]] = [t, b];
    }
    return false;
  }
}

/**
 * Paint rectangles into pixels of 32 bits, one row of pixels after the other: a hundred thousand of
 * them take a few milliseconds, where as many calls of a canvas take a tenth of a second.
 */
export class Raster {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.pixels = new Uint32Array(width * height);
  }

  clear(color) {
    this.pixels.fill(color);
  }

  fill(l, r, t, b, color) {
    const { pixels, width } = this;
    // A call of `fill` costs more than some pixels.
    const isNarrow = r - l < 16;
    for (let row = t; row < b; row++) {
      const from = row * width + l;
      const to = row * width + r;
      if (isNarrow) for (let at = from; at < to; at++) pixels[at] = color;
      else pixels.fill(color, from, to);
    }
  }

  /** Fill, with a border of one pixel where there is room for one. */
  bordered(l, r, t, b, color, border) {
    if (r - l < 4 || b - t < 4) {
      this.fill(l, r, t, b, color);
      return;
    }
    this.fill(l, r, t, b, border);
    this.fill(l + 1, r - 1, t + 1, b - 1, color);
  }
}

/** Whole steps of a scale with about `most` marks: 1, 2 or 5 times a power of the base. */
export function marks(low, high, most, isBinary = false) {
  const length = high - low;
  if (!(length > 0)) return [low];
  const rough = Math.max(length / Math.max(most, 1), 1);
  let step;
  if (isBinary) {
    step = 2 ** Math.ceil(Math.log2(rough));
  } else {
    const power = 10 ** Math.floor(Math.log10(rough));
    step = power * [1, 2, 5, 10].find((times) => times * power >= rough * 0.999);
  }
  const found = [];
  for (let mark = Math.ceil(low / step) * step; mark <= high; mark += step) found.push(mark);
  return found;
}
