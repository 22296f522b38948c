//! Behaviour of ownership that has no fixture, and properties over random objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema::{ListType, MapType, Type};

const TIMES: [&str; 3] = ["2024-01-01T00:00:00Z", "2024-01-01T00:00:01Z", "2024-01-01T00:00:02Z"];

fn writer(manager: &str, time: usize) -> Writer<'_> {
    Writer { manager, api_version: "example.com/v1", subresource: None, time: TIMES[time % TIMES.len()] }
}

fn schema() -> Schema {
    let of = |kind: Type| Schema { kind, ..Schema::default() };
    let object = |fields: Vec<(&str, Schema)>| Schema {
        properties: fields.into_iter().map(|(name, schema)| (name.to_owned(), Arc::new(schema))).collect(),
        ..of(Type::Object)
    };
    let list =
        |items: Schema, list_type: ListType| Schema { items: Some(Arc::new(items)), list_type, ..of(Type::Array) };
    let element = object(vec![("k", of(Type::String)), ("v", of(Type::Integer)), ("w", of(Type::Integer))]);
    let spec = object(vec![
        ("number", of(Type::Integer)),
        ("map", Schema { additional: Some(Arc::new(of(Type::String))), ..of(Type::Object) }),
        ("whole", Schema { map_type: MapType::Atomic, ..of(Type::Object) }),
        ("set", list(of(Type::String), ListType::Set)),
        ("keyed", list(element, ListType::Map(vec!["k".to_owned()]))),
        ("plain", list(of(Type::Integer), ListType::Atomic)),
        ("free", Schema { preserve_unknown_fields: true, ..of(Type::Object) }),
    ]);
    let root = object(vec![("spec", spec), ("metadata", of(Type::Object))]);
    Schema { source: Some(Arc::new(Value::Null)), ..root }
}

/// With a label, so that everyone who applies it owns something.
#[expect(clippy::needless_pass_by_value, reason = "called with literals")]
fn object(spec: Value) -> Value {
    let metadata = json!({"name": "x", "labels": {"app": "x"}});
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": metadata, "spec": spec})
}

/// The leaves of `object` that no one owns.
fn orphans(object: &Value, schema: Option<&Schema>) -> Vec<String> {
    let kind = Kind::root(schema);
    let mut left = fields_of(kind, object);
    for name in UNOWNED {
        remove_path(&mut left, &[name]);
    }
    for name in UNOWNED_METADATA {
        remove_path(&mut left, &["metadata", name]);
    }
    subtract(&mut left, json!({"f:metadata": {}}).as_object().unwrap());
    for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
        subtract(&mut left, entry["fieldsV1"].as_object().unwrap());
    }
    path::paths(&left)
}

/// A configuration without empty keyed lists, which a real server does not take for stated.
fn spec() -> impl Strategy<Value = Value> {
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    let number = 0..3_i64;
    let keyed = prop::collection::btree_map(name(), (prop::option::of(number.clone()), number.clone()), 1..3).prop_map(
        |elements| {
            let element = |(k, (v, w)): (&str, (Option<i64>, i64))| match v {
                Some(v) => json!({"k": k, "v": v, "w": w}),
                None => json!({"k": k, "w": w}),
            };
            Value::Array(elements.into_iter().map(element).collect())
        },
    );
    let texts = || prop::collection::btree_map(name(), name(), 1..3).prop_map(|map| json!(map));
    let free = prop_oneof![texts(), number.clone().prop_map(|n| json!({"deep": {"er": n}}))];
    let fields: Vec<(&str, BoxedStrategy<Value>)> = vec![
        ("number", number.clone().prop_map(|n| json!(n)).boxed()),
        ("map", texts().boxed()),
        ("whole", texts().boxed()),
        ("set", prop::sample::subsequence(vec!["x", "y", "z"], 1..3).prop_map(|s| json!(s)).boxed()),
        ("keyed", keyed.prop_shuffle_list().boxed()),
        ("plain", prop::collection::vec(number, 0..3).prop_map(|list| json!(list)).boxed()),
        ("free", free.boxed()),
    ];
    let fields: Vec<_> = fields.into_iter().map(|(name, values)| (Just(name), prop::option::of(values))).collect();
    fields.prop_map(|fields| {
        Value::Object(fields.into_iter().filter_map(|(name, v)| Some((name.to_owned(), v?))).collect())
    })
}

/// Lists in any order.
trait ShuffleList {
    fn prop_shuffle_list(self) -> impl Strategy<Value = Value>;
}

impl<S: Strategy<Value = Value>> ShuffleList for S {
    fn prop_shuffle_list(self) -> impl Strategy<Value = Value> {
        self.prop_map(|list| list.as_array().cloned().unwrap_or_default()).prop_shuffle().prop_map(Value::Array)
    }
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2..3_i64).prop_map(Value::from),
        prop::sample::select(vec![0.0, 1.0, 1.5, 1e300]).prop_map(Value::from),
        prop::sample::select(vec!["", "a", "k", "<&>", "Update", "v1", "FieldsV1"]).prop_map(Value::from),
    ];
    let names = vec![
        "spec",
        "metadata",
        "managedFields",
        "keyed",
        "set",
        "map",
        "k",
        "v",
        ".",
        "f:spec",
        "f:",
        "k:{",
        "k:{\"k\":1}",
        "v:1",
        "v:",
        "i:0",
        "i:x",
        "z:q",
        "operation",
        "apiVersion",
        "fieldsType",
        "fieldsV1",
        "free",
        "annotations",
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        let names = prop::sample::select(names.clone());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names, inner, 0..4).prop_map(|m| json!(m)),
        ]
    })
}

/// Members of a set as paths, the obvious way.
fn members(set: &Fields) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for (key, node) in set.iter().filter(|(key, _)| *key != ".") {
        let inner = node.as_object().unwrap();
        if inner.is_empty() || inner.contains_key(".") {
            found.insert(vec![key.clone()]);
        }
        for mut below in members(inner) {
            below.insert(0, key.clone());
            found.insert(below);
        }
    }
    found
}

fn field_set() -> impl Strategy<Value = Fields> {
    let path = prop::collection::vec(prop::sample::select(vec!["f:a", "f:b", "v:1", "i:0"]), 1..4);
    prop::collection::vec(path, 0..8).prop_map(|paths| {
        let mut set = Fields::new();
        for path in paths {
            let mut one = Fields::new();
            for (index, key) in path.iter().rev().enumerate() {
                one = Fields::from_iter([(
                    (*key).to_owned(),
                    Value::Object(if index == 0 { Fields::new() } else { one }),
                )]);
            }
            unite(&mut set, &one);
        }
        set
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sets_of_fields_are_sets_of_paths(left in field_set(), right in field_set()) {
        let (l, r) = (members(&left), members(&right));
        let mut both = left.clone();
        unite(&mut both, &right);
        prop_assert_eq!(members(&both), &l | &r);
        let mut rest = left.clone();
        subtract(&mut rest, &right);
        prop_assert_eq!(members(&rest), &l - &r);
        prop_assert_eq!(members(&intersection(&left, &right)), &l & &r);
        let mut normal = both.clone();
        prop_assert!(fields::normalize(&mut normal));
        prop_assert_eq!(normal, both);
        prop_assert_eq!(rest.is_empty(), (&l - &r).is_empty());
    }

    #[test]
    fn applying_twice_is_applying_once(specs in prop::collection::vec((0..3_usize, spec()), 1..5), typed: bool) {
        let schema = schema();
        let schema = typed.then_some(&schema);
        let mut live: Option<Value> = None;
        for (step, (who, spec)) in specs.iter().enumerate() {
            let name = format!("manager-{who}");
            let config = object(spec.clone());
            let mut once = apply(live.as_ref(), &config, schema, &writer(&name, step), Force::Yes).unwrap();
            // A real server makes what an apply empties `null`, and the next apply makes that `{}`.
            if once.to_string().contains("null") {
                once = apply(Some(&once), &config, schema, &writer(&name, step), Force::Yes).unwrap();
            }
            let twice = apply(Some(&once), &config, schema, &writer(&name, step + 1), Force::No).unwrap();
            prop_assert_eq!(once.to_string(), twice.to_string());
            // What was applied is there: applying it again would otherwise change it.
            let changes = compare(Kind::root(schema), &merge(Kind::root(schema), &once, &config), &once);
            prop_assert!(changes.is_empty(), "{:?}", changes);
            prop_assert!(orphans(&once, schema).is_empty(), "{:?} in {}", orphans(&once, schema), once);
            live = Some(once);
        }
    }

    #[test]
    fn two_appliers_without_conflict_own_every_leaf(first in spec(), second in spec(), typed: bool) {
        let schema = schema();
        let schema = typed.then_some(&schema);
        let one = apply(None, &object(first), schema, &writer("a", 0), Force::No).unwrap();
        match apply(Some(&one), &object(second.clone()), schema, &writer("b", 1), Force::No) {
            Ok(both) => prop_assert!(orphans(&both, schema).is_empty(), "{:?}", orphans(&both, schema)),
            Err(error) => {
                prop_assert_eq!((error.code, error.reason), (409, "Conflict"));
                let forced = apply(Some(&one), &object(second), schema, &writer("b", 1), Force::Yes);
                prop_assert!(forced.is_ok());
            }
        }
    }

    #[test]
    fn updates_never_lose_a_field(specs in prop::collection::vec((0..14_usize, spec()), 1..16), typed: bool) {
        let schema = schema();
        let schema = typed.then_some(&schema);
        let mut live: Option<Value> = None;
        for (step, (who, spec)) in specs.iter().enumerate() {
            let name = format!("manager-{who}");
            let mut new = object(spec.clone());
            new["metadata"]["uid"] = json!("u");
            record_update(live.as_ref(), &mut new, schema, &writer(&name, step));
            prop_assert!(orphans(&new, schema).is_empty(), "{:?} in {}", orphans(&new, schema), new);
            prop_assert!(new["metadata"]["managedFields"].as_array().is_none_or(|m| m.len() <= 10));
            let mut again = new.clone();
            record_update(Some(&new), &mut again, schema, &writer("someone else", step + 1));
            prop_assert_eq!(&again, &new, "an update without change has an owner");
            live = Some(new);
        }
    }

    #[test]
    fn no_input_makes_it_panic(old in anything(), new in anything(), entries in anything()) {
        let schema = schema();
        for schema in [None, Some(&schema)] {
            let mut with_entries = old.clone();
            if let Some(Value::Object(metadata)) = with_entries.get_mut("metadata") {
                metadata.insert("managedFields".to_owned(), json!([entries]));
            }
            for (old, new) in [(&old, &new), (&with_entries, &new), (&new, &with_entries)] {
                let mut updated = new.clone();
                record_update(Some(old), &mut updated, schema, &writer("a", 0));
                keep_times_of_unchanged(old, &mut updated);
                let mut config = new.clone();
                if let Value::Object(config) = &mut config {
                    config.insert("apiVersion".to_owned(), json!("example.com/v1"));
                }
                for force in [Force::Yes, Force::No] {
                    let _ = apply(Some(old), &config, schema, &writer("kubectl", 0), force);
                }
            }
        }
    }
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!({"a": inner}))
}

#[test]
fn depth_is_bounded() {
    for depth in [150, 1_500] {
        let (old, new) = (object(nested(depth)), object(nested(depth + 1)));
        let mut updated = new.clone();
        record_update(Some(&old), &mut updated, None, &writer("a", 0));
        let applied = apply(Some(&old), &new, None, &writer("b", 1), Force::Yes).unwrap();
        assert_eq!(applied["spec"], new["spec"]);
    }
}

#[test]
fn the_eleventh_updater_makes_two_entries_one() {
    let mut live = object(json!({}));
    record_update(None, &mut live, None, &writer("m00", 0));
    live["metadata"]["uid"] = json!("u");
    for number in 1..=11 {
        let mut new = live.clone();
        new["spec"][format!("field{number}")] = json!(number);
        record_update(Some(&live), &mut new, None, &writer(&format!("m{number:02}"), 0));
        live = new;
    }
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 10);
    assert_eq!(entries[0]["manager"], "ancient-changes");
    assert!(orphans(&live, None).is_empty());
}

#[test]
fn a_scale_keeps_the_entry_of_the_main_endpoint_apart_and_has_no_time() {
    let mut live = object(json!({"number": 1}));
    record_update(None, &mut live, None, &writer("a", 0));
    live["metadata"]["uid"] = json!("u");
    let mut new = live.clone();
    new["spec"]["number"] = json!(2);
    record_update(Some(&live), &mut new, None, &Writer { subresource: Some("scale"), ..writer("a", 1) });
    let entry = &new["metadata"]["managedFields"][0];
    assert_eq!(entry["fieldsV1"], json!({"f:spec": {"f:number": {}}}));
    assert_eq!(entry["subresource"], "scale");
    assert!(entry.get("time").is_none());
}

#[test]
fn times_alone_are_no_change() {
    let entry = |time: &str| json!({"manager": "a", "time": time, "fieldsV1": {}});
    let with = |time: &str, spec: i64| json!({"metadata": {"name": "x", "managedFields": [entry(time)]}, "spec": spec});
    let old = with(TIMES[0], 1);
    let mut same = with(TIMES[1], 1);
    keep_times_of_unchanged(&old, &mut same);
    assert_eq!(same, old);
    let mut other = with(TIMES[1], 2);
    keep_times_of_unchanged(&old, &mut other);
    assert_eq!(other, with(TIMES[1], 2));
}

#[test]
fn the_applied_object_must_be_of_the_version_it_is_sent_to() {
    let live = object(json!({}));
    for (field, value, kind) in [
        ("apiVersion", "example.com/v2", "example.com/v2, Kind=Thing"),
        ("apiVersion", "v1", "/v1, Kind=Thing"),
        ("kind", "Other", "example.com/v1, Kind=Other"),
    ] {
        let mut config = object(json!({}));
        config[field] = json!(value);
        let error = apply(Some(&live), &config, None, &writer("a", 0), Force::No).unwrap_err();
        assert_eq!((error.code, error.message), (400, format!("invalid object type: {kind}")));
    }
}

#[test]
fn a_schema_that_makes_a_list_whole_makes_its_owners_own_it_whole() {
    let mut live = object(json!({"keyed": [{"k": "a", "v": 1}]}));
    let granular = schema();
    record_update(None, &mut live, Some(&granular), &writer("a", 0));
    live["metadata"]["uid"] = json!("u");
    let mut whole = schema();
    let mut spec = Schema::clone(&whole.properties["spec"]);
    let mut keyed = Schema::clone(&spec.properties["keyed"]);
    keyed.list_type = ListType::Atomic;
    spec.properties.insert("keyed".to_owned(), Arc::new(keyed));
    whole.properties.insert("spec".to_owned(), Arc::new(spec));
    let mut new = live.clone();
    new["spec"]["number"] = json!(1);
    record_update(Some(&live), &mut new, Some(&whole), &writer("b", 1));
    let fields = &new["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(fields["f:spec"], json!({".": {}, "f:keyed": {}}));
}
