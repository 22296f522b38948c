//! Messages whose JSON form is not that of their fields: quantities, times, ports that are names or numbers, embedded JSON.

use serde_json::{Map, Number, Value};

use super::wire::{Reader, Wire};
use super::{Decoder, Failure, MAGIC, json, utf8};

impl Decoder {
    /// The JSON form of a special message; `None` if the message is an ordinary one.
    pub(super) fn special(&mut self, name: &str, bytes: &[u8], depth: usize) -> Result<Option<Value>, Failure> {
        let value = match name {
            "io.k8s.apimachinery.pkg.api.resource.Quantity" => quantity(bytes)?,
            "io.k8s.apimachinery.pkg.apis.meta.v1.Time" => time(bytes, Precision::Seconds)?,
            "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime" => time(bytes, Precision::Microseconds)?,
            "io.k8s.apimachinery.pkg.apis.meta.v1.Duration" => Value::String(duration(entries(bytes)?.number(1))),
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString" => int_or_string(bytes)?,
            "io.k8s.apimachinery.pkg.runtime.RawExtension"
            | "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"
            | "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON" => match entries(bytes)?.bytes(1) {
                [] => Value::Null,
                raw if raw.starts_with(MAGIC) => self.envelope(raw, depth + 1)?,
                raw => json(raw)?,
            },
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray" => {
                self.either(name, bytes, "jSONSchemas", depth)?
            }
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray" => {
                self.either(name, bytes, "property", depth)?
            }
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool" => {
                let allows = entries(bytes)?.number(1) != 0;
                match self.plain(name, bytes, depth)?.remove("schema") {
                    Some(schema) => schema,
                    None => Value::Bool(allows),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(value))
    }

    /// A schema, or else the list of the field `list`.
    fn either(&mut self, name: &str, bytes: &[u8], list: &str, depth: usize) -> Result<Value, Failure> {
        let mut object = self.plain(name, bytes, depth)?;
        Ok(object.remove(list).or_else(|| object.remove("schema")).unwrap_or_default())
    }

    /// The fields of a special message as if it were an ordinary one.
    fn plain(&mut self, name: &str, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, Failure> {
        let mut object = Map::new();
        if let Some(message) = super::table::message(name) {
            self.fields(message, bytes, &mut object, depth)?;
        }
        Ok(object)
    }
}

/// The last value of each field, for messages of a few scalars.
#[derive(Default)]
struct Entries<'a>(Vec<(u64, Wire<'a>)>);

fn entries(bytes: &[u8]) -> Result<Entries<'_>, Failure> {
    Reader::new(bytes).collect::<Result<_, _>>().map(Entries)
}

impl<'a> Entries<'a> {
    #[expect(clippy::cast_possible_wrap, reason = "that is how protobuf reads varints")]
    fn number(&self, field: u64) -> i64 {
        self.0
            .iter()
            .rev()
            .find_map(|(n, wire)| match wire {
                Wire::Varint(number) if *n == field => Some(*number as i64),
                _ => None,
            })
            .unwrap_or_default()
    }

    fn bytes(&self, field: u64) -> &'a [u8] {
        let found = self.0.iter().rev().find_map(|(n, wire)| match wire {
            Wire::Bytes(bytes) if *n == field => Some(*bytes),
            _ => None,
        });
        found.unwrap_or_default()
    }
}

fn quantity(bytes: &[u8]) -> Result<Value, Failure> {
    let text = utf8(entries(bytes)?.bytes(1))?;
    // The zero quantity is sent without its text.
    Ok(Value::String(if text.is_empty() { "0".to_owned() } else { text }))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Failure> {
    let entries = entries(bytes)?;
    if entries.number(1) == 0 {
        #[expect(clippy::cast_possible_truncation, reason = "the field is an int32")]
        let number = entries.number(2) as i32;
        return Ok(Value::from(number));
    }
    utf8(entries.bytes(3)).map(Value::String)
}

/// How precise a time is in JSON.
#[derive(Clone, Copy)]
enum Precision {
    Seconds,
    Microseconds,
}

fn time(bytes: &[u8], precision: Precision) -> Result<Value, Failure> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let entries = entries(bytes)?;
    let nanoseconds = match precision {
        Precision::Seconds => 0,
        Precision::Microseconds => i32::try_from(entries.number(2)).unwrap_or_default() / 1000 * 1000,
    };
    let time =
        jiff::Timestamp::new(entries.number(1), nanoseconds).map_err(|_| Failure::Malformed("time out of range"))?;
    Ok(Value::String(match precision {
        Precision::Seconds => format!("{time:.0}"),
        Precision::Microseconds => format!("{time:.6}"),
    }))
}

/// A float; those that JSON cannot write become null.
pub(super) fn number(value: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "checked to be a whole number that fits")]
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// Nanoseconds as Go writes a duration: `1h0m0.5s`, `1.5ms`, `0s`.
fn duration(nanoseconds: i64) -> String {
    let (sign, rest) =
        if nanoseconds < 0 { ("-", nanoseconds.unsigned_abs()) } else { ("", nanoseconds.unsigned_abs()) };
    let fraction = |value: u64, unit: u64| {
        let digits = format!("{:0width$}", value % unit, width = unit.ilog10() as usize);
        let digits = digits.trim_end_matches('0');
        let whole = value / unit;
        if unit == 1 || digits.is_empty() { whole.to_string() } else { format!("{whole}.{digits}") }
    };
    let text = match rest {
        0 => "0s".to_owned(),
        1..1_000 => format!("{rest}ns"),
        1_000..1_000_000 => format!("{}µs", fraction(rest, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", fraction(rest, 1_000_000)),
        _ => {
            let seconds = fraction(rest % 60_000_000_000, 1_000_000_000);
            let minutes = rest / 60_000_000_000;
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_are_written_as_go_does() {
        for (nanoseconds, text) in [
            (0, "0s"),
            (5, "5ns"),
            (1_500, "1.5µs"),
            (20_000_000, "20ms"),
            (90_000_000_000, "1m30s"),
            (3_600_500_000_000, "1h0m0.5s"),
            (-2_000_000_000, "-2s"),
        ] {
            assert_eq!(duration(nanoseconds), text);
        }
    }
}
