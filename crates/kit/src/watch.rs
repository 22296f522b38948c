//! A watch that never ends: lists, watches, and after any trouble does so again with growing pauses.
//!
//! Each event is given to a function at once and in order; nothing is kept here.

use std::{fmt::Debug, time::Duration};

use futures::StreamExt as _;
use kube::{
    Api, Resource,
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::{backoff::Backoff, health::Health, lean::Lean};

const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
/// A watch that was taken up again says nothing until something changes. After so long without an error it is taken to be there.
const CALM: Duration = Duration::from_secs(15);

/// What a watch tells.
#[derive(Clone, Debug)]
pub enum News<K> {
    /// A list begins: what is not in it is gone.
    Begin,
    /// An object of the list.
    Listed(K),
    /// The list is complete.
    Complete,
    /// An object is new or changed.
    Applied(K),
    /// An object is gone.
    Deleted(K),
}

/// Watches until cancelled. `name` is the condition in `health`: it holds from the first complete list on, while the watch answers.
pub async fn run<K>(
    api: Api<Lean<K>>,
    config: watcher::Config,
    name: String,
    health: Health,
    cancel: CancellationToken,
    mut tell: impl FnMut(News<K>),
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    health.not_ready(&name, "not listed yet");
    let mut failures = 0;
    let mut listing = true;
    let mut events = std::pin::pin!(watcher::watcher(api, config));
    loop {
        let event = tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            event = events.next() => event,
            () = tokio::time::sleep(CALM), if failures > 0 && !listing => {
                failures = 0;
                health.ready(&name);
                continue;
            }
        };
        match event {
            Some(Ok(event)) => {
                // A list begins before the server has answered: only what it sends proves that it is there.
                if !matches!(event, Event::Init) {
                    failures = 0;
                }
                listing = matches!(event, Event::Init | Event::InitApply(_));
                let listed = matches!(event, Event::InitDone | Event::Apply(_) | Event::Delete(_));
                tell(match event {
                    Event::Init => News::Begin,
                    Event::InitApply(object) => News::Listed(object.0),
                    Event::InitDone => News::Complete,
                    Event::Apply(object) => News::Applied(object.0),
                    Event::Delete(object) => News::Deleted(object.0),
                });
                if listed {
                    health.ready(&name);
                }
            }
            Some(Err(error)) => {
                failures += 1;
                // A watch that ended is taken up again from where it was: that is ordinary life.
                if failures > 1 {
                    health.not_ready(&name, error.to_string());
                }
                tracing::debug!(%error, %name, failures, "watch interrupted");
                tokio::select! {
                    () = cancel.cancelled() => return,
                    () = tokio::time::sleep(PAUSES.after(failures)) => {}
                }
            }
            None => return,
        }
    }
}
