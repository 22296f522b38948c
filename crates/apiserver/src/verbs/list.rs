//! GET of a collection: a snapshot, filtered, paged, and written from the stored bytes without parsing.

use std::ops::Bound;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::http::answer;
use crate::http::call::{Call, not_acceptable, partial};
use crate::http::negotiation::Form;
use crate::object::{Key, Object};
use crate::registry::Entry;
use crate::status::{ApiError, FieldError, Subject};
use crate::store::{Snapshot, within};
use crate::verbs::selection::Selection;

/// Bytes per piece of a long answer.
const CHUNK: usize = 256 * 1024;

/// What a continue token says, in the format of the real server.
#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    /// Revision of the first page; -1 for "whatever is there now".
    rv: i64,
    /// First key of the next page.
    start: String,
}

/// One page of a list.
struct Page {
    objects: Vec<Arc<Object>>,
    revision: u64,
    next: Option<String>,
    remaining: Option<usize>,
}

/// Answers with the selected objects.
pub(crate) fn list(call: &Call) -> Result<Response, ApiError> {
    let selection = Selection::of(call)?;
    let page = match page(call, &selection)? {
        Ok(page) => page,
        Err(expired) => return Ok(expired),
    };
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let Some(next) = &page.next {
        metadata["continue"] = json!(next);
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
    }
    match call.form {
        Form::Object => Ok(stream(Arc::clone(&call.entry), page.objects, &metadata)),
        Form::Table => {
            let values: Vec<Value> = page.objects.iter().map(|object| call.entry.served(object)).collect();
            Ok(answer::json(200, &call.table(&values.iter().collect::<Vec<_>>(), metadata)?))
        }
        Form::Partial => {
            let items: Vec<Value> = page.objects.iter().map(|object| partial(&call.entry.served(object))).collect();
            Ok(answer::json(
                200,
                &json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items,
                }),
            ))
        }
        Form::AggregatedDiscovery => Err(not_acceptable()),
    }
}

/// The list object around `items`, for answers that are small.
pub(crate) fn list_value(entry: &Entry, revision: u64, items: &[Value]) -> Value {
    json!({
        "kind": entry.resource.list_kind, "apiVersion": entry.api_version,
        "metadata": {"resourceVersion": revision.to_string()}, "items": items,
    })
}

fn page(call: &Call, selection: &Selection) -> Result<Result<Page, Response>, ApiError> {
    let options = ListOptions::of(call)?;
    let table = &*call.entry.storage.key;
    let (now, current) = call.core.store.snapshot(table);
    let (snapshot, revision, start) = match (&options.token, options.exact) {
        (Some(token), _) => {
            let start = Key::from_text(&token.start);
            match u64::try_from(token.rv) {
                Err(_) => (now, current, Some(start)),
                Ok(revision) => match call.core.store.snapshot_at(table, revision) {
                    Some(snapshot) => (snapshot, revision, Some(start)),
                    None => return Ok(Err(expired_token(&token.start))),
                },
            }
        }
        (None, Some(revision)) => match call.core.store.snapshot_at(table, revision) {
            Some(_) if revision > current => return Err(too_large(revision, current)),
            Some(snapshot) => (snapshot, revision, None),
            None => {
                let message = "The resourceVersion for the provided list is too old.";
                return Err(ApiError::expired(message));
            }
        },
        (None, None) if options.at_least > current => return Err(too_large(options.at_least, current)),
        (None, None) => (now, current, None),
    };
    Ok(Ok(select(&snapshot, revision, selection, start, options.limit)))
}

fn select(snapshot: &Snapshot, revision: u64, selection: &Selection, start: Option<Key>, limit: Option<usize>) -> Page {
    let everything = selection.is_everything();
    let limit = limit.unwrap_or(usize::MAX);
    let mut objects = Vec::new();
    let mut next = None;
    let mut rest = 0;
    let mut take = |object: &Arc<Object>| {
        if !everything && !selection.matches_within(object) {
            return true;
        }
        if objects.len() < limit {
            objects.push(Arc::clone(object));
            return true;
        }
        if next.is_none() {
            next = Some(object.key.as_str().to_owned());
        }
        rest += 1;
        // Counting what remains is cheap only when nothing has to be matched.
        everything
    };
    match (selection.namespace(), start) {
        (Some(namespace), None) => within(snapshot, namespace).all(|(_, object)| take(object)),
        (None, None) => snapshot.values().all(&mut take),
        (namespace, Some(start)) => snapshot
            .range((Bound::Included(start), Bound::Unbounded))
            .take_while(|(key, _)| namespace.is_none() || key.namespace() == namespace)
            .all(|(_, object)| take(object)),
    };
    let next = next.map(|start| token(i64::try_from(revision).unwrap_or(i64::MAX), start));
    Page { objects, revision, remaining: (everything && next.is_some()).then_some(rest), next }
}

fn token(rv: i64, start: String) -> String {
    let token = Token { v: "meta.k8s.io/v1".to_owned(), rv, start };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

/// 410 for a token whose revision is forgotten, with a token that goes on anyway.
fn expired_token(start: &str) -> Response {
    let error = ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
         the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
         Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
         deleted between the time the first chunk was returned and now may show up in the list.",
    );
    let mut status = error.to_status();
    status["metadata"] = json!({"continue": token(-1, start.to_owned())});
    answer::json(410, &status)
}

/// 504 for a revision from the future.
pub(crate) fn too_large(wanted: u64, current: u64) -> ApiError {
    ApiError {
        details: Some(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        })),
        ..ApiError::new(504, "Timeout", format!("Too large resource version: {wanted}, current: {current}"))
    }
}

/// Writes the list piece by piece, so that a long one is never in memory as a whole.
fn stream(entry: Arc<Entry>, objects: Vec<Arc<Object>>, metadata: &Value) -> Response {
    let kind = Value::from(entry.resource.list_kind.as_str());
    let api_version = Value::from(entry.api_version.as_str());
    let mut buffer =
        format!("{{\"kind\":{kind},\"apiVersion\":{api_version},\"metadata\":{metadata},\"items\":[").into_bytes();
    let mut objects = objects.into_iter().enumerate();
    let mut fill = move || {
        for (index, object) in objects.by_ref() {
            if index > 0 {
                buffer.push(b',');
            }
            write_item(&mut buffer, &entry, &object);
            if buffer.len() >= CHUNK {
                return Some((Bytes::from(std::mem::take(&mut buffer)), true));
            }
        }
        buffer.extend_from_slice(b"]}\n");
        Some((Bytes::from(std::mem::take(&mut buffer)), false))
    };
    let Some((first, more)) = fill() else { return answer::json_bytes(200, Body::empty()) };
    if !more {
        return answer::json_bytes(200, first);
    }
    let rest = std::iter::successors(Some((first, more)), move |(_, more)| if *more { fill() } else { None });
    let frames = rest.map(|(bytes, _)| Ok::<_, std::convert::Infallible>(bytes));
    answer::json_bytes(200, Body::from_stream(futures::stream::iter(frames)))
}

fn write_item(buffer: &mut Vec<u8>, entry: &Entry, object: &Object) {
    if entry.lists_members() {
        // Items of typed lists carry no type of their own.
        buffer.push(b'{');
        buffer.extend_from_slice(object.members());
    } else {
        buffer.extend_from_slice(&entry.served_bytes(object));
    }
}

/// The options of a list, checked.
struct ListOptions {
    limit: Option<usize>,
    token: Option<Token>,
    exact: Option<u64>,
    at_least: u64,
}

impl ListOptions {
    fn of(call: &Call) -> Result<Self, ApiError> {
        let query = &call.query;
        let version = query.text("resourceVersion");
        let continued = query.text("continue");
        let rule = query.text("resourceVersionMatch");
        let refuse = |why: &str| Err(invalid(&[FieldError::forbidden("resourceVersionMatch", why)]));
        if query.text("sendInitialEvents").is_some() {
            let why = "sendInitialEvents is forbidden for list";
            return Err(invalid(&[FieldError::forbidden("sendInitialEvents", why)]));
        }
        match (rule, version, continued) {
            (Some(_), _, Some(_)) => return refuse("resourceVersionMatch is forbidden when continue is provided"),
            (Some(_), None, _) => {
                return refuse("resourceVersionMatch is forbidden unless resourceVersion is provided");
            }
            (Some("Exact"), Some("0"), _) => {
                return refuse("resourceVersionMatch \"Exact\" is forbidden for resourceVersion \"0\"");
            }
            (Some("Exact" | "NotOlderThan") | None, _, _) => {}
            (Some(other), _, _) => {
                let supported = ["Exact", "NotOlderThan", ""];
                let error = FieldError::not_supported("resourceVersionMatch", &Value::from(other), &supported);
                return Err(invalid(&[error]));
            }
        }
        if continued.is_some() && version.is_some_and(|version| version != "0") {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        let revision = version.map(parse_revision).transpose()?;
        let mut limit =
            query.integer("limit")?.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
        if version == Some("0") && continued.is_none() {
            // The real server answers these from its cache, which does not page.
            limit = None;
        }
        // A version without a rule and with a limit is exact in the real server, else it is a lower bound.
        let exact = rule == Some("Exact") || (rule.is_none() && limit.is_some() && revision.is_some_and(|r| r > 0));
        let token = continued.map(parse_token).transpose()?;
        Ok(Self {
            limit,
            token,
            exact: if exact { revision } else { None },
            at_least: if exact { 0 } else { revision.unwrap_or(0) },
        })
    }
}

fn invalid(errors: &[FieldError]) -> ApiError {
    ApiError::invalid(Subject { group: "meta.k8s.io", resource: "", kind: "ListOptions", name: "" }, errors)
}

/// A resource version as a number.
pub(crate) fn parse_revision(text: &str) -> Result<u64, ApiError> {
    text.parse().map_err(|_| {
        let value = Value::from(text);
        let message =
            format!("resourceVersion: Invalid value: {value}: strconv.ParseUint: parsing {value}: invalid syntax");
        // The real server forgets to give this error a reason.
        ApiError::new(500, "", message)
    })
}

fn parse_token(text: &str) -> Result<Token, ApiError> {
    let token = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
    let token = token.and_then(|bytes| serde_json::from_slice::<Token>(&bytes).ok());
    match token {
        Some(token) if token.v == "meta.k8s.io/v1" && !token.start.is_empty() => Ok(token),
        _ => Err(ApiError::bad_request("continue key is not valid: the server did not issue this token")),
    }
}
