//! Changes of JSON: a field becomes another number or word, an element goes, comes twice, or moves.

use arbitrary::{Result, Unstructured};
use serde_json::{Value as Json, json};

const WORDS: &[&str] = &[
    "view",
    "in-place",
    "overlap",
    "optimal",
    "feasible",
    "unknown",
    "infeasible",
    "input",
    "output",
    "state",
    "constant",
    "activation",
    "inner",
    "arena",
    "reuse",
    "caller",
    "none",
    "auto",
    "nodes",
    "ideal",
    "fast",
    "uint8",
    "int4",
    "float32",
    "",
];

const EDGES: &[u64] = &[
    0,
    1,
    2,
    63,
    64,
    65,
    128,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    (1 << 53) + 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 63,
    u64::MAX,
];

/// Makes a few changes.
pub fn edit(bytes: &mut Unstructured<'_>, json: &mut Json, most: usize) -> Result<()> {
    for _ in 0..bytes.int_in_range(1..=most)? {
        let whole = json.clone();
        let place = descend(bytes, json)?;
        change(bytes, place, &whole)?;
    }
    Ok(())
}

/// Returns any part of a document; parts far inside are likelier.
fn descend<'j>(bytes: &mut Unstructured<'_>, mut json: &'j mut Json) -> Result<&'j mut Json> {
    loop {
        let children = match json {
            Json::Array(items) => items.len(),
            Json::Object(fields) => fields.len(),
            _ => 0,
        };
        if children == 0 || bytes.ratio(1, 12)? {
            return Ok(json);
        }
        let which = bytes.int_in_range(0..=children - 1)?;
        json = match json {
            Json::Array(items) => &mut items[which],
            Json::Object(fields) => fields.iter_mut().nth(which).expect("it is there").1,
            _ => unreachable!("it has children"),
        };
    }
}

fn number(bytes: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match bytes.int_in_range(0..=3_u8)? {
        0 => *bytes.choose(EDGES)?,
        1 => bytes.int_in_range(0..=40)?,
        2 => bytes.int_in_range(0..=40_u64)? * 64,
        _ => bytes.arbitrary::<u64>()? >> bytes.int_in_range(0..=63_u8)?,
    })
}

fn change(bytes: &mut Unstructured<'_>, json: &mut Json, whole: &Json) -> Result<()> {
    match json {
        Json::Number(now) => {
            let now = now.as_u64().unwrap_or(0);
            let step = *bytes.choose(&[1_u64, 2, 8, 64, 128])?;
            *json = match bytes.int_in_range(0..=4_u8)? {
                0 => now.wrapping_add(step).into(),
                1 => now.wrapping_sub(step).into(),
                2 => (now / 2).into(),
                3 => now.wrapping_mul(2).into(),
                _ => number(bytes)?.into(),
            };
        }
        Json::Bool(flag) => *flag = !*flag,
        Json::String(text) => *text = (*bytes.choose(WORDS)?).into(),
        Json::Array(items) if !items.is_empty() => {
            let [first, second] = [(); 2].map(|()| bytes.int_in_range(0..=items.len() - 1));
            let (first, second) = (first?, second?);
            match bytes.int_in_range(0..=3_u8)? {
                0 => drop(items.remove(first)),
                1 => items.push(items[first].clone()),
                2 => items.swap(first, second),
                _ => items[first] = items[second].clone(),
            }
        }
        Json::Array(items) => items.push(part(bytes, whole)?),
        Json::Object(fields) if !fields.is_empty() => {
            let which = bytes.int_in_range(0..=fields.len() - 1)?;
            let key = fields.keys().nth(which).expect("it is there").clone();
            if bytes.ratio(1, 2)? {
                fields.remove(&key);
            } else {
                fields.insert(key, part(bytes, whole)?);
            }
        }
        Json::Object(_) | Json::Null => *json = part(bytes, whole)?,
    }
    Ok(())
}

/// Returns a part of the document as it was, or a new one.
fn part(bytes: &mut Unstructured<'_>, whole: &Json) -> Result<Json> {
    Ok(match bytes.int_in_range(0..=5_u8)? {
        0 => Json::Null,
        1 => number(bytes)?.into(),
        2 => json!([number(bytes)?, number(bytes)?]),
        3 => json!({"input": bytes.int_in_range(0..=3)?, "output": bytes.int_in_range(0..=1)?,
                    "rule": *bytes.choose(&["view", "in-place", "overlap"])?}),
        _ => descend(bytes, &mut whole.clone())?.clone(),
    })
}
