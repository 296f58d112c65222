// Reasons: when a value is needed, and why two values do or do not share bytes.

import { size } from "./data.js";

const HELD = {
  state: "it keeps its bytes between runs",
  output: "the caller reads it after the run",
  "input kept": "the option preserve_inputs keeps inputs",
  parallel: "steps may run at the same time",
  other: "bytes that it shares are needed",
};

/** When and why an item is needed: one sentence. */
export function lifeOf(program, item) {
  const row = program.rows[item];
  const name = quoted(row.name);
  const [writes, reads] = [program.writes.of(item), program.reads.of(item)];
  if (row.kind === "workspace") {
    return `${name} is scratch memory of ${program.stepLabel(row.step)} and is needed in it alone.`;
  }
  let text =
    writes.length > 0
      ? `${name} is written at ${program.stepLabel(writes[0])}`
      : `${name} is written before the run`;
  if (reads.length > 0) {
    text += ` and last read at ${program.stepLabel(reads[reads.length - 1])}`;
  } else {
    text += " and read by no step";
  }
  return row.held === null
    ? `${text}.`
    : `${text}; it is live up to step ${program.stop[item] - 1} because ${HELD[row.held]}.`;
}

/** Items of the same memory that are needed at the same time and are no parts of one buffer. */
export function conflictsOf(program, tree, item) {
  const found = [];
  const [start, stop] = [program.start[item], program.stop[item]];
  tree.query(start, stop, -Infinity, Infinity, (other) => {
    const isPart = program.buffer[other] === program.buffer[item];
    if (!isPart && program.space[other] === program.space[item]) found.push(other);
  });
  return found.sort((a, b) => a - b);
}

/** How two items of one program are related: `{kind, text}`. */
export function relation(program, a, b) {
  if (a === b) return { kind: "same", text: "This is one value." };
  const [first, second] = [quoted(program.name(a)), quoted(program.name(b))];
  if (program.space[a] !== program.space[b]) {
    const places = [a, b].map((item) => quoted(program.spaces[program.space[item]].name));
    return {
      kind: "spaces",
      text: `They are in different memories: ${first} in ${places[0]}, ${second} in ${places[1]}.`,
    };
  }
  const common = Math.min(program.end[a], program.end[b]) -
    Math.max(program.offset[a], program.offset[b]);
  if (program.buffer[a] === program.buffer[b]) {
    return { kind: "shared", text: sharedText(program, a, b, common) };
  }
  const from = Math.max(program.start[a], program.start[b]);
  const to = Math.min(program.stop[a], program.stop[b]) - 1;
  if (from > to) {
    const through = throughOthers(program, a, b);
    if (through !== null) return { kind: "conflict", text: through };
    const [early, late] = program.start[a] < program.start[b] ? [a, b] : [b, a];
    const done =
      common > 0 ? `they do share ${size(common)}` : "here they have different addresses";
    return {
      kind: "free",
      text:
        `They may share bytes: ${quoted(program.name(early))} is last needed at step ` +
        `${program.stop[early] - 1}, ${quoted(program.name(late))} from step ` +
        `${program.start[late]} on; ${done}.`,
    };
  }
  return { kind: "conflict", text: conflictText(program, a, b, from, to) };
}

function sharedText(program, a, b, common) {
  for (const share of program.shares) {
    const pair = [share.source, share.result];
    if (!pair.includes(a) || !pair.includes(b)) continue;
    const [source, result] = pair.map((item) => quoted(program.name(item)));
    const by = program.stepLabel(share.step);
    const how = {
      view: `${result} shows bytes of ${source}, or the reverse: ${by} copies nothing`,
      "in-place": `${result} takes over the bytes of ${source} at ${by}`,
      overlap: `${result} is written over ${source}, behind the bytes that ${by} has read`,
    };
    return `${how[share.rule]} (${share.rule}, ${size(share.bytes)}).`;
  }
  return common > 0
    ? `They belong to one buffer and have ${size(common)} in common, through other values.`
    : "They are parts of one buffer, side by side.";
}

/** Two values that never meet, whose buffers do: other values in the same bytes are the reason. */
function throughOthers(program, a, b) {
  const common = (one, other) =>
    program.offset[one] < program.end[other] && program.offset[other] < program.end[one];
  for (const first of program.parts(a)) {
    for (const second of program.parts(b)) {
      const from = Math.max(program.start[first], program.start[second]);
      const to = Math.min(program.stop[first], program.stop[second]) - 1;
      if (from > to || !common(a, first) || !common(b, second)) continue;
      const bytesOf = (item, part) => {
        const [name, other] = [item, part].map((each) => quoted(program.name(each)));
        return item === part ? name : `${other}, which has bytes of ${name},`;
      };
      const when = from === to ? `at step ${from}` : `at steps ${from} to ${to}`;
      return (
        "They may not share all bytes, although they are not needed at the same time themselves: " +
        `${bytesOf(a, first)} and ${bytesOf(b, second)} are both needed ${when}.`
      );
    }
  }
  return null;
}

function conflictText(program, a, b, from, to) {
  const when = from === to ? `at step ${from}` : `at steps ${from} to ${to}`;
  const text = `They may not share bytes: both are needed ${when}. `;
  const reads = (item) => program.reads.of(item).includes(from);
  const writes = (item) => program.writes.of(item).includes(from);
  for (const [source, result] of [[a, b], [b, a]]) {
    if (from !== to || !reads(source) || !writes(result)) continue;
    const step = program.steps[from];
    const [read, written] = [quoted(program.name(source)), quoted(program.name(result))];
    let reason = `${program.stepLabel(from)} reads ${read} while it writes ${written}`;
    if (program.kind[result] === 4) {
      reason = `${written} is scratch memory of ${program.stepLabel(from)}, which reads ${read}`;
    } else if (program.mayShare.has(`${source} ${result}`)) {
      reason += "; the operator allows common bytes, and this plan does not use that here";
    } else if (step.op !== null && step.fused.length === 0) {
      reason += "; the operator must not write over this operand";
    }
    return `${text}${sentence(reason)}`;
  }
  return `${text}${lifeOf(program, a)} ${lifeOf(program, b)}`;
}

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

/** A name in quotes, short enough for a sentence. */
export function quoted(name) {
  return `“${name.length > 60 ? `${name.slice(0, 59)}…` : name}”`;
}
