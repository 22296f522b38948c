//! What containers have printed, and the kubelet's endpoint that serves it.
//!
//! Containers print little: that they started, which devices they see, how they ended. Enough for `kubectl logs` and for tests
//! that ask which device a container was given.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use jiff::{SignedDuration, Timestamp};
use kai_clock::Clock;
use parking_lot::Mutex;

/// Lines kept per container.
const MAX_LINES: usize = 200;

type PodKey = (String, String, String);

/// The logs of all nodes of a process. Cheap to clone; clones share the logs.
#[derive(Clone)]
pub struct Logs {
    clock: Clock,
    /// By node, namespace and pod.
    pods: Arc<Mutex<BTreeMap<PodKey, BTreeMap<String, ContainerLog>>>>,
}

#[derive(Clone, Debug, Default)]
struct ContainerLog {
    begun: bool,
    ended: bool,
    current: VecDeque<(Timestamp, String)>,
    previous: Option<VecDeque<(Timestamp, String)>>,
}

impl Logs {
    /// No logs yet.
    pub fn new(clock: Clock) -> Self {
        Self { clock, pods: Arc::default() }
    }

    /// A pod came: its containers have logs that have not begun.
    pub fn add_pod<'a>(&self, node: &str, namespace: &str, pod: &str, containers: impl Iterator<Item = &'a str>) {
        let logs = containers.map(|name| (name.to_owned(), ContainerLog::default())).collect();
        self.pods.lock().insert(key(node, namespace, pod), logs);
    }

    /// A pod is gone.
    pub fn remove_pod(&self, node: &str, namespace: &str, pod: &str) {
        self.pods.lock().remove(&key(node, namespace, pod));
    }

    /// A container began; what it printed before becomes the previous log.
    pub fn begin(&self, node: &str, namespace: &str, pod: &str, container: &str) {
        self.with(node, namespace, pod, container, |log| {
            if log.begun {
                log.previous = Some(std::mem::take(&mut log.current));
            }
            log.begun = true;
            log.ended = false;
        });
    }

    /// A container ended.
    pub fn end(&self, node: &str, namespace: &str, pod: &str, container: &str) {
        self.with(node, namespace, pod, container, |log| log.ended = true);
    }

    /// A container printed a line.
    pub fn print(&self, node: &str, namespace: &str, pod: &str, container: &str, line: String) {
        let now = self.clock.now();
        self.with(node, namespace, pod, container, |log| {
            if log.current.len() == MAX_LINES {
                log.current.pop_front();
            }
            log.current.push_back((now, line));
        });
    }

    /// The kubelet server of one node: `GET /containerLogs/{namespace}/{pod}/{container}`.
    pub fn router(&self, node: &str) -> Router {
        let state = (self.clone(), Arc::from(node));
        Router::new().route("/containerLogs/{namespace}/{pod}/{container}", get(serve)).with_state(state)
    }

    fn with(&self, node: &str, namespace: &str, pod: &str, container: &str, act: impl FnOnce(&mut ContainerLog)) {
        let mut pods = self.pods.lock();
        if let Some(log) = pods.get_mut(&key(node, namespace, pod)).and_then(|logs| logs.get_mut(container)) {
            act(log);
        }
    }
}

fn key(node: &str, namespace: &str, pod: &str) -> PodKey {
    (node.to_owned(), namespace.to_owned(), pod.to_owned())
}

/// What a caller may ask of a log.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Options {
    follow: Option<String>,
    previous: Option<String>,
    timestamps: Option<String>,
    tail_lines: Option<String>,
    limit_bytes: Option<String>,
    since_seconds: Option<String>,
    since_time: Option<String>,
}

/// The same, understood.
struct Wanted {
    follow: bool,
    previous: bool,
    timestamps: bool,
    tail: Option<usize>,
    limit: Option<usize>,
    since: Option<Timestamp>,
}

impl Options {
    fn understand(&self, now: Timestamp) -> Option<Wanted> {
        let flag =
            |text: &Option<String>| text.as_deref().is_some_and(|text| matches!(text, "" | "true" | "1" | "True"));
        let number = |text: &Option<String>| match text.as_deref() {
            None | Some("" | "all") => Some(None),
            Some(text) => text.parse::<u32>().ok().map(|number| Some(number as usize)),
        };
        let since_seconds = match self.since_seconds.as_deref() {
            None | Some("") => None,
            Some(text) => Some(now - SignedDuration::from_secs(i64::from(text.parse::<u32>().ok()?))),
        };
        let since_time = match self.since_time.as_deref() {
            None | Some("") => None,
            Some(text) => Some(text.parse().ok()?),
        };
        Some(Wanted {
            follow: flag(&self.follow),
            previous: flag(&self.previous),
            timestamps: flag(&self.timestamps),
            tail: number(&self.tail_lines)?,
            limit: number(&self.limit_bytes)?,
            since: since_seconds.or(since_time),
        })
    }
}

type Server = (Logs, Arc<str>);

async fn serve(
    State((logs, node)): State<Server>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    Query(options): Query<Options>,
) -> Response {
    let Some(wanted) = options.understand(logs.clock.now()) else {
        return (StatusCode::UNPROCESSABLE_ENTITY, r#"{"message": "Invalid request."}"#).into_response();
    };
    let pod_key = key(&node, &namespace, &pod);
    let lines = {
        let pods = logs.pods.lock();
        let Some(containers) = pods.get(&pod_key) else {
            return (StatusCode::NOT_FOUND, format!("pod {pod:?} does not exist")).into_response();
        };
        let Some(log) = containers.get(&container) else {
            let text = format!("container {container:?} not found in pod {pod:?}");
            return (StatusCode::NOT_FOUND, text).into_response();
        };
        match (wanted.previous, &log.previous) {
            (true, None) => {
                let text = format!("previous terminated container {container:?} in pod {pod:?} not found");
                return (StatusCode::BAD_REQUEST, text).into_response();
            }
            (true, Some(previous)) => previous.clone(),
            (false, _) if !log.begun => {
                let text = format!("container {container:?} in pod {pod:?} is waiting to start: ContainerCreating");
                return (StatusCode::BAD_REQUEST, text).into_response();
            }
            (false, _) => log.current.clone(),
        }
    };
    let since = wanted.since.unwrap_or(Timestamp::MIN);
    let recent: Vec<&(Timestamp, String)> = lines.iter().filter(|(time, _)| *time >= since).collect();
    let skipped = recent.len().saturating_sub(wanted.tail.unwrap_or(usize::MAX));
    let mut text: String = recent.iter().skip(skipped).map(|line| render(line, wanted.timestamps)).collect();
    if let Some(limit) = wanted.limit {
        let end = (0..=limit.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    if wanted.follow && !wanted.previous {
        let seen = lines.back().map_or(Timestamp::MIN, |(time, _)| *time);
        return follow(logs, pod_key, container, wanted.timestamps, text, seen).into_response();
    }
    text.into_response()
}

fn render((time, line): &(Timestamp, String), timestamps: bool) -> String {
    if timestamps { format!("{time:.9} {line}\n") } else { format!("{line}\n") }
}

/// Streams new lines until the container ends or its pod goes.
fn follow(logs: Logs, pod: PodKey, container: String, timestamps: bool, first: String, seen: Timestamp) -> Body {
    let state = (logs, seen, Some(first), false);
    Body::from_stream(futures::stream::unfold(state, move |(logs, seen, first, over)| {
        let (pod, container) = (pod.clone(), container.clone());
        async move {
            if let Some(text) = first.filter(|text| !text.is_empty()) {
                return Some((Ok::<_, std::convert::Infallible>(text), (logs, seen, None, over)));
            }
            if over {
                return None;
            }
            loop {
                let (text, newest, ended) = {
                    let pods = logs.pods.lock();
                    let log = pods.get(&pod).and_then(|containers| containers.get(&container))?;
                    let fresh = || log.current.iter().filter(|(time, _)| *time > seen);
                    let text: String = fresh().map(|line| render(line, timestamps)).collect();
                    (text, fresh().map(|(time, _)| *time).max().unwrap_or(seen), log.ended)
                };
                if !text.is_empty() {
                    return Some((Ok(text), (logs, newest, None, ended)));
                }
                if ended {
                    return None;
                }
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    async fn ask(logs: &Logs, path: &str) -> (u16, String) {
        let request = http::Request::get(path).body(Body::empty()).unwrap();
        let response = logs.router("n").oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn some_logs() -> Logs {
        let logs = Logs::new(Clock::starting_at(Timestamp::UNIX_EPOCH));
        logs.add_pod("n", "ns", "p", ["main", "later"].into_iter());
        logs.begin("n", "ns", "p", "main");
        for number in 0..3 {
            logs.print("n", "ns", "p", "main", format!("line {number}"));
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        logs
    }

    #[tokio::test(start_paused = true)]
    async fn lines_are_served_with_the_usual_options() {
        let logs = some_logs().await;
        let path = "/containerLogs/ns/p/main";
        assert_eq!(ask(&logs, path).await, (200, "line 0\nline 1\nline 2\n".into()));
        assert_eq!(ask(&logs, &format!("{path}?tailLines=1")).await.1, "line 2\n");
        assert_eq!(ask(&logs, &format!("{path}?sinceSeconds=15")).await.1, "line 2\n");
        assert_eq!(ask(&logs, &format!("{path}?limitBytes=4")).await.1, "line");
        let stamped = ask(&logs, &format!("{path}?timestamps=true&tailLines=1")).await.1;
        assert_eq!(stamped, "1970-01-01T00:00:20.000000000Z line 2\n");
        assert_eq!(ask(&logs, &format!("{path}?tailLines=x")).await.0, 422);
    }

    #[tokio::test(start_paused = true)]
    async fn absent_logs_are_refused_as_a_kubelet_does() {
        let logs = some_logs().await;
        assert_eq!(ask(&logs, "/containerLogs/ns/q/main").await, (404, "pod \"q\" does not exist".into()));
        assert_eq!(ask(&logs, "/containerLogs/ns/p/x").await.0, 404);
        assert_eq!(ask(&logs, "/containerLogs/ns/p/later").await.0, 400);
        assert_eq!(ask(&logs, "/containerLogs/ns/p/main?previous=true").await.0, 400);
        logs.begin("n", "ns", "p", "main");
        assert_eq!(ask(&logs, "/containerLogs/ns/p/main?previous=true&tailLines=1").await.1, "line 2\n");
    }

    #[tokio::test(start_paused = true)]
    async fn following_ends_when_the_container_ends() {
        let logs = some_logs().await;
        let writer = logs.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(30)).await;
            writer.print("n", "ns", "p", "main", "bye".to_owned());
            writer.end("n", "ns", "p", "main");
        });
        assert_eq!(ask(&logs, "/containerLogs/ns/p/main?follow=true&tailLines=1").await.1, "line 2\nbye\n");
    }
}
