//! Events are one kind with two faces: core/v1 and events.k8s.io/v1 share their storage and differ in field names.
//!
//! The core form is the stored one.

use serde_json::{Map, Value, json};

/// Core name and events.k8s.io name of the fields that differ.
const FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
];

/// Turns a core event into one of events.k8s.io/v1.
pub fn to_events_group(event: &mut Value) {
    rename(event, |(core, events)| (core, events), "events.k8s.io/v1");
}

/// Turns an event of events.k8s.io/v1 into a core one.
pub fn to_core_group(event: &mut Value) {
    rename(event, |(core, events)| (events, core), "v1");
}

fn rename(
    event: &mut Value,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
    to: &str,
) {
    let Some(map) = event.as_object_mut() else { return };
    let mut renamed = Map::new();
    for (from, into) in FIELDS.into_iter().map(direction) {
        if let Some(value) = map.remove(from) {
            renamed.insert(into.to_owned(), value);
        }
    }
    map.append(&mut renamed);
    map.insert("apiVersion".to_owned(), json!(to));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_reads_the_same_after_both_conversions() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "Started",
            "involvedObject": {"kind": "Pod"}, "message": "hello", "reportingComponent": "kubelet",
            "source": {"component": "kubelet"}, "count": 2, "firstTimestamp": "2024-01-01T00:00:00Z"});
        let mut event = core.clone();
        to_events_group(&mut event);
        assert_eq!(event["note"], "hello");
        assert_eq!(event["regarding"]["kind"], "Pod");
        assert_eq!(event["deprecatedCount"], 2);
        assert_eq!(event["apiVersion"], "events.k8s.io/v1");
        assert!(event.get("message").is_none());
        to_core_group(&mut event);
        assert_eq!(event, core);
    }
}
