//! Values as Go prints them, because error messages of a kube-apiserver contain them and people search for those messages.

use serde_json::{Number, Value};

/// How a number was decoded before it was printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// Integers stay integers (JSON bodies).
    Kept,
    /// Everything is a float (YAML bodies).
    Floats,
}

/// `%v` of a decoded JSON value: `map[a:1 b:[x y]]`.
pub(crate) fn go_value(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value, Numbers::Kept);
    text
}

/// `%v` of a pointer to a structured-merge-diff value that came from YAML: `&{1}`.
pub(crate) fn go_pointer(value: &Value) -> String {
    let mut text = "&{".to_owned();
    write_value(&mut text, value, Numbers::Floats);
    text.push('}');
    text
}

/// `%#v` of the same: `&value.valueUnstructured{Value:1}`.
pub(crate) fn go_syntax(value: &Value) -> String {
    let mut text = "&value.valueUnstructured{Value:".to_owned();
    write_syntax(&mut text, value);
    text.push('}');
    text
}

/// `%T` of a decoded JSON value.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() || number.is_u64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// `%q` of a string.
pub(crate) fn go_quote(text: &str) -> String {
    use std::fmt::Write as _;

    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            control if u32::from(control) < 0x20 || u32::from(control) == 0x7f => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\x{:02x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// JSON text as Go encodes it: `<`, `>`, `&` and the two line separators are escaped.
pub(crate) fn go_html_escaped(json: String) -> String {
    if !json.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return json;
    }
    // These characters occur only inside strings, so replacing them in the text is replacing them in the strings.
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

fn write_value(text: &mut String, value: &Value, numbers: Numbers) {
    match value {
        Value::Null => text.push_str("<nil>"),
        Value::Bool(flag) => text.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => text.push_str(&number_text(number, numbers)),
        Value::String(string) => text.push_str(string),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(' ');
                }
                write_value(text, item, numbers);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            text.push_str("map[");
            for (index, (key, field)) in fields.iter().enumerate() {
                if index > 0 {
                    text.push(' ');
                }
                text.push_str(key);
                text.push(':');
                write_value(text, field, numbers);
            }
            text.push(']');
        }
    }
}

fn write_syntax(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("interface {}(nil)"),
        Value::String(string) => text.push_str(&go_quote(string)),
        Value::Array(items) => {
            text.push_str("[]interface {}{");
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                write_syntax(text, item);
            }
            text.push('}');
        }
        Value::Object(fields) => {
            text.push_str("map[string]interface {}{");
            for (index, (key, field)) in fields.iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                text.push_str(&go_quote(key));
                text.push(':');
                write_syntax(text, field);
            }
            text.push('}');
        }
        scalar => write_value(text, scalar, Numbers::Floats),
    }
}

fn number_text(number: &Number, numbers: Numbers) -> String {
    if numbers == Numbers::Kept && !number.is_f64() {
        return number.to_string();
    }
    number.as_f64().map_or_else(|| number.to_string(), float_text)
}

/// `%v` of a float64: shortest form, with an exponent below 1e-4 and from 1e6 on.
fn float_text(float: f64) -> String {
    let scientific = format!("{float:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let Ok(exponent) = exponent.parse::<i32>() else { return scientific };
    if (-4..6).contains(&exponent) {
        return format!("{float}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}
