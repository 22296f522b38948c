//! Times on groups: when they started, when they were evicted, since when they have too few pods.

use std::sync::Arc;

use jiff::Timestamp;
use kai_api::{PodGroup, names::annotations};
use kai_convert::GroupNote;
use kai_core::time::Time;
use kai_kit::{Class, classify, writes};
use kube::Api;
use serde_json::{Map, Value, json};

use super::Surroundings;
use crate::outcome::Outcome;

/// How often it is tried.
const TRIES: u32 = 8;

/// Writes the notes.
pub(crate) async fn write(around: Arc<Surroundings>, group: String, notes: Vec<GroupNote>) -> Outcome {
    let (namespace, name) = group.split_once('/').unwrap_or(("default", &group));
    let api: Api<PodGroup> = Api::namespaced(around.process.client.clone(), namespace);
    let entries: Map<String, Value> = notes.iter().map(|note| annotation(*note)).collect();
    let patch = json!({"metadata": {"annotations": entries}});
    for failures in 1..=TRIES {
        if !*around.leads.borrow() {
            break;
        }
        match writes::merge(&api, around.process.component, name, &patch).await {
            Ok(_) => return Outcome::Noted { group, failed: Vec::new() },
            Err(error) => match classify(&error) {
                Class::Gone | Class::Refused => break,
                _ => {}
            },
        }
        if !around.pause(failures).await {
            break;
        }
    }
    Outcome::Noted { group, failed: notes }
}

fn annotation(note: GroupNote) -> (String, Value) {
    let (name, time) = match note {
        GroupNote::Started(at) => (annotations::LAST_START, Some(at)),
        GroupNote::Evicted(at) => (annotations::LAST_EVICTION, Some(at)),
        GroupNote::Stale(since) => (annotations::STALE_SINCE, since),
    };
    (name.to_owned(), time.map_or(Value::Null, |time| Value::String(text(time))))
}

/// A time as Kubernetes writes it, with milliseconds only where there are any: what is read back equals what was decided.
fn text(time: Time) -> String {
    Timestamp::from_millisecond(time.0).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}
