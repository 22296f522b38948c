//! What was decided outside and is not in objects yet: vetoes of nodes, and pods that are about to leave.

use super::*;
use crate::plan::{Cause, NodeRefusal};

fn objects(gpus: Gpus) -> Vec<Delta> {
    let groups = ["a", "b"].map(|key| Delta::PodGroup(Box::new(group(key, "q", 1))));
    let mut deltas = vec![Delta::Queue(Box::new(queue("q", None)))];
    deltas.extend(groups);
    deltas.extend(["n1", "n2"].map(|name| Delta::Node(Box::new(node(name, 1)))));
    deltas.push(Delta::Pod(Box::new(pod("p", "a", gpus))));
    deltas
}

#[test]
fn a_vetoed_node_is_not_chosen_and_is_named_where_nothing_is_left() {
    let mut vetoed = pod("p", "a", Gpus::Whole(1));
    vetoed.constraints.vetoed = vec!["n1".to_owned()];
    let mut cluster = cluster(objects(Gpus::Whole(1)));
    cluster.apply(Delta::Pod(Box::new(vetoed.clone())));
    let mut switched_off = policy(&[Action::Allocate]);
    switched_off.plugins.predicates = false;
    for policy in [policy(&[Action::Allocate]), switched_off] {
        let plan = crate::plan(&mut cluster, NOW, &policy);
        assert_eq!(told(&cluster, &plan), ["bind p on n2", "started a"]);
    }
    vetoed.constraints.vetoed.push("n2".to_owned());
    cluster.apply(Delta::Pod(Box::new(vetoed)));
    let plan = crate::plan(&mut cluster, NOW, &policy(&[Action::Allocate]));
    let Some(Cause::Pod { nodes, .. }) = plan.reasons.first().and_then(|refusal| refusal.causes.first()) else {
        panic!("{:?}", plan.reasons)
    };
    let named = ["n1", "n2"].map(|node| (NodeRefusal::Vetoed(node.to_owned()), 1));
    assert_eq!(nodes.counts, named);
}

#[test]
fn pods_without_vetoes_stay_of_one_class() {
    let mut cluster = cluster(objects(Gpus::Whole(1)));
    cluster.apply(Delta::Pod(Box::new(pod("r", "b", Gpus::Whole(1)))));
    let class = |uid: &str| cluster.pod(uid).map(|pod| cluster.pods[pod.index()].class);
    assert_eq!(class("p"), class("r"));
}

#[test]
fn a_pod_that_leaves_stands_as_if_its_object_said_so() {
    let devices = ["d".to_owned()];
    for gpus in [Gpus::Whole(1), Gpus::Memory { devices: 1, mib: 12 }] {
        let shared = if matches!(gpus, Gpus::Whole(_)) { &[][..] } else { &devices[..] };
        let stands = running(pod("p", "a", gpus), "n1", shared);
        let mut told_early = cluster(objects(gpus));
        told_early.apply(Delta::Pod(Box::new(stands.clone())));
        let mut told_late = cluster(objects(gpus));
        told_late.apply(Delta::Pod(Box::new(delta::Pod { deleted: Some(NOW), ..stands.clone() })));
        told_early.apply(Delta::PodLeaves { uid: "p".to_owned(), since: NOW });
        let look = |cluster: &Cluster| {
            let nodes: Vec<_> = cluster.nodes.iter().map(|node| (node.idle.clone(), node.future.clone())).collect();
            let queues: Vec<_> = cluster.queues.iter().map(|queue| (queue.sum, queue.running_groups.clone())).collect();
            format!("{nodes:?} {queues:?} {:?} {:?}", cluster.terminating, cluster.suspects)
        };
        assert_eq!(look(&told_early), look(&told_late));
        // What the object says next counts again.
        told_early.apply(Delta::Pod(Box::new(stands)));
        assert!(told_early.terminating.is_empty());
        told_early.apply(Delta::PodLeaves { uid: "nobody".to_owned(), since: NOW });
    }
}

#[test]
fn a_shared_device_that_is_too_full_is_told_with_its_holders() {
    let asked = Gpus::Memory { devices: 1, mib: 8 };
    let mut cluster = cluster(objects(asked));
    cluster.apply(Delta::NodeGone("n2".to_owned()));
    cluster.apply(Delta::Pod(Box::new(running(
        pod("holder", "b", Gpus::Memory { devices: 1, mib: 12 }),
        "n1",
        &["d".to_owned()],
    ))));
    let plan = crate::plan(&mut cluster, NOW, &policy(&[Action::Allocate]));
    let Some(Cause::Pod { nodes, .. }) = plan.reasons.first().and_then(|refusal| refusal.causes.first()) else {
        panic!("{:?}", plan.reasons)
    };
    let nearest = nodes.nearest.as_ref().expect("a device");
    let holders: Vec<&str> = nearest.holders.iter().map(|pod| cluster.pod_uid(*pod)).collect();
    assert_eq!((nearest.memory, nearest.held, nearest.asked), (Some(16), 12_000_000, 8_000_000));
    assert_eq!((holders, cluster.node_name(nearest.node)), (vec!["holder"], "n1"));
}
