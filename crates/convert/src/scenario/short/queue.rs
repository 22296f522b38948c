//! Queues in a line.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ordered::Ordered;

/// The queue above those that name none.
const ABOVE: &str = "default";
/// The first queue is so old.
const AGE: i64 = 86_400;

/// A queue.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ShortQueue {
    parent: Option<String>,
    quota: Option<f64>,
    limit: Option<f64>,
    weight: Option<f64>,
    cpu_quota: Option<f64>,
    cpu_limit: Option<f64>,
    memory_quota: Option<f64>,
    memory_limit: Option<f64>,
    priority: Option<i64>,
    preempt_min_runtime: Option<String>,
    reclaim_min_runtime: Option<String>,
}

/// The objects that queues stand for, and the one above them where it is needed.
pub(super) fn objects(queues: &Ordered<ShortQueue>, now: Timestamp) -> Vec<Value> {
    let parents: BTreeSet<&str> = queues.0.iter().filter_map(|(_, queue)| queue.parent.as_deref()).collect();
    let mut needed = false;
    let mut objects = Vec::new();
    for (index, (name, queue)) in queues.0.iter().enumerate() {
        let parent = match &queue.parent {
            Some(parent) => parent.clone(),
            None if name == ABOVE || parents.contains(name.as_str()) => String::new(),
            None => {
                needed = true;
                ABOVE.to_owned()
            }
        };
        let minutes = i64::try_from(index).unwrap_or(0).saturating_mul(60);
        objects.push(queue.object(name, &parent, created(now, AGE - minutes)));
    }
    if needed && !queues.0.iter().any(|(name, _)| name == ABOVE) {
        let all = |value: f64| Some(value);
        let open = ShortQueue { quota: all(-1.0), ..ShortQueue::default() };
        objects.push(open.object(ABOVE, "", created(now, AGE + 60)));
    }
    objects
}

fn created(now: Timestamp, seconds: i64) -> String {
    now.checked_sub(SignedDuration::from_secs(seconds)).unwrap_or(now).to_string()
}

impl ShortQueue {
    fn object(&self, name: &str, parent: &str, created: String) -> Value {
        let resource = |quota: Option<f64>, usual: f64, limit: Option<f64>, weight: Option<f64>| json!({"quota": quota.unwrap_or(usual), "limit": limit.unwrap_or(-1.0), "overQuotaWeight": weight.unwrap_or(1.0)});
        let mut spec = json!({"displayName": name, "resources": {
            "gpu": resource(self.quota, 0.0, self.limit, self.weight),
            "cpu": resource(self.cpu_quota, -1.0, self.cpu_limit, None),
            "memory": resource(self.memory_quota, -1.0, self.memory_limit, None),
        }});
        let mut write = |field: &str, value: Option<Value>| {
            if let Some(value) = value {
                spec[field] = value;
            }
        };
        write("parentQueue", (!parent.is_empty()).then(|| json!(parent)));
        write("priority", self.priority.map(|priority| json!(priority)));
        write("preemptMinRuntime", self.preempt_min_runtime.as_ref().map(|span| json!(span)));
        write("reclaimMinRuntime", self.reclaim_min_runtime.as_ref().map(|span| json!(span)));
        let metadata = json!({"name": name, "uid": format!("queue-{name}"), "creationTimestamp": created});
        json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": metadata, "spec": spec})
    }
}
