//! The hands of the controllers: the world they see, the queue of work, and the few API calls they make.
//!
//! Every write goes through here, so that its answer enters the [`World`] before the next decision is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kai_clock::Clock;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::{Value, json};

use super::world::{Change, Key, Watched, Work, World};

/// The longest wait between two looks when nothing is due; changes wake the loop at once.
const IDLE: Duration = Duration::from_hours(1);
/// First and longest pause after a failed attempt, as client-go's work queue has them (its longest is 1000 s).
const FIRST_RETRY: SignedDuration = SignedDuration::from_millis(5);
const LONGEST_RETRY: SignedDuration = SignedDuration::from_secs(60);

/// What a reconcile works with.
pub struct Context {
    /// The cluster as seen.
    pub world: World,
    client: Client,
    clock: Clock,
    ready: BTreeSet<Work>,
    later: BTreeSet<(Timestamp, Work)>,
    failures: BTreeMap<Work, u32>,
}

impl Context {
    /// An empty world.
    pub fn new(client: Client, clock: Clock) -> Self {
        Self {
            world: World::default(),
            client,
            clock,
            ready: BTreeSet::new(),
            later: BTreeSet::new(),
            failures: BTreeMap::new(),
        }
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Takes in a change seen by a watch.
    pub fn observe(&mut self, change: Change) {
        let work = change.apply(&mut self.world);
        self.ready.extend(work);
    }

    /// The next work that is due, in order.
    pub fn next_work(&mut self) -> Option<Work> {
        let now = self.now();
        while let Some((due, _)) = self.later.first()
            && *due <= now
            && let Some((_, work)) = self.later.pop_first()
        {
            self.ready.insert(work);
        }
        self.ready.pop_first()
    }

    /// How long nothing will be due.
    pub fn until_next_work(&self) -> Duration {
        let Some((due, _)) = self.later.first() else { return IDLE };
        Duration::try_from(due.duration_since(self.now())).unwrap_or(Duration::ZERO).min(IDLE)
    }

    /// Asks for another look at `work` at `due`.
    pub fn look_again(&mut self, due: Timestamp, work: Work) {
        self.later.insert((due, work));
    }

    /// Books how an attempt ended; a failed one is repeated with growing pauses.
    pub fn record_outcome(&mut self, work: Work, outcome: Result<(), kube::Error>) {
        let Err(error) = outcome else {
            self.failures.remove(&work);
            return;
        };
        tracing::debug!(?work, %error, "will try again");
        let failures = self.failures.entry(work.clone()).or_default();
        let pause = FIRST_RETRY.saturating_mul(1 << (*failures).min(20)).min(LONGEST_RETRY);
        *failures += 1;
        self.look_again(self.now().saturating_add(pause).unwrap_or(Timestamp::MAX), work);
    }

    /// Creates an object; the answer is known to the next decision.
    pub async fn create<K>(&mut self, object: &K) -> Result<K, kube::Error>
    where
        K: Watched + Resource<Scope = NamespaceResourceScope>,
    {
        let created = self.api(object.namespace().as_deref()).create(&PostParams::default(), object).await?;
        let work = self.world.seen(created.clone());
        self.ready.extend(work);
        Ok(created)
    }

    /// Deletes exactly this object (by uid). Its dependents go in the background. Gone already is success.
    pub async fn delete<K>(&mut self, object: &K) -> Result<(), kube::Error>
    where
        K: Watched + Resource<Scope = NamespaceResourceScope>,
    {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid: object.uid(), resource_version: None }),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let answer = self.api::<K>(object.namespace().as_deref()).delete(&object.name_any(), &parameters).await;
        let work = match answer {
            Ok(either) => match either.left() {
                Some(terminating) if terminating.meta().deletion_timestamp.is_some() => self.world.seen(terminating),
                _ => self.world.gone(object),
            },
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => self.world.gone(object),
            Err(error) => return Err(error),
        };
        self.ready.extend(work);
        Ok(())
    }

    /// Merge-patches an object.
    pub async fn patch<K>(&mut self, object: &K, patch: &Value) -> Result<(), kube::Error>
    where
        K: Watched + Resource<Scope = NamespaceResourceScope>,
    {
        let api = self.api::<K>(object.namespace().as_deref());
        let patched = api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        let work = self.world.seen(patched);
        self.ready.extend(work);
        Ok(())
    }

    /// Merge-patches the status of an object, unless it already says so.
    pub async fn patch_status<K>(&mut self, object: &K, status: Value) -> Result<(), kube::Error>
    where
        K: Watched + Resource<Scope = NamespaceResourceScope>,
    {
        let current = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
        if contains(current.get("status").unwrap_or(&Value::Null), &status) {
            return Ok(());
        }
        self.patch_with_status(object, &json!({ "status": status })).await
    }

    /// Merge-patches an object by way of its status subresource.
    pub async fn patch_with_status<K>(&mut self, object: &K, patch: &Value) -> Result<(), kube::Error>
    where
        K: Watched + Resource<Scope = NamespaceResourceScope>,
    {
        let api = self.api::<K>(object.namespace().as_deref());
        let patched = api.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        let work = self.world.seen(patched);
        self.ready.extend(work);
        Ok(())
    }

    /// Writes an event about an object. Events are advice: a failure to write one is not a failure.
    pub async fn event<K>(&self, about: &K, controller: &str, kind: EventKind, reason: &str, message: String)
    where
        K: Watched,
    {
        let now = self.now();
        let namespace = about.namespace().unwrap_or_else(|| "default".to_owned());
        let reference: ObjectReference = about.object_ref(&());
        let event = Event {
            metadata: kube::core::ObjectMeta {
                generate_name: Some(format!("{}.", about.name_any())),
                namespace: Some(namespace.clone()),
                ..Default::default()
            },
            involved_object: reference,
            reason: Some(reason.to_owned()),
            message: Some(message),
            type_: Some(kind.name().to_owned()),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            source: Some(k8s_openapi::api::core::v1::EventSource {
                component: Some(controller.to_owned()),
                host: None,
            }),
            reporting_component: Some(controller.to_owned()),
            ..Event::default()
        };
        let api = Api::<Event>::namespaced(self.client.clone(), &namespace);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            tracing::debug!(%error, reason, "event not written");
        }
    }

    /// The API of a kind in a namespace.
    pub fn api<K>(&self, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace.unwrap_or("default"))
    }
}

/// Whether an event tells of good or bad.
#[derive(Clone, Copy, Debug)]
pub enum EventKind {
    /// `Normal`.
    Normal,
    /// `Warning`.
    Warning,
}

impl EventKind {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Whether merging `wanted` into `current` would change nothing.
fn contains(current: &Value, wanted: &Value) -> bool {
    match (current, wanted) {
        (Value::Object(current), Value::Object(wanted)) => wanted.iter().all(|(name, value)| match current.get(name) {
            Some(present) => contains(present, value),
            None => match value {
                Value::Null => true,
                // Zero counts are not kept in typed objects.
                Value::Number(number) => number.as_i64() == Some(0),
                Value::Array(items) => items.is_empty(),
                _ => false,
            },
        }),
        (_, Value::Null) => current.is_null(),
        _ => current == wanted,
    }
}

/// The key of an object in a namespace.
pub fn key_in(namespace: &str, name: &str) -> Key {
    Key { namespace: namespace.to_owned(), name: name.to_owned() }
}
