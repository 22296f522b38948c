//! A trace says the same when it is read as when it was written, and says so when it cannot.

use kai_core::{
    Cluster,
    delta::{Delta, Level, Topology},
    ids::{GroupId, NodeId, PodId},
    plan::{Cause, Decision, GroupRefusal, Overdraft, Placed, Plan, Stats},
    policy::{Action, MinRuntimeRule, Plugins, Policy, Strategy},
    time::{Span, Time},
};
use kai_trace::{Error, LARGEST_RECORD, Reader, Record, Recorder, replay_with};

fn policy() -> Policy {
    let on = true;
    Policy {
        actions: vec![Action::Allocate, Action::Preempt],
        gpu_strategy: Strategy::Binpack,
        cpu_strategy: Strategy::Spread,
        plugins: Plugins {
            predicates: on,
            proportion: on,
            priority: on,
            elastic: on,
            kubeflow: on,
            ray: on,
            node_availability: on,
            gpu_sharing_order: on,
            gpu_pack: on,
            gpu_spread: false,
            resource_type: on,
            subgroup_order: on,
            task_order: on,
            nominated_node: on,
            dynamic_resources: on,
            node_placement: on,
            min_runtime: on,
            topology: on,
            numa: false,
            pod_affinity: on,
        },
        max_consolidation_victims: Some(16),
        consolidating_reclaim: true,
        staleness_grace: Span::seconds(60),
        stuck_after: Span::seconds(120),
        preempt_min_runtime: Span::ZERO,
        reclaim_min_runtime: Span::ZERO,
        reclaim_min_runtime_rule: MinRuntimeRule::LowestCommonAncestor,
        saturation_multiplier: 1000,
        usage_weight: 1000,
        usage: None,
        queue_depth: vec![(Action::Reclaim, 3)],
    }
}

fn topology(name: &str) -> Delta {
    let levels = vec![Level { label: "rack".to_owned(), alias: Some("r".to_owned()) }];
    Delta::Topology(Topology { name: name.to_owned(), levels })
}

/// A plan that depends on the cluster, on time and on the policy.
fn planner(cluster: &mut Cluster, now: Time, policy: &Policy) -> Plan {
    let topologies = u32::try_from(cluster.topologies.len()).expect("few");
    let placed = Placed {
        pod: PodId(topologies),
        node: NodeId(7),
        devices: vec!["a".to_owned()],
        portion: 5,
        claims: Vec::new(),
        extended: Vec::new(),
        numa: Vec::new(),
    };
    let overdraft = Overdraft {
        queue: kai_core::ids::QueueId(1),
        resource: 2,
        allowed: i128::MAX,
        allocated: i128::MIN,
        requested: i128::from(now.0),
    };
    let depth = u64::from(policy.queue_depth.first().map_or(0, |(_, depth)| *depth));
    Plan {
        decisions: vec![Decision::Started { group: GroupId(3), at: now }, Decision::Bind(placed)],
        reasons: vec![GroupRefusal { group: GroupId(9), causes: vec![Cause::OverLimit(overdraft)] }],
        verdicts: Vec::new(),
        stats: Stats { searches: depth, ..Stats::default() },
    }
}

/// Two deltas, a cycle, a delta, two cycles with another policy.
fn trace() -> Vec<u8> {
    let mut cluster = Cluster::new();
    let mut recorder = Recorder::new(Vec::new()).expect("memory");
    let other = Policy { queue_depth: vec![(Action::Reclaim, 8)], ..policy() };
    for (names, policy) in [(vec!["x", "y"], policy()), (vec!["z"], other.clone()), (vec![], other)] {
        for name in names {
            recorder.delta(&topology(name)).expect("memory");
            cluster.apply(topology(name));
        }
        let plan = planner(&mut cluster, Time(1234), &policy);
        recorder.cycle(Time(1234), &policy, &plan).expect("memory");
    }
    recorder.finish().expect("memory")
}

fn read(bytes: &[u8]) -> Result<Vec<Record>, Error> {
    Reader::new(bytes)?.collect()
}

#[test]
fn what_was_written_is_read() {
    let records = read(&trace()).expect("a whole trace");
    let kinds: Vec<&str> = records
        .iter()
        .map(|record| match record {
            Record::Delta(_) => "delta",
            Record::Policy(_) => "policy",
            Record::Cycle { .. } => "cycle",
        })
        .collect();
    assert_eq!(kinds, ["delta", "delta", "policy", "cycle", "delta", "policy", "cycle", "cycle"]);
    assert_eq!(records[0], Record::Delta(topology("x")));
    assert_eq!(records[2], Record::Policy(Box::new(policy())));
}

#[test]
fn the_same_planner_makes_the_same_plans() {
    let bytes = trace();
    let report = replay_with(Reader::new(bytes.as_slice()).expect("a trace"), planner).expect("a whole trace");
    assert_eq!((report.deltas, report.cycles), (3, 3));
    assert_eq!(report.difference, None);
}

#[test]
fn the_first_difference_is_named() {
    let bytes = trace();
    let mut cycle = 0;
    let differing = |cluster: &mut Cluster, now: Time, policy: &Policy| {
        let mut plan = planner(cluster, now, policy);
        cycle += 1;
        if cycle == 2 {
            plan.decisions.pop();
            plan.stats.searches = 0;
        }
        plan
    };
    let report = replay_with(Reader::new(bytes.as_slice()).expect("a trace"), differing).expect("a whole trace");
    let difference = report.difference.expect("plans differ");
    assert_eq!((difference.cycle, difference.now, difference.place.as_str()), (2, 1234, "decisions[1]"));
    assert!(difference.recorded.expect("a bind").starts_with("bind pod `unknown` to node `unknown`"));
    assert_eq!(difference.replayed, None);
}

#[test]
fn a_change_of_the_work_done_is_a_difference_too() {
    let bytes = trace();
    let differing = |cluster: &mut Cluster, now: Time, policy: &Policy| {
        let mut plan = planner(cluster, now, policy);
        plan.stats.simulations = 1;
        plan
    };
    let report = replay_with(Reader::new(bytes.as_slice()).expect("a trace"), differing).expect("a whole trace");
    assert_eq!(report.difference.expect("plans differ").place, "stats[0]");
}

#[test]
fn every_way_to_cut_a_trace_off_is_noticed() {
    let bytes = trace();
    for length in 0..bytes.len() {
        match read(&bytes[..length]) {
            Err(Error::Foreign) if length < 8 => {}
            Err(Error::Truncated { .. }) if length >= 8 => {}
            other => panic!("{length} bytes: {other:?}"),
        }
    }
}

#[test]
fn every_wrong_bit_is_noticed() {
    let bytes = trace();
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1 << bit;
            let error = read(&damaged).expect_err("a wrong bit");
            match place {
                0..8 => assert!(matches!(error, Error::Foreign), "{place}: {error:?}"),
                8..10 => assert!(matches!(error, Error::WrongVersion(_)), "{place}: {error:?}"),
                _ => assert!(
                    matches!(error, Error::Damaged { .. } | Error::TooLong { .. } | Error::Truncated { .. }),
                    "{place}: {error:?}"
                ),
            }
        }
    }
}

#[test]
fn what_follows_the_end_is_an_error() {
    let mut bytes = trace();
    bytes.push(0);
    assert!(matches!(read(&bytes), Err(Error::TrailingBytes)));
}

#[test]
fn a_missing_record_is_noticed() {
    let bytes = trace();
    let first = 9 + u32::from_le_bytes(bytes[11..15].try_into().expect("four")) as usize;
    let shorter = [&bytes[..10], &bytes[10 + first..]].concat();
    assert!(matches!(read(&shorter), Err(Error::Miscounted { counted: 8, found: 7 })));
}

#[test]
fn a_length_alone_reserves_no_memory() {
    let mut bytes = trace()[..10].to_vec();
    bytes.push(1);
    bytes.extend(LARGEST_RECORD.to_le_bytes());
    bytes.extend([0; 4]);
    assert!(matches!(read(&bytes), Err(Error::Truncated { complete: 0 })));
    bytes[11..15].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(read(&bytes), Err(Error::TooLong { record: 1, .. })));
}

#[test]
fn a_cycle_without_a_policy_cannot_be_replayed() {
    let bytes = trace();
    let records: Vec<(usize, u8, usize)> = places(&bytes);
    let cycle = records.iter().find(|(_, kind, _)| *kind == 3).expect("a cycle");
    let only = [&bytes[..10], &bytes[cycle.0..cycle.0 + cycle.2]].concat();
    let error = replay_with(Reader::new(only.as_slice()).expect("a head"), planner).expect_err("no policy");
    assert!(matches!(error, Error::NoPolicy { record: 1 }));
}

/// Where each record is: place, kind, length with its prefix.
fn places(bytes: &[u8]) -> Vec<(usize, u8, usize)> {
    let mut places = Vec::new();
    let mut at = 10;
    while at < bytes.len() {
        let length = 9 + u32::from_le_bytes(bytes[at + 1..at + 5].try_into().expect("four")) as usize;
        places.push((at, bytes[at], length));
        at += length;
    }
    places
}

/// A trace of one record with a right checksum, whatever its body.
fn trace_of(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("short").to_le_bytes();
    let mut sum = !0_u32;
    for byte in [kind].iter().chain(&length).chain(body) {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0xEDB8_8320 } else { sum >> 1 };
        }
    }
    [&b"kaitrace\x02\x00"[..], &[kind], &length, &(!sum).to_le_bytes(), body].concat()
}

#[test]
fn a_right_checksum_makes_nonsense_no_better() {
    assert!(matches!(read(&trace_of(9, b"")), Err(Error::UnknownKind { record: 1, kind: 9 })));
    assert!(matches!(read(&trace_of(1, &[200])), Err(Error::Undecodable { record: 1, .. })));
    assert!(matches!(read(&trace_of(3, b"short")), Err(Error::Undecodable { record: 1, cause: None })));
    assert!(matches!(read(&trace_of(4, b"short")), Err(Error::Undecodable { record: 1, cause: None })));
    // A topology of 2^60 levels: the decoder must not believe it.
    let mut huge = vec![8, 1, b'x'];
    huge.extend([0xFF; 8]);
    huge.push(0x0F);
    assert!(matches!(read(&trace_of(1, &huge)), Err(Error::Undecodable { record: 1, .. })));
}
