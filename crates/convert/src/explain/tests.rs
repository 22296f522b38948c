//! Texts as KAI's users know them.

use kai_core::{
    amounts::Resource,
    plan::{DomainRefusal, Eviction, NodeRefusal, NodeRefusals, Overdraft, VictimRefusal},
    policy::Action,
    time::Time,
};

use super::*;

struct Fixed;

impl Names for Fixed {
    fn pod_uid(&self, _: PodId) -> &'static str {
        "default/pending-job-0"
    }
    fn group_key(&self, group: GroupId) -> &str {
        if group.0 == 0 { "default/pending-job0" } else { "default/other" }
    }
    fn queue_name(&self, _: QueueId) -> &'static str {
        "queue0"
    }
    fn node_name(&self, _: NodeId) -> &'static str {
        "node0"
    }
    fn word(&self, _: Word) -> &'static str {
        "nvidia.com/mig-1g.5gb"
    }
    fn claim_key(&self, _: ClaimId) -> &'static str {
        "default/claim"
    }
}

fn message(causes: Vec<Cause>) -> String {
    explain(&[GroupRefusal { group: GroupId(0), causes }], &Fixed).remove(0).message
}

fn overdraft(requested: i128) -> Overdraft {
    Overdraft { queue: QueueId(0), resource: 2, allowed: 500_000, allocated: 0, requested }
}

fn topology(domains: Vec<DomainRefusal>) -> Cause {
    Cause::Topology {
        subgroup: String::new(),
        topology: "cluster-topology".to_owned(),
        level: "k8s.io/rack".to_owned(),
        domains,
    }
}

#[test]
fn each_domain_says_what_it_lacks() {
    let domain = |name: &str| DomainRefusal { domain: name.to_owned(), pods: Some(3), needed: 4, short: None };
    assert_eq!(
        message(vec![topology(vec![domain("rack1"), domain("rack2")])]),
        "\nUnable to schedule podgroup.\n<rack1>: node-group rack1 can allocate only 3 of 4 required pods.\n<rack2>: node-group \
         rack2 can allocate only 3 of 4 required pods.\ntopology cluster-topology, requirement k8s.io/rack couldn't be satisfied \
         for job <default/pending-job0>."
    );
}

#[test]
fn a_cluster_that_is_too_small_says_so() {
    assert_eq!(
        message(vec![topology(Vec::new())]),
        "\nPodSchedulingErrors.\ntopology cluster-topology, requirement k8s.io/rack couldn't be satisfied for job \
         <default/pending-job0>: not enough resources in the cluster to allocate the job."
    );
}

#[test]
fn nodes_are_counted_by_their_refusal() {
    let nodes = NodeRefusals {
        counts: vec![
            (NodeRefusal::NonPreemptibleOverQuota(overdraft(876_544)), 1),
            (NodeRefusal::NonPreemptibleOverQuota(overdraft(588_236)), 1),
        ],
        ..NodeRefusals::default()
    };
    let line = |requested: &str| {
        format!(
            "1 node does not have enough capacity. Reason: NonPreemptibleOverQuota, Details: Non-preemptible workload is over \
             quota. Workload requested {requested} GPUs, but queue0 quota is 0.5 GPUs, while 0 GPUs are already allocated for \
             non-preemptible pods. Use a preemptible workload to go over quota."
        )
    };
    assert_eq!(
        message(vec![Cause::Pod { pod: PodId(0), nodes }]),
        format!(
            "\nPodSchedulingErrors.\nResources were not found for pod default/pending-job-0 due to: no nodes with enough \
             resources were found: {}. \n{}..",
            line("0.59"),
            line("0.88")
        )
    );
}

#[test]
fn short_resources_have_kais_names() {
    let say = |refusal: NodeRefusal| node_refusal(&refusal, &Fixed);
    assert_eq!(say(NodeRefusal::Short(Resource::Fixed(2), 1)), "node(s) didn't have enough resources: GPUs");
    assert_eq!(say(NodeRefusal::Short(Resource::Fixed(0), 1)), "node(s) didn't have enough resources: CPU cores");
    let profile = say(NodeRefusal::Short(Resource::Extended(Word(0)), 1));
    assert_eq!(profile, "node(s) didn't have enough of mig profile: nvidia.com/mig-1g.5gb");
    assert_eq!(say(NodeRefusal::PodSlots), "node(s) pod number exceeded");
}

#[test]
fn codes_are_kais_and_victims_are_told_beside_the_message() {
    let causes = vec![
        Cause::OverLimit(overdraft(1_000_000)),
        Cause::Victims { action: Action::Reclaim, refused: vec![(VictimRefusal::MinRuntime, 2)] },
    ];
    let explained = explain(&[GroupRefusal { group: GroupId(0), causes }], &Fixed).remove(0);
    let codes: Vec<&str> = explained.reasons.iter().map(|reason| reason.reason.as_str()).collect();
    assert_eq!(codes, ["OverLimit", "NoVictims"]);
    assert!(explained.message.starts_with("\nOverLimit.\n") && !explained.message.contains("minimum time"));
    assert!(explained.text().contains("2 it has not run for its minimum time"));
    assert_eq!(explained.reasons[0].details["requested"], "1");
    let text = serde_json::to_string(&explained).expect("serialisable");
    assert!(text.contains("\"queue\":\"queue0\""), "{text}");
}

#[test]
fn a_group_refused_like_another_has_its_reasons_and_a_ring_of_them_ends() {
    let refusals = [
        GroupRefusal { group: GroupId(0), causes: vec![Cause::QueueMissing("x".to_owned())] },
        GroupRefusal { group: GroupId(1), causes: vec![Cause::SameAs(GroupId(0))] },
        GroupRefusal { group: GroupId(2), causes: vec![Cause::SameAs(GroupId(2))] },
    ];
    let explained = explain(&refusals, &Fixed);
    assert_eq!(explained[1].message, "\nQueueDoesNotExist.\nQueue 'x' does not exist.");
    assert_eq!(explained[2].message, "\nUnable to schedule podgroup.");
}

#[test]
fn times_are_readable() {
    let told = message(vec![Cause::PreemptionDelayNotElapsed { until: Time(1_767_268_800_000) }]);
    assert!(told.contains("PreemptionDelayNotElapsed") && told.contains("2026-01-01T12:00:00Z"), "{told}");
}

#[test]
fn evictions_say_for_whom() {
    let evicted = Eviction {
        pod: PodId(0),
        group: GroupId(1),
        action: Action::Reclaim,
        beneficiary: Some(GroupId(0)),
        queues: Some((QueueId(0), QueueId(1))),
        heir: None,
        moved: false,
    };
    assert!(eviction(&evicted, &Fixed).contains("reclaimed by workload default/pending-job0: queue queue0"));
}
