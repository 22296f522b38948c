//! Watches: a stream of what happened to the selected objects, as lines of JSON.
//!
//! A watcher holds nothing but a revision. It is woken when its table has news, reads the events after its revision from the shared
//! history and copies their bytes into one frame. A watcher that is too slow for the bounded history gets a 410 and ends, so neither
//! slow nor idle watchers cost memory. An object that begins to match a selector is `ADDED` for that watcher, one that ceases to match is
//! `DELETED`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use kai_clock::Clock;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::http::call::partial;
use crate::http::negotiation::Form;
use crate::object::Object;
use crate::registry::Entry;
use crate::server::Core;
use crate::status::ApiError;
use crate::store::{Change, Event, News};
use crate::table::{self, IncludeObject};
use crate::verbs::list::too_large;
use crate::verbs::selection::Selection;

/// Time between bookmarks, as in the real server.
const BOOKMARK_PERIOD: Duration = Duration::from_mins(1);
/// Events read from the history at once.
const BATCH: usize = 512;
/// Bytes after which a frame is sent.
const FRAME: usize = 16 * 1024;

/// Where a watch begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Start {
    /// With every object there is, as `ADDED`; `announced`: then a bookmark that says so.
    State {
        /// Whether `sendInitialEvents` was asked for.
        announced: bool,
        /// The state must include this revision.
        at_least: u64,
    },
    /// With what happens from now on.
    Now,
    /// With what happened after a revision.
    After(u64),
}

/// Whether the client wants bookmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bookmarks {
    /// Now and then.
    Wanted,
    /// Never.
    Unwanted,
}

/// A watch to be opened.
pub(crate) struct Watch {
    pub core: Arc<Core>,
    pub selection: Selection,
    pub start: Start,
    pub timeout: Duration,
    pub bookmarks: Bookmarks,
    pub encoder: Encoder,
}

/// The lines of a watch, until its time is up, the server ends, or it falls too far behind.
pub(crate) fn events(watch: Watch) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let Watch { core, selection, start, timeout, bookmarks, mut encoder } = watch;
    let end = Instant::now() + timeout;
    let key = Arc::clone(&encoder.entry.storage.key);
    let bell = core.store.bell(&key);
    // The beginning is fixed now, not when the client begins to read.
    let (initial, mut cursor) = match start {
        Start::After(revision) => (None, revision),
        Start::Now => (None, core.store.revision()),
        Start::State { .. } => {
            let (objects, revision) = core.store.snapshot(&key);
            (Some(objects), revision)
        }
    };
    async_stream::stream! {
        let mut frame = Vec::new();
        if let (Some(objects), Start::State { announced, at_least }) = (initial, start) {
            if at_least > cursor {
                write_error(&mut frame, &too_large(at_least, cursor));
                yield Ok(Bytes::from(frame));
                return;
            }
            for object in objects.values().filter(|object| selection.matches(object)) {
                encoder.event(&mut frame, "ADDED", object);
                if frame.len() >= FRAME {
                    yield Ok(Bytes::from(std::mem::take(&mut frame)));
                }
            }
            if announced && bookmarks == Bookmarks::Wanted {
                encoder.bookmark(&mut frame, cursor, true);
            }
            if !frame.is_empty() {
                yield Ok(Bytes::from(std::mem::take(&mut frame)));
            }
        }
        let mut next_bookmark = Instant::now() + BOOKMARK_PERIOD;
        loop {
            let mut rung = std::pin::pin!(bell.notified());
            // Listens from here on, so that nothing that happens while reading is missed.
            rung.as_mut().enable();
            match core.store.news(&key, cursor, BATCH) {
                News::Gone => return,
                News::TooOld(floor) => {
                    let message = format!("too old resource version: {cursor} ({floor})");
                    write_error(&mut frame, &ApiError::expired(message));
                    yield Ok(Bytes::from(frame));
                    return;
                }
                News::Events(events, upto) => {
                    // A client that asks for the future waits until it is there.
                    cursor = cursor.max(upto);
                    let any = !events.is_empty();
                    let many = events.len() > 1;
                    for event in events {
                        if many && frame.is_empty() {
                            // At once what a frame needs: growing it step by step costs more than all else here.
                            frame.reserve(FRAME + FRAME / 4);
                        }
                        encoder.translate(&mut frame, &selection, &event);
                        if frame.len() >= FRAME {
                            yield Ok(Bytes::from(std::mem::take(&mut frame)));
                        }
                    }
                    if !frame.is_empty() {
                        yield Ok(Bytes::from(std::mem::take(&mut frame)));
                    }
                    if any {
                        continue;
                    }
                }
            }
            let bookmark_at = if bookmarks == Bookmarks::Wanted { next_bookmark.min(end) } else { end };
            tokio::select! {
                biased;
                () = core.cancel.cancelled() => return,
                () = rung => {}
                () = sleep_until(bookmark_at) => {
                    if bookmarks == Bookmarks::Wanted {
                        encoder.bookmark(&mut frame, cursor, false);
                        yield Ok(Bytes::from(std::mem::take(&mut frame)));
                        next_bookmark = Instant::now() + BOOKMARK_PERIOD;
                    }
                    if Instant::now() >= end {
                        return;
                    }
                }
            }
        }
    }
}

/// Writes events in the form a client asked for.
pub(crate) struct Encoder {
    entry: Arc<Entry>,
    form: Form,
    include: IncludeObject,
    clock: Clock,
    /// Tables carry their columns only once.
    columns_sent: bool,
}

impl Encoder {
    /// An encoder for one stream.
    pub fn new(entry: Arc<Entry>, form: Form, include: IncludeObject, clock: Clock) -> Self {
        Self { entry, form, include, clock, columns_sent: false }
    }

    /// Writes what an event means for somebody who sees only the selected objects.
    fn translate(&mut self, frame: &mut Vec<u8>, selection: &Selection, event: &Event) {
        let before = event.previous.as_ref().filter(|previous| selection.matches(previous));
        let after = event.change != Change::Deleted && selection.matches(&event.object);
        match (before, after) {
            (None, true) => self.event(frame, "ADDED", &event.object),
            (Some(_), true) => self.event(frame, "MODIFIED", &event.object),
            (Some(_), false) if event.change == Change::Deleted => self.event(frame, "DELETED", &event.object),
            // The last state that matched, at the revision of the change.
            (Some(previous), false) => self.event(frame, "DELETED", &previous.at(event.object.revision)),
            (None, false) => {}
        }
    }

    fn event(&mut self, frame: &mut Vec<u8>, kind: &str, object: &Object) {
        match self.form {
            Form::Table => {
                let value = self.entry.served(object);
                let metadata = json!({"resourceVersion": object.revision.to_string()});
                let mut table =
                    table::render(&self.entry.resource, &[&value], metadata, self.include, self.clock.now());
                if std::mem::replace(&mut self.columns_sent, true)
                    && let Some(table) = table.as_object_mut()
                {
                    table.insert("columnDefinitions".to_owned(), Value::Null);
                }
                write(frame, kind, table.to_string().as_bytes());
            }
            Form::Partial => write(frame, kind, partial(&self.entry.served(object)).to_string().as_bytes()),
            Form::Object | Form::AggregatedDiscovery => write(frame, kind, &self.entry.served_bytes(object)),
        }
    }

    fn bookmark(&self, frame: &mut Vec<u8>, revision: u64, initial_end: bool) {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.form {
            Form::Table => {
                let row = json!({"cells": [], "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}});
                json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": null, "rows": [row],
                    "metadata": {"resourceVersion": revision.to_string()}})
            }
            Form::Partial => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Form::Object | Form::AggregatedDiscovery => {
                let kind = &self.entry.resource.gvk.kind;
                json!({"kind": kind, "apiVersion": self.entry.api_version, "metadata": metadata})
            }
        };
        write(frame, "BOOKMARK", object.to_string().as_bytes());
    }
}

fn write_error(frame: &mut Vec<u8>, error: &ApiError) {
    write(frame, "ERROR", error.to_status().to_string().as_bytes());
}

fn write(frame: &mut Vec<u8>, kind: &str, object: &[u8]) {
    frame.reserve(object.len() + 40);
    frame.extend_from_slice(b"{\"type\":\"");
    frame.extend_from_slice(kind.as_bytes());
    frame.extend_from_slice(b"\",\"object\":");
    frame.extend_from_slice(object);
    frame.extend_from_slice(b"}\n");
}
