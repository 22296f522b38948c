//! Affinity between pods, both ways; ports and exclusive volumes.

use super::{World, app, away_from, node, pod, running};
use crate::{
    cluster::{pod::Place, status::Status},
    delta::{Constraints, Delta, HostPort, Pod, PodTerm, VolumeNeed},
    plan::NodeRefusal,
    time::{Span, Time},
};

/// Two racks of two nodes, and a node in no rack.
fn racks() -> Vec<crate::delta::Node> {
    let rack = |name: &str, rack: &str| node(name, &[("rack", rack), ("host", name)]);
    vec![rack("a1", "a"), rack("a2", "a"), rack("b1", "b"), rack("b2", "b"), node("x", &[("host", "x")])]
}

fn near(value: &str, topology_key: &str) -> Constraints {
    Constraints { pod_affinity: vec![app(value, topology_key)], ..Constraints::default() }
}

fn plain(uid: &str, value: &str) -> Pod {
    pod(uid, &[("app", value)], Constraints::default())
}

/// The answers of `a1`, `a2`, `b1`, `b2` and `x`.
fn answers(world: &mut World, uid: &str) -> [Result<(), NodeRefusal>; 5] {
    ["a1", "a2", "b1", "b2", "x"].map(|node| world.check_pods(uid, node))
}

#[test]
fn affinity_wants_a_matching_pod_in_the_domain() {
    let mut world = World::new(racks(), [running(plain("db", "db"), "a1"), pod("p", &[], near("db", "rack"))]);
    let no = || Err(NodeRefusal::PodAffinity);
    assert_eq!(answers(&mut world, "p"), [Ok(()), Ok(()), no(), no(), no()]);
    world.add(pod("q", &[], near("db", "host")));
    assert_eq!(answers(&mut world, "q"), [Ok(()), no(), no(), no(), no()]);
}

#[test]
fn a_pod_that_matches_its_own_terms_may_be_the_first_of_its_kind() {
    let mut world = World::new(
        racks(),
        [pod("p", &[("app", "web")], near("web", "rack")), pod("stranger", &[], near("web", "rack"))],
    );
    let no = || Err(NodeRefusal::PodAffinity);
    assert_eq!(answers(&mut world, "p"), [Ok(()), Ok(()), Ok(()), Ok(()), no()], "but only where the label is");
    assert_eq!(answers(&mut world, "stranger"), [no(), no(), no(), no(), no()]);
    world.add(running(plain("first", "web"), "b2"));
    assert_eq!(answers(&mut world, "p"), [no(), no(), Ok(()), Ok(()), no()], "the second goes to the first");
}

#[test]
fn several_terms_must_be_met_by_the_same_pods() {
    let mut both = near("web", "rack");
    both.pod_affinity.push(PodTerm { selector: Some(super::selector("tier", "front")), ..app("", "host") });
    let full = pod("full", &[("app", "web"), ("tier", "front")], Constraints::default());
    let half = pod("half", &[("app", "web")], Constraints::default());
    let mut world = World::new(racks(), [running(full, "a1"), running(half, "b1"), pod("p", &[], both)]);
    let no = || Err(NodeRefusal::PodAffinity);
    assert_eq!(answers(&mut world, "p"), [Ok(()), no(), no(), no(), no()]);
}

#[test]
fn terms_look_only_into_their_namespaces() {
    let elsewhere = Pod { namespace: "other".to_owned(), ..plain("db", "db") };
    let any = |namespaces| {
        let term = PodTerm { namespaces, ..app("db", "rack") };
        pod("p", &[], Constraints { pod_affinity: vec![term], ..Constraints::default() })
    };
    for (namespaces, fits) in [
        (Some(vec!["team".to_owned()]), false),
        (Some(vec!["other".to_owned(), "team".to_owned()]), true),
        (Some(Vec::new()), false),
        (None, true),
    ] {
        let mut world = World::new(racks(), [running(elsewhere.clone(), "a1"), any(namespaces.clone())]);
        assert_eq!(world.check_pods("p", "a1").is_ok(), fits, "{namespaces:?}");
    }
}

#[test]
fn a_term_without_selector_speaks_of_nobody_and_an_empty_one_of_everybody() {
    let with = |selector| {
        let term = PodTerm { selector, ..app("", "rack") };
        pod("p", &[], Constraints { pod_anti_affinity: vec![term], ..Constraints::default() })
    };
    let mut world = World::new(racks(), [running(plain("db", "db"), "a1"), with(None)]);
    assert_eq!(world.check_pods("p", "a1"), Ok(()));
    world.add(with(Some(crate::delta::Selector::default())));
    assert_eq!(world.check_pods("p", "a1"), Err(NodeRefusal::PodAntiAffinity));
}

#[test]
fn anti_affinity_keeps_the_pod_out_of_the_domain() {
    let mut world = World::new(racks(), [running(plain("db", "db"), "a1"), pod("p", &[], away_from("db", "rack"))]);
    let no = || Err(NodeRefusal::PodAntiAffinity);
    assert_eq!(answers(&mut world, "p"), [no(), no(), Ok(()), Ok(()), Ok(())], "a node in no rack is in nobody's way");
}

#[test]
fn pods_that_are_there_keep_others_away() {
    let hermit = running(pod("hermit", &[], away_from("web", "rack")), "b1");
    let mut world = World::new(racks(), [hermit, plain("web", "web"), plain("db", "db")]);
    let no = || Err(NodeRefusal::ExistingAntiAffinity);
    assert_eq!(answers(&mut world, "web"), [Ok(()), Ok(()), no(), no(), Ok(())]);
    assert_eq!(answers(&mut world, "db"), [const { Ok(()) }; 5]);
    assert!(!world.census.minds_pods(&world.cluster, world.pod("db")), "nobody needs to ask for `db`");
    world.cluster.apply(Delta::PodGone("hermit".to_owned()));
    assert_eq!(answers(&mut world, "web"), [const { Ok(()) }; 5]);
}

#[test]
fn pods_placed_in_this_cycle_count_and_taking_them_back_undoes_it() {
    for status in [Status::Allocated, Status::Pipelined] {
        let hermit = |uid| pod(uid, &[("app", "web")], away_from("web", "rack"));
        let mut world = World::new(racks(), [hermit("p"), hermit("q"), plain("web", "web")]);
        assert_eq!(world.check_pods("q", "a2"), Ok(()));
        let before = world.cluster.checkpoint();
        world.place("p", "a1", status);
        assert!(world.cluster.repellers.contains(&world.pod("p")));
        assert_eq!(world.check_pods("q", "a2"), Err(NodeRefusal::PodAntiAffinity));
        assert_eq!(world.check_pods("web", "a2"), Err(NodeRefusal::ExistingAntiAffinity));
        world.cluster.rollback(before);
        assert!(world.cluster.repellers.is_empty());
        assert_eq!(world.check_pods("q", "a2"), Ok(()));
        assert_eq!(world.check_pods("web", "a2"), Ok(()));
    }
}

#[test]
fn pods_that_this_cycle_evicts_are_in_nobodys_way() {
    let hermit = running(pod("hermit", &[("app", "web")], away_from("web", "rack")), "a1");
    let mut world = World::new(racks(), [hermit, pod("p", &[("app", "web")], away_from("web", "rack"))]);
    assert_eq!(world.check_pods("p", "a2"), Err(NodeRefusal::PodAntiAffinity));
    let hermit = world.pod("hermit");
    world.cluster.evict(hermit);
    assert_eq!(world.check_pods("p", "a2"), Ok(()));
    let place = Place { node: Some(world.node("b1")), ..Place::nowhere(Status::Pipelined) };
    world.cluster.relocate(hermit, place);
    assert_eq!(world.check_pods("p", "a2"), Ok(()), "a moved pod counts where it goes");
    assert_eq!(world.check_pods("p", "b2"), Err(NodeRefusal::PodAntiAffinity));
    world.cluster.settle();
    assert_eq!(world.check_pods("p", "a2"), Err(NodeRefusal::PodAntiAffinity));
    assert_eq!(world.check_pods("p", "b2"), Ok(()));
}

#[test]
fn a_pod_that_is_moved_within_its_node_counts_once() {
    let wish = crate::delta::Weighted { weight: 1, item: app("web", "rack") };
    let fan = Constraints { preferred_pod_affinity: vec![wish], ..Constraints::default() };
    let mut world = World::new(racks(), [running(plain("web", "web"), "a1"), pod("p", &[], fan)]);
    let web = world.pod("web");
    world.cluster.evict(web);
    assert_eq!(world.preference("p", "a2"), 0);
    let place = Place { node: Some(world.node("a1")), ..Place::nowhere(Status::Pipelined) };
    world.cluster.relocate(web, place);
    assert_eq!(world.preference("p", "a2"), 1_000_000);
}

#[test]
fn pods_being_deleted_count_until_they_are_gone() {
    let leaving = Pod { deleted: Some(Time(0)), ..running(plain("db", "db"), "a1") };
    let mut world = World::new(racks(), [leaving, pod("p", &[], away_from("db", "rack"))]);
    assert_eq!(world.check_pods("p", "a2"), Err(NodeRefusal::PodAntiAffinity));
    world.cluster.refresh_terminating(Time(1_000_000), Span::seconds(60));
    assert_eq!(world.check_pods("p", "a2"), Err(NodeRefusal::PodAntiAffinity), "stuck ones too");
    world.cluster.refresh_terminating(Time(1_000), Span::seconds(60));
    assert_eq!(world.check_pods("p", "a2"), Err(NodeRefusal::PodAntiAffinity));
    world.cluster.apply(Delta::PodGone("db".to_owned()));
    assert_eq!(world.check_pods("p", "a2"), Ok(()));
}

#[test]
fn pods_that_ended_do_not_count() {
    let ended = Pod { phase: crate::delta::Phase::Succeeded, ..running(plain("db", "db"), "a1") };
    let mut world = World::new(racks(), [ended, pod("p", &[], away_from("db", "rack"))]);
    assert_eq!(world.check_pods("p", "a1"), Ok(()));
}

#[test]
fn a_node_that_changes_its_rack_takes_its_pods_along() {
    let mut world = World::new(racks(), [running(plain("db", "db"), "a1"), pod("p", &[], away_from("db", "rack"))]);
    assert_eq!(world.check_pods("p", "b2"), Ok(()));
    world.cluster.apply(Delta::Node(Box::new(node("a1", &[("rack", "b"), ("host", "a1")]))));
    assert_eq!(world.check_pods("p", "b2"), Err(NodeRefusal::PodAntiAffinity));
    assert_eq!(world.check_pods("p", "a2"), Ok(()));
    world.cluster.apply(Delta::NodeGone("a1".to_owned()));
    assert_eq!(world.check_pods("p", "b2"), Ok(()));
}

#[test]
fn a_journal_that_was_cut_short_makes_the_census_start_anew() {
    let hermit = |uid| pod(uid, &[("app", "web")], away_from("web", "rack"));
    let mut world = World::new(racks(), [hermit("p"), hermit("q")]);
    assert_eq!(world.check_pods("q", "a2"), Ok(()));
    for _ in 0..1_000 {
        let before = world.cluster.checkpoint();
        world.place("p", "b1", Status::Allocated);
        world.cluster.rollback(before);
    }
    world.place("p", "a1", Status::Allocated);
    let end = world.cluster.moves.end();
    world.cluster.trim_journals();
    assert!(world.cluster.moves.since(end).is_none(), "the journal was long enough to be cut");
    assert_eq!(world.check_pods("q", "a2"), Err(NodeRefusal::PodAntiAffinity));
    assert_eq!(world.check_pods("q", "b2"), Ok(()));
}

fn port(number: u16, protocol: &str, address: &str) -> HostPort {
    HostPort { port: number, protocol: protocol.to_owned(), address: address.to_owned() }
}

fn listening(uid: &str, port: HostPort) -> Pod {
    pod(uid, &[], Constraints { host_ports: vec![port], ..Constraints::default() })
}

#[test]
fn two_pods_cannot_have_the_same_port_of_a_node() {
    let conflict = |one: HostPort, other: HostPort| {
        let mut world = World::new(racks(), [running(listening("one", one), "a1"), listening("other", other)]);
        assert_eq!(world.check_pods("other", "a2"), Ok(()), "another node is free");
        world.check_pods("other", "a1").is_err_and(|refusal| refusal == NodeRefusal::HostPort)
    };
    assert!(conflict(port(80, "TCP", ""), port(80, "TCP", "0.0.0.0")));
    assert!(
        conflict(port(80, "TCP", "10.0.0.1"), port(80, "", "")),
        "all addresses and one of them; TCP is the default"
    );
    assert!(conflict(port(80, "TCP", "10.0.0.1"), port(80, "TCP", "10.0.0.1")));
    assert!(!conflict(port(80, "TCP", "10.0.0.1"), port(80, "TCP", "10.0.0.2")));
    assert!(!conflict(port(80, "TCP", ""), port(80, "UDP", "")));
    assert!(!conflict(port(80, "TCP", ""), port(81, "TCP", "")));
    assert!(!conflict(port(0, "TCP", ""), port(0, "TCP", "")), "port 0 is none");
}

#[test]
fn a_port_is_free_again_when_its_pod_is_evicted() {
    let web = |uid| listening(uid, port(80, "TCP", ""));
    let mut world = World::new(racks(), [running(web("one"), "a1"), web("other")]);
    assert_eq!(world.check_pods("other", "a1"), Err(NodeRefusal::HostPort));
    let one = world.pod("one");
    world.cluster.evict(one);
    assert_eq!(world.check_pods("other", "a1"), Ok(()));
    world.place("other", "a1", Status::Pipelined);
    world.cluster.settle();
    assert_eq!(world.check_pods("other", "a1"), Err(NodeRefusal::HostPort));
}

#[test]
fn an_exclusive_volume_is_for_one_pod_wherever_it_is() {
    let user = |uid, exclusive| {
        let need = VolumeNeed::Bound { claim: "team/data".to_owned(), nodes: None, exclusive };
        pod(uid, &[], Constraints { volumes: vec![need], ..Constraints::default() })
    };
    let mut world = World::new(racks(), [running(user("one", true), "a1"), user("other", true)]);
    let sentence = "claim `team/data` is for one pod at a time and another pod has it";
    assert_eq!(world.check_pods("other", "b1"), Err(NodeRefusal::Volume(sentence.to_owned())));
    world.cluster.apply(Delta::PodGone("one".to_owned()));
    assert_eq!(world.check_pods("other", "b1"), Ok(()));
    let mut world = World::new(racks(), [running(user("one", false), "a1"), user("other", false)]);
    assert_eq!(world.check_pods("other", "b1"), Ok(()));
}

#[test]
fn classes_say_whether_they_look_at_other_pods() {
    let world = World::new(
        [],
        [
            plain("plain", "web"),
            pod("near", &[], near("web", "rack")),
            pod("away", &[], away_from("web", "rack")),
            listening("port", port(80, "TCP", "")),
        ],
    );
    let dynamic = ["plain", "near", "away", "port"].map(|uid| world.constraints(uid).is_dynamic());
    assert_eq!(dynamic, [false, true, true, true]);
    let repelling = ["plain", "near", "away", "port"].map(|uid| world.constraints(uid).repels());
    assert_eq!(repelling, [false, false, true, false]);
}
