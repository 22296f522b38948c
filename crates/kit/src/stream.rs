//! What a server tells of one kind: a list in pages, then changes line by line, taken up again where it ended.
//!
//! ```text
//!  unlisted ─▶ listing (page by page) ─▶ listed ─▶ watching (chunk by chunk)
//!      ▲────────── 410 Gone ───────────────┴─────◀─────┘ the answer ended
//! ```
//!
//! Objects are handed on as text: whoever hears of them knows best how much of it to read.

use std::{pin::Pin, time::Duration};

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use http::{HeaderValue, header::ACCEPT_ENCODING};
use kube::{
    Api, Client, Resource,
    api::{ListParams, WatchParams},
    core::{Request, Status},
    runtime::watcher,
};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The server ends a watch by itself after less. One that says nothing for longer is dead.
const LONGEST_SILENCE: Duration = Duration::from_mins(5);
/// What the server calls a version that it no longer knows.
const GONE: u16 = 410;

/// Hears what a stream tells.
pub(crate) trait Ear {
    /// A list begins: what is not in it is gone.
    fn begin(&mut self);

    /// An object of the list.
    fn listed(&mut self, object: &str) -> Result<(), serde_json::Error>;

    /// The list is complete.
    fn complete(&mut self);

    /// A line of a watch.
    fn line(&mut self, line: &str) -> Result<Line, serde_json::Error>;

    /// How long to wait for more once all that has come is read: for nothing, but in a crowd many lines read at once cost less.
    fn pause(&self) -> Option<Duration> {
        None
    }
}

/// What a line of a watch says.
#[derive(Debug)]
pub(crate) enum Line {
    /// Everything up to this version was told.
    Version(String),
    /// Something is wrong.
    Failed(Box<Status>),
}

/// How far a step came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A list is to be asked for.
    Begun,
    /// A page of it came.
    Page,
    /// The list is complete, or something has changed since.
    Told,
    /// A watch was asked for or has ended: nothing was told.
    Silent,
}

/// Why a step failed. The next one goes on from where that is possible.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0}")]
    Asked(#[from] kube::Error),
    #[error("{0}")]
    Request(#[from] kube::core::request::Error),
    #[error("{}: {}", .0.reason, .0.message)]
    Told(Box<Status>),
    #[error("an answer that cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    #[error("an answer that is no text: {0}")]
    Text(#[from] std::str::Utf8Error),
    #[error("the watch broke off: {0}")]
    Broken(std::io::Error),
    #[error("the watch ended before it told anything")]
    Empty,
    #[error("a list without a version")]
    NoVersion,
}

type Body = Pin<Box<dyn AsyncBufRead + Send>>;

enum State {
    Unlisted,
    Listing {
        /// Where the next page begins.
        token: Option<String>,
    },
    Listed {
        version: String,
    },
    Watching {
        version: String,
        body: Body,
        /// The beginning of a line whose end is still to come.
        begun: Vec<u8>,
        /// Whether anything was told.
        told: bool,
    },
}

/// The stream of one kind.
pub(crate) struct Stream {
    client: Client,
    request: Request,
    config: watcher::Config,
    state: State,
}

/// One page of a list.
#[derive(Deserialize)]
struct Page<'a> {
    metadata: PageMetadata,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMetadata {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    token: Option<String>,
}

impl Stream {
    /// A stream of what `api` leads to.
    pub(crate) fn new<K: Resource>(api: Api<K>, config: watcher::Config) -> Self {
        let request = Request::new(api.resource_url());
        Self { client: api.into_client(), request, config, state: State::Unlisted }
    }

    /// Whether a watch was asked for and is answered.
    pub(crate) fn is_watching(&self) -> bool {
        matches!(self.state, State::Watching { .. })
    }

    /// Goes on by one answer, or by one piece of it. May be dropped before it is done: nothing is lost.
    pub(crate) async fn step(&mut self, ear: &mut impl Ear) -> Result<Step, Error> {
        match &mut self.state {
            State::Unlisted => {
                ear.begin();
                self.state = State::Listing { token: None };
                Ok(Step::Begun)
            }
            State::Listing { token } => {
                let token = token.clone();
                let page = self.page(token, ear).await;
                if page.is_err() {
                    self.state = State::Unlisted;
                }
                page
            }
            State::Listed { version } => {
                let version = version.clone();
                self.watch(version).await
            }
            State::Watching { .. } => self.read(ear).await,
        }
    }

    async fn page(&mut self, token: Option<String>, ear: &mut impl Ear) -> Result<Step, Error> {
        let params = ListParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            limit: self.config.page_size,
            continue_token: token,
            ..ListParams::default()
        };
        let text = self.client.request_text(self.request.list(&params)?).await?;
        let page: Page<'_> = serde_json::from_str(&text)?;
        for object in page.items.iter().flatten() {
            ear.listed(object.get())?;
        }
        let some = |text: Option<String>| text.filter(|text| !text.is_empty());
        if let Some(token) = some(page.metadata.token) {
            self.state = State::Listing { token: Some(token) };
            return Ok(Step::Page);
        }
        let version = some(page.metadata.resource_version).ok_or(Error::NoVersion)?;
        ear.complete();
        self.state = State::Listed { version };
        Ok(Step::Told)
    }

    async fn watch(&mut self, version: String) -> Result<Step, Error> {
        let params = WatchParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            timeout: self.config.timeout,
            bookmarks: true,
            ..WatchParams::default()
        };
        let mut request = self.request.watch(&params, &version)?;
        // Compressed pieces would have to be waited for.
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        match self.client.request_stream(request).await {
            Ok(body) => {
                let (body, begun): (Body, _) = (Box::pin(body), Vec::new());
                self.state = State::Watching { version, body, begun, told: false };
                Ok(Step::Silent)
            }
            Err(error) => {
                if matches!(&error, kube::Error::Api(status) if status.code == GONE) {
                    self.state = State::Unlisted;
                }
                Err(error.into())
            }
        }
    }

    /// Reads what has come of the answer to a watch.
    async fn read(&mut self, ear: &mut impl Ear) -> Result<Step, Error> {
        let State::Watching { version, body, begun, told } = &mut self.state else { return Ok(Step::Silent) };
        let chunk = match tokio::time::timeout(LONGEST_SILENCE, body.fill_buf()).await {
            Ok(chunk) => chunk.map_err(Error::Broken),
            Err(_) => Ok(&[][..]),
        };
        let end = match chunk {
            Ok([]) if *told => Ok(Step::Silent),
            Ok([]) => Err(Error::Empty),
            Err(error) => Err(error),
            Ok(chunk) => {
                *told = true;
                let (length, outcome) = lines(chunk, begun, version, ear);
                body.consume_unpin(length);
                if matches!(&outcome, Err(Error::Told(status)) if status.code == GONE) {
                    self.state = State::Unlisted;
                }
                return outcome.map(|()| Step::Told);
            }
        };
        self.state = State::Listed { version: std::mem::take(version) };
        end
    }
}

/// Hands on the lines of a chunk, up to the first that is not understood; and how much of the chunk that was.
fn lines(chunk: &[u8], begun: &mut Vec<u8>, version: &mut String, ear: &mut impl Ear) -> (usize, Result<(), Error>) {
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', chunk) {
        let part = chunk.get(start..end).unwrap_or_default();
        start = end + 1;
        let outcome = if begun.is_empty() {
            line(part, version, ear)
        } else {
            begun.extend_from_slice(part);
            let outcome = line(begun, version, ear);
            begun.clear();
            outcome
        };
        if outcome.is_err() {
            return (start, outcome);
        }
    }
    begun.extend_from_slice(chunk.get(start..).unwrap_or_default());
    (chunk.len(), Ok(()))
}

fn line(line: &[u8], version: &mut String, ear: &mut impl Ear) -> Result<(), Error> {
    match ear.line(std::str::from_utf8(line)?)? {
        Line::Version(reached) if reached.is_empty() => Err(Error::NoVersion),
        Line::Version(reached) => {
            *version = reached;
            Ok(())
        }
        Line::Failed(status) => Err(Error::Told(status)),
    }
}

#[cfg(test)]
mod tests;
