//! A server and a few words to talk to it.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures::StreamExt;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, BodyStream};
use kai_apiserver::{ApiServer, Options};
use kai_clock::Clock;
use serde_json::{Value, json};
use tower::ServiceExt;

/// A server under test.
pub struct Server {
    pub api: ApiServer,
    router: Router,
}

/// An answer, parsed.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub body: Value,
    pub warnings: Vec<String>,
}

impl Answer {
    /// The body, if the code is as expected.
    #[track_caller]
    pub fn expect(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.body);
        self.body
    }
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(|_| {})
    }

    pub fn start_with(change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options::new(Clock::real());
        options.seed = Some(1);
        change(&mut options);
        let api = ApiServer::start(options);
        Self { router: api.router(), api }
    }

    pub async fn raw(&self, request: Request<Body>) -> Response<Body> {
        self.router.clone().oneshot(request).await.expect("a router never fails")
    }

    pub async fn request(&self, request: Request<Body>) -> Answer {
        let response = self.raw(request).await;
        let code = response.status().as_u16();
        let texts = response.headers().get_all(header::WARNING).iter().filter_map(|value| value.to_str().ok());
        let warnings = texts.map(str::to_owned).collect();
        let bytes = response.into_body().collect().await.expect("body").to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Answer { code, body, warnings }
    }

    pub async fn send(&self, method: Method, path: &str, body: &Value) -> Answer {
        self.send_as(method, path, "application/json", body.to_string()).await
    }

    pub async fn send_as(&self, method: Method, path: &str, media: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, media);
        self.request(request.body(body.into()).expect("request")).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.request(Request::get(path).body(Body::empty()).expect("request")).await
    }

    pub async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.request(Request::get(path).header(header::ACCEPT, accept).body(Body::empty()).expect("request")).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, body).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, body).await
    }

    pub async fn merge(&self, path: &str, body: &Value) -> Answer {
        self.send_as(Method::PATCH, path, "application/merge-patch+json", body.to_string()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.request(Request::delete(path).body(Body::empty()).expect("request")).await
    }

    pub async fn delete_with(&self, path: &str, options: &Value) -> Answer {
        self.send(Method::DELETE, path, options).await
    }

    pub async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, "application/json").await
    }

    pub async fn watch_as(&self, path: &str, accept: &str) -> Watch {
        let request = Request::get(path).header(header::ACCEPT, accept).body(Body::empty()).expect("request");
        let response = self.raw(request).await;
        assert_eq!(response.status(), 200);
        Watch { patience: Duration::from_secs(10), body: BodyStream::new(response.into_body()), lines: Vec::new() }
    }

    /// Waits until a path answers with a code.
    pub async fn until(&self, path: &str, code: u16) -> Value {
        for _ in 0..2000 {
            let answer = self.get(path).await;
            if answer.code == code {
                return answer.body;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{path} never answered {code}: {:?}", self.get(path).await);
    }
}

/// An open watch.
pub struct Watch {
    /// How long to wait for an event; in virtual time this may be long.
    pub patience: Duration,
    body: BodyStream<Body>,
    lines: Vec<Value>,
}

impl Watch {
    /// The next event; `None` at the end of the stream.
    pub async fn event(&mut self) -> Option<Value> {
        while self.lines.is_empty() {
            let next = tokio::time::timeout(self.patience, self.body.next()).await.expect("an event in time");
            let frame = next?.expect("frame").into_data().expect("data");
            let text = String::from_utf8(frame.to_vec()).expect("UTF-8");
            self.lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        }
        Some(self.lines.remove(0))
    }

    /// The next events as `TYPE name`.
    pub async fn next(&mut self, count: usize) -> Vec<String> {
        let mut events = Vec::new();
        for _ in 0..count {
            let Some(event) = self.event().await else { break };
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or("-").to_owned();
            events.push(format!("{} {name}", event["type"].as_str().unwrap_or_default()));
        }
        events
    }
}

pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A small pod.
pub fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]}})
}

/// A small config map.
pub fn map(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"a": "1"}})
}

/// A definition of widgets in versions v1 (stored) and v2.
pub fn widgets() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer"}, "color": {"type": "string"}, "replicas": {"type": "integer"}}},
        "status": {"type": "object", "properties": {
            "ready": {"type": "integer"}, "replicas": {"type": "integer"}, "selector": {"type": "string"}}}}}});
    let subresources = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}});
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage,
        "schema": schema, "subresources": subresources})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [version("v1", true), version("v2", false)]}})
}

/// A widget.
pub fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}})
}
