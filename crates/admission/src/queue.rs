//! The rules for queues: amounts are given, the tree has no cycle, and no queue goes away under its children.
//!
//! A parent that is missing and amounts that contradict each other are only warned about: manifests may come in any
//! order, and the scheduler knows what to do meanwhile.

use std::{collections::BTreeSet, time::Duration};

use kai_api::{Queue, QueueResource, QueueResources, defaults};
use kai_kit::{Key, Mirror};
use kube::ResourceExt as _;

use crate::review::{Consent, Operation, Refusal, Request, Verdict};

/// How long a deleted child may still be in the mirror before its parent's deletion is refused for it.
const SETTLING: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Judges a queue.
pub(crate) async fn validate(queues: Option<&Mirror<Queue>>, request: &Request) -> Verdict {
    match request.operation {
        Operation::Create | Operation::Update => judge(queues, &request.object()?),
        Operation::Delete => check_childless(queues, request).await,
        Operation::Connect => Ok(Consent::default()),
    }
}

fn judge(queues: Option<&Mirror<Queue>>, queue: &Queue) -> Verdict {
    let name = queue.name_any();
    let Some(resources) = &queue.spec.resources else {
        return Err(Refusal::new(format!(
            "queue `{name}`: field `spec.resources`: resources must be specified; hint: give `cpu`, `gpu` and \
             `memory` each a `quota`, a `limit` and an `overQuotaWeight`, -1 for unlimited"
        )));
    };
    let mut warnings = amounts(&name, resources);
    let Some(parent) = queue.spec.parent_queue.as_deref().filter(|parent| !parent.is_empty()) else {
        return Ok(Consent::with(warnings));
    };
    if parent == name {
        return Err(cycle(&name, &[parent]));
    }
    if let Some(queues) = queues {
        check_ancestors(queues, &name, parent)?;
        warnings.extend(compare(queues, &name, resources, parent));
    }
    Ok(Consent::with(warnings))
}

fn cycle(name: &str, path: &[&str]) -> Refusal {
    let path: Vec<String> = std::iter::once(&name).chain(path).map(|queue| format!("`{queue}`")).collect();
    Refusal::new(format!(
        "queue `{name}`: field `spec.parentQueue`: cycle detected: {}; hint: choose a parent that is not \
         below this queue",
        path.join(" -> ")
    ))
}

fn check_ancestors(queues: &Mirror<Queue>, name: &str, parent: &str) -> Result<(), Refusal> {
    let mut path = vec![parent.to_owned()];
    let mut seen: BTreeSet<String> = BTreeSet::new();
    while let Some(here) = path.last().cloned() {
        if here == name {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            return Err(cycle(name, &path));
        }
        // A cycle further up is not of this queue's making.
        if !seen.insert(here.clone()) {
            break;
        }
        let above = queues.get(&Key::new("", here)).and_then(|queue| queue.spec.parent_queue.clone());
        match above.filter(|above| !above.is_empty()) {
            Some(above) => path.push(above),
            None => break,
        }
    }
    Ok(())
}

const RESOURCES: [&str; 3] = ["gpu", "cpu", "memory"];

fn each(resources: &QueueResources) -> [QueueResource; 3] {
    [resources.gpu, resources.cpu, resources.memory].map(Option::unwrap_or_default)
}

fn unlimited(amount: f64) -> bool {
    amount == defaults::UNLIMITED
}

/// Advice about amounts that mean nothing or contradict each other.
fn amounts(name: &str, resources: &QueueResources) -> Vec<String> {
    let mut warnings = Vec::new();
    for (resource, amount) in RESOURCES.iter().zip(each(resources)) {
        let QueueResource { quota, over_quota_weight, limit } = amount;
        let field = format!("queue `{name}`: field `spec.resources.{resource}`");
        for (word, number) in [("quota", quota), ("limit", limit)] {
            if number < 0.0 && !unlimited(number) {
                warnings.push(format!("{field}: `{word}` is {number}; write -1 for unlimited, or 0 or more"));
            }
        }
        if over_quota_weight < 0.0 {
            warnings.push(format!("{field}: `overQuotaWeight` is {over_quota_weight}; write 0 or more"));
        }
        if limit >= 0.0 && quota >= 0.0 && quota > limit {
            warnings.push(format!("{field}: `quota` {quota} is more than `limit` {limit}, which counts"));
        }
    }
    warnings
}

/// Advice about a queue next to its parent and siblings.
fn compare(queues: &Mirror<Queue>, name: &str, own: &QueueResources, parent: &str) -> Vec<String> {
    let Some(above) = queues.get(&Key::new("", parent)) else {
        return vec![format!(
            "queue `{name}`: field `spec.parentQueue`: failed to get parent queue `{parent}`: nothing runs in \
             this queue until there is one"
        )];
    };
    let Some(resources) = &above.spec.resources else {
        return vec![format!("queue `{name}`: parent queue `{parent}` has no resources defined")];
    };
    let all = queues.all();
    let siblings =
        all.iter().filter(|queue| queue.spec.parent_queue.as_deref() == Some(parent) && queue.name_any() != name);
    let siblings: Vec<_> = siblings.map(|queue| each(&queue.spec.resources.unwrap_or_default())).collect();
    let mut warnings = Vec::new();
    for (index, (resource, (own, above))) in
        RESOURCES.iter().zip(each(own).into_iter().zip(each(resources))).enumerate()
    {
        if unlimited(above.quota) {
            continue;
        }
        let others = siblings.iter().filter_map(|sibling| sibling.get(index)).map(|sibling| sibling.quota.max(0.0));
        let sum = others.fold(own.quota.max(0.0), |sum, quota| sum + quota);
        let field = format!("queue `{name}`: field `spec.resources.{resource}.quota`");
        if unlimited(own.quota) {
            warnings.push(format!("{field}: is unlimited, but parent queue `{parent}` has {}", above.quota));
        } else if sum > above.quota {
            let has = above.quota;
            warnings.push(format!(
                "{field}: the children of parent queue `{parent}` together have {sum}, the parent {has}"
            ));
        }
    }
    warnings
}

async fn check_childless(queues: Option<&Mirror<Queue>>, request: &Request) -> Verdict {
    let mut waited = Duration::ZERO;
    loop {
        let children = match queues {
            Some(queues) => children_in(queues, &request.name),
            None => request.old_object::<Queue>()?.status.unwrap_or_default().child_queues,
        };
        if children.is_empty() {
            return Ok(Consent::default());
        }
        // A child that was deleted a moment ago may still be in the mirror.
        if queues.is_none() || waited >= SETTLING {
            let shown: Vec<String> = children.iter().take(10).map(|child| format!("`{child}`")).collect();
            return Err(Refusal::new(format!(
                "queue `{}`: cannot be deleted while it has {} child queues: {}; hint: delete them or give them \
                 another `spec.parentQueue` first",
                request.name,
                children.len(),
                shown.join(", ")
            )));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        waited += LOOK_AGAIN;
    }
}

fn children_in(queues: &Mirror<Queue>, parent: &str) -> Vec<String> {
    let all = queues.all();
    let children = all.iter().filter(|queue| {
        queue.spec.parent_queue.as_deref() == Some(parent)
            && queue.metadata.deletion_timestamp.is_none()
            && queue.name_any() != parent
    });
    children.map(|queue| queue.name_any()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn queue(name: &str, parent: &str, gpus: f64) -> Value {
        let amount = |quota: f64| json!({"quota": quota, "overQuotaWeight": 1.0, "limit": -1.0});
        let resources = json!({"gpu": amount(gpus), "cpu": amount(-1.0), "memory": amount(-1.0)});
        json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name},
               "spec": {"parentQueue": parent, "resources": resources}})
    }

    fn mirror(queues: &[Value]) -> Mirror<Queue> {
        let mirror = Mirror::<Queue>::builder().detached();
        for queue in queues {
            mirror.saw(serde_json::from_value(queue.clone()).unwrap());
        }
        mirror
    }

    fn asks(operation: &str, name: &str, object: Value) -> Request {
        serde_json::from_value(json!({"uid": "u", "operation": operation, "name": name, "object": object})).unwrap()
    }

    async fn verdict(queues: &[Value], request: Request) -> Result<Vec<String>, String> {
        let mirror = mirror(queues);
        let verdict = validate(Some(&mirror), &request).await;
        verdict.map(|consent| consent.warnings).map_err(|refusal| refusal.message)
    }

    #[tokio::test]
    async fn a_queue_without_amounts_is_refused() {
        let request = asks("CREATE", "a", json!({"metadata": {"name": "a"}, "spec": {}}));
        let error = verdict(&[], request).await.unwrap_err();
        assert!(error.contains("queue `a`") && error.contains("resources must be specified"), "{error}");
    }

    #[tokio::test]
    async fn a_cycle_is_refused_with_its_path() {
        let there = [queue("top", "", 8.0), queue("team", "top", 4.0)];
        let error = verdict(&there, asks("UPDATE", "top", queue("top", "team", 8.0))).await.unwrap_err();
        assert!(error.contains("cycle detected: `top` -> `team` -> `top`"), "{error}");
        let error = verdict(&there, asks("CREATE", "me", queue("me", "me", 8.0))).await.unwrap_err();
        assert!(error.contains("cycle detected: `me` -> `me`"), "{error}");
        assert_eq!(verdict(&there, asks("CREATE", "new", queue("new", "team", 0.0))).await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn contradictions_are_only_warned_about() {
        let there = [queue("top", "", 8.0), queue("team", "top", 6.0)];
        let warnings = verdict(&there, asks("CREATE", "b", queue("b", "top", 3.0))).await.unwrap();
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("together have 9, the parent 8"), "{warnings:?}");
        let warnings = verdict(&there, asks("CREATE", "b", queue("b", "nobody", 3.0))).await.unwrap();
        assert!(warnings[0].contains("failed to get parent queue `nobody`"), "{warnings:?}");
        let warnings = verdict(&there, asks("CREATE", "b", queue("b", "top", -3.0))).await.unwrap();
        assert!(warnings[0].contains("`quota` is -3"), "{warnings:?}");
        // An unlimited parent has room for everybody.
        let there = [queue("top", "", -1.0)];
        assert_eq!(verdict(&there, asks("CREATE", "b", queue("b", "top", 3.0))).await, Ok(Vec::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_with_children_stays() {
        let there = [queue("top", "", 8.0), queue("team", "top", 6.0)];
        let error = verdict(&there, asks("DELETE", "top", Value::Null)).await.unwrap_err();
        assert!(error.contains("queue `top`: cannot be deleted while it has 1 child queues: `team`"), "{error}");
        assert_eq!(verdict(&there, asks("DELETE", "team", Value::Null)).await, Ok(Vec::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_child_that_was_just_deleted_does_not_count() {
        let mirror = mirror(&[queue("top", "", 8.0), queue("team", "top", 6.0)]);
        let (slow, team) = (mirror.clone(), queue("team", "top", 6.0));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            slow.lost(&serde_json::from_value::<Queue>(team).unwrap());
        });
        assert!(validate(Some(&mirror), &asks("DELETE", "top", Value::Null)).await.is_ok());
    }
}
