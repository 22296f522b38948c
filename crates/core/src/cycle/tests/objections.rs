//! What nodes have against a class is kept between cycles and mended where nodes changed: it must be what every node would say if asked anew.

use proptest::{prelude::*, sample::Index};

use super::{
    NOW, cases, cluster,
    world::{Size, any_world},
};
use crate::{
    cluster::Cluster,
    cycle::{
        objections::{Answer, Objections},
        plan,
    },
    delta::{Delta, Taint, TaintEffect},
    plan::NodeRefusal,
    policy::{Action, Policy},
};

const SIZE: Size = Size { running: 6, waiting: (1, 3), choices: u32::MAX, growing: true };

/// What happens between two cycles.
#[derive(Clone, Debug)]
enum Event {
    PodGoes(Index),
    PodComesBack(Index),
    NodeIsTainted(Index),
    NodeGoes(Index),
    NodeComesBack(Index),
}

fn any_event() -> impl Strategy<Value = Event> {
    let index = any::<Index>;
    prop_oneof![
        3 => index().prop_map(Event::PodGoes),
        2 => index().prop_map(Event::PodComesBack),
        1 => index().prop_map(Event::NodeIsTainted),
        1 => index().prop_map(Event::NodeGoes),
        1 => index().prop_map(Event::NodeComesBack),
    ]
}

/// The answer of each node, in full.
fn told(objections: &Objections) -> Vec<Option<(NodeRefusal, i64)>> {
    let in_full = |(_, answer)| match answer {
        Answer::Absent => None,
        // A refusal that no node gives for itself stands for none.
        Answer::Nothing => Some((NodeRefusal::Spread, 0)),
        Answer::Refusal(kind, missing) => Some((objections.kinds()[kind as usize].clone(), missing)),
    };
    objections.answers().map(in_full).collect()
}

/// Compares what was kept with what nodes say now; how many classes were compared.
fn compare(cluster: &mut Cluster, policy: &Policy) -> Result<usize, TestCaseError> {
    let mut kept = std::mem::take(&mut cluster.memory.objections);
    for (class, objections) in &mut kept {
        let mut anew = Objections::new(*class);
        anew.refresh(cluster, policy);
        objections.refresh(cluster, policy);
        prop_assert_eq!(told(objections), told(&anew), "{:?}", cluster.class(*class));
    }
    let count = kept.len();
    cluster.memory.objections = kept;
    Ok(count)
}

#[test]
fn kept_objections_are_what_nodes_would_say_anew() {
    let compared = std::cell::Cell::new(0);
    let story = (any_world(SIZE), prop::collection::vec(any_event(), 1..6));
    let result = proptest::test_runner::TestRunner::new(cases(300)).run(&story, |(world, events)| {
        let policy = world.policy(&[Action::Allocate, Action::Reclaim]);
        let mut cluster = cluster(world.deltas());
        plan(&mut cluster, NOW, &policy);
        for event in events {
            compared.set(compared.get() + compare(&mut cluster, &policy)?);
            match event {
                Event::PodGoes(which) => cluster.apply(Delta::PodGone(which.get(&world.pods).uid.clone())),
                Event::PodComesBack(which) => cluster.apply(Delta::Pod(Box::new(which.get(&world.pods).clone()))),
                Event::NodeIsTainted(which) => {
                    let mut node = which.get(&world.nodes).clone();
                    let (key, value) = ("down".to_owned(), String::new());
                    node.taints.push(Taint { key, value, effect: TaintEffect::NoSchedule });
                    cluster.apply(Delta::Node(Box::new(node)));
                }
                Event::NodeGoes(which) => cluster.apply(Delta::NodeGone(which.get(&world.nodes).name.clone())),
                Event::NodeComesBack(which) => cluster.apply(Delta::Node(Box::new(which.get(&world.nodes).clone()))),
            }
            compared.set(compared.get() + compare(&mut cluster, &policy)?);
            plan(&mut cluster, NOW, &policy);
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(compared.get() > 300, "only {} compared", compared.get());
}
