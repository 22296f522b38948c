//! The fleet file: what may stand in it, and how it becomes a fleet.
//!
//! ```yaml
//! seed: 7
//! heartbeat: 10s            # lease renewal; statusInterval: 5m
//! delays: {start: 500ms..1500ms, run: 5s, stop: 1s, pull: 0s, init: 500ms, ready: 0s}
//! nodes:
//! - preset: thor
//!   count: 3
//!   name: edge              # edge-0, edge-1, edge-2
//!   replicas: 4             # time-slicing
//!   labels: {site: north}
//!   without: [gpu.count]    # labels that the preset has and these nodes do not
//!   taints: [{key: edge, value: "yes", effect: NoSchedule}]
//!   resources: {cpu: "8", example.com/fpga: "2"}
//!   delays: {run: 30s}
//! faults:
//!   api:
//!   - {verb: patch, resource: pods, probability: 0.01, effect: error, status: 500}
//!   - {verb: create, resource: pods/binding, nth: 3, effect: lost-answer}
//!   nodes:
//!   - {at: 10m, node: edge-1, do: stop}
//!   - {at: 20m, node: edge-1, do: resume}
//!   - {at: 30m, node: edge-2, do: reboot, down: 1m, newUuids: true}
//! ```

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;

use super::{DEFAULT_SEED, Delays, Fleet, FleetError, Group, Span, Taint, expand, parse_duration};
use crate::{
    faults::{ApiEffect, ApiFault, NodeAction, NodeFault, Trigger},
    resources,
    seed::Seed,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FleetFile {
    seed: Option<u64>,
    heartbeat: Option<Text>,
    status_interval: Option<Text>,
    #[serde(default)]
    delays: DelaysFile,
    nodes: Vec<GroupFile>,
    #[serde(default)]
    faults: FaultsFile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct GroupFile {
    preset: String,
    count: Option<usize>,
    name: Option<String>,
    replicas: Option<u32>,
    #[serde(default)]
    labels: BTreeMap<String, Text>,
    #[serde(default)]
    without: Vec<String>,
    #[serde(default)]
    taints: Vec<TaintFile>,
    #[serde(default)]
    resources: BTreeMap<String, Text>,
    #[serde(default)]
    delays: DelaysFile,
    heartbeat: Option<Text>,
    status_interval: Option<Text>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaintFile {
    key: String,
    #[serde(default)]
    value: Option<Text>,
    effect: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DelaysFile {
    pull: Option<Text>,
    start: Option<Text>,
    ready: Option<Text>,
    init: Option<Text>,
    run: Option<Text>,
    stop: Option<Text>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultsFile {
    #[serde(default)]
    api: Vec<ApiFaultFile>,
    #[serde(default)]
    nodes: Vec<NodeFaultFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiFaultFile {
    verb: Option<String>,
    resource: Option<String>,
    probability: Option<f64>,
    nth: Option<u64>,
    effect: String,
    status: Option<u16>,
    delay: Option<Text>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFaultFile {
    at: Text,
    node: String,
    #[serde(rename = "do")]
    action: String,
    resource: Option<String>,
    device: Option<usize>,
    down: Option<Text>,
    #[serde(default, rename = "newUuids")]
    new_uuids: bool,
}

/// A scalar that people write with or without quotes.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Text {
    Whole(i64),
    Number(f64),
    Truth(bool),
    Written(String),
}

impl std::fmt::Display for Text {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(value) => value.fmt(formatter),
            Self::Number(value) => value.fmt(formatter),
            Self::Truth(value) => value.fmt(formatter),
            Self::Written(value) => value.fmt(formatter),
        }
    }
}

/// Says which field of which file is wrong.
struct Place<'a>(&'a str);

impl Place<'_> {
    fn refuse(&self, field: impl Into<String>, problem: impl Into<String>, hint: &str) -> FleetError {
        FleetError { place: self.0.to_owned(), field: field.into(), problem: problem.into(), hint: hint.to_owned() }
    }

    fn duration(&self, field: &str, text: &Text) -> Result<Duration, FleetError> {
        let duration =
            parse_duration(&text.to_string()).map_err(|problem| self.refuse(field, problem, "write e.g. `10s`"))?;
        if duration.is_zero() {
            return Err(self.refuse(field, "may not be zero", "write e.g. `10s`"));
        }
        Ok(duration)
    }
}

pub(super) fn parse(place: &str, text: &str) -> Result<Fleet, FleetError> {
    let here = Place(place);
    let file: FleetFile = serde_saphyr::from_str(text).map_err(|error| {
        here.refuse(
            "content",
            error.to_string().lines().next().unwrap_or("not YAML").to_owned(),
            "the smallest fleet file is `nodes: [{preset: cpu}]`; `kai lab nodes --help` shows all fields",
        )
    })?;
    if file.nodes.is_empty() {
        return Err(here.refuse("nodes", "is empty", "add `- preset: cpu`"));
    }
    let mut default = Group::of("");
    default.delays = delays(&here, "delays", &file.delays, default.delays)?;
    if let Some(text) = &file.heartbeat {
        default.heartbeat = here.duration("heartbeat", text)?;
    }
    if let Some(text) = &file.status_interval {
        default.status_interval = here.duration("statusInterval", text)?;
    }
    let mut groups = Vec::with_capacity(file.nodes.len());
    for (index, node) in file.nodes.iter().enumerate() {
        let field = format!("nodes[{index}]");
        groups.push((field.clone(), group(&here, &field, node, &default)?));
    }
    let mut fleet = expand(place, file.seed.map_or(DEFAULT_SEED, Seed), groups)?;
    for (index, fault) in file.faults.api.iter().enumerate() {
        fleet.api_faults.push(api_fault(&here, &format!("faults.api[{index}]"), fault)?);
    }
    for (index, fault) in file.faults.nodes.iter().enumerate() {
        let fault = node_fault(&here, &format!("faults.nodes[{index}]"), fault, &fleet)?;
        fleet.node_faults.push(fault);
    }
    Ok(fleet)
}

fn group(here: &Place<'_>, field: &str, file: &GroupFile, default: &Group) -> Result<Group, FleetError> {
    let mut group = Group { preset: file.preset.clone(), name: file.name.clone(), ..default.clone() };
    if let Some(count) = file.count {
        if count == 0 {
            return Err(here.refuse(format!("{field}.count"), "is zero", "leave the entry out or write `count: 1`"));
        }
        group.count = count;
    }
    if let Some(replicas) = file.replicas {
        if !(1..=1000).contains(&replicas) {
            return Err(here.refuse(
                format!("{field}.replicas"),
                format!("{replicas} is not from 1 to 1000"),
                "write `replicas: 4` for four time-slices of each device",
            ));
        }
        group.replicas = replicas;
    }
    group.without.clone_from(&file.without);
    group.labels = file.labels.iter().map(|(key, value)| (key.clone(), value.to_string())).collect();
    for (index, taint) in file.taints.iter().enumerate() {
        if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&taint.effect.as_str()) {
            return Err(here.refuse(
                format!("{field}.taints[{index}].effect"),
                format!("`{}` is not a taint effect", taint.effect),
                "effects are NoSchedule, PreferNoSchedule and NoExecute",
            ));
        }
        group.taints.push(Taint {
            key: taint.key.clone(),
            value: taint.value.as_ref().map(ToString::to_string).unwrap_or_default(),
            effect: taint.effect.clone(),
        });
    }
    for (name, quantity) in &file.resources {
        let quantity = quantity.to_string();
        if resources::amount(name, &quantity).is_none_or(i64::is_negative) {
            return Err(here.refuse(
                format!("{field}.resources.{name}"),
                format!("`{quantity}` is not an amount"),
                "write a Kubernetes quantity such as `8`, `500m` or `64Gi`",
            ));
        }
        group.resources.insert(name.clone(), quantity);
    }
    group.delays = delays(here, &format!("{field}.delays"), &file.delays, default.delays)?;
    if let Some(text) = &file.heartbeat {
        group.heartbeat = here.duration(&format!("{field}.heartbeat"), text)?;
    }
    if let Some(text) = &file.status_interval {
        group.status_interval = here.duration(&format!("{field}.statusInterval"), text)?;
    }
    Ok(group)
}

fn delays(here: &Place<'_>, field: &str, file: &DelaysFile, default: Delays) -> Result<Delays, FleetError> {
    let span = |name: &str, text: &Option<Text>, default: Span| match text {
        None => Ok(default),
        Some(text) => Span::parse(&text.to_string())
            .map_err(|problem| here.refuse(format!("{field}.{name}"), problem, "write `2s` or a range `1s..3s`")),
    };
    Ok(Delays {
        pull: span("pull", &file.pull, default.pull)?,
        start: span("start", &file.start, default.start)?,
        ready: span("ready", &file.ready, default.ready)?,
        init: span("init", &file.init, default.init)?,
        run: span("run", &file.run, default.run)?,
        stop: span("stop", &file.stop, default.stop)?,
    })
}

fn api_fault(here: &Place<'_>, field: &str, file: &ApiFaultFile) -> Result<ApiFault, FleetError> {
    let trigger = match (file.probability, file.nth) {
        (Some(probability), None) if (0.0..=1.0).contains(&probability) => Trigger::Probability(probability),
        (None, Some(nth)) if nth > 0 => Trigger::Nth(nth),
        _ => {
            return Err(here.refuse(
                field,
                "needs either `probability` (0 to 1) or `nth` (1 = first call)",
                "write `probability: 0.01` or `nth: 3`",
            ));
        }
    };
    let effect = match file.effect.as_str() {
        "error" => {
            let status = file.status.unwrap_or(500);
            if !(400..=599).contains(&status) {
                return Err(here.refuse(
                    format!("{field}.status"),
                    format!("{status} is not an error status"),
                    "write 400 to 599, such as 429, 500 or 503",
                ));
            }
            ApiEffect::Error(status)
        }
        "reset" => ApiEffect::Reset,
        "lost-answer" => ApiEffect::LostAnswer,
        "delay" => {
            let text = file.delay.as_ref().map(ToString::to_string).unwrap_or_default();
            ApiEffect::Delay(
                Span::parse(&text)
                    .map_err(|problem| here.refuse(format!("{field}.delay"), problem, "write `delay: 100ms..2s`"))?,
            )
        }
        other => {
            return Err(here.refuse(
                format!("{field}.effect"),
                format!("`{other}` is not an effect"),
                "effects are error, reset, delay and lost-answer",
            ));
        }
    };
    Ok(ApiFault { verb: file.verb.clone(), resource: file.resource.clone(), trigger, effect })
}

fn node_fault(here: &Place<'_>, field: &str, file: &NodeFaultFile, fleet: &Fleet) -> Result<NodeFault, FleetError> {
    let at = parse_duration(&file.at.to_string())
        .map_err(|problem| here.refuse(format!("{field}.at"), problem, "write the time since start, such as `10m`"))?;
    let Some(node) = fleet.nodes.iter().find(|node| node.name == file.node) else {
        return Err(here.refuse(
            format!("{field}.node"),
            format!("there is no node `{}`", file.node),
            "nodes are called NAME-0, NAME-1, … where NAME is the group's `name` or preset",
        ));
    };
    let device = || {
        let resource = file.resource.clone().unwrap_or_else(|| "nvidia.com/gpu".to_owned());
        let index = file.device.unwrap_or(0);
        let count = node.shape.devices.get(&resource).map_or(0, Vec::len);
        if index >= count {
            return Err(here.refuse(
                format!("{field}.device"),
                format!("node `{}` has {count} devices of `{resource}`", file.node),
                "give the index of a physical device, from 0, and its `resource`",
            ));
        }
        Ok((resource, index))
    };
    let action = match file.action.as_str() {
        "stop" => NodeAction::Stop,
        "resume" => NodeAction::Resume,
        "not-ready" => NodeAction::NotReady,
        "ready" => NodeAction::Ready,
        "vanish" => NodeAction::Vanish,
        "reboot" => {
            let down = file.down.as_ref().map(|text| here.duration(&format!("{field}.down"), text)).transpose()?;
            NodeAction::Reboot { down: down.unwrap_or(Duration::from_mins(1)), new_uuids: file.new_uuids }
        }
        "device-unhealthy" => {
            let (resource, index) = device()?;
            NodeAction::DeviceUnhealthy { resource, index }
        }
        "device-healthy" => {
            let (resource, index) = device()?;
            NodeAction::DeviceHealthy { resource, index }
        }
        other => {
            return Err(here.refuse(
                format!("{field}.do"),
                format!("`{other}` is not a node fault"),
                "faults are stop, resume, reboot, not-ready, ready, vanish, device-unhealthy and device-healthy",
            ));
        }
    };
    Ok(NodeFault { at, node: file.node.clone(), action })
}
