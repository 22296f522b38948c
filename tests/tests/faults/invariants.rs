//! What must be true of a cluster at rest, whatever happened to it before. One file per property; each looks at the facts alone.

mod devices;
mod facts;
mod gangs;
mod leaks;
mod places;
mod queues;
mod reasons;
mod reservations;
mod room;

use anyhow::Result;

pub use self::facts::{Facts, State};
use crate::world::World;

type Check = fn(&Facts) -> Vec<String>;

const ALL: &[(&str, Check)] = &[
    ("every pod runs, has ended or waits", places::check),
    ("who waits says truly why", reasons::check),
    ("one reservation per shared device, none without need", reservations::check),
    ("no device is given more than it has, and containers are told the right one", devices::check),
    ("nothing is left behind", leaks::check),
    ("gangs run whole or not at all", gangs::check),
    ("queues stay within their limits", queues::check),
];

/// Looks at everything; an error lists all that is not as it must be.
pub async fn check(world: &World) -> Result<Facts> {
    let facts = Facts::gather(world).await?;
    let broken: Vec<String> = ALL
        .iter()
        .flat_map(|(property, check)| check(&facts).into_iter().map(move |what| format!("[{property}] {what}")))
        .collect();
    if broken.is_empty() {
        return Ok(facts);
    }
    anyhow::bail!("{} violations:\n  {}\nthe facts:\n{}", broken.len(), broken.join("\n  "), facts.shown())
}
