//! Pods that are read again: a spec that is known is not read once more.
//!
//! Of the spec of a pod only the node ever changes without its generation being counted up, and most of what a watch tells of pods is
//! about their status.

use std::{fmt, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::core::WatchEvent;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};

use crate::{
    lean::{self, FieldName},
    mirror::Key,
};

/// Reads a line of a watch, with the help of what is known. None: it is no event of a pod, or not as servers write them.
pub(crate) fn event(line: &str, known: impl Fn(&Key) -> Option<Arc<Pod>>) -> Option<WatchEvent<Pod>> {
    let mut reader = serde_json::Deserializer::from_str(line);
    let event = EventSeed { known: &known }.deserialize(&mut reader).ok()??;
    reader.end().ok()?;
    Some(event)
}

struct EventSeed<'k, F> {
    known: &'k F,
}

impl<'de, F: Fn(&Key) -> Option<Arc<Pod>>> DeserializeSeed<'de> for EventSeed<'_, F> {
    type Value = Option<WatchEvent<Pod>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: Fn(&Key) -> Option<Arc<Pod>>> Visitor<'de> for EventSeed<'_, F> {
    type Value = Option<WatchEvent<Pod>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an event of a watch")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut wrap: Option<fn(Pod) -> WatchEvent<Pod>> = None;
        let mut event = None;
        while let Some(field) = map.next_key::<FieldName<'de>>()? {
            match (&*field.0, wrap) {
                ("type", _) => {
                    wrap = match &*map.next_value::<FieldName<'de>>()?.0 {
                        "ADDED" => Some(WatchEvent::Added),
                        "MODIFIED" => Some(WatchEvent::Modified),
                        "DELETED" => Some(WatchEvent::Deleted),
                        _ => None,
                    }
                }
                ("object", Some(wrap)) => event = Some(wrap(map.next_value_seed(PodSeed { known: self.known })?)),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(event)
    }
}

struct PodSeed<'k, F> {
    known: &'k F,
}

/// All of a spec that changes while its generation stays.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Place {
    node_name: Option<String>,
}

impl<'de, F: Fn(&Key) -> Option<Arc<Pod>>> DeserializeSeed<'de> for PodSeed<'_, F> {
    type Value = Pod;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Pod, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: Fn(&Key) -> Option<Arc<Pod>>> Visitor<'de> for PodSeed<'_, F> {
    type Value = Pod;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a pod")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pod, A::Error> {
        let mut pod = Pod::default();
        let mut known = None;
        while let Some(field) = map.next_key::<FieldName<'de>>()? {
            match &*field.0 {
                "metadata" => {
                    pod.metadata = map.next_value_seed(lean::metadata())?;
                    known =
                        (self.known)(&Key::of(&pod)).filter(|known| is_same_generation(&known.metadata, &pod.metadata));
                }
                "spec" => {
                    pod.spec = match known.as_ref().and_then(|known| known.spec.as_ref()) {
                        Some(spec) => map.next_value::<Option<Place>>()?.map(|place| at(spec, place)),
                        None => map.next_value()?,
                    }
                }
                "status" => pod.status = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(pod)
    }
}

/// Whether nothing of the spec but the node can have changed. A server that does not count generations says nothing.
fn is_same_generation(old: &ObjectMeta, new: &ObjectMeta) -> bool {
    new.generation.is_some() && (old.generation, &old.uid) == (new.generation, &new.uid)
}

fn at(spec: &PodSpec, place: Place) -> PodSpec {
    PodSpec { node_name: place.node_name, ..spec.clone() }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
    use serde_json::{Value, json};

    use super::*;
    use crate::Lean;

    fn pod(random: &mut StdRng) -> Value {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "team", "uid": random.random_range(0..2).to_string(),
                "generation": 1, "resourceVersion": "7", "labels": {"q\"uote": "é"},
                "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}]},
            "spec": {"schedulerName": "kai-scheduler", "priority": 5, "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}});
        match random.random_range(0..4) {
            0 => pod["metadata"]["generation"] = Value::Null,
            1 => {
                // Only a server that counts may be believed: another spec has another generation.
                pod["metadata"]["generation"] = json!(2);
                pod["spec"]["containers"][0]["image"] = json!("other");
            }
            _ => {}
        }
        if random.random_bool(0.5) {
            pod["spec"]["nodeName"] = json!("n");
        }
        if random.random_bool(0.3) {
            pod["status"] = json!({"phase": "Running", "hostIP": "10.0.0.1"});
        }
        if random.random_bool(0.1) {
            pod["spec"] = Value::Null;
        }
        pod
    }

    /// The slow and obvious twin reads everything.
    #[test]
    fn a_pod_is_read_as_if_nothing_were_known_of_it() {
        let mut spared = 0;
        for seed in 0..2_000 {
            let mut random = StdRng::seed_from_u64(seed);
            let known: Option<Lean<Pod>> =
                random.random_bool(0.8).then(|| serde_json::from_value(pod(&mut random)).unwrap());
            let known = known.map(|Lean(known)| Arc::new(known));
            let kind = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"][random.random_range(0..5)];
            let line = format!("{{\"type\":\"{kind}\",\"object\":{}}}", pod(&mut random));
            let asked = |key: &Key| known.clone().filter(|_| (&*key.namespace, &*key.name) == ("team", "a"));
            let read = event(&line, asked);
            let Some(read) = read else {
                assert!(["BOOKMARK", "ERROR"].contains(&kind), "seed {seed}: {line}");
                continue;
            };
            let whole = serde_json::from_str::<WatchEvent<Lean<Pod>>>(&line).unwrap();
            match (read, whole) {
                (WatchEvent::Added(read), WatchEvent::Added(Lean(whole)))
                | (WatchEvent::Modified(read), WatchEvent::Modified(Lean(whole)))
                | (WatchEvent::Deleted(read), WatchEvent::Deleted(Lean(whole))) => {
                    assert_eq!(read, whole, "seed {seed}");
                    spared +=
                        usize::from(known.is_some_and(|known| is_same_generation(&known.metadata, &read.metadata)));
                }
                other => panic!("seed {seed}: {other:?}"),
            }
        }
        assert!(spared > 100, "hardly any pod was known: {spared}");
    }

    #[test]
    fn a_line_that_is_not_as_servers_write_them_is_left_to_others() {
        let object = r#"{"metadata":{"name":"a"}}"#;
        for line in [
            format!(r#"{{"object":{object},"type":"ADDED"}}"#),
            format!(r#"{{"type":"ADDED","object":{object}"#),
            format!(r#"{{"type":"ADDED","object":{object}}} more"#),
            r#"{"type":"ADDED","object":[]}"#.to_owned(),
            r#"{"type":"ADDED"}"#.to_owned(),
            "[]".to_owned(),
            String::new(),
        ] {
            assert!(event(&line, |_| None).is_none(), "{line}");
        }
    }
}
