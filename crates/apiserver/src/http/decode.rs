//! Request bodies: JSON, YAML or protobuf bytes into a value, with duplicate keys noticed on the way.

use std::fmt::Write as _;

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::protobuf;
use crate::status::ApiError;

/// The largest body the server reads.
pub const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Nesting that no Kubernetes object has; deeper bodies are refused instead of overflowing the stack.
const DEPTH_LIMIT: usize = 120;

/// A decoded body.
#[derive(Debug)]
pub struct Decoded {
    /// The object.
    pub value: Value,
    /// Paths of keys that occur twice, such as `metadata.labels.a`.
    pub duplicates: Vec<String>,
}

/// The formats of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// The format named by a `Content-Type` header; JSON if there is none.
pub fn format(content_type: Option<&str>) -> Result<Format, ApiError> {
    let media = content_type.and_then(|text| text.split(';').next()).unwrap_or_default().trim();
    match media {
        "" | "application/json" => Ok(Format::Json),
        "application/yaml" => Ok(Format::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Format::Protobuf),
        _ => Err(ApiError::unsupported_media_type(&[
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ])),
    }
}

/// Decodes a body that must be an object of `kind`.
pub fn decode(format: Format, body: &[u8], kind: &str) -> Result<Decoded, ApiError> {
    let failed = |why: String| {
        let message =
            format!("the object provided is unrecognized (must be of type {kind}): {why} ({})", summary(body));
        ApiError::bad_request(message)
    };
    let mut duplicates = Vec::new();
    let seed = ValueSeed { duplicates: &mut duplicates, path: None, depth: 0 };
    let value = match format {
        Format::Json => {
            let mut deserializer = serde_json::Deserializer::from_slice(body);
            seed.deserialize(&mut deserializer)
                .and_then(|value| deserializer.end().map(|()| value))
                .map_err(|error| failed(format!("couldn't get version/kind; json parse error: {error}")))?
        }
        Format::Yaml => {
            from_yaml(body, seed).map_err(|error| failed(format!("error converting YAML to JSON: {error}")))?
        }
        Format::Protobuf => protobuf::decode(body)?,
    };
    if !value.is_object() {
        let found = match &value {
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
            _ => return Err(failed("Object 'Kind' is missing in 'null'".to_owned())),
        };
        let why = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        );
        return Err(failed(why));
    }
    Ok(Decoded { value, duplicates })
}

/// Decodes YAML that need not be an object, such as an apply patch.
pub fn yaml(body: &[u8]) -> Result<Value, String> {
    let mut duplicates = Vec::new();
    // Most of it is JSON, which is YAML, and is read much faster as such.
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = ValueSeed { duplicates: &mut duplicates, path: None, depth: 0 }.deserialize(&mut json);
    if let Ok(value) = read.and_then(|value| json.end().map(|()| value)) {
        return Ok(value);
    }
    from_yaml(body, ValueSeed { duplicates: &mut duplicates, path: None, depth: 0 })
}

fn from_yaml(body: &[u8], seed: ValueSeed<'_, '_>) -> Result<Value, String> {
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins };
    let result = serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        seed.deserialize(deserializer)
    });
    result.map_err(|error| error.to_string())
}

fn summary(body: &[u8]) -> String {
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    match body {
        [] => "<empty>".to_owned(),
        short if short.len() <= 30 => hex(short),
        long => format!("{} ...", hex(long.get(..30).unwrap_or_default())),
    }
}

/// Where in the document the deserializer is, as a list on the stack.
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Key(key) if self.parent.is_some() => write!(f, ".{key}"),
            Step::Key(key) => f.write_str(key),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

struct ValueSeed<'a, 'p> {
    duplicates: &'a mut Vec<String>,
    path: Option<&'p Path<'p>>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        if self.depth >= DEPTH_LIMIT {
            return Err(A::Error::custom("exceeded max depth"));
        }
        let mut list = Vec::new();
        loop {
            let path = Path { parent: self.path, step: Step::Index(list.len()) };
            let seed = ValueSeed { duplicates: self.duplicates, path: Some(&path), depth: self.depth + 1 };
            let Some(value) = sequence.next_element_seed(seed)? else { return Ok(Value::Array(list)) };
            list.push(value);
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        if self.depth >= DEPTH_LIMIT {
            return Err(A::Error::custom("exceeded max depth"));
        }
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = {
                let path = Path { parent: self.path, step: Step::Key(&key) };
                if object.contains_key(&key) {
                    self.duplicates.push(path.to_string());
                }
                map.next_value_seed(ValueSeed {
                    duplicates: self.duplicates,
                    path: Some(&path),
                    depth: self.depth + 1,
                })?
            };
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn duplicate_keys_are_named_by_path() {
        let body = br#"{"spec":{"list":[{"a":1},{"a":1,"a":2}]},"kind":"X","kind":"Y"}"#;
        let decoded = decode(Format::Json, body, "X").unwrap();
        assert_eq!(decoded.duplicates, ["spec.list[1].a", "kind"]);
        assert_eq!(decoded.value, json!({"spec": {"list": [{"a": 1}, {"a": 2}]}, "kind": "Y"}));
    }

    #[test]
    fn yaml_is_read_as_kubernetes_reads_it() {
        let body = b"kind: Pod\nspec:\n  n: 5\n  on: true\n  text: \"5\"\n  none: null\n  ratio: 0.5\n  list: [a, b]\n";
        let decoded = decode(Format::Yaml, body, "Pod").unwrap();
        let spec = json!({"n": 5, "on": true, "text": "5", "none": null, "ratio": 0.5, "list": ["a", "b"]});
        assert_eq!(decoded.value["spec"], spec);
    }

    #[test]
    fn bodies_that_are_no_objects_are_bad_requests() {
        for (format, body) in [
            (Format::Json, &b"{\"a\":"[..]),
            (Format::Json, b""),
            (Format::Json, b"[1]"),
            (Format::Json, b"{} trailing"),
            (Format::Yaml, b"a: [\n"),
            (Format::Yaml, b"\xff\xfe"),
        ] {
            let error = decode(format, body, "Pod").unwrap_err();
            assert_eq!((error.code, error.reason), (400, "BadRequest"));
            assert!(error.message.contains("must be of type Pod"), "{}", error.message);
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let body = format!("{}1{}", "{\"a\":".repeat(5000), "}".repeat(5000));
        assert_eq!(decode(Format::Json, body.as_bytes(), "Pod").unwrap_err().code, 400);
        let body = "[".repeat(5000);
        assert_eq!(decode(Format::Yaml, body.as_bytes(), "Pod").unwrap_err().code, 400);
    }
}
