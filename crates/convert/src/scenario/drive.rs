//! Driving a scenario: one cycle, or rounds with the world moving in between.

use std::collections::{BTreeMap, BTreeSet};

use kai_core::{
    Cluster,
    delta::{Delta, Gpus, Pod},
    ids::PodId,
    plan::{Decision, Placed, Plan},
    policy::Policy,
    time::Time,
};

use super::{
    Explain, check,
    file::{Expectation, Kind, Scenario, ScenarioError},
    pods::{self, PodState},
    world::{Bound, World},
};
use crate::{
    converter::{Converter, Settings},
    explain::{self, ClusterNames, Explanation, Names},
    policy::{self, Plugin},
};

/// What a cycle said.
#[derive(Clone, Debug, Default)]
pub struct Cycle {
    /// What was decided.
    pub plan: Plan,
    /// Why groups wait.
    pub explanations: Vec<Explanation>,
    /// What is wrong with objects, as sentences.
    pub verdicts: Vec<String>,
}

/// What came of a scenario.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) failures: Vec<String>,
    /// Decisions and reasons of each cycle, if asked for.
    pub(super) log: Vec<String>,
}

/// A scenario in motion.
pub(super) struct Run<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) cluster: Cluster,
    pub(super) world: World,
    pub(super) policy: Policy,
    converter: Converter,
    /// Pods as the core was told of them, by uid.
    pub(super) pods: BTreeMap<String, Pod>,
    now: Time,
    explain: Explain,
    cycles: u32,
    outcome: Outcome,
}

/// Runs a scenario.
pub(super) fn run(scenario: &Scenario, explain: Explain) -> Result<Outcome, ScenarioError> {
    if scenario.expect == Expectation::default() {
        let hint = "say what must come out, such as `pods: {job-0: {status: Running}}`";
        return Err(ScenarioError::field("expect", "is empty: whatever happens would pass", hint));
    }
    let mut run = Run {
        scenario,
        cluster: Cluster::new(),
        world: World::new(&scenario.objects)?,
        policy: policy(scenario)?,
        converter: Converter::new(Settings::default()),
        pods: BTreeMap::new(),
        now: Time(scenario.now.as_millisecond()),
        explain,
        cycles: 0,
        outcome: Outcome::default(),
    };
    match scenario.kind {
        Kind::SingleAction => run.single_action(),
        Kind::Rounds => run.rounds(),
    }
    if !run.outcome.failures.is_empty() {
        // Most likely why.
        run.outcome.failures.extend(run.world.unreadable().iter().map(|what| format!("left out: {what}")));
    }
    Ok(run.outcome)
}

impl Run<'_> {
    fn single_action(&mut self) {
        self.feed();
        let cycle = self.cycle();
        let mut states = self.states();
        pods::in_cycle(&mut states, &cycle.plan, &self.cluster);
        self.compare(&states, &cycle);
    }

    fn rounds(&mut self) {
        self.world.drop_reservations();
        self.feed();
        let mut last = Cycle::default();
        for _ in 0..self.scenario.rounds.until_match {
            self.snapshot();
            last = self.cycle();
            self.world_moves(&last.plan);
        }
        let states = self.states();
        self.compare(&states, &last);
        for _ in 0..self.scenario.rounds.after_match {
            self.snapshot();
            let cycle = self.cycle();
            let stirred = check::stirred(&self.scenario.expect, &cycle.plan, |pod| self.key(pod).to_owned());
            let number = self.cycles;
            self.outcome.failures.extend(stirred.into_iter().map(|what| format!("cycle {number}: {what}")));
            self.world_moves(&cycle.plan);
        }
    }

    /// A round starts from the objects alone, as KAI's does; with `remember` what the scheduler promised lives on.
    fn snapshot(&mut self) {
        if self.scenario.rounds.remember {
            return;
        }
        self.cluster = Cluster::new();
        self.converter = Converter::new(Settings::default());
        self.pods.clear();
        self.world.tell_all();
        self.feed();
    }

    /// Tells the core what changed.
    fn feed(&mut self) {
        for ((kind, key), object) in self.world.changes() {
            let deltas = if let Some(object) = object {
                self.converter.apply(&object)
            } else {
                let (namespace, name) = key.split_once('/').unwrap_or(("", &key));
                self.converter.remove(kind, namespace, name)
            };
            for delta in deltas {
                match &delta {
                    Delta::Pod(pod) => drop(self.pods.insert(pod.uid.clone(), (**pod).clone())),
                    Delta::PodGone(uid) => drop(self.pods.remove(uid)),
                    _ => {}
                }
                self.cluster.apply(delta);
            }
        }
    }

    fn cycle(&mut self) -> Cycle {
        self.cycles += 1;
        let plan = kai_core::plan(&mut self.cluster, self.now, &self.policy);
        let names = ClusterNames { cluster: &self.cluster, converter: &self.converter };
        let explanations = explain::explain(&plan.reasons, &names);
        let unreadable = self.world.unreadable().iter().cloned();
        let verdicts: Vec<String> = unreadable.chain(plan.verdicts.iter().map(explain::verdict)).collect();
        if self.explain == Explain::Yes {
            self.outcome.log.push(format!("cycle {}", self.cycles));
            self.outcome.log.extend(plan.decisions.iter().map(|decision| format!("  {}", decided(decision, &names))));
            let indent = |text: String| text.replace('\n', "\n      ");
            let reasons = explanations.iter().map(|one| format!("  {} waits: {}", one.group, indent(one.text())));
            self.outcome.log.extend(reasons);
            self.outcome.log.extend(verdicts.iter().map(|verdict| format!("  verdict on {verdict}")));
        }
        let over = check::limits(&self.scenario.expect.limits, &plan);
        let number = self.cycles;
        self.outcome.failures.extend(over.into_iter().map(|what| format!("cycle {number}: {what}")));
        Cycle { plan, explanations, verdicts }
    }

    /// The states of all pods as the objects say, by uid.
    fn states(&self) -> BTreeMap<String, PodState> {
        let one = |(uid, pod): (&String, &Pod)| {
            let mut state = pods::state(pod, self.now, self.policy.stuck_after);
            if state.node.is_none() && matches!(state.status, "Succeeded" | "Failed") {
                // The core is not told where a pod was: it holds nothing there.
                state.node = self.converter.pod_key(uid).and_then(|key| self.world.node_of(key)).map(str::to_owned);
            }
            (uid.clone(), state)
        };
        self.pods.iter().map(one).collect()
    }

    fn compare(&mut self, by_uid: &BTreeMap<String, PodState>, cycle: &Cycle) {
        let keyed = by_uid.iter().map(|(uid, state)| {
            let key = self.converter.pod_key(uid).unwrap_or(uid);
            (key.to_owned(), state.clone())
        });
        let states: BTreeMap<String, PodState> = keyed.collect();
        let failures = check::compare(self, &states, by_uid, cycle);
        self.outcome.failures.extend(failures);
    }

    /// `namespace/name` of a pod.
    fn key(&self, pod: PodId) -> &str {
        let uid = self.cluster.pod_uid(pod);
        self.converter.pod_key(uid).unwrap_or(uid)
    }

    /// A pod by `namespace/name`.
    pub(super) fn pod_of(&self, key: &str) -> Option<&Pod> {
        let (namespace, name) = key.split_once('/')?;
        self.pods.get(self.converter.pod_uid(namespace, name)?)
    }

    /// What the world makes of a cycle.
    fn world_moves(&mut self, plan: &Plan) {
        let now = self.scenario.now;
        let mut ended: BTreeSet<String> = BTreeSet::new();
        let mut bound: Vec<(String, Bound)> = Vec::new();
        for decision in &plan.decisions {
            match decision {
                Decision::Evict(eviction) => drop(ended.insert(self.key(eviction.pod).to_owned())),
                Decision::Bind(placed) => bound.push((self.key(placed.pod).to_owned(), self.bound(placed))),
                _ => {}
            }
        }
        for (uid, state) in self.states() {
            if state.status == "Releasing" {
                ended.extend(self.converter.pod_key(&uid).map(str::to_owned));
            }
        }
        for pod in &ended {
            if self.scenario.stays_terminating.contains(pod) {
                self.world.stays_terminating(pod, now);
            } else {
                self.world.comes_back(pod);
            }
        }
        for (pod, bound) in &bound {
            self.world.runs(pod, bound);
        }
        self.feed();
        let states = self.states();
        let running = self
            .pods
            .values()
            .filter(|pod| states.get(&pod.uid).is_some_and(|s| matches!(s.status, "Running" | "Bound")));
        let groups: BTreeSet<String> = running.filter_map(|pod| pod.group.clone()).collect();
        self.world.groups_started(&groups, now);
        self.feed();
    }

    fn bound(&self, placed: &Placed) -> Bound {
        let node = self.cluster.node_name(placed.node).to_owned();
        let names = self.converter.zone_names(&node);
        let zone = |index: u32| names.get(index as usize).cloned().unwrap_or_else(|| format!("node-{index}"));
        let request = self.pods.get(self.cluster.pod_uid(placed.pod)).map(|pod| pod.request.gpus);
        Bound {
            devices: placed.devices.clone(),
            zones: placed.numa.iter().map(|share| (zone(share.zone), share.amounts.clone())).collect(),
            claims: placed
                .claims
                .iter()
                .map(|(claim, devices)| {
                    let chosen = devices.iter().map(|(place, device)| {
                        (*place as usize, [device.driver.clone(), device.pool.clone(), device.name.clone()])
                    });
                    (self.cluster.claim_key(*claim).to_owned(), chosen.collect())
                })
                .collect(),
            shared: matches!(request, Some(Gpus::Portion { .. } | Gpus::Memory { .. })),
            node,
        }
    }
}

fn decided(decision: &Decision, names: &dyn Names) -> String {
    let place = |placed: &Placed| {
        let devices =
            if placed.devices.is_empty() { String::new() } else { format!(" [{}]", placed.devices.join(", ")) };
        format!("{} to {}{devices}", names.pod_key(placed.pod), names.node_name(placed.node))
    };
    match decision {
        Decision::Bind(placed) => format!("bind {}", place(placed)),
        Decision::Pipeline(placed) => format!("pipeline {}", place(placed)),
        Decision::Evict(eviction) => format!("evict: {}", explain::eviction(eviction, names)),
        Decision::Started { group, .. } => format!("started {}", names.group_key(*group)),
        Decision::Stale { group, since: Some(_) } => format!("stale {}", names.group_key(*group)),
        Decision::Stale { group, since: None } => format!("no longer stale {}", names.group_key(*group)),
    }
}

/// The policy of a scenario.
fn policy(scenario: &Scenario) -> Result<Policy, ScenarioError> {
    let mut made = policy::default_policy();
    let config = &scenario.config;
    if let Some(most) = config.max_consolidation_preemptees {
        made.max_consolidation_victims = u32::try_from(most).ok();
    }
    if let Some(text) = &config.default_staleness_grace_period {
        let read: Result<kai_api::Duration, _> = text.parse();
        let field = "config.defaultStalenessGracePeriod";
        made.staleness_grace =
            crate::amount::span(read.map_err(|error| ScenarioError::field(field, error, "write e.g. `60s`"))?);
    }
    made.consolidating_reclaim = config.allow_consolidating_reclaim.unwrap_or(made.consolidating_reclaim);
    if let Some(tiers) = &config.tiers {
        let listed = tiers.iter().flat_map(|tier| &tier.plugins);
        let plugins: Vec<Plugin> =
            listed.map(|plugin| Plugin { name: plugin.name.clone(), arguments: plugin.arguments.clone() }).collect();
        let mut complaints = Vec::new();
        policy::apply_plugins(&mut made, &plugins, &mut complaints);
        if let Some(complaint) = complaints.first() {
            return Err(ScenarioError::field("config.tiers", complaint, "name plugins as KAI does"));
        }
    }
    if scenario.kind == Kind::SingleAction {
        let known = scenario.actions.iter().map(|name| {
            let hint = "use allocate, consolidation, reclaim, preempt or stalegangeviction";
            policy::action(name)
                .ok_or_else(|| ScenarioError::field("action", format!("there is no action `{name}`"), hint))
        });
        made.actions = known.collect::<Result<_, _>>()?;
    }
    Ok(made)
}
