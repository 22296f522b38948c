//! The pods of a round: made by several clients at once, and watched until they have a node.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context as _;
use futures::{AsyncBufRead, AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _, io::Lines, stream};
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kai_api::names::{annotations, labels, objects};
use kube::{Api, Client, api::PostParams};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

use super::GPUS;

/// Clients that create pods at once.
const CREATORS: usize = 16;
/// How long a round may go without a pod that is bound.
const PATIENCE: Duration = Duration::from_mins(2);

/// The pause before a watch that ended is taken up again.
const AGAIN: Duration = Duration::from_millis(50);

/// How long simulated nodes let a container run, and how long they take to start it.
const RUN: &str = "lab.kai/run-seconds";
const START: &str = "lab.kai/start-seconds";
/// Longer than any round: what nodes do after a pod is bound is not what is measured.
const LATER: &str = "3600";

/// What the pods of a round ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A GPU.
    Whole,
    /// Half of a GPU.
    Half,
    /// All GPUs of a node, all pods together or none.
    Gang,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Whole => "whole GPUs",
            Self::Half => "fractions",
            Self::Gang => "gang",
        })
    }
}

/// The pod of a number.
pub fn pod(kind: Kind, number: u32, scheduler: &str) -> anyhow::Result<Pod> {
    let mut pod = template(kind, scheduler);
    pod["metadata"]["name"] = json!(pod_name(number));
    Ok(serde_json::from_value(pod)?)
}

/// The name of the pod of a number.
pub fn pod_name(number: u32) -> String {
    format!("pod-{number:06}")
}

fn template(kind: Kind, scheduler: &str) -> Value {
    let (annotations, limits) = match kind {
        Kind::Whole => (json!({ RUN: "forever", START: LATER }), json!({ "nvidia.com/gpu": "1" })),
        Kind::Half => (json!({ RUN: "forever", annotations::GPU_FRACTION: "0.5" }), json!({})),
        Kind::Gang => (json!({ RUN: "forever", START: LATER }), json!({ "nvidia.com/gpu": GPUS.to_string() })),
    };
    json!({
        "metadata": {
            "labels": { "app": "bench", labels::QUEUE: objects::DEFAULT_QUEUE },
            "annotations": annotations,
        },
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "containers": [{
                "name": "main", "image": "example/train:1",
                "resources": { "requests": { "cpu": "1", "memory": "1Gi" }, "limits": limits },
            }],
        },
    })
}

/// A job whose pods start together.
fn gang(pods: u32, scheduler: &str) -> anyhow::Result<Job> {
    Ok(serde_json::from_value(json!({
        "metadata": {
            "name": "gang",
            "labels": { labels::QUEUE: objects::DEFAULT_QUEUE },
            "annotations": { annotations::BATCH_MIN_MEMBER: pods.to_string() },
        },
        "spec": { "parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template(Kind::Gang, scheduler) },
    }))?)
}

/// Creates the pods of a round; returns when each was asked for.
pub async fn create(
    client: &Client,
    namespace: &str,
    kind: Kind,
    count: u32,
    scheduler: &str,
) -> anyhow::Result<BTreeMap<String, Instant>> {
    if kind == Kind::Gang {
        let began = Instant::now();
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        jobs.create(&PostParams::default(), &gang(count, scheduler)?).await.context("create the job")?;
        return Ok(BTreeMap::from([(String::new(), began)]));
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    // Each as a task: the clients of a cluster do not share one thread.
    let creating = stream::iter(0..count).map(|number| {
        let pods = pods.clone();
        let pod = pod(kind, number, scheduler);
        tokio::spawn(async move {
            let (pod, began) = (pod?, Instant::now());
            pods.create(&PostParams::default(), &pod).await.context("create a pod")?;
            anyhow::Ok((pod_name(number), began))
        })
    });
    creating.buffer_unordered(CREATORS).map(|done| done?).try_collect().await
}

/// What there is, and from where a watch goes on.
#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    metadata: Named<'a>,
    #[serde(borrow)]
    items: Vec<Seen<'a>>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: Seen<'a>,
}

#[derive(Deserialize)]
struct Seen<'a> {
    #[serde(borrow)]
    metadata: Named<'a>,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
struct Status {
    /// Kubelets write it when they take a pod in.
    #[serde(default, rename = "startTime")]
    start_time: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(default)]
    name: &'a str,
    #[serde(default, rename = "resourceVersion")]
    version: &'a str,
}

/// The lines of a watch that begins after a version.
async fn watch(client: &Client, path: &str, version: &str) -> anyhow::Result<Lines<impl AsyncBufRead + use<>>> {
    let request = http::Request::get(format!("{path}&watch=true&resourceVersion={version}")).body(Vec::new())?;
    Ok(client.request_stream(request).await.context("watch pods")?.lines())
}

/// Which pods a watch is to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Those without a node.
    Waiting,
    /// Those that their node has taken in. Until then a simulated node still has work with them, on the same processors: it would be
    /// counted for whoever is slow and not for whoever is fast.
    TakenIn,
}

/// A pod as a watch showed it.
pub struct Sighting {
    pub name: String,
    /// When it was first seen: without a node, or with one.
    pub at: Instant,
    /// When it was what was wanted.
    pub wanted_at: Instant,
}

/// When each pod had its node, and when the last was taken in.
pub struct Bound {
    pub at: BTreeMap<String, Instant>,
    pub last: Option<Instant>,
}

/// Which pods were seen, and who is told of those that are as they were wanted.
struct Notes {
    wanted: Wanted,
    /// When each was first seen. None: it was told.
    known: BTreeMap<String, Option<Instant>>,
    tell: mpsc::UnboundedSender<Sighting>,
}

impl Notes {
    fn take(&mut self, pod: &Seen<'_>) {
        let (name, now) = (pod.metadata.name, Instant::now());
        let first = self.known.entry(name.to_owned()).or_insert(Some(now));
        if (self.wanted == Wanted::Waiting || pod.status.start_time.is_some())
            && let Some(at) = first.take()
        {
            // Nobody listens any more when the last was seen.
            let _ = self.tell.send(Sighting { name: name.to_owned(), at, wanted_at: now });
        }
    }
}

/// Pods as a list and a watch show them, each once.
pub struct Sightings {
    seen: mpsc::UnboundedReceiver<Sighting>,
    reading: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Drop for Sightings {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Sightings {
    /// Lists and watches a namespace, as every client does that must not miss anything: a watch that begins with what there is could not be
    /// taken up again if the server ended it in the middle of that.
    pub async fn begin(client: &Client, namespace: &str, wanted: Wanted) -> anyhow::Result<Self> {
        let selector = match wanted {
            Wanted::Waiting => "spec.nodeName%3D",
            Wanted::TakenIn => "spec.nodeName%21%3D",
        };
        let path = format!("/api/v1/namespaces/{namespace}/pods?fieldSelector={selector}");
        let (tell, seen) = mpsc::unbounded_channel();
        let mut notes = Notes { wanted, known: BTreeMap::new(), tell };
        let text = client.request_text(http::Request::get(&path).body(Vec::new())?).await.context("list pods")?;
        let list: List<'_> = serde_json::from_str(&text).context("read the list of pods")?;
        for pod in &list.items {
            notes.take(pod);
        }
        let mut version = list.metadata.version.to_owned();
        let mut lines = watch(client, &path, &version).await?;
        let client = client.clone();
        let reading = tokio::spawn(async move {
            loop {
                let Some(line) = lines.try_next().await? else {
                    // Servers end watches as they like; the next one goes on where this one ended.
                    tokio::time::sleep(AGAIN).await;
                    lines = watch(&client, &path, &version).await?;
                    continue;
                };
                let line: Line<'_> = serde_json::from_str(&line).context("read an event of the watch")?;
                anyhow::ensure!(line.kind != "ERROR", "the watch of pods fell too far behind");
                line.object.metadata.version.clone_into(&mut version);
                notes.take(&line.object);
            }
        });
        Ok(Self { seen, reading })
    }

    /// The next pod.
    pub async fn next(&mut self) -> anyhow::Result<Sighting> {
        match tokio::time::timeout(PATIENCE, self.seen.recv()).await {
            Ok(Some(seen)) => Ok(seen),
            Ok(None) => (&mut self.reading).await?.and_then(|()| Err(anyhow::anyhow!("the watch of pods ended"))),
            Err(_) => anyhow::bail!("no further pod was seen for {} s", PATIENCE.as_secs()),
        }
    }

    /// So many pods.
    pub async fn wait(&mut self, count: u32) -> anyhow::Result<Bound> {
        let mut bound = Bound { at: BTreeMap::new(), last: None };
        for _ in 0..count {
            let seen = self.next().await.with_context(|| format!("{} of {count} pods are bound", bound.at.len()))?;
            bound.at.insert(seen.name, seen.at);
            bound.last = Some(seen.wanted_at);
        }
        Ok(bound)
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::Arc};

    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;

    /// A server that ends every watch, by what it answers to a query; and what it was asked.
    fn server(answer: impl Fn(&str) -> String + Send + Clone + 'static) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let transport = tower::service_fn(move |request: http::Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let text = answer(&query);
            noted.lock().push(query);
            async move { Ok::<_, Infallible>(http::Response::new(Body::from(text.into_bytes()))) }
        });
        (Client::new(transport, "default"), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_misses_no_pod_when_the_server_ends_its_watch() {
        let pod = |name: &str, version: &str| json!({"metadata": {"name": name, "resourceVersion": version}});
        let (client, asked) = server(move |query| {
            let list = json!({"metadata": {"resourceVersion": "7"}, "items": [pod("b", "6"), pod("a", "3")]});
            let line = |pod: Value| format!("{}\n", json!({"type": "ADDED", "object": pod}));
            match query.split_once("&watch=true&resourceVersion=") {
                None => list.to_string(),
                Some((_, "7")) => line(pod("c", "8")),
                Some((_, "8")) => line(pod("a", "9")) + &line(pod("d", "10")),
                Some(_) => String::new(),
            }
        });
        let mut waiting = Sightings::begin(&client, "team", Wanted::Waiting).await.unwrap();
        let mut names = Vec::new();
        for _ in 0..4 {
            names.push(waiting.next().await.unwrap().name);
        }
        assert_eq!(names, ["b", "a", "c", "d"]);
        assert_eq!(asked.lock().len(), 3, "{asked:?}");
    }
}
