// The content of the page: reports of plans, decoded into arrays that are quick to draw.

/** Kinds of items, by number. */
export const KINDS = ["input", "output", "state", "activation", "workspace"];

/** Kinds of change against an older plan, by number. */
export const CHANGES = ["same", "moved", "grown", "shrunk", "new", "rescheduled", "gone"];

/** Decode base64 of gzip of JSON. */
export async function decode(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** Lists of numbers from their lengths and differences: the inverse of `_code` in page.py. */
function listsOf({ lengths, steps }) {
  let [at, number] = [0, 0];
  return lengths.map((length) => {
    const list = steps.slice(at, (at += length));
    return list.map((step) => (number += step));
  });
}

/** Rows from columns: the inverse of `columns` in page.py. */
function rowsOf(table) {
  const columns = Object.entries(table.columns).map(([name, column]) => [
    name,
    Array.isArray(column) ? column : listsOf(column),
  ]);
  return Array.from({ length: table.length }, (_, row) => {
    const object = {};
    for (const [name, column] of columns) object[name] = column[row];
    return object;
  });
}

/** Lists of numbers, one after the other in one array. */
class Lists {
  constructor(lists) {
    this.starts = new Int32Array(lists.length + 1);
    lists.forEach((list, at) => (this.starts[at + 1] = this.starts[at] + list.length));
    this.all = new Int32Array(this.starts[lists.length]);
    lists.forEach((list, at) => this.all.set(list, this.starts[at]));
  }

  of(at) {
    return this.all.subarray(this.starts[at], this.starts[at + 1]);
  }
}

/**
 * One plan. Its items are the values and workspaces that have a place, the largest first, so that
 * the small ones are drawn above the large ones whose bytes they share.
 */
export class Program {
  constructor(report, base = 0, changes = {}) {
    this.report = report;
    this.base = base;
    this.steps = rowsOf(report.steps);
    this.curves = report.curves;
    this.spaces = report.spaces;
    const values = rowsOf(report.values);
    const works = rowsOf(report.workspaces).map((work) => ({ ...work, kind: "workspace" }));
    const order = [...values.keys()].filter((row) => values[row].live !== null);
    for (const row of works.keys()) order.push(values.length + row);
    const rows = [...values, ...works];
    order.sort((a, b) => rows[b].bytes - rows[a].bytes || a - b);
    this.rows = order.map((row) => rows[row]);
    this.count = order.length;
    const itemOf = new Int32Array(rows.length).fill(-1);
    order.forEach((row, item) => (itemOf[row] = item));

    const count = this.count;
    this.offset = new Float64Array(count);
    this.end = new Float64Array(count);
    this.start = new Int32Array(count);
    this.stop = new Int32Array(count);
    this.space = new Int32Array(count);
    this.kind = new Uint8Array(count);
    this.change = new Uint8Array(count);
    const spaceOf = new Map(this.spaces.map((space, at) => [space.name, at]));
    /** By space: the address that it is drawn at. Buffers of the caller are stacked. */
    const drawnAt = [];
    let stacked = 0;
    for (const space of this.spaces) {
      drawnAt.push(space.caller ? stacked : base);
      if (space.caller) stacked += space.arena_bytes;
    }
    this.itemByName = new Map();
    this.rows.forEach((row, item) => {
      this.space[item] = spaceOf.get(row.space);
      this.offset[item] = row.offset + drawnAt[this.space[item]];
      this.end[item] = this.offset[item] + row.bytes;
      [this.start[item], this.stop[item]] = row.live;
      const isOutput = row.kind === "activation" && (row.result || row.held === "output");
      this.kind[item] = KINDS.indexOf(isOutput ? "output" : row.kind);
      // A value may be called "constructor": only names that were written count.
      const change = Object.hasOwn(changes, row.name) ? changes[row.name] : "same";
      this.change[item] = CHANGES.indexOf(change);
      this.itemByName.set(row.name, item);
    });
    this.#connect(itemOf, works);
  }

  /** Find who writes and who reads each item, and which items share bytes. */
  #connect(itemOf, works) {
    const reads = Array.from({ length: this.count }, () => []);
    const writes = Array.from({ length: this.count }, () => []);
    this.mayShare = new Set();
    this.steps.forEach((step, position) => {
      for (const [rows, lists] of [[step.inputs, reads], [step.outputs, writes]]) {
        for (const item of new Set(rows.map((row) => itemOf[row]))) {
          if (item >= 0) lists[item].push(position);
        }
      }
      for (let at = 0; at < step.may_share.length; at += 2) {
        const [source, result] = step.may_share.slice(at, at + 2);
        this.mayShare.add(`${itemOf[source]} ${itemOf[result]}`);
      }
    });
    for (const work of works) writes[this.itemByName.get(work.name)].push(work.step);
    [this.reads, this.writes] = [new Lists(reads), new Lists(writes)];
    this.shares = rowsOf(this.report.why)
      .map((share) => ({
        ...share,
        result: this.itemByName.get(share.value) ?? -1,
        source: this.itemByName.get(share.partner) ?? -1,
      }))
      .filter((share) => share.result >= 0 && share.source >= 0);
    const roots = Int32Array.from({ length: this.count }, (_, item) => item);
    const root = (item) => {
      while (roots[item] !== item) item = roots[item] = roots[roots[item]];
      return item;
    };
    for (const share of this.shares) roots[root(share.result)] = root(share.source);
    /** By item: the number of the buffer that it is a part of. */
    this.buffer = roots.map((_, item) => root(item));
  }

  /** The items of the buffer of an item, the largest first; a long list is cut. */
  parts(item) {
    if (this.buffers === undefined) {
      this.buffers = new Map();
      this.buffer.forEach((root, each) => {
        if (!this.buffers.has(root)) this.buffers.set(root, []);
        this.buffers.get(root).push(each);
      });
    }
    const parts = this.buffers.get(this.buffer[item]);
    return parts.slice(0, 1000);
  }

  name(item) {
    return this.rows[item].name;
  }

  bytes(item) {
    return this.end[item] - this.offset[item];
  }

  /** By item: the position of the letter that tells its name from the names most like it. */
  get marks() {
    if (this.letters === undefined) {
      this.letters = new Int32Array(this.count);
      const order = [...this.rows.keys()].sort((a, b) => (this.name(a) < this.name(b) ? -1 : 1));
      for (let at = 1; at < order.length; at++) {
        const [one, other] = [this.name(order[at - 1]), this.name(order[at])];
        let common = 0;
        while (common < one.length && one[common] === other[common]) common++;
        for (const item of order.slice(at - 1, at + 1)) {
          this.letters[item] = Math.max(this.letters[item], common);
        }
      }
    }
    return this.letters;
  }

  /** The number of layers that items are of. */
  get layers() {
    const found = new Set();
    for (let item = 0; item < this.count && found.size < 3; item++) found.add(this.layer(item));
    found.delete("");
    return found.size;
  }

  /** The text of a step, such as "step 3, Conv+Relu n7". */
  stepLabel(step) {
    const row = this.steps[step];
    if (row === undefined) return `step ${step}`;
    const ops = row.op === null ? "" : `${[...row.ops, row.op].join(" + ")} `;
    const short = ops.length > 60 ? `${ops.slice(0, 58)}… ` : ops;
    return `step ${step}, ${short}${row.node}`;
  }

  /** The layer of an item: that of the step that writes it, else of the first that reads it. */
  layer(item) {
    const step = this.writes.of(item)[0] ?? this.reads.of(item)[0];
    return (step === undefined ? null : this.steps[step]?.layer) ?? "";
  }

  /** Items whose names have a text in them, in any case of letters. */
  search(text) {
    const wanted = text.toLowerCase();
    const found = [];
    for (let item = 0; item < this.count; item++) {
      if (this.name(item).toLowerCase().includes(wanted)) found.push(item);
    }
    return found;
  }
}

/** Every program of a page. */
export function programsOf(content) {
  const programs = content.reports.map(
    (report, at) => new Program(report, content.bases[at], content.changes?.[at]),
  );
  return programs;
}

/** A number of bytes for people, such as "7,225,344 bytes (6.89 MiB)". */
export function size(bytes) {
  const plain = `${bytes.toLocaleString("en-US")} bytes`;
  return bytes < 1024 ? plain : `${plain} (${short(bytes)})`;
}

/** A number of bytes for labels, such as "6.89 MiB". */
export function short(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  for (; bytes >= 1024 && at + 1 < units.length; at++) bytes /= 1024;
  return `${Number(bytes.toFixed(at === 0 ? 0 : 2))} ${units[at]}`;
}
