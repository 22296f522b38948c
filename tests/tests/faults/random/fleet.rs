//! Small fleets: ordinary machines with few GPUs, Jetsons, sliced time.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use kai_api::names::{node_labels, resources};
use kai_lab::{fleet::Fleet, seed::Seed};
use rand::{RngExt as _, rngs::StdRng};

use crate::world;

/// A fleet of one to four nodes.
pub fn draw(rng: &mut StdRng, seed: u64) -> Result<Fleet> {
    let kinds = ["t4x4", "t4x4", "dgx-h100", "thor", "thor:replicas=4", "t4x4:replicas=2"];
    let count = rng.random_range(1..=3_usize);
    let mut entries: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..count {
        *entries.entry(kinds[rng.random_range(0..kinds.len())]).or_default() += 1;
    }
    let list: Vec<String> =
        entries.iter().enumerate().map(|(index, (kind, count))| format!("{kind}:name=n{index}*{count}")).collect();
    let mut fleet = world::fleet(&list.join(","))?;
    fleet.seed = Seed(seed);
    for node in &mut fleet.nodes {
        let gpus = node.shape.devices.get_mut(resources::NVIDIA_GPU).context("every kind has GPUs")?;
        let keep = rng.random_range(1..=gpus.len().min(4));
        gpus.truncate(keep);
        if let Some(label) = node.shape.labels.get_mut(node_labels::GPU_COUNT) {
            *label = keep.to_string();
        }
    }
    Ok(fleet)
}
