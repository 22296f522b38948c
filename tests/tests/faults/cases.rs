//! The cases that a fault suite must name: many at once, nodes that go or change, an API server that is away, two schedulers, a bind
//! that is always refused. Each says what users read about it.

mod api_server;
mod load;
mod nodes;
mod refusal;
mod reservations;
mod rivals;
mod words;

use std::time::Duration;

use anyhow::Result;

use crate::{
    invariants::{self, Facts},
    settle::settle,
    world::World,
};

/// Brings the world to rest and checks everything.
async fn at_rest(world: &mut World) -> Result<Facts> {
    settle(world).await?;
    invariants::check(world).await
}

/// Whether somebody was told something that contains all these words, about an object whose name begins so.
fn told(facts: &Facts, about: &str, words: &[&str]) -> bool {
    facts.events.iter().any(|event| {
        let name = event.involved_object.name.as_deref().unwrap_or_default();
        let message = event.message.as_deref().unwrap_or_default();
        name.starts_with(about) && words.iter().all(|word| message.contains(word))
    })
}

/// A minute or so.
const A_WHILE: Duration = Duration::from_mins(1);
