//! Plans with a changed field: the checksum is made to fit, so that the checker alone sees the change.

use arenaplan::{Plan, Result};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

/// The fields of plan files, in an order that all kinds of objects in them keep.
const FIELDS: &[&str] = &[
    "format",
    "version",
    "model",
    "digest",
    "covers",
    "target",
    "options",
    "search",
    "order",
    "floor",
    "skipped",
    "estimate",
    "node",
    "value",
    "name",
    "arena_bytes",
    "lower_bound",
    "status",
    "naive_bytes",
    "value_count",
    "spaces",
    "move_cost",
    "timetable",
    "recomputed",
    "steps",
    "values",
    "workspaces",
    "techniques",
    "alignment",
    "offset_unit",
    "caller_memory",
    "several_spaces",
    "early_writes",
    "strip_axis",
    "scratch",
    "fixed",
    "optimize",
    "effort",
    "preserve_inputs",
    "fused",
    "inputs",
    "outputs",
    "parallel_safe",
    "workers",
    "costs",
    "starts",
    "workspace",
    "max_slowdown",
    "shares",
    "strips",
    "continues",
    "input",
    "output",
    "rule",
    "slot",
    "choice",
    "space",
    "offset",
    "rows",
    "buffers",
    "in_place",
    "of",
    "bytes",
    "live",
    "capacity",
    "cost",
    "caller",
    "out",
    "in",
    // A change may put a whole plan inside of itself.
    "checksum",
];

/// The fields of what is said of repetitions: two of them are elsewhere in another order.
const RECOMPUTED: &[&str] =
    &["schedule", "inner", "cost", "extra_cost", "extra_bound", "floor", "paging"];

/// Returns the plan with a field changed and the checksum made to fit.
pub fn forge(plan: &Plan, change: impl FnOnce(&mut Json)) -> Result<Plan> {
    let mut json: Json = serde_json::from_str(&plan.to_json()).unwrap();
    change(&mut json);
    json.as_object_mut().unwrap().remove("checksum");
    // The checksum is over the fields in the order of the file, without itself.
    let body = ordered(&json);
    let sum: String = Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
    let whole = format!("{},\"checksum\":\"{sum}\"}}", &body[..body.len() - 1]);
    Plan::from_json(whole.as_bytes())
}

/// Writes an object with its fields in the order in which the program writes them.
fn ordered(json: &Json) -> String {
    match json {
        Json::Object(fields) => {
            let is_recomputed = fields.contains_key("extra_bound");
            let known = if is_recomputed { RECOMPUTED } else { FIELDS };
            let place = |key: &str| {
                let place = known.iter().position(|field| *field == key);
                place.unwrap_or_else(|| panic!("FIELDS has no {key}"))
            };
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort_by_key(|key| place(key));
            // Only what is said of costs has these two in the other order.
            if fields.len() == 2 && fields.contains_key("cost") {
                keys.reverse();
            }
            let fields = keys.iter().map(|key| format!("\"{key}\":{}", ordered(&fields[*key])));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Json::Array(items) => {
            let items: Vec<_> = items.iter().map(ordered).collect();
            format!("[{}]", items.join(","))
        }
        other => other.to_string(),
    }
}
