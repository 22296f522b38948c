//! Equal clusters get equal plans, and the order in which objects arrived decides nothing.
//!
//! Source: design, "Deterministic: same state, same decisions, in any map order".

use kai_core::{
    Cluster,
    delta::Delta,
    plan::{Decision, Plan},
    policy::Policy,
    time::Time,
};

use crate::{Facts, Planner, Violation};

const INVARIANT: &str = "equal clusters get equal plans";

/// Plans that differ though the clusters are equal: from the same deltas, and from deltas in other orders, one for each seed.
#[must_use]
pub fn check(facts: &Facts, policy: &Policy, now: Time, planner: Planner<'_>, seeds: &[u64]) -> Vec<Violation> {
    let deltas = facts.deltas();
    let (cluster, plan) = planned(&deltas, policy, now, planner);
    let mut violations = Vec::new();
    let mut complain = |object: &str, one: &str, other: &str| {
        let what = format!("{one}\n  became\n  {other}");
        violations.push(Violation { invariant: INVARIANT, object: object.to_owned(), what });
    };
    let (_, again) = planned(&deltas, policy, now, planner);
    if again != plan {
        complain("the same deltas", &format!("{plan:?}"), &format!("{again:?}"));
    }
    let names = in_names(&cluster, &plan);
    for seed in seeds {
        let (other, again) = planned(&shuffled(&deltas, *seed), policy, now, planner);
        let again = in_names(&other, &again);
        let place = (0..names.len().max(again.len())).find(|place| names.get(*place) != again.get(*place));
        if let Some(place) = place {
            let line = |lines: &[String]| lines.get(place).cloned().unwrap_or_else(|| "nothing".to_owned());
            complain(&format!("another order ({seed})"), &line(&names), &line(&again));
        }
    }
    violations
}

fn planned(deltas: &[Delta], policy: &Policy, now: Time, planner: Planner<'_>) -> (Cluster, Plan) {
    let mut cluster = Cluster::new();
    for delta in deltas {
        cluster.apply(delta.clone());
    }
    let plan = planner(&mut cluster, now, policy);
    (cluster, plan)
}

/// The deltas in another order; the seed says which.
#[must_use]
pub fn shuffled(deltas: &[Delta], seed: u64) -> Vec<Delta> {
    let mut state = seed;
    let mut keyed: Vec<(u64, usize)> = (0..deltas.len())
        .map(|place| {
            // SplitMix64: good enough to mix, and the same everywhere.
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            (mixed ^ (mixed >> 31), place)
        })
        .collect();
    keyed.sort_unstable();
    keyed.into_iter().filter_map(|(_, place)| deltas.get(place).cloned()).collect()
}

/// A plan as lines in which every id is a name. Refusals are sorted: each stands for itself.
#[must_use]
pub fn in_names(cluster: &Cluster, plan: &Plan) -> Vec<String> {
    let decision = |decision: &Decision| named(cluster, &format!("{decision:?}"));
    let mut lines: Vec<String> = plan.decisions.iter().map(decision).collect();
    let mut reasons: Vec<String> = plan.reasons.iter().map(|refusal| named(cluster, &format!("{refusal:?}"))).collect();
    reasons.sort();
    lines.extend(reasons);
    lines.extend(plan.verdicts.iter().map(|verdict| format!("{verdict:?}")));
    lines
}

/// The name of an id's place.
type Lookup<'a> = &'a dyn Fn(usize) -> Option<String>;

/// A printed value with names in the place of ids such as `PodId(3)`.
fn named(cluster: &Cluster, printed: &str) -> String {
    let mut text = printed.to_owned();
    let lookups: [(&str, Lookup<'_>); 5] = [
        ("PodId(", &|id| cluster.pods.get(id).map(|pod| pod.uid.to_string())),
        ("NodeId(", &|id| cluster.nodes.get(id).map(|node| node.name.to_string())),
        ("GroupId(", &|id| cluster.groups.get(id).map(|group| group.key.to_string())),
        ("QueueId(", &|id| cluster.queues.get(id).map(|queue| queue.name.to_string())),
        ("Word(", &|id| u32::try_from(id).ok().map(|id| cluster.word(kai_core::ids::Word(id)).to_owned())),
    ];
    for (kind, lookup) in lookups {
        let mut parts = text.split(kind);
        let mut named = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (id, rest) = part.split_once(')').unwrap_or((part, ""));
            let name = id.parse().ok().and_then(lookup);
            named.push_str(&name.map_or_else(|| format!("?{id}"), |name| format!("`{name}`")));
            named.push_str(rest);
        }
        text = named;
    }
    text
}
