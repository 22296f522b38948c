//! Searches for victims, as KAI counts them.

use std::time::Duration;

use kai_convert::policy::action_name;
use kai_core::{
    cycle::{SearchEnd, Searched},
    policy::Action,
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::ByAction;

/// How searches are done: all in the same way, which finds victims if there are any. KAI has several ways, each with a time limit.
const GENERATOR: &str = "Complete";

/// The actions that search for victims.
const SEARCHING: [Action; 3] = [Action::Consolidation, Action::Reclaim, Action::Preempt];

/// Labels of searches.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    action: &'static str,
    result: &'static str,
    reduced_budget: &'static str,
}

/// Labels of the time that searches take.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByGenerator {
    action: &'static str,
    generator: &'static str,
    result: &'static str,
}

/// Labels of scenarios.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    action: &'static str,
    generator: &'static str,
    state: &'static str,
}

/// Labels of a limit on one way to search.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGenerator {
    generator: &'static str,
}

/// What came of searches. Clones share the numbers.
#[derive(Clone, Debug)]
pub(super) struct Searches {
    /// How did they end?
    results: Family<ByResult, Counter>,
    /// How long did they take?
    times: Family<ByGenerator, Histogram, fn() -> Histogram>,
    /// What became of scenarios?
    scenarios: Family<ByState, Counter>,
}

impl Default for Searches {
    fn default() -> Self {
        let buckets: fn() -> Histogram = || Histogram::new((0..16).map(|n| 0.001 * f64::from(1_u32 << n)));
        Self { results: Family::default(), times: Family::new_with_constructor(buckets), scenarios: Family::default() }
    }
}

impl Searches {
    /// Registers all.
    pub(super) fn register(self, registry: &mut Registry) {
        registry.register("scenario_search_jobs", "How searches for victims ended", self.results);
        registry.register("scenario_search_duration_seconds", "How long searches took", self.times);
        registry.register("scenario_search_scenarios", "What became of scenarios", self.scenarios);
        register_limits(registry);
    }

    /// Counts one.
    pub(super) fn count(&self, searched: &Searched, took: Duration) {
        let (action, generator) = (action_name(searched.action), GENERATOR);
        let result = match searched.end {
            SearchEnd::Found => "solved",
            SearchEnd::InVain => "generators_exhausted",
            SearchEnd::NotBegun => "not_attempted",
        };
        self.results.get_or_create(&ByResult { action, result, reduced_budget: "false" }).inc();
        if searched.end == SearchEnd::NotBegun {
            return;
        }
        self.times.get_or_create(&ByGenerator { action, generator, result }).observe(took.as_secs_f64());
        let states = [
            ("emitted", searched.played + searched.repeated),
            ("simulated", searched.played),
            ("validator_rejected", searched.refused),
            ("duplicate", searched.repeated),
        ];
        for (state, count) in states {
            self.scenarios.get_or_create(&ByState { action, generator, state }).inc_by(u64::from(count));
        }
    }
}

/// The limits on searches, as KAI shows them: there are none, which is written as zero, and so none is ever reached.
fn register_limits(registry: &mut Registry) {
    let limits = Family::<ByAction, Gauge>::default();
    let reached = Family::<ByAction, Counter>::default();
    for action in SEARCHING {
        limits.get_or_create(&ByAction { action: action_name(action) }).set(0);
        reached.get_or_create(&ByAction { action: action_name(action) }).inc_by(0);
    }
    let of_generators = Family::<OfGenerator, Gauge>::default();
    of_generators.get_or_create(&OfGenerator { generator: GENERATOR }).set(0);
    let limit = |of: &str| format!("scenario_search_{of}_budget_configured_seconds");
    registry.register(limit("action"), "Limit on the searches of an action; 0: none", limits);
    registry.register(limit("job"), "Limit on the searches for a group; 0: none", Gauge::<i64>::default());
    registry.register(limit("generator"), "Limit on a way to search; 0: none", of_generators);
    registry.register("scenario_search_action_budget_exhausted", "Actions that ended at their limit", reached);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_are_shown_as_kai_shows_them() {
        let (mut registry, searches) = (Registry::with_prefix("kai"), Searches::default());
        searches.clone().register(&mut registry);
        let action = Action::Reclaim;
        let solved = Searched { action, end: SearchEnd::Found, played: 3, refused: 1, repeated: 2 };
        let spared = Searched { action, end: SearchEnd::NotBegun, played: 0, refused: 0, repeated: 0 };
        searches.count(&solved, Duration::from_millis(3));
        searches.count(&spared, Duration::ZERO);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"kai_scenario_search_jobs_total{action="reclaim",result="solved",reduced_budget="false"} 1"#,
            r#"kai_scenario_search_jobs_total{action="reclaim",result="not_attempted",reduced_budget="false"} 1"#,
            r#"kai_scenario_search_duration_seconds_count{action="reclaim",generator="Complete",result="solved"} 1"#,
            r#"kai_scenario_search_duration_seconds_bucket{le="0.004",action="reclaim",generator="Complete",result="solved"} 1"#,
            r#"kai_scenario_search_scenarios_total{action="reclaim",generator="Complete",state="emitted"} 5"#,
            r#"kai_scenario_search_scenarios_total{action="reclaim",generator="Complete",state="validator_rejected"} 1"#,
            r#"kai_scenario_search_action_budget_configured_seconds{action="preempt"} 0"#,
            "kai_scenario_search_job_budget_configured_seconds 0",
            r#"kai_scenario_search_generator_budget_configured_seconds{generator="Complete"} 0"#,
            r#"kai_scenario_search_action_budget_exhausted_total{action="consolidation"} 0"#,
        ] {
            assert!(text.contains(line), "no `{line}` in\n{text}");
        }
    }
}
