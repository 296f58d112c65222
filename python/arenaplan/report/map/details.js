// The panel about one value: where it is, who uses it, what it may not share bytes with, and why.
// Names come from models and are text everywhere: no string of a model becomes markup.

import { CHANGES, KINDS, size } from "./data.js";
import { conflictsOf, lifeOf, relation } from "./why.js";

const MOST = 40;

/** An element with properties, attributes (`data-` and `aria-`) and children. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-")) made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** A button that leads to another value. */
function link(program, item, act) {
  const button = element("button", { type: "button", className: "link" }, program.name(item));
  button.addEventListener("click", (event) => act(item, event.shiftKey));
  return button;
}

function facts(rows) {
  const list = element("dl");
  for (const [term, value] of rows) {
    if (value !== null) list.append(element("dt", {}, term), element("dd", {}, value));
  }
  return list;
}

function steps(program, numbers, none) {
  if (numbers.length === 0) return none;
  const list = element("ul");
  for (const step of [...numbers].slice(0, MOST)) {
    const row = program.steps[step];
    const origin = [row?.layer, row?.source].filter((text) => text).join(", ");
    list.append(element("li", {}, program.stepLabel(step), origin ? element("small", {}, ` ${origin}`) : null));
  }
  if (numbers.length > MOST) list.append(element("li", {}, `and ${numbers.length - MOST} more`));
  return list;
}

/** Fill the panel; `act(item, isCompared)` selects another value or compares with it. */
export function showDetails(place, program, tree, item, compared, act) {
  place.replaceChildren();
  if (item === null) {
    place.append(element("p", { className: "hint" },
      "Select a value to see who writes and reads it, and why others may not have its bytes. " +
      "Shift and click compares a second value."));
    return [];
  }
  const row = program.rows[item];
  place.append(element("h2", {}, row.name));
  if (compared !== null) {
    const { kind, text } = relation(program, item, compared);
    const box = element("div", { className: `why ${kind}`, id: "relation" },
      element("h3", {}, "Why (not) the same bytes as ", link(program, compared, act)),
      element("p", {}, text));
    place.append(box);
  }
  const space = program.spaces[program.space[item]];
  const type = row.dtype ? `${row.dtype} [${row.shape.join(" × ")}]` : null;
  const shared = program.base > 0 && !space.caller ? ` (${program.offset[item].toLocaleString("en-US")} in the shared arena)` : "";
  place.append(facts([
    ["kind", KINDS[program.kind[item]]],
    ["type", type],
    ["size", size(row.bytes)],
    ["memory", space.name],
    ["offset", `${row.offset.toLocaleString("en-US")}${shared}`],
    ["end", (row.offset + row.bytes).toLocaleString("en-US")],
    ["steps", `${row.live[0]} to ${row.live[1] - 1}`],
    ["change", program.change[item] > 0 ? CHANGES[program.change[item]] : null],
    ["written by", steps(program, program.writes.of(item), "the caller, before the run")],
    ["read by", row.kind === "workspace" ? null : steps(program, program.reads.of(item), "no step")],
  ]));
  place.append(element("p", { id: "life" }, lifeOf(program, item)));
  aliases(place, program, item, act);
  return conflicts(place, program, tree, item, act);
}

/** List the values that have common bytes with an item, by direct sharing. */
function aliases(place, program, item, act) {
  const rows = program.shares.filter((share) => share.result === item || share.source === item);
  if (rows.length === 0) return;
  const list = element("ul", { id: "aliases" });
  for (const share of rows.slice(0, MOST)) {
    const other = share.result === item ? share.source : share.result;
    const text = ` — ${share.rule}, ${size(share.bytes)}, ${program.stepLabel(share.step)}`;
    list.append(element("li", {}, link(program, other, act), text));
  }
  place.append(element("h3", {}, `Shares bytes with ${rows.length}`), list);
}

/** List what may not have bytes of an item; returns those items. */
function conflicts(place, program, tree, item, act) {
  const found = conflictsOf(program, tree, item);
  const total = found.reduce((sum, other) => sum + program.bytes(other), 0);
  place.append(element("h3", {}, `May not overlap with ${found.length.toLocaleString("en-US")}`));
  if (found.length === 0) {
    place.append(element("p", {}, "Nothing else is needed at the same time in this memory."));
    return found;
  }
  const list = element("ul", { id: "conflicts" });
  for (const other of found.slice(0, MOST)) {
    const from = Math.max(program.start[item], program.start[other]);
    const to = Math.min(program.stop[item], program.stop[other]) - 1;
    const when = from === to ? `step ${from}` : `steps ${from} to ${to}`;
    const why = element("button", { type: "button", className: "why-button" }, "why?");
    why.setAttribute("aria-label", `why not the bytes of ${program.name(other)}`);
    why.addEventListener("click", () => act(other, true));
    list.append(element("li", {}, link(program, other, act),
      ` — ${size(program.bytes(other))}, both needed at ${when} `, why));
  }
  place.append(
    element("p", {}, `All are needed while this value is: ${size(total)} together. The largest:`),
    list);
  return found;
}
