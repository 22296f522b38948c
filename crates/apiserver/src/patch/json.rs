//! RFC 6902 as kube-apiserver applies it, which is not quite the RFC.
//!
//! Its library takes negative list indices, lets `replace` create a missing object key and `copy` of a missing key create a `null`,
//! and lets `test` for `null` pass when the key is missing. Clients depend on some of this, so it is kept.

use serde_json::{Map, Value};

use super::{MAXIMUM_DEPTH, unprocessable};
use crate::status::ApiError;

const MAXIMUM_OPERATIONS: usize = 10_000;

/// Bytes that all `copy` operations of one patch may add, as the real server limits them.
const MAXIMUM_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// One decoded operation; absent strings are `None`, an absent value differs from `null`.
pub(super) struct Operation {
    op: Option<String>,
    path: Option<String>,
    from: Option<String>,
    value: Option<Value>,
}

/// An operation that does not apply; why is not told to clients.
struct Refused;

/// Reads the operations of a patch.
pub(super) fn decode(body: &[u8]) -> Result<Vec<Operation>, ApiError> {
    let bad = |why: String| ApiError::bad_request(format!("error decoding patch: {why}"));
    let document: Value = serde_json::from_slice(body).map_err(|e| bad(e.to_string()))?;
    let operations = match document {
        Value::Array(operations) => operations,
        Value::Null => Vec::new(),
        other => {
            let found = json_word(&other);
            return Err(bad(format!("json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp")));
        }
    };
    let decoded = operations.into_iter().map(|o| operation(o).map_err(bad)).collect::<Result<Vec<_>, _>>()?;
    if decoded.len() > MAXIMUM_OPERATIONS {
        return Err(ApiError::too_large(format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAXIMUM_OPERATIONS}, got {}",
            decoded.len()
        )));
    }
    Ok(decoded)
}

fn json_word(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn operation(value: Value) -> Result<Operation, String> {
    let mut fields = match value {
        Value::Object(fields) => fields,
        Value::Null => Map::new(),
        other => {
            let found = json_word(&other);
            return Err(format!("json: cannot unmarshal {found} into Go value of type handlers.jsonPatchOp"));
        }
    };
    let mut word = |name: &str| match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(word)) => Ok(Some(word)),
        Some(other) => Err(format!(
            "json: cannot unmarshal {} into Go struct field jsonPatchOp.{name} of type string",
            json_word(&other)
        )),
    };
    let (op, path, from) = (word("op")?, word("path")?, word("from")?);
    Ok(Operation { op, path, from, value: fields.remove("value") })
}

/// Applies the operations in order; the first that does not apply refuses the whole patch.
pub(super) fn apply(current: &Value, operations: Vec<Operation>) -> Result<Value, ApiError> {
    let mut document = Document { depth: depth_of(current), root: current.clone(), copied: 0 };
    for operation in operations {
        document.apply(operation).map_err(|Refused| unprocessable())?;
    }
    Ok(document.root)
}

struct Document {
    root: Value,
    /// No less than the nesting of `root`.
    depth: usize,
    copied: usize,
}

impl Document {
    fn apply(&mut self, operation: Operation) -> Result<(), Refused> {
        let Operation { op, path, from, value } = operation;
        let path = || path.as_deref().ok_or(Refused);
        let from = || from.as_deref().ok_or(Refused);
        match op.as_deref() {
            Some("add") => self.add(path()?, value.unwrap_or(Value::Null)),
            Some("remove") => self.remove(path()?).map(drop),
            Some("replace") => self.replace(path()?, value),
            Some("move") => {
                let value = self.remove(from()?)?;
                self.grow_by_part(path()?, &value)?;
                self.insert(path()?, value)
            }
            Some("copy") => self.copy(from()?, path()?),
            Some("test") => self.test(path()?, value.as_ref()),
            _ => Err(Refused),
        }
    }

    fn add(&mut self, path: &str, value: Value) -> Result<(), Refused> {
        self.grow(path, &value)?;
        self.insert(path, value)
    }

    fn insert(&mut self, path: &str, value: Value) -> Result<(), Refused> {
        let (container, key) = find(&mut self.root, path)?;
        match container {
            Value::Object(fields) => {
                fields.insert(key, value);
            }
            Value::Array(items) if key == "-" => items.push(value),
            Value::Array(items) => {
                // One more place than there are items: the new one may be the last.
                let index = index(&key, items.len() + 1)?;
                items.insert(index, value);
            }
            _ => return Err(Refused),
        }
        Ok(())
    }

    fn remove(&mut self, path: &str) -> Result<Value, Refused> {
        let (container, key) = find(&mut self.root, path)?;
        match container {
            Value::Object(fields) => fields.remove(&key).ok_or(Refused),
            Value::Array(items) => Ok(items.remove(index(&key, items.len())?)),
            _ => Err(Refused),
        }
    }

    fn replace(&mut self, path: &str, value: Option<Value>) -> Result<(), Refused> {
        let value = value.unwrap_or(Value::Null);
        if path.is_empty() {
            if !matches!(value, Value::Object(_) | Value::Array(_)) {
                return Err(Refused);
            }
            self.depth = depth_of(&value);
            self.root = value;
            return Ok(());
        }
        self.grow(path, &value)?;
        let (container, key) = find(&mut self.root, path)?;
        match container {
            Value::Object(fields) => {
                fields.insert(key, value);
            }
            Value::Array(items) => {
                let index = index(&key, items.len())?;
                *items.get_mut(index).ok_or(Refused)? = value;
            }
            _ => return Err(Refused),
        }
        Ok(())
    }

    fn copy(&mut self, from: &str, path: &str) -> Result<(), Refused> {
        let (container, key) = find(&mut self.root, from)?;
        let value = match container {
            Value::Object(fields) => fields.get(&key).cloned().unwrap_or(Value::Null),
            Value::Array(items) => items.get(index(&key, items.len())?).cloned().ok_or(Refused)?,
            _ => return Err(Refused),
        };
        self.copied += value.to_string().len();
        if self.copied > MAXIMUM_COPIED_BYTES {
            return Err(Refused);
        }
        self.grow_by_part(path, &value)?;
        self.insert(path, value)
    }

    fn test(&mut self, path: &str, expected: Option<&Value>) -> Result<(), Refused> {
        let passed = if path.is_empty() {
            expected == Some(&self.root)
        } else {
            let (container, key) = find(&mut self.root, path)?;
            let found = match container {
                Value::Object(fields) => fields.get(&key),
                Value::Array(items) => Some(items.get(index(&key, items.len())?).ok_or(Refused)?),
                _ => return Err(Refused),
            };
            found.unwrap_or(&Value::Null) == expected.ok_or(Refused)?
        };
        if passed { Ok(()) } else { Err(Refused) }
    }

    /// Refuses a value that would nest the document too deeply at `path`.
    fn grow(&mut self, path: &str, value: &Value) -> Result<(), Refused> {
        let depth = path.split('/').count() + depth_of(value);
        self.depth = self.depth.max(depth);
        if self.depth > MAXIMUM_DEPTH { Err(Refused) } else { Ok(()) }
    }

    /// As `grow` for a value that was part of the document, whose depth is walked only when the bound says it could matter.
    fn grow_by_part(&mut self, path: &str, value: &Value) -> Result<(), Refused> {
        let bound = path.split('/').count() + self.depth;
        if bound <= MAXIMUM_DEPTH {
            self.depth = bound;
            return Ok(());
        }
        self.depth = depth_of(&self.root);
        self.grow(path, value)
    }
}

/// The container that holds the last segment of `path`, and that segment.
fn find<'a>(root: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), Refused> {
    let mut segments = path.split('/').skip(1).peekable();
    let mut container = root;
    loop {
        let segment = unescaped(segments.next().ok_or(Refused)?);
        if segments.peek().is_none() {
            return Ok((container, segment));
        }
        container = match container {
            Value::Object(fields) => fields.get_mut(&segment).ok_or(Refused)?,
            Value::Array(items) => {
                let index = index(&segment, items.len())?;
                items.get_mut(index).ok_or(Refused)?
            }
            _ => return Err(Refused),
        };
    }
}

fn unescaped(segment: &str) -> String {
    if !segment.contains('~') {
        return segment.to_owned();
    }
    // One pass, so that `~01` is `~1` and not `/`.
    let mut text = String::with_capacity(segment.len());
    let mut rest = segment;
    while let Some(position) = rest.find('~') {
        let (before, after) = rest.split_at(position);
        text.push_str(before);
        let (decoded, length) = match after.as_bytes().get(1) {
            Some(b'1') => ('/', 2),
            Some(b'0') => ('~', 2),
            _ => ('~', 1),
        };
        text.push(decoded);
        rest = after.get(length..).unwrap_or_default();
    }
    text.push_str(rest);
    text
}

/// A list position below `length`; negative ones count from the end.
fn index(segment: &str, length: usize) -> Result<usize, Refused> {
    let position: i64 = segment.parse().map_err(|_| Refused)?;
    let length = i64::try_from(length).map_err(|_| Refused)?;
    let position = if position < 0 { position + length } else { position };
    if (0..length).contains(&position) { usize::try_from(position).map_err(|_| Refused) } else { Err(Refused) }
}

fn depth_of(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 1 + fields.values().map(depth_of).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth_of).max().unwrap_or(0),
        _ => 0,
    }
}
