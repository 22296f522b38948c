//! The watches. Objects are handed on and not kept; of ConfigMaps and namespaces only the metadata is asked for.
//!
//! Kinds that a cluster need not serve are looked for once a minute; while they are not there they count as listed and empty.

use std::{fmt::Debug, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        core::v1 as k8s,
        resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
        scheduling::v1::PriorityClass,
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kai_api::{Config, SchedulingShard};
use kai_convert::{Kind, Object};
use kai_kit::{
    Class, Lean, Process, Selection, classify,
    errors::message,
    watch::{self, News},
};
use kube::{
    Api, Resource,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta},
    runtime::watcher,
};
use serde::de::DeserializeOwned;
use tokio::{sync::mpsc::UnboundedSender, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{change::Change, foretold::Foretold, notes};

/// How often a kind that is not served is looked for.
const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// The same while the server does not tell.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// The kinds whose lists must be complete before anything is decided; shards and the Config are waited for too.
pub(crate) const KINDS: &[Kind] = &[
    Kind::Node,
    Kind::Pod,
    Kind::ConfigMap,
    Kind::Namespace,
    Kind::PersistentVolumeClaim,
    Kind::PersistentVolume,
    Kind::StorageClass,
    Kind::PriorityClass,
    Kind::ResourceClaim,
    Kind::ResourceSlice,
    Kind::DeviceClass,
    Kind::NodeResourceTopology,
    Kind::Queue,
    Kind::PodGroup,
    Kind::BindRequest,
    Kind::Topology,
];

/// Starts all watches.
pub(crate) struct Watches<'a> {
    /// The surroundings.
    pub(crate) process: &'a Process,
    /// Which set of watches.
    pub(crate) epoch: u64,
    /// Places that need not be told of soon.
    pub(crate) foretold: Foretold,
    /// Where news go.
    pub(crate) changes: UnboundedSender<Change>,
    /// Ends this set of watches.
    pub(crate) cancel: CancellationToken,
    /// The tasks.
    pub(crate) tasks: &'a mut JoinSet<()>,
}

impl Watches<'_> {
    /// Starts all watches.
    pub(crate) fn start(&mut self) {
        self.watch::<k8s::Node>(Kind::Node, Object::Node);
        let foretold = self.foretold.clone();
        let pods = Selection::all().passing_over(notes::is_same).foretelling(move |pod, node| foretold.says(pod, node));
        self.watch_selected(Kind::Pod, pods, Object::Pod);
        self.watch::<PartialObjectMeta<k8s::ConfigMap>>(Kind::ConfigMap, |map| {
            Object::ConfigMap(Arc::new(k8s::ConfigMap { metadata: bare(&map.metadata), ..k8s::ConfigMap::default() }))
        });
        self.watch::<PartialObjectMeta<k8s::Namespace>>(Kind::Namespace, |space| {
            Object::Namespace(Arc::new(k8s::Namespace {
                metadata: space.metadata.clone(),
                ..k8s::Namespace::default()
            }))
        });
        self.watch::<k8s::PersistentVolumeClaim>(Kind::PersistentVolumeClaim, Object::PersistentVolumeClaim);
        self.watch::<k8s::PersistentVolume>(Kind::PersistentVolume, Object::PersistentVolume);
        self.watch::<StorageClass>(Kind::StorageClass, Object::StorageClass);
        self.watch::<PriorityClass>(Kind::PriorityClass, Object::PriorityClass);
        self.watch::<kai_api::Queue>(Kind::Queue, Object::Queue);
        self.watch::<kai_api::PodGroup>(Kind::PodGroup, Object::PodGroup);
        self.watch::<kai_api::BindRequest>(Kind::BindRequest, Object::BindRequest);
        self.optional::<kai_api::Topology>(Kind::Topology, Object::Topology);
        self.optional::<ResourceClaim>(Kind::ResourceClaim, Object::ResourceClaim);
        self.optional::<ResourceSlice>(Kind::ResourceSlice, Object::ResourceSlice);
        self.optional::<DeviceClass>(Kind::DeviceClass, Object::DeviceClass);
        self.zones();
        self.shards();
        self.configs();
    }

    /// Watches a kind that every cluster has.
    fn watch<K>(&mut self, kind: Kind, wrap: fn(Arc<K>) -> Object)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        self.watch_selected(kind, Selection::all(), wrap);
    }

    fn watch_selected<K>(&mut self, kind: Kind, selection: Selection<K>, wrap: fn(Arc<K>) -> Object)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        let tell = self.teller(kind, move |object| Some(wrap(object)));
        let (process, cancel) = (self.process.clone(), self.cancel.clone());
        self.tasks.spawn(watch::follow(process, selection, name(kind), cancel, tell));
    }

    /// Watches a kind that may not be served.
    fn optional<K>(&mut self, kind: Kind, wrap: fn(Arc<K>) -> Object)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let tell = self.teller(kind, move |object| Some(wrap(object)));
        let api: Api<Lean<K>> = Api::all(self.process.client.clone());
        let served = Served { process: self.process.clone(), cancel: self.cancel.clone(), name: name(kind) };
        self.tasks.spawn(served.follow(api, tell));
    }

    fn zones(&mut self) {
        let kind = Kind::NodeResourceTopology;
        let tell = self.teller(kind, |object: Arc<DynamicObject>| {
            serde_json::to_value(object.as_ref()).ok().and_then(|value| Object::read(&value).ok().flatten())
        });
        let gvk = GroupVersionKind::gvk("topology.node.k8s.io", "v1alpha2", "NodeResourceTopology");
        let resource = ApiResource::from_gvk_with_plural(&gvk, "noderesourcetopologies");
        let api: Api<Lean<DynamicObject>> = Api::all_with(self.process.client.clone(), &resource);
        let served = Served { process: self.process.clone(), cancel: self.cancel.clone(), name: name(kind) };
        self.tasks.spawn(served.follow(api, tell));
    }

    fn shards(&mut self) {
        let (epoch, changes) = (self.epoch, self.changes.clone());
        let tell = move |news: News<Arc<SchedulingShard>>| {
            let _ = changes.send(Change::Shard { epoch, news });
        };
        let api: Api<Lean<SchedulingShard>> = Api::all(self.process.client.clone());
        let name = "watch of SchedulingShard".to_owned();
        let served = Served { process: self.process.clone(), cancel: self.cancel.clone(), name };
        self.tasks.spawn(served.follow(api, tell));
    }

    fn configs(&mut self) {
        let (epoch, changes) = (self.epoch, self.changes.clone());
        let tell = move |news: News<Arc<Config>>| {
            let _ = changes.send(Change::Config { epoch, news });
        };
        let api: Api<Lean<Config>> = Api::all(self.process.client.clone());
        let name = "watch of Config".to_owned();
        let served = Served { process: self.process.clone(), cancel: self.cancel.clone(), name };
        self.tasks.spawn(served.follow(api, tell));
    }

    fn teller<K>(
        &self,
        kind: Kind,
        wrap: impl Fn(Arc<K>) -> Option<Object> + Send + 'static,
    ) -> impl FnMut(News<Arc<K>>) + Send + 'static {
        let (epoch, changes) = (self.epoch, self.changes.clone());
        move |news| {
            if let Some(news) = map(news, &wrap) {
                // Nobody listens any more when the process ends.
                let _ = changes.send(Change::Watched { epoch, kind, news });
            }
        }
    }
}

/// Translates news; an object that cannot be read is passed over.
fn map<K, L>(news: News<K>, wrap: impl Fn(K) -> Option<L>) -> Option<News<L>> {
    Some(match news {
        News::Begin => News::Begin,
        News::Complete => News::Complete,
        News::Listed(object) => News::Listed(wrap(object)?),
        News::Applied(object) => News::Applied(wrap(object)?),
        News::Deleted(object) => News::Deleted(wrap(object)?),
    })
}

fn name(kind: Kind) -> String {
    format!("watch of {kind:?}")
}

/// Metadata without what nobody asks for.
fn bare(metadata: &ObjectMeta) -> ObjectMeta {
    let ObjectMeta { name, namespace, uid, .. } = metadata.clone();
    ObjectMeta { name, namespace, uid, ..ObjectMeta::default() }
}

/// A watch of a kind that may come and go.
struct Served {
    process: Process,
    cancel: CancellationToken,
    name: String,
}

impl Served {
    async fn follow<K>(self, api: Api<Lean<K>>, mut tell: impl FnMut(News<Arc<K>>) + Send + 'static)
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        loop {
            self.while_served(&api, &mut tell).await;
            if self.cancel.is_cancelled() {
                return;
            }
            self.process.health.ready(&self.name);
            tell(News::Begin);
            tell(News::Complete);
            tokio::select! {
                () = self.cancel.cancelled() => return,
                () = self.until_served(&api) => {}
            }
        }
    }

    /// Waits until a kind that is not served is.
    async fn until_served<K: Clone + DeserializeOwned + Debug>(&self, api: &Api<K>) {
        let mut pause = LOOK_AGAIN;
        loop {
            tokio::time::sleep(pause).await;
            pause = match self.is_served(api).await {
                Ok(true) => return,
                Ok(false) => {
                    self.process.health.ready(&self.name);
                    LOOK_AGAIN
                }
                Err(why) => {
                    self.process.health.not_ready(&self.name, why);
                    ASK_AGAIN
                }
            };
        }
    }

    /// Watches until the kind is not served. Whether it is, is asked while the watch already begins: a start waits for one answer, not
    /// for two.
    async fn while_served<K>(&self, api: &Api<Lean<K>>, tell: &mut (impl FnMut(News<Arc<K>>) + Send))
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let cancel = self.cancel.child_token();
        let health = self.process.health.clone();
        let config = watcher::Config::default();
        let watch = watch::run(api.clone(), config, self.name.clone(), health, cancel.clone(), tell);
        let gone = async {
            loop {
                match self.is_served(api).await {
                    Ok(true) => self.until_unwell().await,
                    Ok(false) => return,
                    Err(_) => tokio::time::sleep(ASK_AGAIN).await,
                }
            }
        };
        tokio::select! {
            () = watch => {}
            () = gone => {}
        }
        cancel.cancel();
    }

    /// Waits until the watch is not well when it is looked at.
    async fn until_unwell(&self) {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            if self.process.health.unmet().iter().any(|(name, _)| *name == self.name) {
                return;
            }
        }
    }

    /// Whether the kind is served; an error if that cannot be told. Who may not read a kind does not know: a missing right must not
    /// look like a cluster without such objects.
    async fn is_served<K: Clone + DeserializeOwned + Debug>(&self, api: &Api<K>) -> Result<bool, String> {
        match api.list(&ListParams::default().limit(1)).await {
            Ok(_) => Ok(true),
            Err(error) if classify(&error) == Class::Gone => Ok(false),
            Err(error) => Err(message(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use kai_clock::Clock;
    use kube::{Client, client::Body};
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_scheduler_without_a_kind_stays_ready_while_it_looks_for_it() {
        let missing = tower::service_fn(|_: http::Request<Body>| async {
            sleep(Duration::from_secs(1)).await;
            let status =
                r#"{"kind":"Status","status":"Failure","reason":"NotFound","message":"no such kind","code":404}"#;
            http::Response::builder().status(404).body(Body::from(status.as_bytes().to_vec()))
        });
        let (client, cancel) = (Client::new(missing, "default"), CancellationToken::new());
        let process = Process::new("scheduler", client.clone(), Clock::real(), cancel.clone(), "kai", "test");
        let served = Served { process: process.clone(), cancel: cancel.clone(), name: "watch of Topology".to_owned() };
        let api: Api<Lean<kai_api::Topology>> = Api::all(client);
        tokio::spawn(served.follow(api, |_| ()));
        sleep(Duration::from_millis(500)).await;
        assert_eq!(process.health.unmet().len(), 1, "the server has not answered yet");
        sleep(Duration::from_secs(2)).await;
        for half_second in 0..400 {
            assert_eq!(process.health.unmet(), [], "after {half_second} half seconds");
            sleep(Duration::from_millis(500)).await;
        }
        cancel.cancel();
    }
}
