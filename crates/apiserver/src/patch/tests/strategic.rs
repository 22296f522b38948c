//! Strategic merge against a slow twin: turn keyed lists into maps, apply a plain merge patch, compare.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::patch::{merge_patch, strategic_merge_patch};
use crate::schema::{PatchStrategy, Schema, Type};

fn of(kind: Type) -> Schema {
    Schema { kind, ..Schema::default() }
}

fn object(fields: Vec<(&str, Schema)>) -> Schema {
    Schema {
        properties: fields.into_iter().map(|(name, schema)| (name.to_owned(), Arc::new(schema))).collect(),
        ..of(Type::Object)
    }
}

fn merging(items: Schema, merge_key: Option<&str>) -> Schema {
    let patch = PatchStrategy { merge: true, retain_keys: false, merge_key: merge_key.map(str::to_owned) };
    Schema { items: Some(Arc::new(items)), patch, ..of(Type::Array) }
}

fn schema() -> Schema {
    let inner = object(vec![("id", of(Type::Integer)), ("x", of(Type::Integer)), ("y", of(Type::Integer))]);
    let element = object(vec![
        ("name", of(Type::String)),
        ("v", of(Type::Integer)),
        ("inner", merging(inner, Some("id"))),
        ("words", merging(of(Type::String), None)),
    ]);
    object(vec![
        ("keyed", merging(element, Some("name"))),
        ("words", merging(of(Type::String), None)),
        ("replaced", Schema { items: Some(Arc::new(of(Type::Integer))), ..of(Type::Array) }),
        ("map", Schema { additional: Some(Arc::new(of(Type::Integer))), ..of(Type::Object) }),
        ("nested", object(vec![("a", of(Type::Integer)), ("b", of(Type::Integer))])),
    ])
}

/// The same with every merging list as a map; deletions are `null`s.
fn as_maps(value: &Value, schema: &Schema) -> Value {
    let Value::Object(fields) = value else { return value.clone() };
    let mut result = Map::new();
    for (name, value) in fields {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().into_iter().flatten();
            let entry = result.entry(list).or_insert_with(|| json!({}));
            gone.for_each(|word| entry[word.as_str().unwrap()] = Value::Null);
            continue;
        }
        let field = schema.field(name);
        match (value, field) {
            (Value::Array(items), Some(list)) if list.patch.merge => {
                let entry = result.entry(name).or_insert_with(|| json!({}));
                for item in items {
                    match &list.patch.merge_key {
                        None => entry[item.as_str().unwrap()] = json!(true),
                        Some(key) => {
                            let deleted = item.get("$patch").is_some();
                            let element = if deleted { Value::Null } else { as_maps(item, list.element().unwrap()) };
                            entry[item[key].to_string()] = element;
                        }
                    }
                }
            }
            (_, Some(field)) => {
                result.insert(name.clone(), as_maps(value, field));
            }
            (_, None) => {
                result.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(result)
}

/// A merging list that became empty and one that is not there are the same here.
fn without_empty_maps(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, value)| (name.clone(), without_empty_maps(value)))
                .filter(|(_, value)| value.as_object().is_none_or(|o| !o.is_empty()))
                .collect(),
        ),
        other => other.clone(),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Object,
    Patch,
}

fn maybe_null(side: Side, values: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    if side == Side::Object { values } else { prop_oneof![4 => values, 1 => Just(Value::Null)].boxed() }
}

fn fields(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let fields: Vec<_> = fields.into_iter().map(|(name, values)| (Just(name), prop::option::of(values))).collect();
    fields
        .prop_map(|fields| {
            Value::Object(fields.into_iter().filter_map(|(name, v)| Some((name.to_owned(), v?))).collect())
        })
        .boxed()
}

fn number(side: Side) -> BoxedStrategy<Value> {
    maybe_null(side, (0..3_i64).prop_map(Value::from).boxed())
}

fn words() -> BoxedStrategy<Value> {
    prop::sample::subsequence(vec!["p", "q", "r", "s"], 0..4).prop_shuffle().prop_map(|words| json!(words)).boxed()
}

/// Elements with distinct keys; a patch may delete instead of change.
fn keyed(side: Side, key: &'static str, keys: Vec<Value>, rest: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let deletes = if side == Side::Patch { 0.25 } else { 0.0 };
    let elements = prop::sample::subsequence(keys, 0..3).prop_shuffle();
    elements
        .prop_flat_map(move |keys| {
            let count = keys.len();
            let rests = prop::collection::vec((rest.clone(), prop::bool::weighted(deletes)), count);
            (Just(keys), rests)
        })
        .prop_map(move |(keys, rests)| {
            keys.into_iter()
                .zip(rests)
                .map(|(value, (mut element, deleted))| {
                    if deleted {
                        element = json!({"$patch": "delete"});
                    }
                    element[key] = value;
                    element
                })
                .collect()
        })
        .boxed()
}

fn document(side: Side) -> BoxedStrategy<Value> {
    let inner = fields(vec![("x", number(side)), ("y", number(side))]);
    let inner = keyed(side, "id", vec![json!(1), json!(2), json!(3)], inner);
    let element = fields(vec![("v", number(side)), ("inner", maybe_null(side, inner)), ("words", words())]);
    let names = vec![json!("a"), json!("b"), json!("c"), json!("d")];
    let map = prop::collection::btree_map(prop::sample::select(vec!["k", "l"]), number(side), 0..3)
        .prop_map(|map: BTreeMap<&str, Value>| json!(map));
    let mut all = vec![
        ("keyed", maybe_null(side, keyed(side, "name", names, element))),
        ("words", words()),
        ("replaced", prop::collection::vec(0..3_i64, 0..3).prop_map(|list| json!(list)).boxed()),
        ("map", maybe_null(side, map.boxed())),
        ("nested", fields(vec![("a", number(side)), ("b", number(side))])),
    ];
    if side == Side::Patch {
        all.push(("$deleteFromPrimitiveList/words", words()));
    }
    fields(all)
}

/// The real server takes a new element of a list as it is, directives inside of it included; the twin does not.
fn without_deletions_in_new_elements(mut patch: Value, current: &Value) -> Value {
    let known = names(&current["keyed"]);
    for element in patch.get_mut("keyed").and_then(Value::as_array_mut).into_iter().flatten() {
        let is_new = !known.contains(&element["name"].to_string());
        if let (true, Some(Value::Array(inner))) = (is_new, element.get_mut("inner")) {
            inner.retain(|item| item.get("$patch").is_none());
        }
    }
    patch
}

fn names(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|element| element["name"].to_string()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keyed_lists_merge_like_maps(current in document(Side::Object), patch in document(Side::Patch)) {
        let schema = schema();
        let patch = without_deletions_in_new_elements(patch, &current);
        let result = strategic_merge_patch(&current, &patch, &schema).unwrap();
        let expected = merge_patch(&as_maps(&current, &schema), &as_maps(&patch, &schema));
        prop_assert_eq!(without_empty_maps(&as_maps(&result, &schema)), without_empty_maps(&expected));

        // What the patch names is in its order, what only the server has in the server's.
        let (before, named, after) = (names(&current["keyed"]), names(&patch["keyed"]), names(&result["keyed"]));
        let in_patch: Vec<_> = named.iter().filter(|name| after.contains(name)).collect();
        let only_server: Vec<_> = before.iter().filter(|name| after.contains(name) && !named.contains(name)).collect();
        prop_assert_eq!(after.iter().filter(|name| named.contains(name)).collect::<Vec<_>>(), in_patch);
        prop_assert_eq!(after.iter().filter(|name| !named.contains(name)).collect::<Vec<_>>(), only_server);
    }

    #[test]
    fn set_element_order_orders(current in document(Side::Object), order in Just(vec!["a", "b", "c", "d"]).prop_shuffle()) {
        let wanted: Vec<Value> = order.iter().map(|name| json!({"name": name})).collect();
        let patch = json!({"$setElementOrder/keyed": wanted});
        let result = strategic_merge_patch(&current, &patch, &schema());
        let Ok(result) = result else {
            prop_assert!(names(&current["keyed"]).is_empty());
            return Ok(());
        };
        let expected: Vec<String> =
            order.iter().map(|n| format!("{n:?}")).filter(|n| names(&current["keyed"]).contains(n)).collect();
        prop_assert_eq!(names(&result["keyed"]), expected);
    }

    #[test]
    fn no_patch_makes_it_panic(current in anything(), patch in anything()) {
        let _ = strategic_merge_patch(&current, &patch, &schema());
        let _ = merge_patch(&current, &patch);
        let _ = crate::patch::json_patch(&current, patch.to_string().as_bytes());
    }
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..3_i64).prop_map(Value::from),
        prop::sample::select(vec![
            "", "a", "delete", "replace", "merge", "add", "remove", "move", "copy", "/keyed/0", "/words/-"
        ])
        .prop_map(Value::from),
    ];
    let names = vec![
        "keyed",
        "words",
        "replaced",
        "map",
        "nested",
        "inner",
        "name",
        "id",
        "$patch",
        "$retainKeys",
        "$setElementOrder/keyed",
        "$setElementOrder/words",
        "$setElementOrder",
        "$deleteFromPrimitiveList/words",
        "$deleteFromPrimitiveList/keyed",
        "op",
        "path",
        "from",
        "value",
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        let names = prop::sample::select(names.clone());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names, inner, 0..4).prop_map(|m| json!(m)),
        ]
    })
}
