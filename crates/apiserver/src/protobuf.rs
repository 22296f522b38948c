//! Request bodies in Kubernetes' protobuf encoding, which Go clients send for built-in kinds.
//!
//! A body is `k8s\0` and a `runtime.Unknown`: type and raw bytes of the object. The tables of the embedded data turn those bytes into
//! the JSON value that the same client would have sent as JSON, so the rest of the server knows one form only. What Go leaves out of
//! JSON (`omitempty`) is left out here, and nulls are.

use base64::Engine as _;
use serde_json::{Map, Value};

use self::table::{Cardinality, Field, Message, Presence};
use self::wire::{Reader, Wire};
use crate::builtin::data;
use crate::status::ApiError;

mod special;
mod table;
mod wire;

/// What every body begins with.
pub const MAGIC: &[u8; 4] = b"k8s\0";
/// Deeper messages are refused; the deepest real ones (schemas in definitions) stay below a hundred.
const MAXIMUM_DEPTH: usize = 128;
/// Most values in one body: a few bytes of an empty message can stand for much larger JSON.
const MAXIMUM_VALUES: usize = 500_000;
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Decodes a body into the object it carries, with `apiVersion` and `kind`.
pub fn decode(body: &[u8]) -> Result<Value, ApiError> {
    let mut decoder = Decoder { values: 0 };
    decoder.envelope(body, 0).map_err(|failure| match failure {
        Failure::Unknown(message) => ApiError::bad_request(message),
        Failure::Malformed(why) => {
            ApiError::bad_request(format!("the object provided is unrecognized (protobuf: {why})"))
        }
    })
}

/// Why a body cannot be decoded.
#[derive(Debug)]
enum Failure {
    /// Well-formed, but not something the server knows.
    Unknown(String),
    /// Not a message.
    Malformed(&'static str),
}

struct Decoder {
    values: usize,
}

impl Decoder {
    fn envelope(&mut self, body: &[u8], depth: usize) -> Result<Value, Failure> {
        let Some(unknown) = body.strip_prefix(MAGIC.as_slice()) else {
            return Err(Failure::Unknown(
                "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".to_owned(),
            ));
        };
        let (mut api_version, mut kind) = (String::new(), String::new());
        let (mut raw, mut content_type): (&[u8], &[u8]) = (&[], &[]);
        for entry in Reader::new(unknown) {
            match entry? {
                (1, Wire::Bytes(meta)) => {
                    for entry in Reader::new(meta) {
                        match entry? {
                            (1, Wire::Bytes(text)) => api_version = utf8(text)?,
                            (2, Wire::Bytes(text)) => kind = utf8(text)?,
                            _ => {}
                        }
                    }
                }
                (2, Wire::Bytes(bytes)) => raw = bytes,
                (4, Wire::Bytes(bytes)) => content_type = bytes,
                _ => {}
            }
        }
        if content_type == b"application/json" {
            return json(raw);
        }
        if kind.is_empty() || api_version.is_empty() {
            return Err(Failure::Unknown(format!(
                "Object '{}' is missing in 'unstructured object has no {}'",
                if kind.is_empty() { "Kind" } else { "apiVersion" },
                if kind.is_empty() { "kind" } else { "version" }
            )));
        }
        let Some(message) = message_of(&api_version, &kind) else {
            return Err(Failure::Unknown(format!("no kind \"{kind}\" is registered for version \"{api_version}\"")));
        };
        let mut object = Map::new();
        self.fields(message, raw, &mut object, depth)?;
        object.insert("apiVersion".to_owned(), Value::String(api_version));
        object.insert("kind".to_owned(), Value::String(kind));
        Ok(Value::Object(object))
    }

    /// Reads the fields of a message into an object.
    fn fields(
        &mut self,
        message: &'static Message,
        bytes: &[u8],
        object: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), Failure> {
        if depth > MAXIMUM_DEPTH {
            return Err(Failure::Malformed("nested too deeply"));
        }
        for field in message.always() {
            if let Some(zero) = zero(&field.kind) {
                self.count()?;
                object.insert(field.name.clone(), zero);
            }
        }
        for entry in Reader::new(bytes) {
            let (number, wire) = entry?;
            if let Some(field) = message.field(number) {
                self.field(field, wire, object, depth)?;
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        field: &'static Field,
        wire: Wire<'_>,
        object: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), Failure> {
        if field.presence == Presence::Inline {
            let Wire::Bytes(bytes) = wire else { return Err(Failure::Malformed("wrong wire type")) };
            return match table::message(&field.kind) {
                Some(message) => self.fields(message, bytes, object, depth + 1),
                None => Ok(()),
            };
        }
        match field.cardinality {
            Cardinality::One => {
                let value = self.value(&field.kind, wire, depth)?;
                let empty = field.presence == Presence::OmitEmpty && is_zero(&value) || value.is_null();
                // A message that comes twice is merged by the rules of protobuf; no Kubernetes client sends one twice.
                if empty {
                    object.remove(&field.name);
                } else {
                    object.insert(field.name.clone(), value);
                }
            }
            Cardinality::List => {
                let values = self.elements(&field.kind, wire, depth)?;
                if let Value::Array(list) = object.entry(field.name.clone()).or_insert_with(|| Value::Array(Vec::new()))
                {
                    list.extend(values);
                }
            }
            Cardinality::Map => {
                let Wire::Bytes(bytes) = wire else { return Err(Failure::Malformed("wrong wire type")) };
                let (mut key, mut value) = (String::new(), None);
                for entry in Reader::new(bytes) {
                    match entry? {
                        (1, Wire::Bytes(text)) => key = utf8(text)?,
                        (2, wire) => value = Some(self.value(&field.kind, wire, depth)?),
                        _ => {}
                    }
                }
                let value = match value {
                    Some(value) => value,
                    None => self.value(&field.kind, Wire::Bytes(&[]), depth)?,
                };
                if let Value::Object(map) =
                    object.entry(field.name.clone()).or_insert_with(|| Value::Object(Map::new()))
                {
                    map.insert(key, value);
                }
            }
        }
        Ok(())
    }

    /// One element of a list, or several numbers packed together.
    fn elements(&mut self, kind: &str, wire: Wire<'_>, depth: usize) -> Result<Vec<Value>, Failure> {
        match (kind, wire) {
            ("int32" | "int64" | "uint32" | "uint64" | "bool", Wire::Bytes(packed)) => {
                let mut values = Vec::new();
                for number in wire::varints(packed) {
                    values.push(self.value(kind, Wire::Varint(number?), depth)?);
                }
                Ok(values)
            }
            _ => Ok(vec![self.value(kind, wire, depth)?]),
        }
    }

    /// One value; `null` stands for a zero that JSON has no form for, such as the zero time.
    fn value(&mut self, kind: &str, wire: Wire<'_>, depth: usize) -> Result<Value, Failure> {
        self.count()?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "that is how protobuf reads varints"
        )]
        Ok(match (kind, wire) {
            ("string", Wire::Bytes(bytes)) => Value::String(utf8(bytes)?),
            ("bytes", Wire::Bytes(bytes)) => Value::String(base64::engine::general_purpose::STANDARD.encode(bytes)),
            ("bool", Wire::Varint(number)) => Value::Bool(number != 0),
            ("int32", Wire::Varint(number)) => Value::from(number as i32),
            ("int64", Wire::Varint(number)) => Value::from(number as i64),
            ("uint32", Wire::Varint(number)) => Value::from(number as u32),
            ("uint64", Wire::Varint(number)) => Value::from(number),
            ("double", Wire::Fixed64(bits)) => special::number(f64::from_bits(bits)),
            ("float", Wire::Fixed32(bits)) => special::number(f64::from(f32::from_bits(bits))),
            ("string" | "bytes" | "bool" | "int32" | "int64" | "uint32" | "uint64" | "double" | "float", _) => {
                return Err(Failure::Malformed("wrong wire type"));
            }
            (name, Wire::Bytes(bytes)) => self.message(name, bytes, depth + 1)?,
            _ => return Err(Failure::Malformed("wrong wire type")),
        })
    }

    fn message(&mut self, name: &str, bytes: &[u8], depth: usize) -> Result<Value, Failure> {
        if let Some(value) = self.special(name, bytes, depth)? {
            return Ok(value);
        }
        let Some(message) = table::message(name) else {
            return Err(Failure::Malformed("unknown message"));
        };
        let mut object = Map::new();
        self.fields(message, bytes, &mut object, depth)?;
        if message.is_list {
            return Ok(object.remove("items").unwrap_or_else(|| Value::Array(Vec::new())));
        }
        Ok(Value::Object(object))
    }

    fn count(&mut self) -> Result<(), Failure> {
        self.values += 1;
        if self.values > MAXIMUM_VALUES { Err(Failure::Malformed("too many values")) } else { Ok(()) }
    }
}

/// The table for a kind; the types of `meta/v1` are in every group version.
fn message_of(api_version: &str, kind: &str) -> Option<&'static Message> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let name = data::definition_name(group, version, kind);
    name.and_then(table::message).or_else(|| table::message(&format!("{META}.{kind}")))
}

fn utf8(bytes: &[u8]) -> Result<String, Failure> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Failure::Malformed("text is not UTF-8"))
}

fn json(bytes: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(bytes).map_err(|_| Failure::Malformed("embedded JSON is not valid"))
}

/// The value Go's JSON writes for a field that was never set; `None` for those it writes as null or that are always sent.
fn zero(kind: &str) -> Option<Value> {
    match kind {
        "string" => Some(Value::from("")),
        "bool" => Some(Value::from(false)),
        "int32" | "int64" | "uint32" | "uint64" => Some(Value::from(0)),
        _ => None,
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        // An empty structure is written, an empty list is not; but lists come one element at a time.
        Value::Array(_) | Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests;
