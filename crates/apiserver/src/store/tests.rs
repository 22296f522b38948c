//! Revisions, snapshots and watches of the store.

use serde_json::json;

use super::*;

const LIMITS: Limits = Limits { events: 4, bytes: 1 << 20 };

fn draft(name: &str, color: &str) -> Draft {
    let uid = format!("00000000-0000-4000-8000-{:012}", name.len());
    Draft::new(&json!({"metadata": {"name": name, "uid": uid, "labels": {"color": color}}}), Vec::new())
}

fn table() -> Arc<str> {
    "things".into()
}

fn colors(snapshot: &Snapshot) -> Vec<String> {
    snapshot.values().map(|o| o.facts.labels["color"].clone()).collect()
}

#[test]
fn any_revision_within_the_history_can_be_rebuilt() {
    let store = Store::new(LIMITS);
    let (a, bb) = (Key::new(None, "a"), Key::new(None, "bb"));
    let one = store.insert(&table(), &a, draft("a", "red")).unwrap();
    let two = store.insert(&table(), &bb, draft("bb", "blue")).unwrap();
    let three = store.replace(&table(), &a, one.revision, draft("a", "green")).unwrap();
    store.remove(&table(), &bb, two.revision).unwrap();
    assert_eq!(colors(&store.snapshot_at("things", one.revision).unwrap()), ["red"]);
    assert_eq!(colors(&store.snapshot_at("things", two.revision).unwrap()), ["red", "blue"]);
    assert_eq!(colors(&store.snapshot_at("things", three.revision).unwrap()), ["green", "blue"]);
    assert_eq!(colors(&store.snapshot("things").0), ["green"]);
}

#[test]
fn history_is_bounded_and_says_when_it_no_longer_reaches_back() {
    let store = Store::new(LIMITS);
    let a = Key::new(None, "a");
    let first = store.insert(&table(), &a, draft("a", "0")).unwrap();
    let mut last = Arc::clone(&first);
    for step in 1..=10 {
        last = store.replace(&table(), &a, last.revision, draft("a", &step.to_string())).unwrap();
    }
    assert!(matches!(store.news("things", first.revision, 100), News::TooOld(_)));
    assert!(store.snapshot_at("things", first.revision).is_none());
    let News::Events(events, upto) = store.news("things", last.revision - 2, 100) else { panic!("within history") };
    assert_eq!((events.len(), upto), (2, last.revision));
}

#[test]
fn history_is_bounded_by_bytes_too() {
    let store = Store::new(Limits { events: 1000, bytes: 5_000 });
    let a = Key::new(None, "a");
    let mut last = store.insert(&table(), &a, draft("a", &"x".repeat(2_000))).unwrap();
    for _ in 0..10 {
        last = store.replace(&table(), &a, last.revision, draft("a", &"x".repeat(2_000))).unwrap();
    }
    assert!(matches!(store.news("things", last.revision - 5, 100), News::TooOld(_)));
    assert!(matches!(store.news("things", last.revision - 1, 100), News::Events(..)));
}

#[test]
fn a_write_against_an_old_revision_is_refused() {
    let store = Store::new(LIMITS);
    let a = Key::new(None, "a");
    let one = store.insert(&table(), &a, draft("a", "red")).unwrap();
    store.replace(&table(), &a, one.revision, draft("a", "green")).unwrap();
    assert_eq!(store.replace(&table(), &a, one.revision, draft("a", "blue")).unwrap_err(), Refusal::Changed);
    assert_eq!(store.insert(&table(), &a, draft("a", "blue")).unwrap_err(), Refusal::Exists);
    assert_eq!(store.remove(&table(), &Key::new(None, "b"), 3).unwrap_err(), Refusal::Missing);
}

#[test]
fn an_object_cannot_enter_a_namespace_that_is_not_there() {
    let store = Store::new(LIMITS);
    let key = Key::new(Some("nowhere"), "a");
    assert_eq!(store.insert(&table(), &key, draft("a", "red")).unwrap_err(), Refusal::NoNamespace);
}

#[test]
fn the_removal_of_an_owner_queues_its_dependents() {
    let store = Store::new(LIMITS);
    let owner_uid = "00000000-0000-4000-8000-000000000001";
    let owner = store.insert(&table(), &Key::new(None, "a"), draft("a", "red")).unwrap();
    let child = json!({"metadata": {"name": "child", "uid": "00000000-0000-4000-8000-000000000777",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Thing", "name": "a", "uid": owner_uid}]}});
    store.insert(&table(), &Key::new(None, "child"), Draft::new(&child, Vec::new())).unwrap();
    assert_eq!(store.next_work(), None);
    store.remove(&table(), &owner.key, owner.revision).unwrap();
    assert_eq!(store.next_work(), Some(Work::Dependent(table(), Key::new(None, "child"))));
}
