//! Operator attributes as JSON.

use alloc::{collections::BTreeMap, string::String, vec, vec::Vec};
use core::fmt;

use serde::de::{self, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::graph::Attribute;

/// Attributes by name, each name once.
#[derive(Default, Serialize)]
#[serde(transparent)]
pub(super) struct AttributeRows(pub(super) BTreeMap<String, Attribute>);

impl AttributeRows {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for AttributeRows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Rows;
        impl<'de> Visitor<'de> for Rows {
            type Value = AttributeRows;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("attributes by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut rows: A) -> Result<AttributeRows, A::Error> {
                let mut attributes = BTreeMap::new();
                while let Some(name) = rows.next_key::<String>()? {
                    let attribute = rows.next_value()?;
                    if attributes.insert(name, attribute).is_some() {
                        return Err(de::Error::custom("a node has an attribute twice"));
                    }
                }
                Ok(AttributeRows(attributes))
            }
        }
        deserializer.deserialize_map(Rows)
    }
}

impl<'de> Deserialize<'de> for Attribute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyAttribute)
    }
}

/// Reads an attribute whose kind the text decides.
struct AnyAttribute;

impl<'de> Visitor<'de> for AnyAttribute {
    type Value = Attribute;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of at most 64 bits, text, a list of one kind of them, or null")
    }

    fn visit_i64<E>(self, number: i64) -> Result<Attribute, E> {
        Ok(Attribute::Integer(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Attribute, E> {
        let unexpected = Unexpected::Unsigned(number);
        let number = i64::try_from(number).map_err(|_| E::invalid_value(unexpected, &self))?;
        Ok(Attribute::Integer(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Attribute, E> {
        Ok(Attribute::Real(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Attribute, E> {
        Ok(Attribute::Text(text.into()))
    }

    fn visit_string<E>(self, text: String) -> Result<Attribute, E> {
        Ok(Attribute::Text(text))
    }

    fn visit_unit<E>(self) -> Result<Attribute, E> {
        Ok(Attribute::Omitted)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Attribute, A::Error> {
        let Some(first) = list.next_element()? else { return Ok(Attribute::Integers(Vec::new())) };
        match first {
            Attribute::Integer(number) => {
                rest(number, list, Attribute::as_integer).map(Attribute::Integers)
            }
            Attribute::Real(number) => rest(number, list, Attribute::as_real).map(Attribute::Reals),
            Attribute::Text(text) => {
                rest(text, list, |next| next.as_text().map(String::from)).map(Attribute::Texts)
            }
            _ => Err(de::Error::custom("a list in an attribute is of numbers or text")),
        }
    }
}

/// Reads the elements behind the first element; `read` returns those of the same kind.
fn rest<'de, A: SeqAccess<'de>, T>(
    first: T,
    mut list: A,
    read: fn(&Attribute) -> Option<T>,
) -> Result<Vec<T>, A::Error> {
    let mut elements = vec![first];
    while let Some(next) = list.next_element()? {
        let mixed = || de::Error::custom("a list in an attribute mixes kinds of elements");
        elements.push(read(&next).ok_or_else(mixed)?);
    }
    Ok(elements)
}
