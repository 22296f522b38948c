//! Message tables from `generated.proto`, completed by what the struct tags of the Go types next to it say about JSON.
//!
//! A field becomes `[number, name, type, cardinality, presence]`. Cardinality is `one`, `list` or `map` (keys are always strings).
//! Presence is how Go's JSON writes the field: `pointer` (when it was set), `omitempty` (when it is not zero), `always`, or
//! `inline` (the fields of the message belong to the parent).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// Types the decoder knows by name; their Go types are not plain structs.
const SPECIAL: [&str; 12] = [
    "io.k8s.api.core.v1.List",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
    "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "io.k8s.apimachinery.pkg.api.resource.QuantityValue",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Duration",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Timestamp",
    "io.k8s.apimachinery.pkg.runtime.Unknown",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
];

/// What Go's tags say about one field.
struct GoField {
    /// Usually the name in the proto file as well, but not always (`Webhooks`).
    json_name: String,
    pointer: bool,
    omit_empty: bool,
    inline: bool,
}

/// Adds the messages of one Go package.
pub fn read_package(
    folder: &Path,
    schemas: &BTreeMap<String, Value>,
    messages: &mut BTreeMap<String, Value>,
) -> Result<()> {
    let structs = read_structs(folder)?;
    let file = folder.join("generated.proto");
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let mut package = String::new();
    let mut message: Option<(String, Vec<Value>)> = None;
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix("package ") {
            package = open_api_name(name.trim_end_matches(';'));
        } else if let Some(name) = line.strip_prefix("message ").and_then(|l| l.strip_suffix(" {")) {
            message = Some((name.to_owned(), Vec::new()));
        } else if line == "}" {
            let (name, fields) = message.take().with_context(|| format!("{}: stray `}}`", file.display()))?;
            messages.insert(format!("{package}.{name}"), Value::Array(fields));
        } else if let Some((name, fields)) = &mut message
            && !line.is_empty()
        {
            let field = read_field(line, &package, name, &structs, schemas)
                .with_context(|| format!("{}: message {name}: `{line}`", file.display()))?;
            fields.push(field);
        }
    }
    Ok(())
}

/// `optional PodSpec spec = 2;`, `repeated string args = 4;`, `map<string, bytes> data = 2;`
fn read_field(
    line: &str,
    package: &str,
    message: &str,
    structs: &BTreeMap<(String, u64), GoField>,
    schemas: &BTreeMap<String, Value>,
) -> Result<Value> {
    let (declaration, number) = line.trim_end_matches(';').split_once('=').context("a field has a number")?;
    let number: u64 = number.trim().parse()?;
    let (cardinality, rest) = if let Some(rest) = declaration.strip_prefix("optional ") {
        ("one", rest)
    } else if let Some(rest) = declaration.strip_prefix("repeated ") {
        ("list", rest)
    } else if let Some(rest) = declaration.strip_prefix("map<string,") {
        ("map", rest)
    } else {
        bail!("unknown cardinality");
    };
    let mut words = rest.split_whitespace();
    let kind = words.next().context("a field has a type")?.trim_end_matches('>');
    let name = words.next().context("a field has a name")?;
    let kind = match kind {
        "string" | "bytes" | "bool" | "int32" | "int64" | "uint32" | "uint64" | "double" | "float" => kind.to_owned(),
        qualified if qualified.starts_with('.') => open_api_name(qualified.trim_start_matches('.')),
        local => format!("{package}.{local}"),
    };
    let full = format!("{package}.{message}");
    let wrapper = name == "items" && cardinality == "list" && kind == "string";
    let presence = match structs.get(&(message.to_owned(), number)) {
        Some(GoField { inline: true, .. }) => "inline",
        Some(GoField { pointer: true, .. }) => "pointer",
        Some(GoField { omit_empty: true, .. }) => "omitempty",
        Some(_) => "always",
        None if SPECIAL.contains(&full.as_str()) || wrapper => "omitempty",
        None => bail!("no Go field carries this number"),
    };
    let name = match structs.get(&(message.to_owned(), number)) {
        Some(field) if presence != "inline" && field.json_name != "-" => &field.json_name,
        _ => name,
    };
    if let Some(properties) = schemas.get(&full).and_then(|s| s["properties"].as_object()) {
        ensure!(presence == "inline" || properties.contains_key(name), "OpenAPI does not know this field");
    }
    Ok(json!([number, name, kind, cardinality, presence]))
}

/// `k8s.io.apiextensions_apiserver.pkg` to `io.k8s.apiextensions-apiserver.pkg`.
fn open_api_name(name: &str) -> String {
    let name = name
        .replace("apiextensions_apiserver", "apiextensions-apiserver")
        .replace("kube_aggregator", "kube-aggregator");
    match name.strip_prefix("k8s.io.") {
        Some(rest) => format!("io.k8s.{rest}"),
        None => name,
    }
}

/// Tags of all struct fields of a package that have a protobuf number, by struct and number.
fn read_structs(folder: &Path) -> Result<BTreeMap<(String, u64), GoField>> {
    let mut fields = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if Path::new(&name).extension().is_none_or(|e| e != "go")
            || name.starts_with("zz_")
            || name == "generated.pb.go"
        {
            continue;
        }
        let mut current = String::new();
        for line in fs::read_to_string(&path)?.lines() {
            if let Some(name) = line.strip_prefix("type ").and_then(|l| l.strip_suffix(" struct {")) {
                name.clone_into(&mut current);
            } else if line == "}" {
                current.clear();
            } else if !current.is_empty()
                && let Some((declaration, tags)) = line.split_once('`')
                && let (Some(json), Some(protobuf)) = (tag(tags, "json"), tag(tags, "protobuf"))
            {
                let Some(number) = protobuf.split(',').nth(1).and_then(|n| n.parse().ok()) else { continue };
                let mut options = json.split(',');
                let json_name = options.next().unwrap_or_default();
                let options: Vec<&str> = options.collect();
                let field = GoField {
                    json_name: json_name.to_owned(),
                    pointer: declaration.split_whitespace().last().is_some_and(|t| t.starts_with('*')),
                    omit_empty: options.contains(&"omitempty"),
                    inline: options.contains(&"inline") || json_name.is_empty(),
                };
                fields.insert((current.clone(), number), field);
            }
        }
    }
    Ok(fields)
}

fn tag<'a>(tags: &'a str, name: &str) -> Option<&'a str> {
    let start = tags.find(&format!("{name}:\""))? + name.len() + 2;
    tags[start..].split('"').next()
}
