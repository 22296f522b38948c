//! Message tables from the embedded data, each read at its first use.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use serde_json::Value;

use crate::builtin::data;

/// The fields of a message by number.
#[derive(Debug, Default)]
pub(super) struct Message {
    fields: BTreeMap<u64, Field>,
    /// The message only wraps a list of strings (`Verbs`, `ExtraValue`); in JSON it is that list.
    pub(super) is_list: bool,
}

/// One field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    /// A scalar type, or the OpenAPI name of a message.
    pub(super) kind: String,
    pub(super) cardinality: Cardinality,
    pub(super) presence: Presence,
}

/// How many values a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cardinality {
    One,
    List,
    Map,
}

/// When Go's JSON has the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// When it was set, to whatever value.
    Pointer,
    /// When it is not zero.
    OmitEmpty,
    /// Always.
    Always,
    /// Its own fields are fields of the parent.
    Inline,
}

impl Message {
    pub(super) fn field(&self, number: u64) -> Option<&Field> {
        self.fields.get(&number)
    }

    /// Single values that JSON has even when they are zero.
    pub(super) fn always(&self) -> impl Iterator<Item = &Field> {
        self.fields.values().filter(|f| f.presence == Presence::Always && f.cardinality == Cardinality::One)
    }

    fn parse(source: &Value) -> Option<Self> {
        let rows = source.as_array()?;
        let mut fields = BTreeMap::new();
        for row in rows {
            let word = |index: usize| row.get(index).and_then(Value::as_str);
            let field = Field {
                name: word(1)?.to_owned(),
                kind: word(2)?.to_owned(),
                cardinality: match word(3)? {
                    "list" => Cardinality::List,
                    "map" => Cardinality::Map,
                    _ => Cardinality::One,
                },
                presence: match word(4)? {
                    "pointer" => Presence::Pointer,
                    "always" => Presence::Always,
                    "inline" => Presence::Inline,
                    _ => Presence::OmitEmpty,
                },
            };
            fields.insert(row.get(0)?.as_u64()?, field);
        }
        let only = fields.get(&1).filter(|_| fields.len() == 1);
        let is_list = only.is_some_and(|f| f.name == "items" && f.cardinality == Cardinality::List);
        Some(Self { fields, is_list })
    }
}

/// The table of a message by OpenAPI name.
pub(super) fn message(name: &str) -> Option<&'static Message> {
    static MESSAGES: LazyLock<BTreeMap<&'static str, OnceLock<Message>>> =
        LazyLock::new(|| data::message_names().map(|name| (name, OnceLock::new())).collect());
    let cell = MESSAGES.get(name)?;
    Some(cell.get_or_init(|| data::message_source(name).as_ref().and_then(Message::parse).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_has_a_table_and_every_type_in_it_is_known() {
        let scalars = ["string", "bytes", "bool", "int32", "int64", "uint32", "uint64", "double", "float"];
        for name in data::message_names() {
            let source = data::message_source(name).unwrap();
            let table = message(name).unwrap();
            assert_eq!(table.fields.len(), source.as_array().unwrap().len(), "{name}");
            for field in table.fields.values() {
                assert!(
                    scalars.contains(&field.kind.as_str()) || message(&field.kind).is_some(),
                    "{name}.{}",
                    field.name
                );
            }
        }
    }
}
