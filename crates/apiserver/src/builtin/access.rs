//! Reading and writing fields of untyped objects by dotted path, for any JSON shape.
//!
//! A missing field, `null` and a value of the wrong type all read as "not there"; writing never replaces a value of the wrong
//! type. So the code above can say what Kubernetes does and never has to ask what JSON it was given: the schema has already
//! refused wrong types, and where it has not, nothing worse than a missing default happens.

use std::sync::LazyLock;

use serde_json::{Map, Value};

/// A JSON object.
pub(crate) type Object = Map<String, Value>;

static NULL: Value = Value::Null;
static EMPTY: LazyLock<Object> = LazyLock::new(Object::new);

/// Reads fields; an empty path is the value itself.
pub(crate) trait Read {
    /// The value at a dotted path; `null` when there is none.
    fn at(&self, path: &str) -> &Value;
    /// The string there, or the empty one.
    fn text(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or("")
    }
    /// The whole number there.
    fn integer(&self, path: &str) -> Option<i64> {
        self.at(path).as_i64()
    }
    /// The number there, 0 when there is none: a Go integer without pointer.
    fn count(&self, path: &str) -> i64 {
        self.integer(path).unwrap_or(0)
    }
    /// Whether `true` is there.
    fn flag(&self, path: &str) -> bool {
        self.at(path).as_bool().unwrap_or(false)
    }
    /// The elements of the list there.
    fn list(&self, path: &str) -> &[Value] {
        self.at(path).as_array().map_or(&[], Vec::as_slice)
    }
    /// The object there, or an empty one.
    fn map(&self, path: &str) -> &Object {
        self.at(path).as_object().unwrap_or(&EMPTY)
    }
    /// Whether anything but `null` is there: a Go pointer that is not nil.
    fn has(&self, path: &str) -> bool {
        !self.at(path).is_null()
    }
}

impl Read for Value {
    fn at(&self, path: &str) -> &Value {
        if path.is_empty() {
            return self;
        }
        path.split('.').try_fold(self, |value, name| value.get(name)).unwrap_or(&NULL)
    }
}

impl Read for Object {
    fn at(&self, path: &str) -> &Value {
        match path.split_once('.') {
            Some((name, rest)) => self.get(name).map_or(&NULL, |value| value.at(rest)),
            None => self.get(path).unwrap_or(&NULL),
        }
    }
}

/// Writes fields below a value.
pub(crate) trait Write {
    /// The object at a path, made if nothing is there; `None` when something else is in the way.
    fn object_at(&mut self, path: &str) -> Option<&mut Object>;
    /// The object at a path if there is one.
    fn existing(&mut self, path: &str) -> Option<&mut Object>;
    /// Sets a field whatever was there.
    fn set(&mut self, path: &str, value: impl Into<Value>);
    /// Sets a field that is missing or `null`: a nil pointer in Go.
    fn set_if_missing(&mut self, path: &str, value: impl Into<Value>);
    /// Sets a field that is missing, `null`, `""` or `0`: a zero value in Go.
    fn set_if_zero(&mut self, path: &str, value: impl Into<Value>);
    /// Removes a field and gives it back.
    fn take_at(&mut self, path: &str) -> Option<Value>;
    /// The elements of a list; none when there is no list.
    fn elements(&mut self, path: &str) -> &mut [Value];
}

impl Write for Value {
    fn object_at(&mut self, path: &str) -> Option<&mut Object> {
        let mut value = self;
        for name in path.split('.').filter(|name| !name.is_empty()) {
            value = as_object(value)?.entry(name).or_insert(Value::Null);
        }
        as_object(value)
    }

    fn existing(&mut self, path: &str) -> Option<&mut Object> {
        value_at(self, path)?.as_object_mut()
    }

    fn set(&mut self, path: &str, value: impl Into<Value>) {
        let (parent, name) = split_last(path);
        if let Some(object) = self.object_at(parent) {
            object.insert(name.to_owned(), value.into());
        }
    }

    fn set_if_missing(&mut self, path: &str, value: impl Into<Value>) {
        let (parent, name) = split_last(path);
        if let Some(object) = self.object_at(parent) {
            object.set_if_missing(name, value);
        }
    }

    fn set_if_zero(&mut self, path: &str, value: impl Into<Value>) {
        let (parent, name) = split_last(path);
        if let Some(object) = self.object_at(parent) {
            object.set_if_zero(name, value);
        }
    }

    fn take_at(&mut self, path: &str) -> Option<Value> {
        let (parent, name) = split_last(path);
        self.existing(parent)?.remove(name)
    }

    fn elements(&mut self, path: &str) -> &mut [Value] {
        value_at(self, path).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
    }
}

/// On an object the path is one name: this is what the inner loops use.
impl Write for Object {
    fn object_at(&mut self, name: &str) -> Option<&mut Object> {
        as_object(self.entry(name).or_insert(Value::Null))
    }

    fn existing(&mut self, name: &str) -> Option<&mut Object> {
        self.get_mut(name)?.as_object_mut()
    }

    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.insert(name.to_owned(), value.into());
    }

    fn set_if_missing(&mut self, name: &str, value: impl Into<Value>) {
        if self.get(name).is_none_or(Value::is_null) {
            self.set(name, value);
        }
    }

    fn set_if_zero(&mut self, name: &str, value: impl Into<Value>) {
        if self.get(name).is_none_or(is_zero) {
            self.set(name, value);
        }
    }

    fn take_at(&mut self, name: &str) -> Option<Value> {
        self.remove(name)
    }

    fn elements(&mut self, name: &str) -> &mut [Value] {
        self.get_mut(name).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
    }
}

/// Whether a value is what Go leaves out under `omitempty`: nothing, `false`, `0`, `""`, `[]`, `{}`.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// Equality as Go's semantic equality sees it at the top: all kinds of nothing are the same.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    left == right || (is_empty(left) && is_empty(right))
}

fn is_zero(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_) | Value::Bool(_)) && is_empty(value)
}

fn as_object(value: &mut Value) -> Option<&mut Object> {
    if value.is_null() {
        *value = Value::Object(Object::new());
    }
    value.as_object_mut()
}

fn value_at<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    if path.is_empty() {
        return Some(value);
    }
    path.split('.').try_fold(value, |value, name| value.get_mut(name))
}

fn split_last(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_fields_read_as_nothing() {
        let object = json!({"spec": {"replicas": 2, "text": "x", "list": [1]}});
        assert_eq!(object.count("spec.replicas"), 2);
        assert_eq!(object.text("spec.text"), "x");
        assert_eq!(object.text("spec.replicas"), "");
        assert!(object.list("spec.missing.deeper").is_empty());
        assert!(!object.has("status"));
    }

    #[test]
    fn writing_makes_parents_but_never_replaces_a_value_of_another_type() {
        let mut object = json!({"spec": "not an object"});
        object.set_if_missing("spec.replicas", 1);
        object.set_if_missing("status.phase", "Pending");
        assert_eq!(object, json!({"spec": "not an object", "status": {"phase": "Pending"}}));
    }

    #[test]
    fn zero_values_are_defaulted_and_pointers_to_zero_are_not() {
        let mut object = json!({"a": "", "b": 0, "c": null, "d": false});
        object.set_if_zero("a", "x");
        object.set_if_zero("b", 1);
        object.set_if_missing("c", 2);
        object.set_if_missing("d", true);
        assert_eq!(object, json!({"a": "x", "b": 1, "c": 2, "d": false}));
    }
}
