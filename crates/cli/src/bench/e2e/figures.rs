//! What was measured, before it is told.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use tokio::time::Instant;

use super::{ground::Where, spent::Spent, weight::Weights};
use crate::bench::core::measure::Spread;

/// Who binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contender {
    /// A loop over pods that are there already.
    BindLoop {
        /// Requests at the same time.
        at_once: usize,
    },
    /// A loop over pods as they are created.
    BindAsTheyCome {
        /// Requests at the same time.
        at_once: usize,
    },
    /// The control plane, with pods that are created meanwhile.
    Kai,
    /// The control plane whose scheduler starts when the pods and their groups are there.
    KaiLater,
    /// Kubernetes' own scheduler.
    KubeScheduler(PathBuf),
}

impl std::fmt::Display for Contender {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BindLoop { at_once: 1 } => formatter.write_str("only binds, pods are there"),
            Self::BindLoop { at_once } => write!(formatter, "the same, {at_once} at once"),
            Self::BindAsTheyCome { at_once: 1 } => formatter.write_str("only binds, as pods come"),
            Self::BindAsTheyCome { at_once } => write!(formatter, "as pods come, {at_once} at once"),
            Self::Kai => formatter.write_str("kai"),
            Self::KaiLater => formatter.write_str("kai, pods are there"),
            Self::KubeScheduler(_) => formatter.write_str("kube-scheduler"),
        }
    }
}

/// One turn.
#[derive(Clone, Debug)]
pub struct Round {
    /// Pods.
    pub pods: u32,
    /// From the first creation to the last pod that its node has taken in; where pods are there, from the start of the loop or of the scheduler.
    pub took: Duration,
    /// Processor time meanwhile.
    pub spent: Spent,
    /// Milliseconds from each creation to its node, sorted.
    pub latencies: Vec<f64>,
}

impl Round {
    /// Pods a second.
    pub fn rate(&self) -> f64 {
        f64::from(self.pods) / self.took.as_secs_f64().max(1e-9)
    }

    /// Processor time of this process for each pod.
    pub fn processor_milliseconds(&self) -> f64 {
        milliseconds(self.spent.own) / f64::from(self.pods.max(1))
    }

    /// Processor time of the API server for each pod; not a number where that is not known.
    pub fn server_milliseconds(&self) -> f64 {
        self.spent.server.map_or(f64::NAN, milliseconds) / f64::from(self.pods.max(1))
    }

    /// Milliseconds until the first pod had its node. Where pods are there, that is how long the start took.
    pub fn first(&self) -> f64 {
        self.latencies.first().copied().unwrap_or(f64::NAN)
    }

    /// The latency that this part of pods did not exceed.
    pub fn percentile(&self, part: u32) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let index = (self.latencies.len() * usize::try_from(part).unwrap_or(100)).div_ceil(100).saturating_sub(1);
        self.latencies.get(index.min(last)).copied().unwrap_or(f64::NAN)
    }
}

/// From each creation to its node. One creation counts for all pods that have none of their own.
pub fn latencies(asked: &BTreeMap<String, Instant>, bound: &BTreeMap<String, Instant>) -> Vec<f64> {
    let all = asked.get("").copied();
    let each = bound.iter().filter_map(|(name, at)| {
        let began = asked.get(name).copied().or(all)?;
        Some(milliseconds(at.duration_since(began)))
    });
    let mut latencies: Vec<f64> = each.collect();
    latencies.sort_by(f64::total_cmp);
    latencies
}

/// Rounds of each contender.
pub type Rounds = Vec<(Contender, Vec<Round>)>;

/// Everything.
pub struct Figures {
    /// On which API server, and how it was reached.
    pub place: Where,
    /// Rounds of each.
    pub rounds: u32,
    /// Whole GPUs.
    pub whole: Rounds,
    /// Requests per pod with whole GPUs: component, request, count.
    pub calls: Vec<(String, String, f64)>,
    /// Half GPUs.
    pub fractions: Rounds,
    /// Requests per pod with half GPUs.
    pub calls_of_fractions: Vec<(String, String, f64)>,
    /// The gang.
    pub gang: Rounds,
    /// Memory.
    pub memory: Option<Weights>,
}

impl Figures {
    /// Nothing measured yet.
    pub fn new(place: Where, rounds: u32) -> Self {
        Self {
            place,
            rounds,
            whole: Vec::new(),
            calls: Vec::new(),
            fractions: Vec::new(),
            calls_of_fractions: Vec::new(),
            gang: Vec::new(),
            memory: None,
        }
    }

    /// Which part of the ceiling `kai` reached, round by round. The ceiling is what the fastest of some loops did.
    pub fn kai_of_ceiling(&self, loops: &[Contender]) -> Option<Spread> {
        let against = |other: &Contender| {
            let kai = rounds_of(&self.whole, kai_as(other))?;
            let other = rounds_of(&self.whole, other)?;
            Some(kai.iter().zip(other).map(|(kai, other)| kai.rate() / other.rate()).collect::<Vec<f64>>())
        };
        let least = |a: Vec<f64>, b: Vec<f64>| a.into_iter().zip(b).map(|(a, b)| a.min(b)).collect();
        Spread::of(loops.iter().filter_map(against).reduce(least)?)
    }

    /// How many times as fast `kai` was as another that did the same, round by round, by a measure of a round.
    pub fn kai_against(&self, other: &Contender, measure: impl Fn(&Round) -> f64) -> Option<Spread> {
        let kai = rounds_of(&self.whole, kai_as(other))?;
        let other = rounds_of(&self.whole, other)?;
        Spread::of(kai.iter().zip(other).map(|(kai, other)| measure(kai) / measure(other)).collect())
    }
}

/// The turn of kai in which it did the same as another.
fn kai_as(other: &Contender) -> &'static Contender {
    match other {
        Contender::BindLoop { .. } => &Contender::KaiLater,
        _ => &Contender::Kai,
    }
}

/// The rounds of a contender.
pub fn rounds_of<'a>(rounds: &'a Rounds, contender: &Contender) -> Option<&'a [Round]> {
    rounds.iter().find(|(who, _)| who == contender).map(|(_, rounds)| rounds.as_slice())
}

/// A measure of all rounds.
pub fn spread(rounds: &[Round], measure: impl Fn(&Round) -> f64) -> Option<Spread> {
    Spread::of(rounds.iter().map(measure).collect())
}

/// For arithmetic.
pub fn milliseconds(elapsed: Duration) -> f64 {
    elapsed.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_pods_that_were_bound() {
        let latencies = (1..=200).map(f64::from).collect();
        let took = Duration::from_secs(2);
        let spent = Spent { own: Duration::from_secs(1), server: Some(Duration::from_secs(2)) };
        let round = Round { pods: 200, took, spent, latencies };
        assert!((round.percentile(50) - 100.0).abs() < 1e-9 && (round.percentile(99) - 198.0).abs() < 1e-9);
        assert!((round.rate() - 100.0).abs() < 1e-9 && (round.processor_milliseconds() - 5.0).abs() < 1e-9);
        assert!((round.server_milliseconds() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn pods_of_a_job_are_as_old_as_the_job() {
        let begin = Instant::now();
        let later = begin + Duration::from_millis(7);
        let asked = BTreeMap::from([(String::new(), begin)]);
        assert_eq!(latencies(&asked, &BTreeMap::from([("a".to_owned(), later)])), [7.0]);
    }
}
