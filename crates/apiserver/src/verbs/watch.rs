//! GET with `watch`: where the stream begins and in which form it is written.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use serde_json::Value;

use crate::http::answer;
use crate::http::call::{Call, not_acceptable};
use crate::http::negotiation::{Form, include_object};
use crate::status::{ApiError, FieldError, Subject};
use crate::verbs::list::parse_revision;
use crate::verbs::selection::Selection;
use crate::watch::{Bookmarks, Encoder, Start, Watch, events};

/// How long a watch lives when the client does not say; the real server chooses between 30 and 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45 * 60);

/// Opens a watch.
pub(crate) fn watch(call: &Call) -> Result<Response, ApiError> {
    if call.form == Form::AggregatedDiscovery {
        return Err(not_acceptable());
    }
    let selection = Selection::of(call)?;
    let start = start(call)?;
    let timeout = call.query.integer("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
    let bookmarks = if call.query.flag("allowWatchBookmarks") { Bookmarks::Wanted } else { Bookmarks::Unwanted };
    let watch = Watch {
        core: Arc::clone(&call.core),
        selection,
        start,
        timeout: timeout.filter(|s| *s > 0).map_or(DEFAULT_TIMEOUT, Duration::from_secs),
        bookmarks,
        encoder: Encoder::new(
            Arc::clone(&call.entry),
            call.form,
            include_object(call.query.text("includeObject"))?,
            call.core.clock,
        ),
    };
    Ok(answer::json_bytes(200, Body::from_stream(events(watch))))
}

/// Reads where to begin.
fn start(call: &Call) -> Result<Start, ApiError> {
    let query = &call.query;
    let rule = query.text("resourceVersionMatch");
    let initial = query.text("sendInitialEvents").map(|_| query.flag("sendInitialEvents"));
    let refuse = |why: &str| Err(invalid(&[FieldError::forbidden("resourceVersionMatch", why)]));
    match (initial, rule) {
        (None, Some(_)) => {
            return refuse("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
        }
        (Some(_), None) => return refuse("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        (Some(_), Some(rule)) if rule != "NotOlderThan" => {
            let error = FieldError::not_supported("resourceVersionMatch", &Value::from(rule), &["NotOlderThan"]);
            return Err(invalid(&[error]));
        }
        _ => {}
    }
    let version = query.text("resourceVersion");
    // A list answers 400 to this; the real server's watch does not turn the error into a reason.
    let unreadable = |error: ApiError| ApiError { code: 500, reason: "", ..error };
    let revision = version.map(parse_revision).transpose().map_err(unreadable)?.unwrap_or(0);
    Ok(match (initial, revision) {
        (Some(true), at_least) => Start::State { announced: true, at_least },
        (None, 0) => Start::State { announced: false, at_least: 0 },
        (Some(false), 0) => Start::Now,
        (_, revision) => Start::After(revision),
    })
}

fn invalid(errors: &[FieldError]) -> ApiError {
    ApiError::invalid(Subject { group: "meta.k8s.io", resource: "", kind: "ListOptions", name: "" }, errors)
}
