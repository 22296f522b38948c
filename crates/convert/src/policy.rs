//! A SchedulingShard, its flags and KAI's defaults as the core's policy.
//!
//! Merging is KAI's: defaults first; `enabled` and `priority` override one by one, `arguments` replace all; higher priority first,
//! then by name. What cannot be understood is left at its default and told as a complaint.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kai_api::{Duration, SchedulingShardSpec, UsageParams, defaults, defaults::shard};
use kai_core::{
    policy::{Action, MinRuntimeRule, Plugins, Policy, Strategy, UsagePolicy, Window},
    time::Span,
};

use crate::amount::{scaled, span, time};

/// A plugin with its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugin {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub arguments: BTreeMap<String, String>,
}

/// The policy of an installation that says nothing.
#[must_use]
pub fn default_policy() -> Policy {
    from_shard(&SchedulingShardSpec::default()).0
}

/// The policy of a shard, and complaints about what it says.
#[must_use]
pub fn from_shard(spec: &SchedulingShardSpec) -> (Policy, Vec<String>) {
    let mut complaints = Vec::new();
    let strategies = spec.placement_strategy.clone().unwrap_or_default();
    let gpu = strategy("spec.placementStrategy.gpu", strategies.gpu.as_deref(), &mut complaints);
    let cpu = strategy("spec.placementStrategy.cpu", strategies.cpu.as_deref(), &mut complaints);
    let mut policy = Policy {
        actions: actions(spec, gpu == Strategy::Spread || cpu == Strategy::Spread, &mut complaints),
        gpu_strategy: gpu,
        cpu_strategy: cpu,
        plugins: OFF,
        max_consolidation_victims: u32::try_from(shard::MAX_CONSOLIDATION_PREEMPTEES).ok(),
        consolidating_reclaim: true,
        staleness_grace: span(defaults::STALENESS_GRACE_PERIOD),
        stuck_after: span(spec.stuck_in_releasing_threshold.unwrap_or(defaults::STUCK_IN_RELEASING_THRESHOLD)),
        preempt_min_runtime: span(defaults::MIN_RUNTIME),
        reclaim_min_runtime: span(defaults::MIN_RUNTIME),
        reclaim_min_runtime_rule: MinRuntimeRule::LowestCommonAncestor,
        saturation_multiplier: 1000,
        usage_weight: thousandths(spec.k_value.unwrap_or(shard::K_VALUE), 0),
        usage: None,
        queue_depth: Vec::new(),
    };
    if let Some(least) = &spec.min_runtime {
        let mut set = |field: &str, text: &Option<String>, into: &mut Span| {
            if let Some(text) = text {
                read_span(field, text, into, &mut complaints);
            }
        };
        set("spec.minRuntime.preemptMinRuntime", &least.preempt_min_runtime, &mut policy.preempt_min_runtime);
        set("spec.minRuntime.reclaimMinRuntime", &least.reclaim_min_runtime, &mut policy.reclaim_min_runtime);
    }
    for (name, depth) in &spec.queue_depth_per_action {
        match (action(name), u32::try_from(*depth)) {
            (Some(action), Ok(depth)) => policy.queue_depth.push((action, depth)),
            (Some(_), Err(_)) => {}
            (None, _) => complaints.push(format!("field `spec.queueDepthPerAction`: there is no action `{name}`")),
        }
    }
    if let Some(usage) = &spec.usage_db_config {
        policy.usage = usage_policy(&usage.usage_params.clone().unwrap_or_default(), &mut complaints);
    }
    apply_plugins(&mut policy, &plugins(spec, gpu), &mut complaints);
    apply_flags(&mut policy, &spec.args, &mut complaints);
    (policy, complaints)
}

/// Replaces what a policy says about plugins: those not listed are off.
pub fn apply_plugins(policy: &mut Policy, list: &[Plugin], complaints: &mut Vec<String>) {
    policy.plugins = OFF;
    for plugin in list {
        if !switch(&mut policy.plugins, &plugin.name) {
            complaints.push(format!("plugin `{}` does not exist", plugin.name));
        }
        for (name, value) in &plugin.arguments {
            let field = format!("plugin `{}`, argument `{name}`", plugin.name);
            match (plugin.name.as_str(), name.as_str()) {
                ("nodeplacement", "gpu") => policy.gpu_strategy = strategy(&field, Some(value), complaints),
                ("nodeplacement", "cpu") => policy.cpu_strategy = strategy(&field, Some(value), complaints),
                ("minruntime", "defaultPreemptMinRuntime") => {
                    read_span(&field, value, &mut policy.preempt_min_runtime, complaints);
                }
                ("minruntime", "defaultReclaimMinRuntime") => {
                    read_span(&field, value, &mut policy.reclaim_min_runtime, complaints);
                }
                ("minruntime", "reclaimResolveMethod") => {
                    let by_queue = value == "queue";
                    policy.reclaim_min_runtime_rule =
                        if by_queue { MinRuntimeRule::Queue } else { MinRuntimeRule::LowestCommonAncestor };
                }
                ("proportion", "kValue") => {
                    policy.usage_weight = number(&field, value, 0, complaints).unwrap_or(policy.usage_weight);
                }
                // KAI's argument is misspelt; both ways are taken.
                (
                    "proportion",
                    "relcaimerSaturationMultiplier"
                    | "reclaimerSaturationMultiplier"
                    | "reclaimerUtilizationMultiplier",
                ) => {
                    policy.saturation_multiplier =
                        number(&field, value, 1000, complaints).unwrap_or(policy.saturation_multiplier);
                }
                _ => {}
            }
        }
    }
}

/// The plugins that make a policy what it is: with [`apply_plugins`] they give the same.
#[must_use]
pub fn plugins_of(policy: &Policy) -> Vec<Plugin> {
    let names = shard::PLUGINS.iter().map(|(name, _)| *name).chain(["numa", "gpuspread"]);
    let mut listed: Vec<Plugin> = Vec::new();
    for name in names {
        let mut only = OFF;
        if !switch(&mut only, name) || only == OFF || listed.iter().any(|plugin| plugin.name == name) {
            continue;
        }
        // A plugin is on if switching it on changes nothing.
        let mut with = policy.plugins;
        switch(&mut with, name);
        if with == policy.plugins {
            listed.push(Plugin { name: name.to_owned(), arguments: arguments_of(policy, name) });
        }
    }
    listed
}

fn arguments_of(policy: &Policy, plugin: &str) -> BTreeMap<String, String> {
    let strategy = |strategy: Strategy| match strategy {
        Strategy::Binpack => shard::BINPACK,
        Strategy::Spread => shard::SPREAD,
    };
    let span = |span: Span| format!("{}ms", span.0);
    let decimal = |thousandths: u32| format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    let pairs: Vec<(&str, String)> = match plugin {
        "nodeplacement" => {
            vec![("gpu", strategy(policy.gpu_strategy).to_owned()), ("cpu", strategy(policy.cpu_strategy).to_owned())]
        }
        "minruntime" => vec![
            ("defaultPreemptMinRuntime", span(policy.preempt_min_runtime)),
            ("defaultReclaimMinRuntime", span(policy.reclaim_min_runtime)),
            (
                "reclaimResolveMethod",
                match policy.reclaim_min_runtime_rule {
                    MinRuntimeRule::Queue => "queue".to_owned(),
                    MinRuntimeRule::LowestCommonAncestor => "lca".to_owned(),
                },
            ),
        ],
        "proportion" => vec![
            ("kValue", decimal(policy.usage_weight)),
            ("reclaimerSaturationMultiplier", decimal(policy.saturation_multiplier)),
        ],
        _ => Vec::new(),
    };
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// An action by its name.
#[must_use]
pub fn action(name: &str) -> Option<Action> {
    match name.trim() {
        "allocate" => Some(Action::Allocate),
        "consolidation" => Some(Action::Consolidation),
        "reclaim" => Some(Action::Reclaim),
        "preempt" => Some(Action::Preempt),
        "stalegangeviction" => Some(Action::StaleGangEviction),
        _ => None,
    }
}

/// The name of an action.
#[must_use]
pub fn action_name(action: Action) -> &'static str {
    match action {
        Action::Allocate => "allocate",
        Action::Consolidation => "consolidation",
        Action::Reclaim => "reclaim",
        Action::Preempt => "preempt",
        Action::StaleGangEviction => "stalegangeviction",
    }
}

/// Nothing is switched on.
const OFF: Plugins = Plugins {
    predicates: false,
    proportion: false,
    priority: false,
    elastic: false,
    kubeflow: false,
    ray: false,
    node_availability: false,
    gpu_sharing_order: false,
    gpu_pack: false,
    gpu_spread: false,
    resource_type: false,
    subgroup_order: false,
    task_order: false,
    nominated_node: false,
    dynamic_resources: false,
    node_placement: false,
    min_runtime: false,
    topology: false,
    numa: false,
    pod_affinity: false,
};

/// Switches a plugin on; whether it exists.
fn switch(plugins: &mut Plugins, name: &str) -> bool {
    let place = match name {
        "predicates" => &mut plugins.predicates,
        "proportion" => &mut plugins.proportion,
        "priority" => &mut plugins.priority,
        "elastic" => &mut plugins.elastic,
        "kubeflow" => &mut plugins.kubeflow,
        "ray" => &mut plugins.ray,
        "nodeavailability" => &mut plugins.node_availability,
        "gpusharingorder" => &mut plugins.gpu_sharing_order,
        "gpupack" => &mut plugins.gpu_pack,
        "gpuspread" => &mut plugins.gpu_spread,
        "resourcetype" => &mut plugins.resource_type,
        "subgrouporder" => &mut plugins.subgroup_order,
        "taskorder" => &mut plugins.task_order,
        "nominatednode" => &mut plugins.nominated_node,
        "dynamicresources" => &mut plugins.dynamic_resources,
        "nodeplacement" => &mut plugins.node_placement,
        "minruntime" => &mut plugins.min_runtime,
        "topology" => &mut plugins.topology,
        "numa" => &mut plugins.numa,
        "podaffinity" => &mut plugins.pod_affinity,
        // KAI's snapshots and its ways to search for victims have no counterpart: the search is complete.
        "snapshot" | "sg-nodelocalgreedy" | "sg-multinodegang" | "reflectjoborder" => return true,
        _ => return false,
    };
    *place = true;
    true
}

/// Sorted by priority, then name, without what is off.
fn ranked(entries: BTreeMap<String, (bool, i64)>) -> Vec<String> {
    let mut on: Vec<(i64, String)> =
        entries.into_iter().filter(|(_, (enabled, _))| *enabled).map(|(name, (_, rank))| (rank, name)).collect();
    on.sort_by(|left, right| right.0.cmp(&left.0).then_with(|| left.1.cmp(&right.1)));
    on.into_iter().map(|(_, name)| name).collect()
}

fn actions(spec: &SchedulingShardSpec, spread: bool, complaints: &mut Vec<String>) -> Vec<Action> {
    let usual = shard::ACTIONS.iter().map(|(name, rank)| {
        let on = *name != "consolidation" || !spread;
        ((*name).to_owned(), (on, *rank))
    });
    let mut entries: BTreeMap<String, (bool, i64)> = usual.collect();
    for (name, change) in &spec.actions {
        let entry = entries.entry(name.clone()).or_insert((true, 0));
        *entry = (change.enabled.unwrap_or(entry.0), change.priority.unwrap_or(entry.1));
    }
    let known = |name: String| {
        let found = action(&name);
        if found.is_none() {
            complaints.push(format!("field `spec.actions`: there is no action `{name}`"));
        }
        found
    };
    ranked(entries).into_iter().filter_map(known).collect()
}

fn plugins(spec: &SchedulingShardSpec, gpu: Strategy) -> Vec<Plugin> {
    let usual = shard::PLUGINS.iter().map(|(name, rank)| {
        let on = match *name {
            "gpupack" | "gpusharingorder" => gpu == Strategy::Binpack,
            "gpuspread" => gpu == Strategy::Spread,
            _ => true,
        };
        ((*name).to_owned(), (on, *rank))
    });
    let mut entries: BTreeMap<String, (bool, i64)> = usual.collect();
    for (name, change) in &spec.plugins {
        let entry = entries.entry(name.clone()).or_insert((true, 0));
        *entry = (change.enabled.unwrap_or(entry.0), change.priority.unwrap_or(entry.1));
    }
    let arguments = |name: &str| spec.plugins.get(name).and_then(|change| change.arguments.clone()).unwrap_or_default();
    ranked(entries).into_iter().map(|name| Plugin { arguments: arguments(&name), name }).collect()
}

/// The scheduler's flags that decide anything.
fn apply_flags(policy: &mut Policy, flags: &BTreeMap<String, String>, complaints: &mut Vec<String>) {
    for (name, value) in flags {
        let field = format!("spec.args[{name}]");
        match name.as_str() {
            "max-consolidation-preemptees" => match value.parse::<i64>() {
                Ok(most) => policy.max_consolidation_victims = u32::try_from(most).ok(),
                Err(_) => complaints.push(format!("field `{field}`: `{value}` is not a number")),
            },
            "allow-consolidating-reclaim" => match value.parse() {
                Ok(flag) => policy.consolidating_reclaim = flag,
                Err(_) => complaints.push(format!("field `{field}`: `{value}` is neither true nor false")),
            },
            "default-staleness-grace-period" => read_span(&field, value, &mut policy.staleness_grace, complaints),
            "stuck-in-releasing-threshold" => read_span(&field, value, &mut policy.stuck_after, complaints),
            _ => {}
        }
    }
}

fn strategy(field: &str, text: Option<&str>, complaints: &mut Vec<String>) -> Strategy {
    match text {
        Some(shard::SPREAD) => Strategy::Spread,
        None | Some(shard::BINPACK | "") => Strategy::Binpack,
        Some(other) => {
            complaints.push(format!("field `{field}`: `{other}` is neither `binpack` nor `spread`"));
            Strategy::Binpack
        }
    }
}

fn read_span(field: &str, text: &str, into: &mut Span, complaints: &mut Vec<String>) {
    match text.parse::<Duration>() {
        Ok(duration) => *into = span(duration),
        Err(error) => complaints.push(format!("field `{field}`: {error}")),
    }
}

fn number(field: &str, text: &str, least: u32, complaints: &mut Vec<String>) -> Option<u32> {
    if let Ok(value) = text.parse::<f64>() {
        return Some(thousandths(value, least));
    }
    complaints.push(format!("field `{field}`: `{text}` is not a number"));
    None
}

fn thousandths(value: f64, least: u32) -> u32 {
    let exact = scaled(value, 1000).unwrap_or(0).max(i64::from(least));
    u32::try_from(exact).unwrap_or(u32::MAX)
}

fn usage_policy(params: &UsageParams, complaints: &mut Vec<String>) -> Option<UsagePolicy> {
    let half_life = params.half_life_period.map(span).filter(|half_life| half_life.0 > 0);
    let text = params.window_size.as_deref().unwrap_or("1w");
    let Some(length) = long_span(text).filter(|length| length.0 > 0) else {
        complaints.push(format!(
            "field `spec.usageDBConfig.usageParams.windowSize`: `{text}` is not a duration such as `1w`"
        ));
        return None;
    };
    let start = params.tumbling_window_start_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |start| start.0);
    let window = match params.window_type.as_deref() {
        Some("tumbling") => Window::Tumbling { start: time(start), length },
        None | Some("sliding" | "") => Window::Sliding(length),
        Some(other) => {
            let field = "spec.usageDBConfig.usageParams.windowType";
            complaints.push(format!("field `{field}`: `{other}` is not supported; hint: use `sliding` or `tumbling`"));
            Window::Sliding(length)
        }
    };
    Some(UsagePolicy { half_life, window })
}

/// A duration as Prometheus writes it: whole numbers with units from years to milliseconds.
fn long_span(text: &str) -> Option<Span> {
    let mut total = 0_i64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit = match unit {
            "y" => 365 * 86_400_000,
            "w" => 7 * 86_400_000,
            "d" => 86_400_000,
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1000,
            "ms" => 1,
            "" if number == "0" && after.is_empty() => 0,
            _ => return None,
        };
        total = total.saturating_add(number.parse::<i64>().ok()?.saturating_mul(unit));
        rest = after;
    }
    Some(Span(total))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(spec: serde_json::Value) -> (Policy, Vec<String>) {
        from_shard(&serde_json::from_value(spec).expect("a shard"))
    }

    #[test]
    fn defaults_are_those_of_kais_operator() {
        let policy = default_policy();
        assert_eq!(
            policy.actions,
            [Action::Allocate, Action::Consolidation, Action::Reclaim, Action::Preempt, Action::StaleGangEviction]
        );
        assert!(policy.plugins.pod_affinity && policy.plugins.gpu_pack && policy.plugins.gpu_sharing_order);
        assert!(!policy.plugins.gpu_spread && !policy.plugins.numa);
        assert_eq!((policy.max_consolidation_victims, policy.staleness_grace), (Some(16), Span::seconds(60)));
        assert_eq!(
            (policy.stuck_after, policy.saturation_multiplier, policy.usage_weight),
            (Span::seconds(120), 1000, 1000)
        );
        assert!(policy.consolidating_reclaim && policy.usage.is_none());
    }

    #[test]
    fn spreading_turns_consolidation_and_packing_off() {
        let (policy, complaints) = of(json!({"placementStrategy": {"gpu": "spread"}}));
        assert!(!policy.actions.contains(&Action::Consolidation));
        assert!(policy.plugins.gpu_spread && !policy.plugins.gpu_pack && !policy.plugins.gpu_sharing_order);
        assert_eq!((policy.gpu_strategy, policy.cpu_strategy), (Strategy::Spread, Strategy::Binpack));
        assert_eq!(complaints, Vec::<String>::new());
    }

    #[test]
    fn plugins_and_actions_are_changed_one_by_one() {
        let (policy, complaints) = of(json!({
            "plugins": {"numa": {}, "elastic": {"enabled": false}, "minruntime": {"arguments": {"reclaimResolveMethod": "queue", "defaultReclaimMinRuntime": "5m"}}},
            "actions": {"reclaim": {"enabled": false}, "preempt": {"priority": 900}, "dance": {}},
            "args": {"max-consolidation-preemptees": "-1", "default-staleness-grace-period": "-1s"},
            "queueDepthPerAction": {"allocate": 5}, "kValue": 0.5
        }));
        assert!(policy.plugins.numa && !policy.plugins.elastic);
        assert_eq!(policy.actions.first(), Some(&Action::Preempt));
        assert!(!policy.actions.contains(&Action::Reclaim));
        assert_eq!(policy.reclaim_min_runtime_rule, MinRuntimeRule::Queue);
        assert_eq!((policy.reclaim_min_runtime, policy.staleness_grace), (Span::seconds(300), Span::seconds(-1)));
        assert_eq!((policy.max_consolidation_victims, policy.usage_weight), (None, 500));
        assert_eq!(policy.queue_depth, [(Action::Allocate, 5)]);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
    }

    #[test]
    fn a_policy_written_as_plugins_reads_the_same() {
        let shards = [
            json!({}),
            json!({"placementStrategy": {"gpu": "spread"}, "kValue": 0.5}),
            json!({"plugins": {"numa": {}, "elastic": {"enabled": false}, "minruntime": {"arguments": {"reclaimResolveMethod": "queue", "defaultReclaimMinRuntime": "5m"}}}}),
        ];
        for shard in shards {
            let (policy, _) = of(shard);
            let mut read = default_policy();
            let mut complaints = Vec::new();
            apply_plugins(&mut read, &plugins_of(&policy), &mut complaints);
            read.actions.clone_from(&policy.actions);
            assert_eq!((read, complaints), (policy, Vec::<String>::new()));
        }
    }

    #[test]
    fn plugins_not_in_a_list_are_off() {
        let mut policy = default_policy();
        let arguments = BTreeMap::from([("gpu".to_owned(), "spread".to_owned())]);
        apply_plugins(&mut policy, &[Plugin { name: "nodeplacement".to_owned(), arguments }], &mut Vec::new());
        assert_eq!(policy.plugins, Plugins { node_placement: true, ..OFF });
        assert_eq!(policy.gpu_strategy, Strategy::Spread);
    }

    #[test]
    fn past_usage_counts_in_a_window() {
        let (policy, _) = of(
            json!({"usageDBConfig": {"clientType": "prometheus", "usageParams": {"halfLifePeriod": "1h", "windowSize": "1w2d"}}}),
        );
        let usage = policy.usage.expect("usage counts");
        assert_eq!(
            usage,
            UsagePolicy { half_life: Some(Span::seconds(3600)), window: Window::Sliding(Span::seconds(9 * 86_400)) }
        );
    }
}
