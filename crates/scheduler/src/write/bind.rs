//! A BindRequest per placed pod.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kai_api::{
    BindRequest,
    names::{annotations, bind_phases},
};
use kai_convert::{Veto, decision};
use kai_kit::{Class, classify, errors::message, events::Kind, writes};
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};
use tokio::time::Instant;

use super::Surroundings;
use crate::outcome::{Bound, Outcome};

/// After so long without an answer the decision is not insisted on.
const INSIST: Duration = Duration::from_secs(10);
/// The pause after a pod could not be read.
const UNREAD: Duration = Duration::from_secs(5);
/// How long a node is avoided for a pod whose request the server refused.
const REFUSED: Duration = Duration::from_secs(30);

/// A request to be made.
pub(crate) struct Bind {
    /// `namespace/name` of the request and the pod.
    pub(crate) key: String,
    /// The request.
    pub(crate) request: decision::Request,
    /// The uid of the request that failed before and is in the way.
    pub(crate) previous: Option<String>,
    /// If the pod needs no preparation and many wait: it may be bound without a request.
    pub(crate) direct: Option<Direct>,
    /// The pod, for events.
    pub(crate) pod: ObjectReference,
}

/// A binding without a request.
pub(crate) struct Direct {
    /// The name of the pod's group, if the pod does not say it yet: the binding tells it.
    pub(crate) group: Option<String>,
}

/// Makes the request, and finds out what is there in the end.
pub(crate) async fn write(around: Arc<Surroundings>, mut bind: Bind) -> Outcome {
    let namespace = bind.pod.namespace.clone().unwrap_or_default();
    // In boxes: in a crowd most pods need neither, and thousands of these futures would carry the room for them.
    if !bind.request.extended.is_empty() && !Box::pin(complete(&around, &namespace, &mut bind)).await {
        return Outcome::Bound { key: bind.key, result: Bound::Missing };
    }
    let attempt = Attempt { around: &around, namespace: &namespace, bind: &bind };
    let result = match attempt.bind_directly().await {
        Some(placed) => placed,
        None => Box::pin(attempt.make()).await,
    };
    let node = bind.request.object.spec.selected_node.as_deref().unwrap_or_default();
    let groups = bind.request.object.spec.selected_gpu_groups.join(", ");
    let as_decided = match &result {
        Bound::There(request) => request.spec.selected_node.as_deref() == Some(node),
        Bound::Placed(_) => true,
        Bound::Missing | Bound::Refused(_) => false,
    };
    match &result {
        _ if as_decided => {
            let devices = if groups.is_empty() { String::new() } else { format!(", GPU groups {groups}") };
            let text = format!("Successfully assigned pod {} to node {node}{devices}", bind.key);
            around.process.events.tell_of(bind.pod, Kind::Normal, "Scheduled", text, BTreeMap::new());
        }
        Bound::There(request) => {
            let other = request.spec.selected_node.as_deref().unwrap_or_default();
            let text = format!(
                "pod {} was to be placed on node {node}, but another scheduler had already placed it on node {other}",
                bind.key
            );
            around.process.events.tell_of(bind.pod, Kind::Warning, "FailedBinding", text, BTreeMap::new());
        }
        Bound::Refused(veto) => {
            let text = format!("pod {} cannot be placed on node {node}: {}", bind.key, veto.reason);
            around.process.events.tell_of(bind.pod, Kind::Warning, "FailedBinding", text, BTreeMap::new());
        }
        Bound::Missing | Bound::Placed(_) => {}
    }
    Outcome::Bound { key: bind.key, result }
}

/// Finds out which container gets which device: only the pod itself tells. False if it cannot be read.
async fn complete(around: &Surroundings, namespace: &str, bind: &mut Bind) -> bool {
    let pods: Api<Pod> = Api::namespaced(around.process.client.clone(), namespace);
    match pods.get(bind.pod.name.as_deref().unwrap_or_default()).await {
        Ok(pod) => {
            decision::complete(&mut bind.request, &pod);
            true
        }
        Err(error) => {
            if classify(&error) != Class::Gone {
                let text = format!("pod {} cannot be read to give it its devices: {}", bind.key, message(&error));
                around.process.events.tell_of(bind.pod.clone(), Kind::Warning, "FailedBinding", text, BTreeMap::new());
                // The same would be decided again at once.
                around.process.sleep(UNREAD).await;
            }
            false
        }
    }
}

struct Attempt<'a> {
    around: &'a Surroundings,
    namespace: &'a str,
    bind: &'a Bind,
}

impl Attempt<'_> {
    /// Binds the pod without a request, where that is allowed. `None`: it did not work, or nobody knows whether it did; the binder
    /// finds out, tries again or says why not.
    async fn bind_directly(&self) -> Option<Bound> {
        let direct = self.bind.direct.as_ref().filter(|_| *self.around.leads.borrow())?;
        let uid = self.bind.pod.uid.clone().unwrap_or_default();
        let mut binding = self.bind.request.object.binding(Some(&uid));
        if let Some(group) = &direct.group {
            let notes = binding.metadata.annotations.get_or_insert_default();
            notes.insert(annotations::POD_GROUP.to_owned(), group.clone());
        }
        let pods = Api::namespaced(self.around.process.client.clone(), self.namespace);
        match writes::bind(&pods, &binding).await {
            Ok(()) => Some(Bound::Placed(uid)),
            Err(error) if classify(&error) == Class::Gone => Some(Bound::Missing),
            Err(_) => None,
        }
    }

    async fn make(&self) -> Bound {
        let (begun, api) = (Instant::now(), self.api());
        let mut failures = 0;
        if let Some(previous) = &self.bind.previous {
            // If this fails the request is found to be there below.
            let _ = self.delete(previous).await;
        }
        while *self.around.leads.borrow() && begun.elapsed() < INSIST {
            match writes::create(&api, self.around.process.component, &self.bind.request.object).await {
                Ok(made) => return Bound::There(Arc::new(made)),
                Err(error) => match classify(&error) {
                    Class::Exists => match api.get_opt(self.name()).await {
                        Ok(Some(found)) if self.is_in_the_way(&found) => {
                            let uid = found.metadata.uid.clone().unwrap_or_default();
                            let _ = self.delete(&uid).await;
                        }
                        // Ours, and the answer was lost; or another scheduler's, which counts as much.
                        Ok(Some(found)) => return Bound::There(Arc::new(found)),
                        Ok(None) | Err(_) => {}
                    },
                    Class::Refused => {
                        // The next decision about the pod must not come at once.
                        self.around.process.sleep(Duration::from_secs(1)).await;
                        return Bound::Refused(self.veto(&message(&error)));
                    }
                    Class::Gone => return Bound::Missing,
                    Class::Conflict | Class::Unauthorized | Class::Transient => {}
                },
            }
            failures += 1;
            if !self.around.pause(failures).await {
                return Bound::Missing;
            }
        }
        self.find_out().await
    }

    /// Asks until there is an answer.
    async fn find_out(&self) -> Bound {
        let (mut failures, api) = (0, self.api());
        loop {
            match api.get_opt(self.name()).await {
                Ok(Some(found)) => return Bound::There(Arc::new(found)),
                Ok(None) => return Bound::Missing,
                Err(error) if classify(&error) == Class::Refused => return Bound::Missing,
                Err(_) => failures += 1,
            }
            if !self.around.pause(failures).await {
                return Bound::Missing;
            }
        }
    }

    fn api(&self) -> Api<BindRequest> {
        Api::namespaced(self.around.process.client.clone(), self.namespace)
    }

    fn name(&self) -> &str {
        self.bind.pod.name.as_deref().unwrap_or_default()
    }

    /// Whether a request is of another pod of the same name, or has failed for good.
    fn is_in_the_way(&self, found: &BindRequest) -> bool {
        let owners = found.metadata.owner_references.iter().flatten();
        let mut pods = owners.filter(|owner| owner.kind == "Pod");
        let other = pods.next().is_some_and(|owner| Some(&owner.uid) != self.bind.pod.uid.as_ref());
        let status = found.status.clone().unwrap_or_default();
        let enough = found.spec.backoff_limit.is_none_or(|limit| status.failed_attempts.unwrap_or(0) >= limit);
        other || (status.phase.as_deref() == Some(bind_phases::FAILED) && enough)
    }

    async fn delete(&self, uid: &str) -> Result<(), kube::Error> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        self.api().delete(self.name(), &parameters).await.map(drop)
    }

    fn veto(&self, reason: &str) -> Veto {
        let until = self.around.process.now().as_millisecond() + i64::try_from(REFUSED.as_millis()).unwrap_or(30_000);
        let node = self.bind.request.object.spec.selected_node.clone().unwrap_or_default();
        Veto { node, reason: format!("the API server refused the BindRequest: {reason}"), until }
    }
}

/// Deletes a request whose node is gone.
pub(crate) async fn drop_request(around: Arc<Surroundings>, key: String, uid: String) -> Outcome {
    let (namespace, name) = key.split_once('/').unwrap_or(("default", &key));
    let api: Api<BindRequest> = Api::namespaced(around.process.client.clone(), namespace);
    let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let gone = match api.delete(name, &parameters).await {
        Ok(_) => true,
        Err(error) if classify(&error) == Class::Gone => true,
        // Not deleted, or not known: what is there now tells.
        Err(_) => match api.get_opt(name).await {
            Ok(found) => found.is_none_or(|found| found.metadata.uid.as_ref() != Some(&uid)),
            Err(_) => false,
        },
    };
    Outcome::Dropped { key, uid, gone }
}
