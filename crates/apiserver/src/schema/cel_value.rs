//! From JSON to the values CEL rules see.
//!
//! The schema decides: fields become identifiers (escaped where they are not), `date-time`, `duration` and `byte` strings become
//! timestamps, durations and bytes, numbers have the type the schema gives them. Fields the schema does not know are not visible.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use cel::objects::{Key, Map};
use cel::{Context, Program, Value as CelValue};
use serde_json::Value;

use super::{Schema, Type};

const MAXIMUM_DEPTH: usize = 256;

/// Whether a node is a whole object, whose type and name rules may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// The custom resource or an object embedded in it.
    Yes,
    /// A part of one.
    No,
}

impl Root {
    pub(super) fn of(schema: &Schema) -> Self {
        if schema.embedded_resource { Self::Yes } else { Self::No }
    }
}

/// The value of a node as CEL sees it.
pub(super) fn to_cel(schema: &Schema, value: &Value, root: Root) -> CelValue {
    convert(schema, value, root, 0)
}

fn convert(schema: &Schema, value: &Value, root: Root, depth: usize) -> CelValue {
    if depth > MAXIMUM_DEPTH {
        return CelValue::Null;
    }
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        Value::Number(number) => match schema.kind {
            Type::Number => CelValue::Float(number.as_f64().unwrap_or_default()),
            #[expect(clippy::cast_possible_truncation, reason = "whole by validation; the cast saturates")]
            Type::Integer => {
                CelValue::Int(number.as_i64().unwrap_or_else(|| number.as_f64().unwrap_or_default() as i64))
            }
            _ => number.as_i64().map_or_else(|| CelValue::Float(number.as_f64().unwrap_or_default()), CelValue::Int),
        },
        Value::String(text) => text_value(schema, text),
        Value::Array(elements) => {
            let any = Schema::default();
            let items = schema.items.as_deref().unwrap_or(&any);
            let elements = elements.iter().map(|e| convert(items, e, Root::of(items), depth + 1));
            CelValue::List(Arc::new(elements.collect()))
        }
        Value::Object(fields) => {
            let mut map = HashMap::with_capacity(fields.len());
            for (name, value) in fields {
                let (key, value) = if let Some(child) = schema.properties.get(name)
                    && !(root == Root::Yes && name == "metadata" && child.properties.is_empty())
                {
                    let Some(key) = escape(name) else { continue };
                    (key, convert(child, value, Root::of(child), depth + 1))
                } else if root == Root::Yes && matches!(name.as_str(), "apiVersion" | "kind") {
                    (name.clone(), convert(&Schema::default(), value, Root::No, depth + 1))
                } else if root == Root::Yes && name == "metadata" {
                    (name.clone(), metadata(value))
                } else if let Some(child) = &schema.additional {
                    (name.clone(), convert(child, value, Root::of(child), depth + 1))
                } else {
                    continue;
                };
                map.insert(Key::String(Arc::new(key)), value);
            }
            CelValue::Map(Map { map: Arc::new(map) })
        }
    }
}

/// Of the metadata only the names are visible.
fn metadata(value: &Value) -> CelValue {
    let visible = ["name", "generateName"].into_iter().filter_map(|name| {
        let text = value.get(name)?.as_str()?.to_owned();
        Some((Key::String(Arc::new(name.to_owned())), CelValue::String(Arc::new(text))))
    });
    CelValue::Map(Map { map: Arc::new(visible.collect()) })
}

fn text_value(schema: &Schema, text: &str) -> CelValue {
    let plain = || CelValue::String(Arc::new(text.to_owned()));
    // The library's own functions make its time values, so that this crate need not depend on the library's choice of types.
    let through = |program: &LazyLock<Option<Program>>| {
        let program = program.as_ref()?;
        let mut scope = TIME_FUNCTIONS.new_inner_scope();
        scope.add_variable_from_value("text", plain());
        program.execute(&scope).ok()
    };
    match (schema.kind, schema.format.as_deref()) {
        (Type::String, Some("date-time" | "datetime")) => through(&TIMESTAMP).unwrap_or_else(plain),
        (Type::String, Some("date")) => {
            let whole = Schema { kind: Type::String, format: Some("date-time".to_owned()), ..Schema::default() };
            match text_value(&whole, &format!("{text}T00:00:00Z")) {
                CelValue::String(_) => plain(),
                time => time,
            }
        }
        (Type::String, Some("duration")) => through(&DURATION).unwrap_or_else(plain),
        (Type::String, Some("byte")) => match base64::engine::general_purpose::STANDARD.decode(text) {
            Ok(bytes) => CelValue::Bytes(Arc::new(bytes)),
            Err(_) => plain(),
        },
        _ => plain(),
    }
}

static TIME_FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(Context::default);
static TIMESTAMP: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("timestamp(text)").ok());
static DURATION: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("duration(text)").ok());

/// Words of the language that cannot be field names.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The identifier by which a rule reads a field; `None` if there is no way to write its name.
pub(super) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-/".contains(c)) {
        return None;
    }
    let underscores = name.replace("__", "__underscores__");
    Some(underscores.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__"))
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn field_names_become_identifiers_as_in_kubernetes() {
        for (name, identifier) in [
            ("replicas", Some("replicas")),
            ("namespace", Some("__namespace__")),
            ("a_b", Some("a_b")),
            ("a__b", Some("a__underscores__b")),
            ("kai.scheduler/queue-name", Some("kai__dot__scheduler__slash__queue__dash__name")),
            ("1st", None),
            ("a b", None),
        ] {
            assert_eq!(escape(name).as_deref(), identifier, "{name}");
        }
    }
}
