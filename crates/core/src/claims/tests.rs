//! Claims and extended resources on small clusters.

use super::fixture::{allocated, claim, cluster, device_ref, group, node, pod, running};
use crate::{
    Cluster,
    amounts::{LARGEST, fixed, share},
    cluster::status::Status,
    delta::{self, Delta, DeviceCount, DeviceResource, Gpus, Request},
    plan::NodeRefusal,
};

const ONE: DeviceCount = DeviceCount::Exactly(1);

fn gpus_by_dra() -> Delta {
    Delta::DeviceResource(DeviceResource { resource: "nvidia.com/gpu".into(), kinds: vec![1], gpu: true })
}

fn whole(pod: delta::Pod, count: u32) -> delta::Pod {
    delta::Pod { request: Request { gpus: Gpus::Whole(count), ..pod.request.clone() }, ..pod }
}

fn refusal(cluster: &Cluster, pod: &str, node: &str) -> NodeRefusal {
    cluster.check_claims(cluster.the_pod(pod), cluster.the_node(node)).expect_err("the node refuses")
}

fn idle_and_future_gpus(cluster: &Cluster, node: &str) -> (i64, i64) {
    let node = &cluster.nodes[cluster.the_node(node).index()];
    (node.idle.fixed[fixed::GPU], node.future.fixed[fixed::GPU])
}

#[test]
fn a_free_claim_gets_the_first_free_device_by_name() {
    let mut cluster = cluster([
        node("a", &[1, 1]).into(),
        claim("test/one", &[(ONE, &[1])]).into(),
        claim("test/two", &[(ONE, &[1])]).into(),
        pod("p", &["test/one"]).into(),
        pod("q", &["test/two"]).into(),
    ]);
    assert_eq!(cluster.put("p", "a"), Some(Status::Allocated));
    assert_eq!(cluster.put("q", "a"), Some(Status::Allocated));
    let detail = cluster.pods[cluster.the_pod("q").index()].place.detail.clone().expect("it has devices");
    let (claims, extended) = cluster.placed_claims(&detail, cluster.the_node("a"));
    let two = cluster.claims.find("test/two").expect("it is known");
    assert_eq!(claims, [(two, vec![(0, device_ref("a", "1"))])]);
    assert!(extended.is_empty());
    assert_eq!(cluster.claim_key(two), "test/two");
    cluster.settle();
    assert_eq!(cluster.in_use("a"), (vec![], vec![]));
}

#[test]
fn a_second_pod_of_an_allocated_claim_goes_to_its_node_and_costs_no_device() {
    let shared = allocated(claim("test/shared", &[(ONE, &[1])]), "a", &[(0, "0")], &["p"]);
    let mut cluster = cluster([
        node("a", &[1]).into(),
        node("b", &[1]).into(),
        shared.into(),
        running("p", "a", &["test/shared"]).into(),
        pod("q", &["test/shared"]).into(),
    ]);
    let NodeRefusal::Claims(why) = refusal(&cluster, "q", "b") else { panic!("the claim refuses") };
    assert!(why.contains("another node"), "{why}");
    assert_eq!(cluster.put("q", "a"), Some(Status::Allocated));
    assert_eq!(cluster.in_use("a"), (vec![0], vec![0]));
    let q = &cluster.pods[cluster.the_pod("q").index()];
    let detail = q.place.detail.as_ref().expect("it holds the claim");
    assert!(cluster.placed_claims(detail, cluster.the_node("a")).0.is_empty(), "the claim had its device");
    // Evicting one of the two frees nothing, evicting both frees the device.
    cluster.evict(cluster.the_pod("p"));
    assert_eq!(cluster.in_use("a"), (vec![0], vec![0]));
    cluster.evict(cluster.the_pod("q"));
    assert_eq!(cluster.in_use("a"), (vec![0], vec![]));
    cluster.rollback(0);
    assert_eq!(cluster.in_use("a"), (vec![0], vec![0]));
}

#[test]
fn a_device_that_its_holder_leaves_can_be_promised_but_not_given() {
    let held = allocated(claim("test/held", &[(ONE, &[1])]), "a", &[(0, "0")], &["p"]);
    let mut cluster = cluster([
        node("a", &[1]).into(),
        held.into(),
        claim("test/wish", &[(ONE, &[1])]).into(),
        running("p", "a", &["test/held"]).into(),
        pod("q", &["test/wish"]).into(),
    ]);
    let NodeRefusal::Claims(why) = refusal(&cluster, "q", "a") else { panic!("the claim refuses") };
    assert_eq!(why, "devices for resource claim `test/wish` are in use");
    cluster.evict(cluster.the_pod("p"));
    assert_eq!(cluster.put("q", "a"), Some(Status::Pipelined));
    assert_eq!(cluster.in_use("a"), (vec![0], vec![0]));
}

#[test]
fn an_evicted_pod_takes_its_claim_to_another_node() {
    let held = allocated(claim("test/held", &[(ONE, &[1])]), "a", &[(0, "0")], &["p"]);
    let mut cluster = cluster([
        node("a", &[1]).into(),
        node("b", &[1]).into(),
        held.into(),
        running("p", "a", &["test/held"]).into(),
    ]);
    cluster.evict(cluster.the_pod("p"));
    assert_eq!(cluster.put("p", "b"), Some(Status::Pipelined));
    assert_eq!(cluster.in_use("a"), (vec![0], vec![]));
    assert_eq!(cluster.in_use("b"), (vec![], vec![0]));
    let detail = cluster.pods[cluster.the_pod("p").index()].place.detail.clone().expect("it has a device");
    let (claims, _) = cluster.placed_claims(&detail, cluster.the_node("b"));
    assert_eq!(claims[0].1, [(0, device_ref("b", "0"))]);
    cluster.settle();
    assert_eq!(cluster.in_use("a"), (vec![0], vec![0]));
    assert_eq!(cluster.in_use("b"), (vec![], vec![]));
}

#[test]
fn an_allocated_claim_that_nobody_holds_keeps_its_device_and_its_pod_joins_it() {
    let kept = allocated(claim("test/kept", &[(ONE, &[1])]), "a", &[(0, "1")], &[]);
    let mut cluster = cluster([
        node("a", &[1, 1]).into(),
        node("b", &[1]).into(),
        kept.into(),
        pod("p", &["test/kept"]).into(),
        claim("test/both", &[(DeviceCount::Exactly(2), &[1])]).into(),
        pod("q", &["test/both"]).into(),
    ]);
    assert_eq!(cluster.put("q", "a"), None);
    assert_eq!(cluster.put("p", "b"), None);
    assert_eq!(cluster.put("p", "a"), Some(Status::Allocated));
    assert_eq!(cluster.in_use("a"), (vec![1], vec![1]));
    cluster.settle();
    assert_eq!(cluster.in_use("a"), (vec![1], vec![1]));
}

#[test]
fn a_claim_reserved_for_an_unknown_pod_is_not_freed_by_evicting_the_known_one() {
    let shared = allocated(claim("test/shared", &[(ONE, &[1])]), "a", &[(0, "0")], &["p", "stranger"]);
    let mut cluster = cluster([node("a", &[1]).into(), shared.into(), running("p", "a", &["test/shared"]).into()]);
    cluster.evict(cluster.the_pod("p"));
    assert_eq!(cluster.in_use("a"), (vec![0], vec![0]));
}

#[test]
fn a_request_for_all_devices_needs_every_one_of_them_and_costs_them_all() {
    let mut cluster = cluster([
        node("a", &[1, 2, 1]).into(),
        node("b", &[2]).into(),
        claim("test/all", &[(DeviceCount::All, &[1])]).into(),
        claim("test/one", &[(ONE, &[1])]).into(),
        pod("p", &["test/all"]).into(),
        pod("q", &["test/one"]).into(),
    ]);
    let p = cluster.the_pod("p");
    assert_eq!(cluster.put("p", "b"), None, "all of nothing is nothing");
    let checkpoint = cluster.checkpoint();
    assert_eq!(cluster.put("q", "a"), Some(Status::Allocated));
    assert_eq!(cluster.put("p", "a"), None, "one of them is taken");
    cluster.rollback(checkpoint);
    assert_eq!(cluster.put("p", "a"), Some(Status::Allocated));
    assert_eq!(cluster.in_use("a").0, [0, 2]);
    assert_eq!(cluster.charge_of(p).0[share::GPU], 2_000_000);
}

#[test]
fn several_requests_share_out_the_devices_so_that_all_get_some() {
    let both = claim("test/both", &[(ONE, &[1, 2]), (ONE, &[1])]);
    let mut cluster = cluster([node("a", &[1, 2]).into(), both.into(), pod("p", &["test/both"]).into()]);
    assert_eq!(cluster.put("p", "a"), Some(Status::Allocated));
    let detail = cluster.pods[cluster.the_pod("p").index()].place.detail.as_ref().expect("it has devices");
    assert_eq!(detail.claims[0].1, [(0, 1), (1, 0)]);
}

#[test]
fn shared_gpu_claims_must_carry_the_label_of_the_pods_queue() {
    let shared = |queue: Option<&str>| delta::Claim {
        of_one_pod: false,
        queue: queue.map(Into::into),
        ..claim("test/shared", &[(ONE, &[1])])
    };
    let mut cluster = cluster([
        node("a", &[1]).into(),
        group("test/p", "red").into(),
        pod("p", &["test/shared"]).into(),
        shared(None).into(),
    ]);
    let p = cluster.the_pod("p");
    let missing = cluster.claims_refusal(p).expect("refused");
    cluster.apply(shared(Some("blue")).into());
    let wrong = cluster.claims_refusal(p).expect("refused");
    assert!(missing.contains("no queue label") && wrong.contains("`blue`"), "{missing} / {wrong}");
    cluster.apply(shared(Some("red")).into());
    assert_eq!(cluster.claims_refusal(p), None);
    // Devices that are no GPUs belong to nobody's quota.
    let other = delta::Claim { of_one_pod: false, ..claim("test/shared", &[(ONE, &[11])]) };
    cluster.apply(other.into());
    assert_eq!(cluster.claims_refusal(p), None);
    assert_eq!(cluster.charge_of(p).0[share::GPU], 0);
}

#[test]
fn missing_impossible_and_full_claims_are_refused_everywhere() {
    let mut cluster = cluster([node("a", &[1]).into(), pod("p", &["test/c"]).into()]);
    let p = cluster.the_pod("p");
    assert_eq!(cluster.claims_refusal(p), Some("resource claim `test/c` does not exist".into()));
    let impossible = delta::Claim { impossible: Some("no such class".into()), ..claim("test/c", &[(ONE, &[1])]) };
    cluster.apply(impossible.into());
    assert!(cluster.claims_refusal(p).expect("refused").contains("no such class"));
    assert_eq!(cluster.verdicts().iter().filter(|verdict| verdict.kind == "claim").count(), 1);
    let full = allocated(claim("test/c", &[(ONE, &[1])]), "a", &[(0, "0")], &["x", "y"]);
    cluster.apply(delta::Claim { max_consumers: 2, ..full.clone() }.into());
    assert!(cluster.claims_refusal(p).expect("refused").contains("reserved for 2 pods"));
    assert!(cluster.verdicts().is_empty());
    cluster.apply(delta::Claim { max_consumers: 3, ..full.clone() }.into());
    assert_eq!(cluster.claims_refusal(p), None);
    // A pod that it is reserved for already is not one more.
    let mine = delta::Claim { max_consumers: 2, reserved_for: vec!["x".into(), "p".into()], ..full };
    cluster.apply(mine.into());
    assert_eq!(cluster.claims_refusal(p), None);
}

#[test]
fn places_in_a_claim_are_counted_while_they_are_given_out() {
    let shared = delta::Claim { max_consumers: 1, ..claim("test/c", &[(ONE, &[1])]) };
    let mut cluster =
        cluster([node("a", &[1]).into(), shared.into(), pod("p", &["test/c"]).into(), pod("q", &["test/c"]).into()]);
    assert_eq!(cluster.put("p", "a"), Some(Status::Allocated));
    assert!(cluster.claims_refusal(cluster.the_pod("q")).is_some());
    cluster.settle();
    assert_eq!(cluster.claims_refusal(cluster.the_pod("q")), None);
}

#[test]
fn counts_beyond_all_machines_saturate() {
    let huge = |key: &str| claim(key, &[(DeviceCount::Exactly(u64::MAX), &[1]), (DeviceCount::Exactly(1 << 63), &[1])]);
    let mut cluster = cluster([
        node("a", &[1]).into(),
        huge("test/x").into(),
        huge("test/y").into(),
        group("test/p", "red").into(),
        pod("p", &["test/x", "test/y"]).into(),
    ]);
    let p = cluster.the_pod("p");
    assert_eq!(cluster.charge_of(p).0[share::GPU], i128::from(LARGEST));
    assert_eq!(cluster.put("p", "a"), None);
    let NodeRefusal::Claims(why) = refusal(&cluster, "p", "a") else { panic!("the claim refuses") };
    assert_eq!(why, "the node has too few devices for resource claim `test/x`");
}

#[test]
fn whole_gpus_are_served_by_devices_and_are_either_claimed_or_asked_for() {
    let mut cluster = cluster([
        gpus_by_dra(),
        node("a", &[1, 1]).into(),
        claim("test/one", &[(ONE, &[1])]).into(),
        whole(pod("w", &[]), 1).into(),
        pod("p", &["test/one"]).into(),
        whole(pod("v", &[]), 1).into(),
    ]);
    assert_eq!(idle_and_future_gpus(&cluster, "a"), (2, 2));
    assert_eq!(cluster.put("w", "a"), Some(Status::Allocated));
    assert_eq!(idle_and_future_gpus(&cluster, "a"), (1, 1));
    let detail = cluster.pods[cluster.the_pod("w").index()].place.detail.clone().expect("it has a device");
    let (_, extended) = cluster.placed_claims(&detail, cluster.the_node("a"));
    assert_eq!(extended, [("nvidia.com/gpu".to_owned(), device_ref("a", "0"))]);
    assert_eq!(cluster.put("p", "a"), Some(Status::Allocated));
    assert_eq!(idle_and_future_gpus(&cluster, "a"), (0, 0));
    assert_eq!(cluster.put("v", "a"), None);
    // What this cycle gave it is withdrawn, so it is free at once.
    cluster.evict(cluster.the_pod("p"));
    assert_eq!(idle_and_future_gpus(&cluster, "a"), (1, 1));
    assert_eq!(cluster.put("v", "a"), Some(Status::Allocated));
    assert_eq!(idle_and_future_gpus(&cluster, "a"), (0, 0));
    cluster.settle();
    assert_eq!(idle_and_future_gpus(&cluster, "a"), (2, 2));
    assert_eq!(cluster.in_use("a"), (vec![], vec![]));
}

#[test]
fn a_node_that_offers_gpus_itself_is_not_counted_twice() {
    let mut both = node("a", &[1, 1]);
    both.gpus.count = 2;
    let cluster = cluster([gpus_by_dra(), both.into(), node("b", &[1]).into()]);
    assert_eq!(idle_and_future_gpus(&cluster, "a"), (2, 2));
    assert_eq!(cluster.capacity().0[share::GPU], 3_000_000);
}

#[test]
fn devices_of_drivers_cannot_be_shared() {
    let part = delta::Pod {
        request: Request { gpus: Gpus::Portion { devices: 1, millionths: 500_000 }, ..Request::default() },
        ..pod("p", &[])
    };
    let cluster = cluster([gpus_by_dra(), node("a", &[1]).into(), part.into()]);
    assert_eq!(refusal(&cluster, "p", "a"), NodeRefusal::NotShareable);
}

#[test]
fn a_claim_made_for_the_extended_resources_of_a_running_pod_is_not_charged_twice() {
    let made = allocated(claim("test/w-extended", &[(ONE, &[1])]), "a", &[(0, "1")], &["w"]);
    let mut cluster =
        cluster([gpus_by_dra(), node("a", &[1, 1]).into(), made.into(), whole(running("w", "a", &[]), 1).into()]);
    assert_eq!(idle_and_future_gpus(&cluster, "a"), (1, 1));
    assert_eq!(cluster.in_use("a"), (vec![1], vec![1]));
    assert_eq!(cluster.charge_of(cluster.the_pod("w")).0[share::GPU], 1_000_000);
    cluster.evict(cluster.the_pod("w"));
    assert_eq!(idle_and_future_gpus(&cluster, "a"), (1, 2));
}

#[test]
fn an_allocation_without_a_node_is_where_its_devices_are() {
    let mut held = allocated(claim("test/held", &[(ONE, &[1])]), "a", &[(0, "0")], &["p"]);
    if let Some(allocation) = &mut held.allocation {
        allocation.node = None;
    }
    let mut cluster = cluster([
        held.into(),
        running("p", "a", &["test/held"]).into(),
        node("b", &[1]).into(),
        node("a", &[1]).into(),
    ]);
    assert_eq!(cluster.in_use("a"), (vec![0], vec![0]));
    cluster.apply(node("a", &[]).into());
    cluster.apply(node("a", &[1]).into());
    assert_eq!(cluster.in_use("a"), (vec![0], vec![0]));
    cluster.apply(Delta::ClaimGone("test/held".into()));
    assert_eq!(cluster.in_use("a"), (vec![], vec![]));
}

#[test]
fn a_claim_with_devices_of_no_node_can_be_used_from_everywhere() {
    let mut remote = allocated(claim("test/remote", &[(ONE, &[1])]), "fabric", &[(0, "0")], &[]);
    if let Some(allocation) = &mut remote.allocation {
        allocation.node = None;
    }
    let mut cluster = cluster([node("a", &[]).into(), remote.into(), pod("p", &["test/remote"]).into()]);
    assert_eq!(cluster.put("p", "a"), Some(Status::Allocated));
}

#[test]
fn the_order_in_which_claims_pods_nodes_and_resources_come_does_not_matter() {
    let deltas: Vec<Delta> = vec![
        gpus_by_dra(),
        node("a", &[1, 1, 2]).into(),
        allocated(claim("test/held", &[(ONE, &[1])]), "a", &[(0, "1")], &["p"]).into(),
        running("p", "a", &["test/held"]).into(),
        allocated(claim("test/w-extended", &[(ONE, &[1])]), "a", &[(0, "0")], &["w"]).into(),
        whole(running("w", "a", &[]), 1).into(),
    ];
    let state = |cluster: &Cluster| {
        let node = &cluster.nodes[cluster.the_node("a").index()];
        let gpus = idle_and_future_gpus(cluster, "a");
        let devices: Vec<(u32, u32)> = node.devices.iter().map(|device| (device.used, device.staying)).collect();
        (gpus, devices, cluster.charge_of(cluster.the_pod("p")), node.evictable_gpus)
    };
    let wanted = state(&cluster(deltas.clone()));
    assert_eq!(wanted.1, [(1, 1), (1, 1), (0, 0)]);
    let mut order: Vec<usize> = (0..deltas.len()).collect();
    let mut tried = 0;
    permute(&mut order, 0, &mut |order| {
        let mut cluster = cluster(order.iter().map(|place| deltas[*place].clone()));
        assert_eq!(state(&cluster), wanted, "{order:?}");
        // Nor does it matter that everything is said twice.
        for place in order {
            cluster.apply(deltas[*place].clone());
        }
        assert_eq!(state(&cluster), wanted, "{order:?}, twice");
        tried += 1;
    });
    assert_eq!(tried, 720);
}

fn permute(order: &mut Vec<usize>, from: usize, visit: &mut impl FnMut(&[usize])) {
    if from == order.len() {
        visit(order);
    }
    for other in from..order.len() {
        order.swap(from, other);
        permute(order, from + 1, visit);
        order.swap(from, other);
    }
}

#[test]
fn what_goes_away_leaves_nothing_behind() {
    let mut cluster = cluster([
        gpus_by_dra(),
        node("a", &[1, 1]).into(),
        allocated(claim("test/held", &[(ONE, &[1])]), "a", &[(0, "1")], &["p"]).into(),
        running("p", "a", &["test/held"]).into(),
    ]);
    cluster.apply(Delta::PodGone("p".into()));
    assert_eq!(cluster.in_use("a"), (vec![1], vec![1]), "the API still says that the claim has it");
    cluster.apply(Delta::ClaimGone("test/held".into()));
    assert_eq!(cluster.in_use("a"), (vec![], vec![]));
    assert_eq!(cluster.claims.find("test/held"), None);
    cluster.apply(Delta::DeviceResourceGone("nvidia.com/gpu".into()));
    assert_eq!(idle_and_future_gpus(&cluster, "a"), (0, 0));
    cluster.apply(Delta::NodeGone("a".into()));
    assert!(cluster.nodes[cluster.the_node("a").index()].devices.is_empty());
}

#[test]
fn devices_that_pods_have_without_saying_which_are_left_to_them() {
    let mut cluster = cluster([
        gpus_by_dra(),
        node("a", &[1, 1]).into(),
        whole(running("w", "a", &[]), 1).into(),
        claim("test/one", &[(ONE, &[1])]).into(),
        claim("test/two", &[(DeviceCount::Exactly(2), &[1])]).into(),
        pod("p", &["test/one"]).into(),
        pod("q", &["test/two"]).into(),
    ]);
    assert_eq!(cluster.put("q", "a"), None);
    let checkpoint = cluster.checkpoint();
    assert_eq!(cluster.put("p", "a"), Some(Status::Allocated));
    assert_eq!(idle_and_future_gpus(&cluster, "a"), (0, 0));
    cluster.rollback(checkpoint);
    cluster.evict(cluster.the_pod("w"));
    assert_eq!(cluster.put("q", "a"), Some(Status::Pipelined));
}

#[test]
fn a_claim_whose_holder_leaves_is_joined_now_by_another_pod_on_its_node() {
    let shared = allocated(claim("test/shared", &[(ONE, &[1])]), "a", &[(0, "1")], &["p"]);
    let mut cluster = cluster([
        node("a", &[1, 1]).into(),
        node("b", &[1]).into(),
        shared.into(),
        running("p", "a", &["test/shared"]).into(),
        pod("q", &["test/shared"]).into(),
    ]);
    cluster.evict(cluster.the_pod("p"));
    let checkpoint = cluster.checkpoint();
    assert_eq!(cluster.put("q", "b"), Some(Status::Pipelined), "once it is no longer allocated");
    cluster.rollback(checkpoint);
    assert_eq!(cluster.put("q", "a"), Some(Status::Allocated));
    assert_eq!(cluster.in_use("a"), (vec![1], vec![1]));
}
