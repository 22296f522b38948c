//! The server as a whole: what it is made of, how it starts and how it ends.
//!
//! [`ApiServer`] is a cheap handle. Its [`Router`] serves requests; one background task follows up on writes
//! ([`crate::housekeeping`]). Both share a [`Core`]. When the last handle (and the last router) is gone, or the token of the options is
//! cancelled, the task ends and open watches close.

use std::sync::Arc;

use axum::Router;
use jiff::Timestamp;
use kai_clock::Clock;
use parking_lot::RwLock;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::admission::{Admission, ClusterReader};
use crate::housekeeping::Expiry;
use crate::object::{Draft, Key, Object};
use crate::random::Random;
use crate::registry::{Entry, Registry};
use crate::store::{self, Limits, Refusal, Snapshot, Store};
use crate::{housekeeping, http, verbs};

/// Gives the HTTP interface of a node's kubelet, by node name.
pub type NodeProxy = Arc<dyn Fn(&str) -> Option<Router> + Send + Sync>;

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where time comes from.
    pub clock: Clock,
    /// Events kept per resource for watches that resume and for paged lists.
    pub watch_history: usize,
    /// Bytes of JSON those events may hold.
    pub watch_history_bytes: usize,
    /// Seed of identities and generated names; random if `None`.
    pub seed: Option<u64>,
    /// Ends the server's task and its open watches when cancelled.
    pub cancel: CancellationToken,
}

impl Options {
    /// A server on this clock with the usual sizes.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            watch_history: 16_384,
            watch_history_bytes: 64 << 20,
            seed: None,
            cancel: CancellationToken::new(),
        }
    }
}

/// A running server.
#[derive(Clone)]
pub struct ApiServer {
    core: Arc<Core>,
    /// Cancels the background task when the last handle goes; the task itself holds only the core.
    _guard: Arc<DropGuard>,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").finish_non_exhaustive()
    }
}

impl ApiServer {
    /// Starts a server with the objects every cluster has. Must be called inside a tokio runtime.
    #[expect(clippy::needless_pass_by_value, reason = "options are for one server")]
    pub fn start(options: Options) -> Self {
        let cancel = options.cancel.child_token();
        let core = Arc::new(Core {
            store: Store::new(Limits { events: options.watch_history, bytes: options.watch_history_bytes }),
            registry: RwLock::new(Arc::new(Registry::new(&Registry::default(), &Snapshot::new()))),
            // Another sequence than that of the objects: a webhook more must not change their identities.
            admission: Admission::new(options.seed.map(|seed| !seed)),
            clock: options.clock,
            random: Random::new(options.seed),
            node_proxy: RwLock::new(None),
            expiry: Expiry::default(),
            cancel: cancel.clone(),
        });
        core.bootstrap();
        tokio::spawn(housekeeping::run(Arc::clone(&core)));
        Self { core, _guard: Arc::new(cancel.drop_guard()) }
    }

    /// The HTTP interface. In process it is the transport of a `kube::Client`.
    pub fn router(&self) -> Router {
        http::router(self.clone())
    }

    /// Admission, to register in-process webhook services.
    pub fn admission(&self) -> &Admission {
        &self.core.admission
    }

    /// Sets how the kubelets of nodes are reached, for logs.
    pub fn set_node_proxy(&self, proxy: NodeProxy) {
        *self.core.node_proxy.write() = Some(proxy);
    }

    /// What requests and background work share.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

/// What requests and background work share.
pub(crate) struct Core {
    pub store: Store,
    pub registry: RwLock<Arc<Registry>>,
    pub admission: Admission,
    pub clock: Clock,
    pub random: Random,
    pub node_proxy: RwLock<Option<NodeProxy>>,
    pub expiry: Expiry,
    pub cancel: CancellationToken,
}

impl Core {
    /// The resources served now.
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry.read())
    }

    /// The time of day with the precision of `metav1.Time`.
    pub fn now_text(&self) -> String {
        second_text(self.clock.now())
    }

    /// Stores a new object, given in its stored version.
    pub fn insert(&self, entry: &Entry, key: &Key, stored: &Value) -> Result<Arc<Object>, Refusal> {
        let object = self.store.insert(&entry.storage.key, key, draft(entry, stored))?;
        self.follow(entry, &object);
        Ok(object)
    }

    /// Stores an object over the one at `expected`.
    pub fn replace(&self, entry: &Entry, key: &Key, expected: u64, stored: &Value) -> Result<Arc<Object>, Refusal> {
        let object = self.store.replace(&entry.storage.key, key, expected, draft(entry, stored))?;
        self.follow(entry, &object);
        Ok(object)
    }

    /// Removes the object at `expected`.
    pub fn remove(&self, entry: &Entry, key: &Key, expected: u64) -> Result<Arc<Object>, Refusal> {
        let object = self.store.remove(&entry.storage.key, key, expected)?;
        if &*entry.storage.key == store::DEFINITIONS {
            self.reload_definitions();
        }
        Ok(object)
    }

    fn follow(&self, entry: &Entry, object: &Object) {
        match &*entry.storage.key {
            store::DEFINITIONS => self.reload_definitions(),
            store::EVENTS => self.expiry.add(object.key.clone(), object.revision),
            _ => {}
        }
    }

    /// Makes the registry agree with the stored definitions.
    fn reload_definitions(&self) {
        // The lock is held over the reading, so that of two writers the later one also swaps later.
        let mut registry = self.registry.write();
        let (definitions, _) = self.store.snapshot(store::DEFINITIONS);
        *registry = Arc::new(Registry::new(&registry, &definitions));
    }

    /// Changes a stored object on behalf of the server itself, whoever else writes; `change` says whether there is anything to do.
    /// An object whose last finalizer goes is removed.
    pub fn edit(&self, entry: &Entry, key: &Key, mut change: impl FnMut(&mut Value) -> bool) -> Option<Arc<Object>> {
        let storage = &entry.storage;
        loop {
            let object = self.store.get(&storage.key, key)?;
            let mut value = object.value();
            if !change(&mut value) {
                return Some(object);
            }
            let outcome = if verbs::delete::is_finished(&storage.key, &value) {
                self.remove(entry, key, object.revision)
            } else {
                self.replace(entry, key, object.revision, &value)
            };
            match outcome {
                Ok(object) => return Some(object),
                Err(Refusal::Changed) => {}
                Err(_) => return None,
            }
        }
    }

    /// The objects every cluster has from the start.
    fn bootstrap(&self) {
        let registry = self.registry();
        let now = self.now_text();
        let add = |group: &str, plural: &str, mut object: Value| {
            let Some(entry) = registry.find(group, "v1", plural) else { return };
            object["metadata"]["uid"] = json!(self.random.uid());
            object["metadata"]["creationTimestamp"] = json!(now);
            object["apiVersion"] = json!(entry.api_version);
            object["kind"] = json!(entry.resource.gvk.kind);
            crate::builtin::defaults::set_defaults(&entry.resource.gvk, &mut object);
            crate::builtin::strategy::prepare_for_create(&entry.resource, &mut object);
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            // The store is empty and these names differ: nothing can be refused.
            let _ = self.insert(entry, &Key::new(None, &name), &object);
        };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            add("", "namespaces", json!({"metadata": {"name": name}}));
        }
        for (name, value, text) in [
            (
                "system-cluster-critical",
                2_000_000_000,
                "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
            ),
            (
                "system-node-critical",
                2_000_001_000,
                "Used for system critical pods that must not be moved from their current node.",
            ),
        ] {
            let class = json!({"metadata": {"name": name, "generation": 1}, "value": value, "description": text});
            add("scheduling.k8s.io", "priorityclasses", class);
        }
    }
}

impl ClusterReader for Core {
    fn get(&self, storage_key: &str, namespace: Option<&str>, name: &str) -> Option<Arc<Value>> {
        self.store.get(storage_key, &Key::new(namespace, name)).map(|object| object.shared_value())
    }

    fn list(&self, storage_key: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let (objects, _) = self.store.snapshot(storage_key);
        match namespace {
            Some(namespace) => store::within(&objects, namespace).map(|(_, object)| object.shared_value()).collect(),
            None => objects.values().map(|object| object.shared_value()).collect(),
        }
    }
}

fn draft(entry: &Entry, stored: &Value) -> Draft {
    Draft::new(stored, verbs::fields::selectable(&entry.storage, entry, stored))
}

/// RFC 3339 with whole seconds, as `metav1.Time` is written.
pub(crate) fn second_text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
