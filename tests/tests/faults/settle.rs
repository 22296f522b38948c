//! Waiting until nothing moves: no object changes and no process writes, for longer than any pause of the system.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kai_api::{BindRequest, PodGroup, Queue};
use kube::{Api, Client, Resource, ResourceExt as _, api::ListParams};
use serde::de::DeserializeOwned;

use crate::world::World;

/// Between two looks.
const LOOK: Duration = Duration::from_mins(4);
/// Looks without a change: longer than the longest pause after a refusal, ten minutes.
const STILL: u32 = 3;
/// Looks until it is called restless.
const MOST: u32 = 24;

type Versions = BTreeMap<String, String>;

/// Waits until nothing moves. An error says what does.
pub async fn settle(world: &mut World) -> Result<()> {
    let mut before = versions(&world.client).await?;
    let mut written = world.processes.write_count();
    let (mut still, mut last) = (0, Vec::new());
    let aloud = std::env::var_os("KAI_FAULT_SEED").is_some();
    for _ in 0..MOST {
        world.pass(LOOK).await;
        let after = versions(&world.client).await?;
        let writes = world.processes.write_count();
        let moved: Vec<String> = difference(&before, &after);
        if aloud {
            println!(
                "{} {writes} writes, requests {:?}, moved {moved:?}",
                world.lab.clock().now(),
                world.processes.all_requests()
            );
        }
        if moved.is_empty() && writes == written {
            still += 1;
            if still == STILL {
                return Ok(());
            }
        } else {
            still = 0;
            last = moved;
            if writes != written {
                last.push(format!("{} writes", writes - written));
                last.extend(newest(world));
            }
        }
        (before, written) = (after, writes);
    }
    anyhow::bail!("it does not come to rest within {MOST} looks; what moved last:\n  {}", last.join("\n  "))
}

/// The last writes of each process.
fn newest(world: &World) -> Vec<String> {
    let writes = world.processes.writes();
    let lines =
        writes.iter().flat_map(|(who, writes)| writes.iter().rev().take(6).map(move |write| format!("{who}: {write}")));
    lines.collect()
}

fn difference(before: &Versions, after: &Versions) -> Vec<String> {
    let changed = after.iter().filter(|(name, version)| before.get(*name) != Some(version));
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    changed.map(|(name, _)| name.clone()).chain(gone.map(|name| format!("{name} is gone"))).collect()
}

async fn versions(client: &Client) -> Result<Versions> {
    let mut versions = Versions::new();
    note::<Pod>(client, &mut versions).await?;
    note::<PodGroup>(client, &mut versions).await?;
    note::<BindRequest>(client, &mut versions).await?;
    note::<ConfigMap>(client, &mut versions).await?;
    note::<Queue>(client, &mut versions).await?;
    Ok(versions)
}

async fn note<K>(client: &Client, versions: &mut Versions) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    for object in api.list_metadata(&ListParams::default()).await?.items {
        let name = format!("{} {}/{}", K::kind(&()), object.namespace().unwrap_or_default(), object.name_any());
        versions.insert(name, object.resource_version().unwrap_or_default());
    }
    Ok(())
}
