//! From an HTTP request to a verb and back.
//!
//! There is one handler: it reads the path, answers the server's own documents itself, and hands resource requests with their
//! body, query and negotiated form to [`crate::verbs`] as a [`Call`].

pub mod answer;
pub mod call;
pub mod decode;
mod documents;
pub mod negotiation;
pub mod path;
pub mod query;

use std::any::Any;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, Method, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tower_http::catch_panic::CatchPanicLayer;

use self::call::Call;
use self::decode::BODY_LIMIT;
use self::path::{Path, ResourcePath};
use self::query::Query;
use crate::admission::UserInfo;
use crate::registry::Entry;
use crate::resource::{Origin, Scope};
use crate::server::ApiServer;
use crate::status::ApiError;
use crate::verbs;

/// The whole API as a router.
pub(crate) fn router(server: ApiServer) -> Router {
    Router::new().fallback(serve).with_state(server).layer(CatchPanicLayer::custom(panicked))
}

#[expect(clippy::needless_pass_by_value, reason = "the layer hands the payload over")]
fn panicked(payload: Box<dyn Any + Send + 'static>) -> Response {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
    tracing::error!(panic = text, "a request panicked");
    answer::error(&ApiError::internal("the request could not be handled"))
}

async fn serve(State(server): State<ApiServer>, request: Request) -> Response {
    match path::parse(request.uri().path()) {
        Path::Resource(path) => {
            let head = *request.method() == Method::HEAD;
            let response = resource(&server, path, request).await.unwrap_or_else(|error| answer::error(&error));
            // No resource has the verb, but the body of its refusal is not for HEAD to send.
            if head { response.map(|_| Body::empty()) } else { response }
        }
        Path::Other(segments) => documents::serve(&server, &segments, &request),
    }
}

async fn resource(server: &ApiServer, path: ResourcePath, request: Request) -> Result<Response, ApiError> {
    let registry = server.core().registry();
    let Some(entry) = registry.find(&path.group, &path.version, &path.plural) else {
        return Ok(answer::unknown_resource(registry.is_builtin_version(&path.group, &path.version)));
    };
    let misplaced = match entry.resource.scope {
        Scope::Cluster => path.namespace.is_some(),
        Scope::Namespaced => path.namespace.is_none() && path.name.is_some(),
    };
    if misplaced {
        return Ok(answer::unknown_resource(entry.is_builtin()));
    }
    let (parts, body) = request.into_parts();
    let form = negotiation::negotiate(text(&parts.headers, header::ACCEPT))?;
    let body = read(body, &parts.headers).await?;
    let call = Call {
        core: Arc::clone(server.core()),
        entry: Arc::clone(entry),
        path,
        query: Query::parse(parts.uri.query()),
        user: user(&parts.headers),
        headers: parts.headers,
        body,
        form,
        warnings: deprecation(entry),
    };
    verbs::dispatch(call, &parts.method).await
}

/// The warning that comes with every answer of a deprecated version.
fn deprecation(entry: &Entry) -> Vec<String> {
    match &entry.resource.origin {
        Origin::Custom { deprecation, .. } => deprecation.iter().cloned().collect(),
        Origin::BuiltIn => Vec::new(),
    }
}

async fn read(body: Body, headers: &HeaderMap) -> Result<Bytes, ApiError> {
    let too_large = || ApiError::too_large(format!("Request entity too large: limit is {BODY_LIMIT}"));
    let announced = text(headers, header::CONTENT_LENGTH).and_then(|text| text.parse::<usize>().ok());
    if announced.is_some_and(|length| length > BODY_LIMIT) {
        return Err(too_large());
    }
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(ApiError::bad_request(format!("unable to read request body: {error}"))),
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Everybody is the administrator, unless they ask to be somebody else.
pub(crate) fn user(headers: &HeaderMap) -> UserInfo {
    let values = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
    };
    match values("impersonate-user").into_iter().next() {
        Some(username) => {
            let mut groups = values("impersonate-group");
            groups.push("system:authenticated".to_owned());
            UserInfo { username, groups }
        }
        None => UserInfo {
            username: "kubernetes-admin".to_owned(),
            groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
        },
    }
}
