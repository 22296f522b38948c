//! Where a kubelet would put pods, policy by policy.

use std::collections::BTreeMap;

use super::{NumaNeed, NumaState, ZoneUse, uses};
use crate::{
    Cluster,
    claims::fixture::{cluster, node, pod, running},
    cluster::{
        pod::{Detail, Place},
        status::Status,
        words::Words,
    },
    delta::{self, Numa, NumaPolicy, NumaScope, NumaShare, NumaUnit, NumaZone, Request},
    plan::NodeRefusal,
};

type Amounts<'a> = &'a [(&'a str, i64)];

fn amounts(amounts: Amounts<'_>) -> BTreeMap<String, i64> {
    amounts.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect()
}

fn numa(policy: NumaPolicy, scope: NumaScope, zones: &[Amounts<'_>]) -> Numa {
    let zone = |zone: &Amounts<'_>| NumaZone { allocatable: amounts(zone), available: amounts(zone) };
    Numa { policy, scope, zones: zones.iter().map(zone).collect() }
}

fn unit(whole_pod: bool, init: bool, wanted: Amounts<'_>) -> NumaUnit {
    NumaUnit { whole_pod, init, amounts: amounts(wanted) }
}

/// What is drawn from each zone.
type Drawn = Vec<(u32, BTreeMap<String, i64>)>;

/// The zones each resource comes from, and the span.
fn place(numa: &Numa, units: &[NumaUnit], used: &[(u32, Amounts<'_>)]) -> Option<(Drawn, u32)> {
    let mut words = Words::default();
    let mut state = NumaState::new(numa, &mut words);
    let used: Vec<NumaShare> =
        used.iter().map(|(zone, taken)| NumaShare { zone: *zone, amounts: amounts(taken) }).collect();
    state.charge(&uses(&used, &mut words), Status::Running, 1);
    let need = NumaNeed::new(units, &mut words);
    let (uses, span) = state.place(&need, true)?;
    let named = |used: ZoneUse| {
        (used.zone, used.amounts.iter().map(|(word, amount)| (words.text(*word).to_owned(), *amount)).collect())
    };
    Some((uses.into_iter().map(named).collect(), span))
}

const ZONES: &[Amounts<'static>] =
    &[&[("cpu", 4000), ("gpu", 2)], &[("cpu", 4000), ("gpu", 2)], &[("cpu", 4000), ("gpu", 2)]];

#[test]
fn one_zone_must_hold_all_and_the_first_that_does_is_taken() {
    let single = numa(NumaPolicy::SingleNumaNode, NumaScope::Pod, ZONES);
    let wanted = [unit(true, false, &[("cpu", 2000), ("gpu", 1)])];
    let used: &[(u32, Amounts<'_>)] = &[(0, &[("gpu", 2)])];
    assert_eq!(place(&single, &wanted, used), Some((vec![(1, amounts(&[("cpu", 2000), ("gpu", 1)]))], 1)));
    assert_eq!(place(&single, &[unit(true, false, &[("cpu", 5000)])], &[]), None);
    let used: &[(u32, Amounts<'_>)] = &[(0, &[("gpu", 2)]), (1, &[("cpu", 3000)]), (2, &[("cpu", 3000)])];
    assert_eq!(place(&single, &wanted, used), None);
}

#[test]
fn resources_that_no_zone_reports_are_not_aligned() {
    let single = numa(NumaPolicy::SingleNumaNode, NumaScope::Pod, ZONES);
    assert_eq!(place(&single, &[unit(true, false, &[("memory", 1 << 50)])], &[]), Some((vec![], 1)));
}

#[test]
fn restricted_takes_the_fewest_zones_that_could_ever_do() {
    let restricted = numa(NumaPolicy::Restricted, NumaScope::Pod, ZONES);
    let wide = [unit(true, false, &[("cpu", 6000), ("gpu", 3)])];
    let split = vec![(0, amounts(&[("cpu", 4000), ("gpu", 2)])), (1, amounts(&[("cpu", 2000), ("gpu", 1)]))];
    assert_eq!(place(&restricted, &wide, &[]), Some((split, 2)));
    let used: &[(u32, Amounts<'_>)] = &[(1, &[("gpu", 2)])];
    let (zones, span) = place(&restricted, &wide, used).expect("zones 0 and 2 do");
    assert_eq!((zones[0].0, zones[1].0, span), (0, 2, 2));
    // Three zones would do, but two could on an empty node: the kubelet refuses.
    let used: &[(u32, Amounts<'_>)] = &[(0, &[("cpu", 2000)]), (1, &[("cpu", 2000)]), (2, &[("cpu", 2000)])];
    assert_eq!(place(&restricted, &wide, used), None);
    // One resource needs one zone, the other two: they cannot agree.
    assert_eq!(place(&restricted, &[unit(true, false, &[("cpu", 1000), ("gpu", 3)])], &[]), None);
    assert_eq!(place(&restricted, &[unit(true, false, &[("cpu", 13_000)])], &[]), None);
}

#[test]
fn best_effort_is_never_refused() {
    let easy = numa(NumaPolicy::BestEffort, NumaScope::Pod, ZONES);
    let used: &[(u32, Amounts<'_>)] = &[(0, &[("cpu", 3000)]), (1, &[("cpu", 2000)])];
    let one = [unit(true, false, &[("cpu", 3000)])];
    assert_eq!(place(&easy, &one, used), Some((vec![(2, amounts(&[("cpu", 3000)]))], 1)));
    let two = [unit(true, false, &[("cpu", 5000)])];
    let split = vec![(1, amounts(&[("cpu", 2000)])), (2, amounts(&[("cpu", 3000)]))];
    assert_eq!(place(&easy, &two, used), Some((split, 2)));
    assert!(place(&easy, &[unit(true, false, &[("cpu", 50_000)])], used).is_some());
}

#[test]
fn without_a_policy_nothing_is_foreseen() {
    let none = numa(NumaPolicy::None, NumaScope::Pod, ZONES);
    assert_eq!(place(&none, &[unit(true, false, &[("cpu", 50_000)])], &[]), Some((vec![], 3)));
}

#[test]
fn containers_draw_on_what_the_ones_before_them_left_and_init_containers_are_alone() {
    let single = numa(NumaPolicy::SingleNumaNode, NumaScope::Container, &[&[("cpu", 4000)], &[("cpu", 4000)]]);
    let three = unit(false, false, &[("cpu", 3000)]);
    let whole = unit(true, false, &[("cpu", 6000)]);
    let parts = vec![(0, amounts(&[("cpu", 3000)])), (1, amounts(&[("cpu", 3000)]))];
    assert_eq!(place(&single, &[whole.clone(), three.clone(), three.clone()], &[]), Some((parts.clone(), 1)));
    assert_eq!(place(&single, &[whole.clone(), three.clone(), three.clone(), three.clone()], &[]), None);
    let init = unit(false, true, &[("cpu", 4000)]);
    assert_eq!(place(&single, &[init.clone(), whole.clone(), three.clone(), three.clone()], &[]), Some((parts, 1)));
    assert_eq!(place(&single, &[unit(false, true, &[("cpu", 5000)]), whole, three], &[]), None);
}

#[test]
fn amounts_beyond_all_machines_do_not_overflow() {
    let zones: &[Amounts<'_>] = &[&[("cpu", i64::MAX)], &[("cpu", i64::MIN)]];
    let restricted = numa(NumaPolicy::Restricted, NumaScope::Pod, zones);
    let used: &[(u32, Amounts<'_>)] = &[(0, &[("cpu", i64::MAX)]), (7, &[("cpu", 1)])];
    assert_eq!(place(&restricted, &[unit(true, false, &[("cpu", i64::MAX)])], used), None);
    let many: Vec<Amounts<'_>> = vec![&[("cpu", 1)]; 64];
    let wide = numa(NumaPolicy::Restricted, NumaScope::Pod, &many);
    let used: Vec<(u32, Amounts<'_>)> = (0..64).map(|zone| (zone, &[("cpu", 1)][..])).collect();
    assert_eq!(place(&wide, &[unit(true, false, &[("cpu", 32)])], &used), None);
}

fn zoned(name: &str) -> delta::Node {
    let zones: &[Amounts<'_>] = &[&[("cpu", 4000)], &[("cpu", 4000)]];
    delta::Node { numa: Some(numa(NumaPolicy::SingleNumaNode, NumaScope::Pod, zones)), ..node(name, &[]) }
}

fn three_cpus(pod: delta::Pod, zone: Option<u32>) -> delta::Pod {
    let mut pod = pod;
    pod.request = Request { cpu: 3000, numa: vec![unit(true, false, &[("cpu", 3000)])], ..Request::default() };
    if let (Some(placement), Some(zone)) = (&mut pod.placement, zone) {
        placement.numa = vec![NumaShare { zone, amounts: amounts(&[("cpu", 3000)]) }];
    }
    pod
}

fn free(cluster: &Cluster) -> Vec<i64> {
    cluster.numa_available(cluster.the_node("a")).iter().map(|zone| zone["cpu"]).collect()
}

#[test]
fn the_zone_of_a_victim_is_promised_to_the_one_it_leaves_for() {
    let mut cluster = cluster([
        three_cpus(running("low", "a", &[]), Some(1)).into(),
        zoned("a").into(),
        three_cpus(running("high", "a", &[]), Some(0)).into(),
        three_cpus(pod("wish", &[]), None).into(),
    ]);
    assert_eq!(free(&cluster), [1000, 1000]);
    let (wish, a) = (cluster.the_pod("wish"), cluster.the_node("a"));
    assert_eq!(cluster.check_numa(wish, a, false), Err(NodeRefusal::Numa));
    cluster.evict(cluster.the_pod("low"));
    assert_eq!(free(&cluster), [1000, 4000]);
    assert_eq!(cluster.check_numa(wish, a, true), Err(NodeRefusal::Numa), "it has not left yet");
    let (numa, span) = cluster.check_numa(wish, a, false).expect("zone 1 will do").expect("there are zones");
    assert_eq!((numa[0].zone, span), (1, 1));
    let detail = Some(Box::new(Detail { numa, ..Detail::default() }));
    let devices = smallvec::SmallVec::new();
    cluster.assign(wish, Place { status: Status::Pipelined, node: Some(a), devices, detail });
    assert_eq!(free(&cluster), [1000, 1000]);
    cluster.settle();
    assert_eq!(free(&cluster), [1000, 1000]);
    cluster.apply(zoned("a").into());
    assert_eq!(free(&cluster), [1000, 1000], "what is free is what the known pods leave");
}
