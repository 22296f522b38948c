//! The nodes of the suite: some for each case, marked with its name.

use std::time::Duration;

use anyhow::Result;
use kai_lab::fleet::{Fleet, Span};

/// The label by which a case's pods find its nodes.
pub const CASE: &str = "kai.test/case";
/// The label of racks, for topology.
pub const RACK: &str = "kai.test/rack";

/// A case and its nodes.
const NODES: &[(&str, &str)] = &[
    ("ubuntu", "thor"),
    ("sliced", "thor:replicas=100"),
    ("uncounted", "thor:replicas=100:without=gpu.count"),
    ("fraction", "t4x4"),
    ("memory", "t4x4"),
    ("several", "t4x4"),
    ("mig", "a100-mig"),
    ("claim", "kai-e2e"),
    ("gang", "t4x4*4"),
    ("reclaim", "t4x4"),
    ("racks", "t4x4*4"),
    ("takeover", "t4x4"),
    ("restart", "t4x4"),
    ("mourned", "t4x4"),
    ("deleted", "t4x4"),
    ("bad", "t4x4"),
    ("lots", "t4x4"),
];

/// Quick nodes with the labels of the cases.
pub fn fleet() -> Result<Fleet> {
    let list: Vec<String> = NODES
        .iter()
        .map(|(case, preset)| {
            let (preset, count) = preset.split_once('*').map_or((*preset, ""), |(preset, count)| (preset, count));
            let count = if count.is_empty() { String::new() } else { format!("*{count}") };
            format!("{preset}:name={case}{count}")
        })
        .collect();
    let mut fleet = Fleet::parse(&list.join(","))?;
    for node in &mut fleet.nodes {
        let (case, number) = node.name.rsplit_once('-').unwrap_or((&node.name, "0"));
        node.labels.insert(CASE.to_owned(), case.to_owned());
        match case {
            // As the owners of a Thor must label it: NVML does not know its memory.
            "ubuntu" | "sliced" | "uncounted" => {
                node.labels.insert("nvidia.com/gpu.memory".to_owned(), "131072".to_owned());
            }
            "lots" => {
                node.labels.insert("nvidia.com/gpu.memory".to_owned(), "lots".to_owned());
            }
            "racks" => {
                let rack = if matches!(number, "0" | "1") { "north" } else { "south" };
                node.labels.insert(RACK.to_owned(), rack.to_owned());
            }
            _ => {}
        }
        node.delays.start = Span { from: Duration::from_millis(20), to: Duration::from_millis(60) };
        node.delays.stop = Span { from: Duration::from_millis(20), to: Duration::from_millis(60) };
    }
    Ok(fleet)
}
