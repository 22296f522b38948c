//! Two documents, separated by a NUL byte: every way to patch the first with the second.

#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use kai_apiserver::apply::{Force, Writer, apply, record_update};
use kai_apiserver::patch::{json_patch, merge_patch, strategic_merge_patch};
use kai_apiserver::schema::{ListType, PatchStrategy, Schema, Type};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// A list of objects keyed by `name`, a set of words, a map and a free-form field, at every level of the list.
fn schema(levels: usize) -> Schema {
    let of = |kind: Type| Schema { kind, ..Schema::default() };
    let mut properties: BTreeMap<String, Arc<Schema>> = BTreeMap::new();
    properties.insert("name".to_owned(), Arc::new(of(Type::String)));
    properties.insert("free".to_owned(), Arc::new(of(Type::Object)));
    properties.insert(
        "map".to_owned(),
        Arc::new(Schema { additional: Some(Arc::new(of(Type::String))), ..of(Type::Object) }),
    );
    let merging =
        |key: Option<&str>| PatchStrategy { merge: true, retain_keys: false, merge_key: key.map(str::to_owned) };
    let words = Schema {
        items: Some(Arc::new(of(Type::String))),
        list_type: ListType::Set,
        patch: merging(None),
        ..of(Type::Array)
    };
    properties.insert("words".to_owned(), Arc::new(words));
    if levels > 0 {
        let keyed = Schema {
            items: Some(Arc::new(schema(levels - 1))),
            list_type: ListType::Map(vec!["name".to_owned()]),
            patch: merging(Some("name")),
            ..of(Type::Array)
        };
        properties.insert("keyed".to_owned(), Arc::new(keyed));
    }
    Schema { properties, ..of(Type::Object) }
}

fuzz_target!(|data: &[u8]| {
    let Some(position) = data.iter().position(|b| *b == 0) else { return };
    let (current, patch) = (&data[..position], &data[position + 1..]);
    let Ok(current) = serde_json::from_slice::<Value>(current) else { return };
    let _ = json_patch(&current, patch);
    let Ok(patch) = serde_json::from_slice::<Value>(patch) else { return };
    let _ = merge_patch(&current, &patch);
    let schema = schema(2);
    let _ = strategic_merge_patch(&current, &patch, &schema);
    let writer = Writer { manager: "kubectl", api_version: "v1", subresource: None, time: "2024-01-01T00:00:00Z" };
    for schema in [None, Some(&schema)] {
        let mut new = patch.clone();
        record_update(Some(&current), &mut new, schema, &writer);
        for force in [Force::Yes, Force::No] {
            let _ = apply(Some(&current), &patch, schema, &writer, force);
        }
    }
});
