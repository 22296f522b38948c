//! Values that no cluster has: whatever arrives, in whatever order, the core answers.

use std::collections::BTreeMap;

use kai_core::{
    Cluster,
    amounts::LARGEST,
    delta::{
        Claim, ClaimAllocation, ClaimRequest, Delta, Device, DeviceCount, DeviceRef, DeviceResource, Expression, Gpus,
        HostPort, Level, MigStrategy, Node, Numa, NumaPolicy, NumaScope, NumaShare, NumaUnit, NumaZone, Operator,
        Origin, Phase, Pod, PodGroup, PodTerm, Queue, QueueResource, Selector, SpreadConstraint, SubGroup, Taint,
        TaintEffect, Term, Toleration, Topology, TopologyConstraint, VolumeNeed, Weighted, WhenUnsatisfiable,
    },
    policy::Policy,
    time::{Span, Time},
};
use kai_invariants::sample;
use proptest::{collection::vec, option, prelude::*, sample::select, test_runner::FileFailurePersistence};

use crate::driver::{PLANNER, cases};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(300),
        max_shrink_iters: 4000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_value_makes_the_core_panic(deltas in vec(delta(), 1..40), now in number(), policy in policy()) {
        play(deltas, Time(now), &policy);
    }

    #[test]
    fn no_bytes_make_the_core_panic(deltas in vec(delta(), 1..12), flips in vec((any::<u16>(), any::<u8>()), 1..6)) {
        let mut bytes = postcard::to_allocvec(&deltas).expect("deltas can be written");
        for (place, value) in flips {
            let place = usize::from(place) % bytes.len();
            bytes[place] = value;
        }
        if let Ok(deltas) = postcard::from_bytes::<Vec<Delta>>(&bytes) {
            play(deltas, sample::NOW, &sample::policy());
        }
    }
}

/// Applies deltas one by one and plans after every few of them.
fn play(deltas: Vec<Delta>, now: Time, policy: &Policy) {
    let mut cluster = Cluster::new();
    for (place, delta) in deltas.into_iter().enumerate() {
        cluster.apply(delta);
        if place % 8 == 7 {
            PLANNER(&mut cluster, now, policy);
        }
    }
    let once = PLANNER(&mut cluster, now, policy);
    let twice = PLANNER(&mut cluster, now, policy);
    assert_eq!(once.decisions, twice.decisions, "the same question has the same answer");
    let later = Time(now.0.saturating_add(600_000));
    PLANNER(&mut cluster, later, policy);
}

/// Few names, so that objects meet; some that are no names.
fn name() -> impl Strategy<Value = String> {
    select(vec!["a", "a", "b", "c", "", "a/b", "default", "A", "\u{0}"]).prop_map(str::to_owned)
}

fn number() -> impl Strategy<Value = i64> {
    let common = select(vec![0_i64, 1, 2, 10, 1000, 1_000_000]);
    let rare = select(vec![-1, i64::MAX, i64::MIN, 1_000_000_000_000_000_000, LARGEST, LARGEST + 1, i64::MAX - 1]);
    prop_oneof![4 => common, 1 => rare]
}

fn count() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0_u32..4, 1 => select(vec![1_000_000, 1_000_001, u32::MAX, 65_536])]
}

fn long() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0_u64..100, 1 => select(vec![u64::MAX, 1 << 40, (1 << 40) + 1, 1 << 63, 80_000])]
}

fn words() -> impl Strategy<Value = BTreeMap<String, String>> {
    proptest::collection::btree_map(name(), name(), 0..3)
}

fn amounts() -> impl Strategy<Value = BTreeMap<String, i64>> {
    let names = select(vec!["a", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-999g.5gb", "cpu", ""]);
    proptest::collection::btree_map(names.prop_map(str::to_owned), number(), 0..3)
}

fn delta() -> impl Strategy<Value = Delta> {
    prop_oneof![
        4 => node().prop_map(|node| Delta::Node(Box::new(node))),
        4 => queue().prop_map(|queue| Delta::Queue(Box::new(queue))),
        5 => group().prop_map(|group| Delta::PodGroup(Box::new(group))),
        9 => pod().prop_map(|pod| Delta::Pod(Box::new(pod))),
        2 => claim().prop_map(|claim| Delta::Claim(Box::new(claim))),
        1 => topology().prop_map(Delta::Topology),
        1 => (name(), vec(0_u32..3, 0..3), any::<bool>()).prop_map(|(resource, kinds, gpu)| {
            Delta::DeviceResource(DeviceResource { resource, kinds, gpu })
        }),
        2 => (0_u8..7, name()).prop_map(|(kind, name)| match kind {
            0 => Delta::NodeGone(name),
            1 => Delta::QueueGone(name),
            2 => Delta::PodGroupGone(name),
            3 => Delta::PodGone(name),
            4 => Delta::TopologyGone(name),
            5 => Delta::ClaimGone(name),
            _ => Delta::DeviceResourceGone(name),
        }),
    ]
}

fn node() -> impl Strategy<Value = Node> {
    let mig =
        select(vec![MigStrategy::Off, MigStrategy::Off, MigStrategy::Any, MigStrategy::Single, MigStrategy::Mixed]);
    let amounts_of = (number(), number(), number(), number(), amounts());
    (
        name(),
        words(),
        amounts_of,
        count(),
        option::of(long()),
        mig,
        option::weighted(0.2, numa()),
        vec(device(), 0..3),
        taints(),
    )
        .prop_map(
            |(name, labels, (cpu, memory, pods, storage, extended), gpus, gpu_memory, mig, numa, devices, taints)| {
                let mut node = sample::node(&name, gpus);
                (node.cpu, node.memory, node.pods, node.storage) = (cpu, memory, pods, storage);
                node.gpus.memory = gpu_memory;
                node.gpus.mig = mig;
                Node { labels, extended, numa, devices, taints, ..node }
            },
        )
}

fn taints() -> impl Strategy<Value = Vec<Taint>> {
    let effect = select(vec![TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute]);
    vec((name(), name(), effect).prop_map(|(key, value, effect)| Taint { key, value, effect }), 0..2)
}

fn numa() -> impl Strategy<Value = Numa> {
    let policy = select(vec![NumaPolicy::Restricted, NumaPolicy::SingleNumaNode, NumaPolicy::BestEffort]);
    let scope = select(vec![NumaScope::Container, NumaScope::Pod]);
    let zone = (amounts(), amounts()).prop_map(|(allocatable, available)| NumaZone { allocatable, available });
    (policy, scope, vec(zone, 0..3)).prop_map(|(policy, scope, zones)| Numa { policy, scope, zones })
}

fn device_ref() -> impl Strategy<Value = DeviceRef> {
    (name(), name(), name()).prop_map(|(driver, pool, name)| DeviceRef { driver, pool, name })
}

fn device() -> impl Strategy<Value = Device> {
    (device_ref(), 0_u32..3, any::<bool>()).prop_map(|(device, kind, gpu)| Device { device, kind, gpu })
}

fn queue() -> impl Strategy<Value = Queue> {
    let resource = || {
        (option::of(number()), option::of(number()), number())
            .prop_map(|(quota, limit, over_quota_weight)| QueueResource { quota, limit, over_quota_weight })
    };
    let head = (name(), option::of(name()), number(), any::<i32>());
    (head, resource(), resource(), resource(), option::of(number()), option::of(number())).prop_map(
        |((name, parent, created, priority), cpu, memory, gpu, preempt, reclaim)| Queue {
            name,
            parent,
            created: Time(created),
            priority,
            cpu,
            memory,
            gpu,
            preempt_min_runtime: preempt.map(Span),
            reclaim_min_runtime: reclaim.map(Span),
        },
    )
}

fn constraint() -> impl Strategy<Value = Option<TopologyConstraint>> {
    option::weighted(
        0.3,
        (name(), option::of(name()), option::of(name()))
            .prop_map(|(topology, required, preferred)| TopologyConstraint { topology, required, preferred }),
    )
}

fn subgroups() -> impl Strategy<Value = Vec<SubGroup>> {
    let one = (name(), option::of(name()), option::of(count()), option::of(count()), constraint());
    let one = one.prop_map(|(name, parent, min_member, min_sub_group, topology)| SubGroup {
        name,
        parent,
        min_member,
        min_sub_group,
        topology,
    });
    prop_oneof![2 => Just(Vec::new()), 1 => vec(one, 0..5)]
}

fn group() -> impl Strategy<Value = PodGroup> {
    let times =
        (option::of(number()), option::of(number()), option::of(number()), option::of(number()), option::of(number()));
    let head = (name(), name(), number(), any::<i32>(), any::<bool>());
    let mins = (option::of(count()), option::of(count()));
    (head, mins, constraint(), subgroups(), times, option::weighted(0.1, name())).prop_map(
        |(
            (key, queue, created, priority, preemptible),
            (min_member, min_sub_group),
            topology,
            subgroups,
            times,
            invalid,
        )| PodGroup {
            key,
            queue,
            created: Time(created),
            priority,
            preemptible,
            min_member,
            min_sub_group,
            topology,
            subgroups,
            preemption_delay: times.0.map(Span),
            staleness_grace: times.1.map(Span),
            last_start: times.2.map(Time),
            last_eviction: times.3.map(Time),
            stale_since: times.4.map(Time),
            invalid,
        },
    )
}

fn gpus() -> impl Strategy<Value = Gpus> {
    prop_oneof![
        Just(Gpus::None),
        count().prop_map(Gpus::Whole),
        (count(), prop_oneof![0_u32..=1_000_000, Just(u32::MAX)])
            .prop_map(|(devices, millionths)| Gpus::Portion { devices, millionths }),
        (count(), long()).prop_map(|(devices, mib)| Gpus::Memory { devices, mib }),
    ]
}

fn pod() -> impl Strategy<Value = Pod> {
    let phase =
        select(vec![Phase::Pending, Phase::Pending, Phase::Running, Phase::Gated, Phase::Succeeded, Phase::Failed]);
    let origin = select(vec![Origin::Ours, Origin::Ours, Origin::Ours, Origin::Utility, Origin::Foreign]);
    let numa = vec((0_u32..4, amounts()).prop_map(|(zone, amounts)| NumaShare { zone, amounts }), 0..2);
    let placement = option::of(
        (name(), vec(name(), 0..3), numa, any::<bool>())
            .prop_map(|(node, devices, numa, bound)| kai_core::delta::Placement { node, devices, numa, bound }),
    );
    let request = (number(), number(), number(), amounts(), gpus(), number(), any::<bool>(), units());
    let membership = (name(), option::of(name()), option::of(name()), name());
    let rest = (
        option::of(number()),
        option::of(number()),
        option::of(name()),
        vec(name(), 0..2),
        option::weighted(0.1, name()),
    );
    (membership, words(), number(), phase, origin, placement, request, constraints(), rest).prop_map(
        |((uid, group, subgroup, namespace), labels, created, phase, origin, placement, request, constraints, rest)| {
            let (deleted, task_priority, nominated, claims, invalid) = rest;
            let (cpu, memory, storage, extended, gpus, mig_share, legacy_mig, numa) = request;
            let mut pod = sample::pod(&uid, "", gpus);
            pod.role.task_priority = task_priority;
            pod.created = Time(created);
            pod.deleted = deleted.map(Time);
            pod.request =
                kai_core::delta::Request { cpu, memory, storage, extended, gpus, mig_share, legacy_mig, numa };
            Pod {
                namespace,
                labels,
                group,
                subgroup,
                phase,
                placement,
                origin,
                nominated,
                constraints,
                claims,
                invalid,
                ..pod
            }
        },
    )
}

fn units() -> impl Strategy<Value = Vec<NumaUnit>> {
    let unit = (any::<bool>(), any::<bool>(), amounts());
    vec(unit.prop_map(|(whole_pod, init, amounts)| NumaUnit { whole_pod, init, amounts }), 0..2)
}

fn expression() -> impl Strategy<Value = Expression> {
    let operator = select(vec![
        Operator::In,
        Operator::NotIn,
        Operator::Exists,
        Operator::DoesNotExist,
        Operator::Gt,
        Operator::Lt,
    ]);
    (name(), operator, vec(name(), 0..2)).prop_map(|(key, operator, values)| Expression { key, operator, values })
}

fn term() -> impl Strategy<Value = Term> {
    (vec(expression(), 0..2), vec(expression(), 0..2)).prop_map(|(labels, names)| Term { labels, names })
}

fn pod_term() -> impl Strategy<Value = PodTerm> {
    let selector = option::of(vec(expression(), 0..2).prop_map(|expressions| Selector { expressions }));
    (selector, option::of(vec(name(), 0..2)), name()).prop_map(|(selector, namespaces, topology_key)| PodTerm {
        selector,
        namespaces,
        topology_key,
    })
}

fn constraints() -> impl Strategy<Value = kai_core::delta::Constraints> {
    let toleration = (option::of(name()), option::of(name())).prop_map(|(key, value)| Toleration {
        key,
        value,
        effect: Some(TaintEffect::NoSchedule),
    });
    let spread = (count(), name(), any::<bool>(), option::of(count())).prop_map(
        |(max_skew, topology_key, hard, min_domains)| SpreadConstraint {
            max_skew,
            topology_key,
            when_unsatisfiable: if hard { WhenUnsatisfiable::DoNotSchedule } else { WhenUnsatisfiable::ScheduleAnyway },
            selector: Some(Selector::default()),
            min_domains,
            honor_node_affinity: hard,
            honor_taints: !hard,
        },
    );
    let port = (any::<u16>(), name(), name()).prop_map(|(port, protocol, address)| HostPort {
        port: port % 2,
        protocol,
        address,
    });
    let volume = (name(), option::of(vec(term(), 0..2)), any::<bool>())
        .prop_map(|(claim, nodes, exclusive)| VolumeNeed::Bound { claim, nodes, exclusive });
    let preferred = (any::<i32>(), pod_term()).prop_map(|(weight, item)| Weighted { weight, item });
    let preferred_node = (any::<i32>(), term()).prop_map(|(weight, item)| Weighted { weight, item });
    let pods = (vec(pod_term(), 0..2), vec(pod_term(), 0..2), vec(preferred, 0..2), vec(spread, 0..2));
    let full = (
        words(),
        option::of(vec(term(), 0..2)),
        vec(preferred_node, 0..2),
        vec(toleration, 0..2),
        pods,
        vec(port, 0..2),
        vec(volume, 0..2),
    )
        .prop_map(
            |(node_selector, node_affinity, preferred_node_affinity, tolerations, pods, host_ports, volumes)| {
                kai_core::delta::Constraints {
                    node_selector,
                    node_affinity,
                    preferred_node_affinity,
                    tolerations,
                    pod_affinity: pods.0,
                    pod_anti_affinity: pods.1,
                    preferred_pod_affinity: pods.2,
                    spread: pods.3,
                    host_ports,
                    volumes,
                    missing: Vec::new(),
                    vetoed: Vec::new(),
                }
            },
        );
    prop_oneof![2 => Just(kai_core::delta::Constraints::default()), 1 => full]
}

fn topology() -> impl Strategy<Value = Topology> {
    let level = (name(), option::of(name())).prop_map(|(label, alias)| Level { label, alias });
    (name(), vec(level, 0..4)).prop_map(|(name, levels)| Topology { name, levels })
}

fn claim() -> impl Strategy<Value = Claim> {
    let devices = prop_oneof![long().prop_map(DeviceCount::Exactly), Just(DeviceCount::All)];
    let request = (name(), devices, vec(0_u32..3, 0..3), any::<bool>())
        .prop_map(|(name, count, kinds, gpu)| ClaimRequest { name, count, kinds, gpu });
    let allocation = option::of(
        (option::of(name()), vec((0_u32..3, device_ref()), 0..3))
            .prop_map(|(node, devices)| ClaimAllocation { node, devices }),
    );
    let flags = (count(), option::of(name()), any::<bool>(), option::weighted(0.1, name()));
    (name(), vec(request, 0..3), allocation, vec(name(), 0..3), flags).prop_map(
        |(key, requests, allocation, reserved_for, (max_consumers, queue, of_one_pod, impossible))| Claim {
            key,
            requests,
            allocation,
            reserved_for,
            max_consumers,
            queue,
            of_one_pod,
            impossible,
        },
    )
}

fn policy() -> impl Strategy<Value = Policy> {
    (number(), number(), count(), count(), any::<bool>()).prop_map(|(grace, runtime, victims, multiplier, numa)| {
        let mut policy = sample::policy();
        policy.plugins.numa = numa;
        policy.staleness_grace = Span(grace);
        policy.stuck_after = Span(runtime);
        policy.preempt_min_runtime = Span(runtime);
        policy.reclaim_min_runtime = Span(grace);
        policy.max_consolidation_victims = Some(victims);
        policy.saturation_multiplier = multiplier;
        policy
    })
}
