//! Which nodes there are and how they behave: from a list of presets (`dgx-h100,thor*3,cpu`) or a YAML file.
//!
//! A fleet is fully expanded when it exists: every node has its name, shape and delays, and nothing later can fail on it. Bad
//! input is refused here with the place, the problem and a remedy.

mod file;
mod span;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

pub use self::span::{Span, parse_duration};
use crate::{
    faults::{ApiFault, NodeFault},
    preset::{self, Replicas, Shape},
    seed::Seed,
};

/// Most nodes a fleet may have: what the simulated address ranges hold.
pub const MAX_NODES: usize = 16_384;

/// The seed of a fleet that names none.
pub const DEFAULT_SEED: Seed = Seed(1);

/// Nodes ready to be simulated.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// Where all chance comes from.
    pub seed: Seed,
    /// The nodes, in order; their position decides their addresses.
    pub nodes: Vec<NodeSpec>,
    /// Faults of API calls.
    pub api_faults: Vec<ApiFault>,
    /// Faults of nodes at given times.
    pub node_faults: Vec<NodeFault>,
}

/// One node of a fleet.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    /// Node name.
    pub name: String,
    /// Kind of machine.
    pub shape: Shape,
    /// Labels that come on top of the shape's.
    pub labels: BTreeMap<String, String>,
    /// Taints the kubelet registers with.
    pub taints: Vec<Taint>,
    /// Capacity overrides and extra resources, as quantities.
    pub resources: BTreeMap<String, String>,
    /// Time-slicing replicas of each device.
    pub replicas: Replicas,
    /// How long things take on this node.
    pub delays: Delays,
    /// Time between two lease renewals.
    pub heartbeat: Duration,
    /// Time between two reports of an unchanged node status.
    pub status_interval: Duration,
}

/// A node taint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value, may be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// How long each part of a pod's life takes unless its annotations say otherwise (see [`crate::names`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// Image pull; zero means the image is on the machine.
    pub pull: Span,
    /// Sandbox and container start.
    pub start: Span,
    /// From started to ready.
    pub ready: Span,
    /// Each init container.
    pub init: Span,
    /// Containers of pods that end by themselves.
    pub run: Span,
    /// From SIGTERM to the end of a container.
    pub stop: Span,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            pull: Span::fixed(Duration::ZERO),
            start: Span { from: Duration::from_millis(500), to: Duration::from_millis(1500) },
            ready: Span::fixed(Duration::ZERO),
            init: Span::fixed(Duration::from_millis(500)),
            run: Span::fixed(Duration::from_secs(5)),
            stop: Span { from: Duration::from_millis(100), to: Duration::from_millis(500) },
        }
    }
}

/// Why a fleet was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {field}: {problem}\nhint: {hint}")]
pub struct FleetError {
    /// The file or list.
    pub place: String,
    /// The field or list entry.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to write instead.
    pub hint: String,
}

/// Nodes of one kind before they get names.
#[derive(Clone, Debug)]
struct Group {
    preset: String,
    count: usize,
    name: Option<String>,
    replicas: u32,
    labels: BTreeMap<String, String>,
    /// Labels of the shape that the nodes do not have.
    without: Vec<String>,
    taints: Vec<Taint>,
    resources: BTreeMap<String, String>,
    delays: Delays,
    heartbeat: Duration,
    status_interval: Duration,
}

impl Group {
    fn of(preset: &str) -> Self {
        Self {
            preset: preset.to_owned(),
            count: 1,
            name: None,
            replicas: 1,
            labels: BTreeMap::new(),
            without: Vec::new(),
            taints: Vec::new(),
            resources: BTreeMap::new(),
            delays: Delays::default(),
            heartbeat: Duration::from_secs(10),
            status_interval: Duration::from_mins(5),
        }
    }
}

impl Fleet {
    /// A fleet from what a user wrote after `--fleet`: a path (has a `/` or ends in `.yaml`, `.yml` or `.json`) or a preset list.
    pub fn load(text: &str) -> Result<Self, FleetError> {
        let is_path = text.contains('/') || [".yaml", ".yml", ".json"].iter().any(|ending| text.ends_with(ending));
        if is_path { Self::from_file(Path::new(text)) } else { Self::parse(text) }
    }

    /// A fleet from a list such as `dgx-h100,thor:replicas=4*3,cpu:name=login`.
    pub fn parse(list: &str) -> Result<Self, FleetError> {
        let place = format!("fleet `{list}`");
        let groups = list
            .split(',')
            .map(|entry| parse_entry(&place, entry.trim()))
            .collect::<Result<Vec<Group>, FleetError>>()?;
        let named = groups.into_iter().map(|group| (format!("`{}`", group.preset), group)).collect();
        expand(&place, DEFAULT_SEED, named)
    }

    /// A fleet from a YAML (or JSON) file.
    pub fn from_file(path: &Path) -> Result<Self, FleetError> {
        let place = format!("fleet file `{}`", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| FleetError {
            place: place.clone(),
            field: "file".to_owned(),
            problem: format!("cannot be read: {error}"),
            hint: format!("give the path of a YAML file or a list of presets ({})", known_presets()),
        })?;
        Self::from_yaml(&place, &text)
    }

    /// A fleet from YAML text; `place` names it in errors.
    pub fn from_yaml(place: &str, text: &str) -> Result<Self, FleetError> {
        file::parse(place, text)
    }
}

fn known_presets() -> String {
    preset::KNOWN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn parse_entry(place: &str, entry: &str) -> Result<Group, FleetError> {
    let refuse = |problem: String, hint: &str| FleetError {
        place: place.to_owned(),
        field: format!("entry `{entry}`"),
        problem,
        hint: hint.to_owned(),
    };
    let (rest, count) = match entry.rsplit_once('*') {
        None => (entry, 1),
        Some((rest, count)) => {
            let count = count.trim().parse::<usize>().ok().filter(|count| *count > 0);
            (
                rest,
                count.ok_or_else(|| {
                    refuse("the count is not a positive number".to_owned(), "write `thor*3` for three")
                })?,
            )
        }
    };
    let mut parts = rest.split(':');
    let mut group = Group { count, ..Group::of(parts.next().unwrap_or_default().trim()) };
    for option in parts {
        match option.split_once('=').map(|(key, value)| (key.trim(), value.trim())) {
            Some(("replicas", value)) => {
                let replicas = value.parse().ok().filter(|replicas| (1..=1000).contains(replicas));
                group.replicas = replicas.ok_or_else(|| {
                    refuse(format!("replicas `{value}` is not a number from 1 to 1000"), "write `thor:replicas=4`")
                })?;
            }
            Some(("name", value)) => group.name = Some(value.to_owned()),
            Some(("without", value)) => group.without.push(value.to_owned()),
            _ => {
                return Err(refuse(
                    format!("`{option}` is not an option"),
                    "options are `:replicas=N`, `:name=PREFIX` and `:without=LABEL`; a file can say more",
                ));
            }
        }
    }
    Ok(group)
}

/// Gives every node its name and shape; `groups` come with the field that errors name.
fn expand(place: &str, seed: Seed, groups: Vec<(String, Group)>) -> Result<Fleet, FleetError> {
    let mut nodes = Vec::new();
    let mut names = BTreeSet::new();
    let mut next_number: BTreeMap<String, usize> = BTreeMap::new();
    for (field, group) in groups {
        let refuse =
            |problem: String, hint: String| FleetError { place: place.to_owned(), field: field.clone(), problem, hint };
        let base = group.name.clone().unwrap_or_else(|| group.preset.clone());
        if group.count > MAX_NODES {
            return Err(refuse(
                format!("{} nodes are too many", group.count),
                format!("a fleet has at most {MAX_NODES} nodes"),
            ));
        }
        for _ in 0..group.count {
            let number = next_number.entry(base.clone()).or_default();
            let first = format!("{base}-{number}");
            let shapes = preset::shapes(&group.preset, Replicas(group.replicas), seed, &first).ok_or_else(|| {
                refuse(
                    format!("preset `{}` is unknown", group.preset),
                    format!("known presets are {}", known_presets()),
                )
            })?;
            for mut shape in shapes {
                for label in &group.without {
                    // GPU Feature Discovery's labels all begin alike.
                    let gone =
                        shape.labels.remove(label).or_else(|| shape.labels.remove(&format!("nvidia.com/{label}")));
                    gone.ok_or_else(|| {
                        refuse(
                            format!("preset `{}` has no label `{label}` to be without", group.preset),
                            "write `thor:without=gpu.count`, or a whole label".to_owned(),
                        )
                    })?;
                }
                let name = format!("{base}-{number}");
                *number += 1;
                if !is_node_name(&name) {
                    return Err(refuse(
                        format!("`{name}` cannot be a node name"),
                        "names are lower-case letters, digits, `-` and `.`, at most 63 characters".to_owned(),
                    ));
                }
                if !names.insert(name.clone()) {
                    return Err(refuse(
                        format!("node name `{name}` is taken"),
                        "give one of the groups another `name`".to_owned(),
                    ));
                }
                if nodes.len() == MAX_NODES {
                    return Err(refuse(
                        format!("more than {MAX_NODES} nodes"),
                        "lower the counts or use a second process".to_owned(),
                    ));
                }
                if let Some(resource) = group.resources.keys().find(|name| shape.devices.contains_key(*name)) {
                    return Err(refuse(
                        format!("`resources.{resource}` is set, but preset `{}` has real devices of it", group.preset),
                        "use `replicas`, another preset, or preset `cpu` for a resource without devices".to_owned(),
                    ));
                }
                nodes.push(NodeSpec {
                    name,
                    shape,
                    labels: group.labels.clone(),
                    taints: group.taints.clone(),
                    resources: group.resources.clone(),
                    replicas: Replicas(group.replicas),
                    delays: group.delays,
                    heartbeat: group.heartbeat,
                    status_interval: group.status_interval,
                });
            }
        }
    }
    Ok(Fleet { seed, nodes, api_faults: Vec::new(), node_faults: Vec::new() })
}

fn is_node_name(name: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= 63
        && edge(name.chars().next())
        && edge(name.chars().last())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.')
}

#[cfg(test)]
mod tests;
