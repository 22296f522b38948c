//! Whatever is placed, evicted, moved and taken back, every ledger says what counting everything anew would say.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use smallvec::SmallVec;

use crate::{
    Cluster,
    amounts::{Amounts, Resource, Shares, fixed},
    claims::fixture::{allocated, claim, cluster, group, node, pod, running},
    cluster::{
        pod::{Detail, Place, Pod},
        status::Status,
    },
    delta::{
        self, Delta, DeviceCount, DeviceResource, Gpus, Numa, NumaPolicy, NumaScope, NumaShare, NumaUnit, NumaZone,
        Origin, Request,
    },
    ids::{ClaimId, NodeId, PodId},
    time::Time,
};

const NODES: [&str; 3] = ["plugin", "driver", "mixed"];

/// What the ledgers of a node say, by names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Summary {
    idle: BTreeMap<String, i64>,
    future: BTreeMap<String, i64>,
    /// Units used, leaving and promised, and whether the device was opened in this cycle.
    shared: BTreeMap<String, (u64, u64, u64, bool)>,
    devices: Vec<(u32, u32)>,
    zones: Vec<BTreeMap<String, (i64, i64)>>,
    pods: Vec<String>,
    evictable: i64,
    foreign: Shares,
}

fn named(cluster: &Cluster, amounts: &Amounts) -> BTreeMap<String, i64> {
    let fixed = amounts.fixed.iter().enumerate().map(|(place, amount)| (format!("fixed {place}"), *amount));
    let extended = amounts.extended.iter().map(|(word, amount)| (cluster.word(*word).to_owned(), *amount));
    fixed.chain(extended).filter(|(_, amount)| *amount != 0).collect()
}

/// What the ledgers say.
fn entered(cluster: &Cluster, id: NodeId) -> Summary {
    let node = &cluster.nodes[id.index()];
    let shared = node.shared.iter().map(|device| {
        (cluster.word(device.name).to_owned(), (device.used, device.leaving, device.promised, device.fresh))
    });
    let zones = node.numa.iter().flat_map(|numa| &numa.zones);
    let mut pods: Vec<String> = node.pods.iter().map(|pod| cluster.pod_uid(*pod).to_owned()).collect();
    pods.sort();
    Summary {
        idle: named(cluster, &node.idle),
        future: named(cluster, &node.future),
        shared: shared.collect(),
        devices: node.devices.iter().map(|device| (device.used, device.staying)).collect(),
        zones: zones
            .map(|zone| {
                let amounts = zone.idle.iter().copied().zip(zone.future.iter().copied());
                zone.total.iter().map(|(word, _)| cluster.word(*word).to_owned()).zip(amounts).collect()
            })
            .collect(),
        pods,
        evictable: node.evictable_gpus,
        foreign: node.foreign,
    }
}

fn stays(status: Status) -> bool {
    status.is_active() && status != Status::Releasing
}

/// Every place that is in use on a node.
fn places(cluster: &Cluster, id: NodeId) -> Vec<(PodId, &Pod, &Place)> {
    let pods = (0..cluster.pods.len()).map(PodId::of);
    let here = pods.flat_map(|id| {
        let pod = &cluster.pods[id.index()];
        [Some(&pod.place), cluster.leaving.get(&id)].into_iter().flatten().map(move |place| (id, pod, place))
    });
    here.filter(|(_, _, place)| place.node == Some(id) && place.status.is_active()).collect()
}

/// Whether the API says that a claim has its devices for pods that are not known to hold it.
fn is_anchored(cluster: &Cluster, claim: ClaimId, id: NodeId) -> bool {
    let claim = cluster.claims.get(claim);
    let reserved = claim.fact.as_ref().map_or(&[][..], |fact| &fact.reserved_for);
    let unknown = reserved.iter().any(|uid| cluster.pod(uid).is_none());
    let held = (0..cluster.pods.len()).map(PodId::of).any(|user| {
        let pod = &cluster.pods[user.index()];
        let uses = claim.users.contains(&user);
        let was = cluster.leaving.get(&user).unwrap_or(&pod.place);
        uses && pod.fact.is_active() && was.node == Some(id)
    });
    unknown || !held
}

/// What the ledgers should say: everything counted anew, by definition.
fn recounted(cluster: &Cluster, id: NodeId) -> Summary {
    let node = &cluster.nodes[id.index()];
    let mut idle = node.total.clone();
    let mut future = node.total.clone();
    let mut summary = Summary::default();
    let mut fresh: BTreeMap<String, bool> = BTreeMap::new();
    // Who has a device, now and later: claims by key, pods by uid.
    let mut holders: Vec<(BTreeSet<String>, BTreeSet<String>)> = vec![Default::default(); node.devices.len()];
    summary.zones = node
        .numa
        .iter()
        .flat_map(|numa| &numa.zones)
        .map(|zone| zone.total.iter().map(|(word, total)| (cluster.word(*word).to_owned(), (*total, *total))).collect())
        .collect();
    for (_, pod, place) in places(cluster, id) {
        let class = cluster.class(pod.class);
        let (now, later) = (place.status.is_physical(), stays(place.status));
        let mut amounts = class.amounts.clone();
        let detail = place.detail.as_deref().cloned().unwrap_or_default();
        let mut whole = match class.gpus {
            Gpus::Whole(count) => i64::from(count),
            Gpus::Portion { devices, .. } | Gpus::Memory { devices, .. } => i64::from(devices),
            Gpus::None => 0,
        };
        for (word, device) in &detail.extended {
            // The device stands for this unit.
            if cluster.word(*word) == "nvidia.com/gpu" {
                amounts.fixed[fixed::GPU] -= 1;
            } else {
                amounts.add_extended(*word, -1);
            }
            let (used, staying) = &mut holders[*device as usize];
            if now {
                used.insert(format!("pod {}", pod.uid));
            }
            if later {
                staying.insert(format!("pod {}", pod.uid));
            }
        }
        for (claim, devices) in &detail.claims {
            let key = format!("claim {} {devices:?}", cluster.claim_key(*claim));
            for (_, device) in devices {
                let (used, staying) = &mut holders[*device as usize];
                if now {
                    used.insert(key.clone());
                }
                if later {
                    staying.insert(key.clone());
                }
                let serves_gpus = node.served.iter().any(|served| {
                    cluster.word(served.name) == "nvidia.com/gpu" && served.takes(&node.devices[*device as usize])
                });
                whole += i64::from(serves_gpus);
            }
        }
        if now {
            idle.add(&amounts, -1);
        }
        if later {
            future.add(&amounts, -1);
        }
        if class.is_shared() {
            let units = node.units_of(class.gpus).unwrap_or_else(|| node.device_units());
            for name in &place.devices {
                let name = cluster.word(*name).to_owned();
                let (used, leaving, promised, _) = summary.shared.entry(name.clone()).or_default();
                *used += if now { units } else { 0 };
                *leaving += if now && !later { units } else { 0 };
                *promised += if now { 0 } else { units };
                *fresh.entry(name).or_insert(true) &= matches!(place.status, Status::Allocated | Status::Pipelined);
            }
        }
        let preemptible = pod.group.is_some_and(|group| cluster.groups[group.index()].preemptible);
        if preemptible && now && place.status.is_active_allocated() {
            summary.evictable += whole;
        }
        if pod.is_foreign() {
            summary.foreign.add(&class.charge_on(node.gpu_memory));
            summary.foreign.0[2] += pod.rare.as_ref().map_or(0, |rare| rare.claimed_gpus);
        }
        for zone_use in &detail.numa {
            let Some(zone) = summary.zones.get_mut(zone_use.zone as usize) else { continue };
            for (word, amount) in &zone_use.amounts {
                let Some((idle, future)) = zone.get_mut(cluster.word(*word)) else { continue };
                *idle -= if now { *amount } else { 0 };
                *future -= if later { *amount } else { 0 };
            }
        }
        summary.pods.push(pod.uid.to_string());
    }
    for claim in node.claims.iter().filter(|claim| is_anchored(cluster, **claim, id)) {
        let devices = cluster.claims.get(*claim).home.as_ref().map_or(&[][..], |home| &home.devices);
        for (_, device) in devices {
            let key = format!("claim {} {devices:?}", cluster.claim_key(*claim));
            holders[*device as usize].0.insert(key.clone());
            holders[*device as usize].1.insert(key);
        }
    }
    for (device, (used, staying)) in node.devices.iter().zip(&holders) {
        for served in node.served.iter().filter(|served| served.takes(device)) {
            for (amounts, taken) in [(&mut idle, !used.is_empty()), (&mut future, !staying.is_empty())] {
                match served.resource {
                    Resource::Fixed(place) => amounts.fixed[usize::from(place)] -= i64::from(taken),
                    Resource::Extended(word) => amounts.add_extended(word, -i64::from(taken)),
                }
            }
        }
    }
    for (name, (used, leaving, promised, is_fresh)) in &mut summary.shared {
        *is_fresh = fresh[name];
        idle.fixed[fixed::GPU] -= i64::from(*used > 0);
        future.fixed[fixed::GPU] -= i64::from(*used - *leaving + *promised > 0);
        // Its reservation pod is still to come.
        idle.fixed[fixed::PODS] -= i64::from(*is_fresh);
        future.fixed[fixed::PODS] -= i64::from(*is_fresh);
    }
    let count = |holders: &BTreeSet<String>| u32::try_from(holders.len()).expect("few hold a device");
    summary.devices = holders.iter().map(|(used, staying)| (count(used), count(staying))).collect();
    summary.idle = named(cluster, &idle);
    summary.future = named(cluster, &future);
    summary.pods.sort();
    summary
}

/// What each queue is charged and asked, by name, and how many pods of each group stand where.
fn queues(cluster: &Cluster) -> BTreeMap<String, (Shares, Shares)> {
    let queues = cluster.queues.iter().map(|queue| (queue.name.to_string(), (queue.own.allocated, queue.own.waiting)));
    queues.filter(|(_, (allocated, waiting))| !allocated.is_zero() || !waiting.is_zero()).collect()
}

fn recounted_queues(cluster: &Cluster) -> BTreeMap<String, (Shares, Shares)> {
    let mut queues: BTreeMap<String, (Shares, Shares)> = BTreeMap::new();
    for id in (0..cluster.pods.len()).map(PodId::of) {
        let pod = &cluster.pods[id.index()];
        let Some(queue) = pod.group.and_then(|group| cluster.groups[group.index()].queue) else { continue };
        let (allocated, waiting) = queues.entry(cluster.queue_name(queue).to_owned()).or_default();
        if pod.place.status.is_charged() {
            allocated.add(&cluster.charge_of(id));
        } else if pod.place.status == Status::Pending {
            waiting.add(&cluster.charge_with(id, None));
        }
    }
    queues.retain(|_, (allocated, waiting)| !allocated.is_zero() || !waiting.is_zero());
    queues
}

fn check(cluster: &Cluster) -> Result<(), TestCaseError> {
    for id in (0..cluster.nodes.len()).map(NodeId::of) {
        prop_assert_eq!(entered(cluster, id), recounted(cluster, id), "node {}", cluster.node_name(id));
    }
    prop_assert_eq!(queues(cluster), recounted_queues(cluster));
    Ok(())
}

/// Nodes, queues and holders of claims, by name.
type Everything = (BTreeMap<String, Summary>, BTreeMap<String, (Shares, Shares)>, BTreeMap<String, String>);

/// Everything by name, and who holds what of claims.
fn everything(cluster: &Cluster) -> Everything {
    let nodes = (0..cluster.nodes.len()).map(NodeId::of);
    let nodes = nodes.map(|id| (cluster.node_name(id).to_owned(), entered(cluster, id)));
    let keys = (0..12).flat_map(|place| [format!("test/c{place}"), format!("test/extended-{place}")]);
    let keys = keys.chain(["test/shared".to_owned()]);
    let claims = keys.filter_map(|key| {
        let claim = cluster.claims.get(cluster.claims.find(&key)?);
        let holds = claim
            .holds
            .iter()
            .map(|hold| (cluster.node_name(hold.node), &hold.devices, hold.used, hold.leaving, hold.promised));
        Some((key, format!("{:?}", holds.collect::<Vec<_>>())))
    });
    (nodes.collect(), queues(cluster), claims.collect())
}

fn zones() -> Numa {
    let amounts: BTreeMap<String, i64> = [("cpu".to_owned(), 4000), ("nvidia.com/gpu".to_owned(), 2)].into();
    let zone = NumaZone { allocatable: amounts.clone(), available: amounts };
    Numa { policy: NumaPolicy::SingleNumaNode, scope: NumaScope::Pod, zones: vec![zone.clone(), zone] }
}

fn nodes() -> Vec<delta::Node> {
    let mut plugin = node(NODES[0], &[]);
    plugin.gpus.count = 4;
    plugin.gpus.memory = Some(1000);
    plugin.numa = Some(zones());
    let driver = node(NODES[1], &[1, 2, 1, 11]);
    let mut mixed = node(NODES[2], &[2, 11]);
    mixed.gpus.count = 2;
    mixed.gpus.memory = Some(500);
    mixed.numa = Some(zones());
    vec![plugin, driver, mixed]
}

/// A pod: what it asks for, how it stands, and where.
type Described = (u8, u8, usize, usize);

fn request(kind: u8) -> Request {
    let gpus = match kind {
        1 => Gpus::Whole(1),
        2 => Gpus::Whole(2),
        3 => Gpus::Portion { devices: 1, millionths: 300_000 },
        4 => Gpus::Memory { devices: 1, mib: 400 },
        _ => Gpus::None,
    };
    let mut request = Request { cpu: 1000, gpus, ..Request::default() };
    if kind == 5 {
        request.extended.insert("example.com/nic".to_owned(), 1);
    }
    if kind.is_multiple_of(2) {
        let amounts = [("cpu".to_owned(), 1000)].into();
        request.numa = vec![NumaUnit { whole_pod: true, init: false, amounts }];
    }
    request
}

fn describe(place: usize, (kind, state, at, which): Described) -> Vec<Delta> {
    let uid = format!("p{place}");
    let own = format!("test/c{place}");
    let claims: Vec<&str> = match kind {
        6 => vec![&own],
        7 => vec!["test/shared"],
        8 => vec![&own, "test/shared"],
        _ => Vec::new(),
    };
    let active = state >= 2;
    let mut described = if active { running(&uid, NODES[at], &claims) } else { pod(&uid, &claims) };
    described.request = request(kind);
    if let Some(placement) = described.placement.as_mut() {
        if kind == 3 || kind == 4 {
            placement.devices = vec![format!("g{which}")];
        }
        if kind.is_multiple_of(2) {
            let zone = u32::from(which == 1);
            placement.numa = vec![NumaShare { zone, amounts: [("cpu".to_owned(), 1000)].into() }];
        }
    }
    if state == 4 {
        described.deleted = Some(Time(1));
    }
    if state == 5 {
        described.origin = Origin::Foreign;
        described.group = None;
    }
    let mut deltas = vec![
        described.into(),
        group(&format!("test/{uid}"), if place.is_multiple_of(2) { "red" } else { "blue" }).into(),
    ];
    let device = which.to_string();
    if kind == 6 || kind == 8 {
        let mine = claim(&own, &[(DeviceCount::Exactly(1 + (which as u64 % 2)), &[1, 2])]);
        let mine = if active { allocated(mine, NODES[at], &[(0, &device)], &[&uid]) } else { mine };
        deltas.push(mine.into());
    }
    if active && (kind == 1 || kind == 5) {
        // The claim that a scheduler made for the pod's extended resource.
        let made = claim(&format!("test/extended-{place}"), &[(DeviceCount::Exactly(1), &[1, 2, 11])]);
        deltas.push(allocated(made, NODES[at], &[(0, &device)], &[&uid]).into());
    }
    deltas
}

fn deltas(pods: &[Described], shared: (bool, usize, usize)) -> Vec<Delta> {
    let mut deltas: Vec<Delta> = nodes().into_iter().map(Into::into).collect();
    let gpus = DeviceResource { resource: "nvidia.com/gpu".into(), kinds: vec![1, 2], gpu: true };
    let nics = DeviceResource { resource: "example.com/nic".into(), kinds: vec![2, 11], gpu: false };
    deltas.extend([Delta::DeviceResource(gpus), Delta::DeviceResource(nics)]);
    deltas.extend(pods.iter().enumerate().flat_map(|(place, pod)| describe(place, *pod)));
    let wish = claim("test/shared", &[(DeviceCount::Exactly(1), &[1, 11])]);
    let (is_allocated, at, which) = shared;
    let device = which.to_string();
    deltas.push(if is_allocated { allocated(wish, NODES[at], &[(0, &device)], &["p0"]) } else { wish }.into());
    deltas
}

/// The place a node offers a pod, if it has room.
fn offer(cluster: &mut Cluster, pod: PodId, node: NodeId, which: usize) -> Option<Place> {
    let fit = cluster.check_claims(pod, node).ok()?;
    let class = cluster.class_of(pod).clone();
    let room = &cluster.nodes[node.index()];
    if !room.fits_future(&class) {
        return None;
    }
    let mut now = fit.now && room.fits_now(&class) && !cluster.pods[pod.index()].is_evicted();
    if now && cluster.check_numa(pod, node, true).is_err() {
        now = false;
    }
    let numa = cluster.check_numa(pod, node, now).ok()?.map(|(uses, _)| uses).unwrap_or_default();
    let devices: SmallVec<_> = if class.is_shared() {
        SmallVec::from_iter([cluster.words.intern(&format!("g{which}"))])
    } else {
        SmallVec::new()
    };
    let detail = Detail { numa, claims: fit.claims, extended: fit.extended };
    let status = if now { Status::Allocated } else { Status::Pipelined };
    Some(Place { status, node: Some(node), devices, detail: (detail != Detail::default()).then(|| Box::new(detail)) })
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, usize, usize),
    Evict(usize),
    Restore(usize),
    Checkpoint,
    Rollback,
    Say(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_usize..8, 0_usize..3, 0_usize..3).prop_map(|(pod, node, which)| Step::Put(pod, node, which)),
        4 => (0_usize..8).prop_map(Step::Evict),
        1 => (0_usize..8).prop_map(Step::Restore),
        2 => Just(Step::Checkpoint),
        2 => Just(Step::Rollback),
        1 => (0_usize..40).prop_map(Step::Say),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::test_cases(300)))]

    #[test]
    fn ledgers_say_what_counting_anew_says(
        pods in prop::collection::vec((0_u8..9, 0_u8..6, 0_usize..3, 0_usize..3), 1..8),
        shared in (any::<bool>(), 0_usize..3, 0_usize..3),
        steps in prop::collection::vec(step(), 0..30),
        backwards in any::<bool>(),
    ) {
        let mut deltas = deltas(&pods, shared);
        let mut cluster = cluster(deltas.iter().cloned());
        check(&cluster)?;
        let facts = everything(&cluster);
        let mut checkpoints = Vec::new();
        for step in steps {
            match step {
                Step::Put(pod, node, which) => {
                    let Some(pod) = cluster.pod(&format!("p{pod}")) else { continue };
                    let node = cluster.the_node(NODES[node]);
                    if !cluster.is_waiting(pod) {
                        continue;
                    }
                    let Some(place) = offer(&mut cluster, pod, node, which) else { continue };
                    if cluster.pods[pod.index()].is_evicted() {
                        cluster.relocate(pod, place);
                    } else {
                        cluster.assign(pod, place);
                    }
                }
                Step::Evict(pod) => {
                    let Some(pod) = cluster.pod(&format!("p{pod}")) else { continue };
                    if cluster.pods[pod.index()].place.status == Status::Running {
                        cluster.evict(pod);
                    }
                }
                Step::Restore(pod) => {
                    let Some(pod) = cluster.pod(&format!("p{pod}")) else { continue };
                    if cluster.pods[pod.index()].is_evicted() {
                        cluster.restore(pod);
                    }
                }
                Step::Checkpoint => checkpoints.push((cluster.checkpoint(), everything(&cluster))),
                Step::Rollback => {
                    if let Some((checkpoint, before)) = checkpoints.pop() {
                        cluster.rollback(checkpoint);
                        prop_assert_eq!(everything(&cluster), before);
                    }
                }
                Step::Say(which) => {
                    // The same again: everything virtual is taken back, nothing else changes.
                    cluster.apply(deltas[which % deltas.len()].clone());
                    checkpoints.clear();
                    prop_assert_eq!(everything(&cluster), facts.clone());
                }
            }
            check(&cluster)?;
        }
        cluster.settle();
        prop_assert_eq!(everything(&cluster), facts);
        // Said in another order it is the same cluster.
        if backwards {
            deltas.reverse();
        } else {
            let middle = deltas.len() / 2;
            deltas.rotate_left(middle);
        }
        let again = crate::claims::fixture::cluster(deltas);
        check(&again)?;
        prop_assert_eq!(everything(&again), everything(&cluster));
    }
}
