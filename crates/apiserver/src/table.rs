//! Tables as `kubectl get` shows them: which columns a kind has and what stands in them.
//!
//! The server renders, the client only aligns. Built-in kinds have a *printer* each (columns and a function from object to
//! cells); custom kinds are read by the `JSONPath` of their columns; everything else shows its name and when it was created.
//! Columns of priority 1 are sent always and shown with `-o wide`.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::builtin;
use crate::resource::{Gvk, Origin, PrinterColumn, Resource};
use crate::schema::Schema;

mod age;
mod basic;
mod cluster;
mod json_path;
mod network;
mod node;
mod pod;
mod row;
mod storage;
#[cfg(test)]
mod tests;
mod workload;

pub use age::human_duration;
pub use json_path::JsonPath;
use row::Row;

/// What a row carries besides its cells (`includeObject` of the request).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// The metadata, as a `PartialObjectMetadata`; what a client gets that does not ask.
    Metadata,
    /// The whole object.
    Object,
}

/// One column of a built-in kind.
struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    priority: i64,
    /// Help text, or the path of the field (with a leading dot) whose description is the help text.
    about: &'static str,
}

/// How one built-in kind is shown.
struct Printer {
    columns: &'static [Column],
    cells: fn(&Row<'_>) -> Vec<Value>,
}

const NAME: Column = Column { name: "Name", kind: "string", format: "name", priority: 0, about: ".metadata.name" };
const AGE: Column = text("Age", ".metadata.creationTimestamp");

const fn text(name: &'static str, about: &'static str) -> Column {
    Column { name, kind: "string", format: "", priority: 0, about }
}

const fn integer(name: &'static str, about: &'static str) -> Column {
    Column { name, kind: "integer", format: "", priority: 0, about }
}

const fn boolean(name: &'static str, about: &'static str) -> Column {
    Column { name, kind: "boolean", format: "", priority: 0, about }
}

const fn wide(name: &'static str, about: &'static str) -> Column {
    Column { name, kind: "string", format: "", priority: 1, about }
}

/// A `meta.k8s.io/v1` Table of these objects, one row each, at the time `now`.
pub fn render(
    resource: &Resource,
    objects: &[&Value],
    list_metadata: Value,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let (columns, cells) = match &resource.origin {
        Origin::Custom { columns, .. } => custom(columns),
        Origin::BuiltIn => built_in(resource),
    };
    let is_pod = resource.gvk.group.is_empty() && resource.gvk.kind == "Pod";
    let rows = objects.iter().map(|object| {
        let row = Row { object, now };
        let mut entry = object_of([("cells", Value::Array(cells(&row))), ("object", included(object, include))]);
        if let Some(conditions) = if is_pod { pod::conditions(&row) } else { None } {
            entry["conditions"] = conditions;
        }
        entry
    });
    object_of([
        ("kind", json!("Table")),
        ("apiVersion", json!("meta.k8s.io/v1")),
        ("metadata", list_metadata),
        ("columnDefinitions", Value::Array(columns)),
        ("rows", Value::Array(rows.collect())),
    ])
}

/// An object of these fields. Unlike `json!` it takes the values instead of copying them, which counts in tables of thousands of rows.
fn object_of<const FIELDS: usize>(fields: [(&str, Value); FIELDS]) -> Value {
    Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Renders the cells of one object.
type Cells = Box<dyn Fn(&Row<'_>) -> Vec<Value>>;

fn built_in(resource: &Resource) -> (Vec<Value>, Cells) {
    let schema = resource.schema.as_deref();
    let Some(printer) = printer(&resource.gvk) else {
        let created = Column { kind: "date", ..text("Created At", ".metadata.creationTimestamp") };
        let columns = [NAME, created].iter().map(|column| definition(column, schema)).collect();
        return (columns, Box::new(|row| vec![row.name(), row.cell(".metadata.creationTimestamp")]));
    };
    (printer.columns.iter().map(|column| definition(column, schema)).collect(), Box::new(printer.cells))
}

fn printer(gvk: &Gvk) -> Option<&'static Printer> {
    let (group, kind) = (gvk.group.as_str(), gvk.kind.as_str());
    let sources = [basic::printer, pod::printer, node::printer, workload::printer, network::printer];
    let more = [storage::printer, cluster::printer];
    sources.into_iter().chain(more).find_map(|find| find(group, kind))
}

fn definition(column: &Column, schema: Option<&Schema>) -> Value {
    json!({
        "name": column.name,
        "type": column.kind,
        "format": column.format,
        "description": description(column.about, schema),
        "priority": column.priority,
    })
}

/// The text itself, or what the schema says about the field.
fn description(about: &str, schema: Option<&Schema>) -> String {
    let Some(path) = about.strip_prefix('.') else { return about.to_owned() };
    let (start, path) = match path.strip_prefix("metadata.") {
        Some(rest) => (object_metadata(), rest),
        None => (schema, path),
    };
    let field = path.split('.').try_fold(start, |schema, name| schema.map(|schema| schema.field(name)));
    let field = field.flatten();
    field.and_then(|field| field.description.clone()).unwrap_or_default()
}

fn object_metadata() -> Option<&'static Schema> {
    builtin::definitions().by_name.get("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").map(AsRef::as_ref)
}

fn custom(columns: &[PrinterColumn]) -> (Vec<Value>, Cells) {
    let mut definitions = vec![definition(&NAME, None)];
    if columns.is_empty() {
        let age = Column { kind: "date", ..AGE };
        definitions.push(definition(&age, None));
        return (definitions, Box::new(|row| vec![row.name(), row.age()]));
    }
    let mut readers = Vec::new();
    for column in columns {
        // As in a real server, a path that cannot be read ends the table.
        let Ok(path) = JsonPath::parse(&column.json_path) else { break };
        let description = if column.description.is_empty() {
            format!("Custom resource definition column (in JSONPath format): {}", column.json_path)
        } else {
            column.description.clone()
        };
        definitions.push(json!({
            "name": column.name,
            "type": column.kind,
            "format": column.format,
            "description": description,
            "priority": column.priority,
        }));
        readers.push((column.kind.clone(), path));
    }
    let cells = move |row: &Row<'_>| {
        let read = readers.iter().map(|(kind, path)| custom_cell(kind, path, row));
        std::iter::once(row.name()).chain(read).collect()
    };
    (definitions, Box::new(cells))
}

/// The cell of a custom column: typed, or null when the path leads nowhere or to a value of another type.
fn custom_cell(kind: &str, path: &JsonPath, row: &Row<'_>) -> Value {
    let Some(found) = path.find(row.object).ok().and_then(|found| found.into_iter().next()) else {
        return Value::Null;
    };
    match (kind, found.as_ref()) {
        ("string", Value::Null) => json!("<no value>"),
        ("string", value) => json!(json_path::print(value)),
        ("integer", Value::Number(number)) => {
            #[expect(clippy::cast_possible_truncation, reason = "the real server truncates too")]
            let truncated = || number.as_f64().map(|float| float as i64);
            number.as_i64().or_else(truncated).map_or(Value::Null, Value::from)
        }
        ("number", Value::Number(number)) => number.as_f64().map_or(Value::Null, float_cell),
        ("boolean", Value::Bool(flag)) => json!(flag),
        ("date", Value::String(time)) => match time.parse::<Timestamp>() {
            Ok(time) => json!(human_duration(row.now.duration_since(time))),
            Err(_) if time.is_empty() => json!("<unknown>"),
            Err(_) => json!("<invalid>"),
        },
        _ => Value::Null,
    }
}

/// Go writes a float without a fraction as an integer.
fn float_cell(float: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "checked by the guard: no fraction and in range")]
    if float.fract() == 0.0 && float.abs() < 1e15 { json!(float as i64) } else { json!(float) }
}

fn included(object: &Value, include: IncludeObject) -> Value {
    match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Object => object.clone(),
        IncludeObject::Metadata => object_of([
            ("kind", json!("PartialObjectMetadata")),
            ("apiVersion", json!("meta.k8s.io/v1")),
            ("metadata", object.get("metadata").cloned().unwrap_or_else(|| json!({}))),
        ]),
    }
}
