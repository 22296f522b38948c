//! One test for each rule.

use super::fixture::{Fixture, cordon, portion, preferred, required, whole};
use crate::{
    amounts::{Resource, fixed},
    delta::{self, Delta, Gpus, Request, TopologyConstraint},
    plan::{Cause, DomainRefusal},
    topology::{Ask, Bands, NodeSet, subsets},
};

/// Racks of one node with so many GPUs each.
fn racks(gpus: &[u32]) -> Fixture {
    let mut fixture = Fixture::new(&["rack"]);
    for (index, gpus) in gpus.iter().enumerate() {
        fixture.node(&format!("node{}", index + 1), *gpus, &format!("rack=rack{}", index + 1));
    }
    fixture
}

/// Two zones of two racks, each with one node of so many GPUs.
fn zones(gpus: [u32; 4]) -> Fixture {
    let mut fixture = Fixture::new(&["zone", "rack"]);
    for (index, gpus) in gpus.into_iter().enumerate() {
        let labels = format!("zone=zone{} rack=rack{}", index / 2 + 1, index % 2 + 1);
        fixture.node(&format!("node{}", index + 1), gpus, &labels);
    }
    fixture
}

fn nics(node: &mut delta::Node, count: i64) {
    node.extended.insert("example.com/nic".to_owned(), count);
}

fn domains(cause: Cause) -> Vec<DomainRefusal> {
    match cause {
        Cause::Topology { domains, .. } => domains,
        other => panic!("not refused for lack of room: {other:?}"),
    }
}

fn sentence(cause: Cause) -> String {
    match cause {
        Cause::TopologyUnknown(sentence) => sentence,
        other => panic!("not refused for its constraint: {other:?}"),
    }
}

/// T32 of the acceptance cases.
#[test]
fn the_most_packed_rack_that_fits_comes_first() {
    let mut fixture = racks(&[3, 3]);
    fixture.running("running", 1, "node1");
    let gang = fixture.gang(2, &whole(1));
    let sets = fixture.ask(&required("rack"), &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["node1", "node2"]);
    fixture.running("another", 2, "node2");
    let sets = fixture.ask(&required("rack"), &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["node1"], "node2 has one GPU left");
}

/// T33 of the acceptance cases.
#[test]
fn a_gang_too_large_for_every_rack_hears_what_each_can_take() {
    let mut fixture = racks(&[2, 2, 2, 2]);
    let gang = fixture.gang(4, &whole(1));
    let cause = fixture.ask(&required("rack"), &gang).unwrap_err();
    let Cause::Topology { subgroup, topology, level, domains } = cause else { panic!("{cause:?}") };
    assert_eq!((subgroup.as_str(), topology.as_str(), level.as_str()), ("", "t", "rack"));
    let said: Vec<_> = domains.iter().map(|domain| (domain.domain.as_str(), domain.pods, domain.needed)).collect();
    let expected = ["rack1", "rack2", "rack3", "rack4"].map(|rack| (rack, Some(2), 4));
    assert_eq!(said, expected);
}

#[test]
fn refusals_of_an_inner_level_name_the_whole_path() {
    let mut fixture = zones([2, 2, 2, 2]);
    let gang = fixture.gang(3, &whole(1));
    let refused = domains(fixture.ask(&required("rack"), &gang).unwrap_err());
    let names: Vec<_> = refused.iter().map(|domain| domain.domain.as_str()).collect();
    assert_eq!(names, ["zone1.rack1", "zone1.rack2", "zone2.rack1", "zone2.rack2"]);
}

#[test]
fn if_even_everything_together_is_too_small_no_domain_is_named() {
    let mut fixture = Fixture::new(&["rack"]);
    fixture.node("node0", 1, "rack=rack1");
    fixture.node("node1", 1, "rack=rack1");
    fixture.node("node2", 2, "rack=rack2");
    let gang = fixture.gang(2, &whole(2));
    assert_eq!(domains(fixture.ask(&required("rack"), &gang).unwrap_err()), []);
    assert_eq!(domains(fixture.ask(&preferred("rack"), &gang).unwrap_err()), []);
}

#[test]
fn racks_of_the_most_packed_zone_come_before_more_packed_racks_elsewhere() {
    let mut fixture = zones([4, 4, 2, 8]);
    let gang = fixture.gang(2, &whole(1));
    let sets = fixture.ask(&required("rack"), &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["node1", "node2", "node3", "node4"]);
}

#[test]
fn deeper_levels_are_tried_first_up_to_the_required_one() {
    let mut fixture = zones([4, 4, 4, 4]);
    let gang = fixture.gang(2, &whole(1));
    let constraint = TopologyConstraint { required: Some("zone".to_owned()), ..preferred("rack") };
    let sets = fixture.ask(&constraint, &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["node1", "node2", "node3", "node4", "node1 node2", "node3 node4"]);
    let gang = fixture.gang(6, &whole(1));
    let sets = fixture.ask(&constraint, &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["node1 node2", "node3 node4"]);
    let gang = fixture.gang(9, &whole(1));
    assert_eq!(domains(fixture.ask(&constraint, &gang).unwrap_err()).len(), 2);
}

#[test]
fn with_a_preferred_level_alone_the_pods_may_be_anywhere_in_the_topology() {
    let mut fixture = zones([1, 1, 1, 1]);
    fixture.node("outside", 8, "zone=zone1");
    let gang = fixture.gang(3, &whole(1));
    let sets = fixture.ask(&preferred("rack"), &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["node1 node2 node3 node4"]);
}

#[test]
fn nodes_without_all_labels_and_unavailable_nodes_are_no_candidates() {
    let mut fixture = Fixture::new(&["zone", "rack"]);
    fixture.node("a", 4, "zone=z rack=r");
    fixture.node("b", 4, "rack=r");
    fixture.node_with("c", 4, "zone=z rack=r", cordon);
    let gang = fixture.gang(2, &whole(1));
    let sets = fixture.ask(&required("rack"), &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["a"]);
    let gang = fixture.gang(5, &whole(1));
    assert!(fixture.ask(&required("rack"), &gang).is_err());
    fixture.cluster.apply(Delta::NodeGone("a".to_owned()));
    fixture.cluster.refresh_ranks();
    assert!(fixture.ask(&required("rack"), &gang[..1]).is_err(), "the only node is gone");
}

#[test]
fn a_domain_of_unavailable_nodes_alone_is_named_in_the_refusal() {
    let mut fixture = racks(&[2, 2]);
    fixture.node_with("cordoned", 8, "rack=rack3", cordon);
    let gang = fixture.gang(4, &whole(1));
    let refused = domains(fixture.ask(&required("rack"), &gang).unwrap_err());
    let pods: Vec<_> = refused.iter().map(|domain| (domain.domain.as_str(), domain.pods)).collect();
    assert_eq!(pods, [("rack1", Some(2)), ("rack2", Some(2)), ("rack3", Some(0))]);
}

#[test]
fn levels_go_by_label_and_by_alias() {
    let mut fixture = Fixture::new(&["example.com/rack=rack"]);
    fixture.node("a", 2, "example.com/rack=r1");
    fixture.node("b", 2, "example.com/rack=r2");
    let gang = fixture.gang(1, &whole(1));
    for name in ["example.com/rack", "rack"] {
        assert_eq!(fixture.ask(&required(name), &gang).unwrap().len(), 2);
    }
    let gang = fixture.gang(3, &whole(1));
    let Cause::Topology { level, .. } = fixture.ask(&required("rack"), &gang).unwrap_err() else { panic!() };
    assert_eq!(level, "example.com/rack", "the refusal names the label");
}

#[test]
fn what_does_not_exist_is_said() {
    let mut fixture = zones([1, 1, 1, 1]);
    let gang = fixture.gang(1, &whole(1));
    let missing = TopologyConstraint { topology: "other".to_owned(), ..required("rack") };
    let said = sentence(fixture.ask(&missing, &gang).unwrap_err());
    assert_eq!(said, "requested topology `other` does not exist");
    let said = sentence(fixture.ask(&required("row"), &gang).unwrap_err());
    assert!(said.contains("`row`") && said.contains("does not contain a level"), "{said}");
    assert!(sentence(fixture.ask(&preferred("row"), &gang).unwrap_err()).contains("preferred"));
    let neither = TopologyConstraint { required: None, ..required("rack") };
    assert!(sentence(fixture.ask(&neither, &gang).unwrap_err()).contains("neither"));
    let upside_down = TopologyConstraint { required: Some("rack".to_owned()), ..preferred("zone") };
    assert!(sentence(fixture.ask(&upside_down, &gang).unwrap_err()).contains("wider"));
}

#[test]
fn without_pods_or_topology_the_given_nodes_are_the_answer() {
    let mut fixture = zones([1, 1, 1, 1]);
    let gang = fixture.gang(1, &whole(1));
    let within = fixture.set("node3 node1");
    let (sets, _) = fixture.ask_with(&required("rack"), &[], Some(&within), &[]).unwrap();
    assert_eq!(fixture.names(&sets), ["node1 node3"]);
    let none = TopologyConstraint { topology: String::new(), ..required("rack") };
    let sets = fixture.ask(&none, &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["node1 node2 node3 node4"]);
}

#[test]
fn only_domains_that_already_hold_pods_of_the_subgroup_are_tried() {
    let mut fixture = zones([4, 4, 4, 4]);
    let node3 = fixture.cluster.node("node3").unwrap();
    let gang = fixture.gang(2, &whole(1));
    let (sets, _) = fixture.ask_with(&required("rack"), &gang, None, &[node3]).unwrap();
    assert_eq!(fixture.names(&sets), ["node3"]);
    let (sets, _) = fixture.ask_with(&required("zone"), &gang, None, &[node3]).unwrap();
    assert_eq!(fixture.names(&sets), ["node3 node4"]);
    let gang = fixture.gang(5, &whole(1));
    let refused = domains(fixture.ask_with(&required("rack"), &gang, None, &[node3]).unwrap_err());
    assert_eq!(refused.iter().map(|domain| domain.domain.as_str()).collect::<Vec<_>>(), ["zone2.rack1"]);
    let (sets, _) = fixture.ask_with(&preferred("zone"), &gang, None, &[node3]).unwrap();
    assert_eq!(sets.len(), 3, "a preference does not bind to where pods are");
}

#[test]
fn pods_on_cordoned_nodes_still_bind_the_subgroup_to_their_domain() {
    let mut fixture = racks(&[4, 4]);
    let cordoned = fixture.node_with("cordoned", 4, "rack=rack2", cordon);
    let gang = fixture.gang(2, &whole(1));
    let (sets, _) = fixture.ask_with(&required("rack"), &gang, None, &[cordoned]).unwrap();
    assert_eq!(fixture.names(&sets), ["node2"]);
}

#[test]
fn the_emptiest_preferred_domains_have_the_highest_band() {
    let mut fixture = racks(&[4, 4, 4, 4]);
    fixture.running("running", 1, "node3");
    let gang = fixture.gang(6, &whole(1));
    let (sets, bands) = fixture.ask_with(&preferred("rack"), &gang, None, &[]).unwrap();
    assert_eq!(fixture.names(&sets), ["node1 node2 node3 node4"]);
    let bands = bands.unwrap();
    let band = |name: &str| bands.band(fixture.cluster.node(name).unwrap());
    assert_eq!(["node3", "node1", "node2", "node4"].map(band), [2, 5, 7, 10]);
    assert!(fixture.ask_with(&required("rack"), &gang[..1], None, &[]).unwrap().1.is_none());
}

/// Two subgroups of three prefer a rack of two: each fills the emptiest rack of the spine that still has room for it.
#[test]
fn subgroups_that_prefer_a_rack_get_bands_of_their_own() {
    let mut fixture = Fixture::new(&["zone", "spine", "rack"]);
    for index in 0..8 {
        let labels = format!("zone=zone1 spine=spine{} rack=rack{}", index / 4 + 1, index / 2 + 1);
        fixture.node(&format!("node{index}"), 1, &labels);
    }
    let gang = fixture.gang(6, &whole(1));
    let (outer, bands) = fixture.ask_with(&preferred("spine"), &gang, None, &[]).unwrap();
    assert_eq!(outer[0].len(), 8, "no spine has room for six");
    let band = |bands: &Bands, fixture: &Fixture, name: &str| bands.band(fixture.cluster.node(name).unwrap());
    assert_eq!(["node0", "node4"].map(|name| band(bands.as_ref().unwrap(), &fixture, name)), [5, 10]);
    let (sets, bands) = fixture.ask_with(&preferred("rack"), &gang[..3], Some(&outer[0]), &[]).unwrap();
    assert_eq!(fixture.names(&sets[..1]), ["node0 node1 node2 node3"]);
    let racks = ["node0", "node2", "node4", "node6"];
    assert_eq!(racks.map(|name| band(bands.as_ref().unwrap(), &fixture, name)), [2, 5, 7, 10]);
    for (pod, name) in gang.iter().zip(["node2", "node3", "node0"]) {
        let node = fixture.cluster.node(name).unwrap();
        fixture.allocate(*pod, node);
    }
    let (sets, bands) = fixture.ask_with(&preferred("rack"), &gang[3..], Some(&outer[0]), &[]).unwrap();
    assert_eq!(fixture.names(&sets[..1]), ["node4 node5 node6 node7"]);
    assert_eq!(racks.map(|name| band(bands.as_ref().unwrap(), &fixture, name)), [5, 2, 7, 10]);
}

#[test]
fn an_inner_constraint_searches_inside_the_set_of_the_outer_one() {
    let mut fixture = zones([4, 4, 2, 2]);
    let outer_gang = fixture.gang(8, &whole(1));
    let outer = fixture.ask(&required("zone"), &outer_gang).unwrap();
    assert_eq!(fixture.names(&outer), ["node1 node2"]);
    let gang = fixture.gang(2, &whole(1));
    let (sets, _) = fixture.ask_with(&required("rack"), &gang, Some(&outer[0]), &[]).unwrap();
    assert_eq!(fixture.names(&sets), ["node1", "node2"]);
    let same = NodeSet::new(&fixture.cluster, outer[0].nodes().iter().copied());
    let (again, _) = fixture.ask_with(&required("rack"), &gang, Some(&same), &[]).unwrap();
    assert_eq!(again, sets, "how the set is stored makes no difference");
}

#[test]
fn a_constraint_wider_than_the_given_set_is_satisfied_by_all_of_it() {
    let mut fixture = zones([4, 4, 4, 4]);
    let gang = fixture.gang(2, &whole(1));
    let rack = fixture.ask(&required("rack"), &gang).unwrap().remove(0);
    let (sets, _) = fixture.ask_with(&required("zone"), &gang, Some(&rack), &[]).unwrap();
    assert_eq!(fixture.names(&sets), ["node1"]);
    let node3 = fixture.cluster.node("node3").unwrap();
    let refused = fixture.ask_with(&required("zone"), &gang, Some(&rack), &[node3]).unwrap_err();
    let said: Vec<_> = domains(refused).into_iter().map(|domain| (domain.domain, domain.pods)).collect();
    assert_eq!(said, [("zone2".to_owned(), Some(0))], "where its other pods are it has no nodes to choose from");
}

#[test]
fn a_preference_wider_than_the_given_set_does_not_widen_it() {
    let mut fixture = zones([4, 4, 4, 4]);
    let gang = fixture.gang(2, &whole(1));
    let rack = fixture.ask(&required("rack"), &gang).unwrap().remove(0);
    let (sets, _) = fixture.ask_with(&preferred("zone"), &gang, Some(&rack), &[]).unwrap();
    assert_eq!(fixture.names(&sets[..1]), ["node1"]);
}

#[test]
fn sets_hold_only_nodes_that_were_given() {
    let mut fixture = Fixture::new(&["rack"]);
    for (name, rack) in [("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2"), ("e", "r3")] {
        fixture.node(name, 2, &format!("rack={rack}"));
    }
    let within = fixture.set("b d c");
    let gang = fixture.gang(2, &whole(1));
    let (sets, _) = fixture.ask_with(&required("rack"), &gang, Some(&within), &[]).unwrap();
    assert_eq!(fixture.names(&sets), ["b", "c d"]);
    for name in ["a", "b", "c"] {
        let node = fixture.cluster.node(name).unwrap();
        assert_eq!(sets[0].contains(node), name == "b");
    }
    let outside = fixture.set("");
    assert!(fixture.ask_with(&required("rack"), &gang, Some(&outside), &[]).is_err());
}

#[test]
fn fragments_that_are_too_small_for_a_pod_do_not_count() {
    let mut fixture = Fixture::new(&["rack"]);
    for index in 0..4 {
        fixture.node(&format!("small{index}"), 2, "rack=r1");
    }
    fixture.node("large", 8, "rack=r2");
    let gang = fixture.gang(2, &whole(4));
    let sets = fixture.ask(&required("rack"), &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["large"]);
}

#[test]
fn what_leaves_counts_as_free_and_what_is_promised_does_not() {
    let mut fixture = racks(&[2]);
    let running = fixture.running("running", 2, "node1");
    let gang = fixture.gang(2, &whole(1));
    assert!(fixture.ask(&required("rack"), &gang).is_err());
    fixture.cluster.evict(running);
    assert!(fixture.ask(&required("rack"), &gang).is_ok());
    let other = fixture.gang(1, &whole(1))[0];
    let running = fixture.cluster.pod("running").unwrap();
    fixture.cluster.evict(running);
    let node = fixture.cluster.node("node1").unwrap();
    fixture.allocate(other, node);
    assert!(fixture.ask(&required("rack"), &gang).is_err());
    fixture.cluster.settle();
    assert!(fixture.ask(&required("rack"), &gang).is_err(), "everything is as it was");
}

#[test]
fn pods_without_requests_still_need_slots() {
    let mut fixture = Fixture::new(&["rack"]);
    fixture.node_with("a", 0, "rack=r1", |node| node.pods = 2);
    fixture.node_with("b", 0, "rack=r2", |node| node.pods = 3);
    let gang = fixture.gang(3, &Request::default());
    let sets = fixture.ask(&required("rack"), &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["b"]);
}

#[test]
fn room_on_shared_devices_counts_for_requests_for_shares() {
    let mut fixture = racks(&[1, 1]);
    fixture.pod("half", portion(1, 500_000), Some("node1"));
    let gang = fixture.gang(1, &portion(1, 500_000));
    let sets = fixture.ask(&required("rack"), &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["node1", "node2"], "the rack with the shared device is more packed");
    let gang = fixture.gang(2, &portion(1, 500_000));
    let sets = fixture.ask(&required("rack"), &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["node2"]);
    let gang = fixture.gang(1, &whole(1));
    let sets = fixture.ask(&required("rack"), &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["node2"], "a shared device is not whole");
}

#[test]
fn shares_of_several_devices_need_distinct_devices_and_slots_for_reservations() {
    let mut fixture = racks(&[3]);
    let two_of_each = |count| (count, portion(2, 500_000));
    let (count, request) = two_of_each(3);
    let gang = fixture.gang(count, &request);
    assert!(fixture.ask(&required("rack"), &gang).is_ok(), "six halves of three devices");
    let gang = fixture.gang(4, &request);
    assert!(fixture.ask(&required("rack"), &gang).is_err());
    let wide = portion(4, 100_000);
    let gang = fixture.gang(1, &wide);
    assert!(fixture.ask(&required("rack"), &gang).is_err(), "no pod has a device twice");

    let mut fixture = Fixture::new(&["rack"]);
    fixture.node_with("a", 2, "rack=r", |node| node.pods = 4);
    let gang = fixture.gang(3, &portion(1, 500_000));
    assert!(fixture.ask(&required("rack"), &gang).is_err(), "two devices must be opened: five slots");
    assert!(fixture.ask(&required("rack"), &gang[..2]).is_ok());
}

#[test]
fn memory_requests_go_by_the_memory_of_each_nodes_devices() {
    let mut fixture = Fixture::new(&["rack"]);
    fixture.node_with("small", 1, "rack=r1", |node| node.gpus.memory = Some(1000));
    fixture.node_with("large", 1, "rack=r2", |node| node.gpus.memory = Some(4000));
    fixture.node_with("unknown", 4, "rack=r3", |node| node.gpus.memory = None);
    let request = Request { gpus: Gpus::Memory { devices: 1, mib: 1000 }, ..whole(0) };
    let gang = fixture.gang(2, &request);
    let sets = fixture.ask(&required("rack"), &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["large"]);
}

#[test]
fn pods_that_differ_in_kind_are_judged_by_sums() {
    let mut fixture = Fixture::new(&["rack"]);
    fixture.node("a", 2, "rack=r1");
    fixture.node("b", 2, "rack=r1");
    fixture.node("c", 3, "rack=r2");
    let mut gang = fixture.gang(1, &whole(0));
    gang.extend(fixture.gang(1, &whole(4)));
    let sets = fixture.ask(&required("rack"), &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["a b"], "four GPUs in sum, though no node has them");
    let mut gang = fixture.gang(1, &whole(0));
    gang.extend(fixture.gang(1, &whole(5)));
    let refused = domains(fixture.ask(&required("rack"), &gang).unwrap_err());
    let gpus = Resource::Fixed(u8::try_from(fixed::GPU).unwrap());
    let said: Vec<_> = refused.iter().map(|domain| (domain.pods, domain.needed, domain.short)).collect();
    assert_eq!(said, [(None, 2, Some(gpus)); 2]);
}

#[test]
fn pods_of_different_sizes_are_judged_by_the_largest() {
    let mut fixture = racks(&[8, 5]);
    let mut gang = fixture.gang(1, &whole(1));
    gang.extend(fixture.gang(1, &whole(4)));
    let sets = fixture.ask(&required("rack"), &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["node1"]);
}

#[test]
fn the_order_of_pods_makes_no_difference() {
    let mut fixture = racks(&[2]);
    let memory = Request { gpus: Gpus::Memory { devices: 1, mib: 100 }, ..whole(0) };
    let mut gang = fixture.gang(1, &memory);
    gang.extend(fixture.gang(1, &portion(1, 250_000)));
    gang.extend(fixture.gang(1, &whole(1)));
    let one = fixture.ask(&required("rack"), &gang);
    gang.reverse();
    assert_eq!(one, fixture.ask(&required("rack"), &gang));
    assert!(one.is_err(), "beside a whole device, shares count as whole devices");
}

#[test]
fn an_extended_resource_can_be_the_scarce_one() {
    let mut fixture = Fixture::new(&["rack"]);
    fixture.node_with("a", 8, "rack=r1", |node| nics(node, 1));
    fixture.node_with("b", 8, "rack=r2", |node| nics(node, 4));
    let mut request = whole(1);
    request.extended.insert("example.com/nic".to_owned(), 1);
    let gang = fixture.gang(2, &request);
    let sets = fixture.ask(&required("rack"), &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["b"]);
}

#[test]
fn a_domain_with_the_same_nodes_as_its_only_part_is_not_tried_again() {
    let mut fixture = Fixture::new(&["zone", "rack"]);
    fixture.node("a", 2, "zone=z1 rack=r1");
    fixture.node("b", 2, "zone=z2 rack=r1");
    let gang = fixture.gang(1, &whole(1));
    let constraint = TopologyConstraint { required: Some("zone".to_owned()), ..preferred("rack") };
    let sets = fixture.ask(&constraint, &gang).unwrap();
    assert_eq!(fixture.names(&sets), ["a", "b"]);
}

#[test]
fn equal_names_in_different_zones_are_different_domains() {
    let mut fixture = Fixture::new(&["zone", "rack"]);
    fixture.node("a", 2, "zone=z rack=y.x");
    fixture.node("b", 2, "zone=z.y rack=x");
    let gang = fixture.gang(3, &whole(1));
    let refused = domains(fixture.ask(&required("rack"), &gang).unwrap_err());
    assert_eq!(refused.len(), 2, "though both are called z.y.x");
}

#[test]
fn the_largest_amounts_do_not_overflow() {
    let mut fixture = Fixture::new(&["rack"]);
    for name in ["a", "b"] {
        fixture.node_with(name, u32::MAX, "rack=r", |node| {
            node.cpu = 1_000_000_000_000_000;
            node.memory = 1_000_000_000_000_000;
            node.pods = 1_000_000_000_000_000;
            node.gpus.memory = Some(1 << 40);
        });
    }
    let tiny = Request { gpus: Gpus::Memory { devices: 1, mib: 1 }, ..Request::default() };
    let most = Request { cpu: 1_000_000_000_000_000, memory: 1_000_000_000_000_000, ..Request::default() };
    let mut gang = fixture.gang(1, &tiny);
    assert!(fixture.ask(&required("rack"), &gang).is_ok());
    gang.extend(fixture.gang(1, &most));
    assert!(fixture.ask(&required("rack"), &gang).is_ok());
    let wide = Request { gpus: Gpus::Memory { devices: 1_000_000, mib: 1 }, ..Request::default() };
    let gang = fixture.gang(2, &wide);
    assert!(fixture.ask(&required("rack"), &gang).is_ok());
}

#[test]
fn the_first_set_does_not_need_the_others() {
    let mut fixture = racks(&[2, 2]);
    let gang = fixture.gang(1, &whole(1));
    let constraint = required("rack");
    let ask = Ask { constraint: &constraint, subgroup: "", tasks: &gang, within: None, holding: &[] };
    let mut sets = subsets(&mut fixture.trees, &fixture.cluster, &ask).unwrap();
    let first = sets.next(&mut fixture.trees, &fixture.cluster).unwrap();
    let checkpoint = fixture.cluster.checkpoint();
    fixture.allocate(gang[0], first.nodes()[0]);
    fixture.cluster.rollback(checkpoint);
    let second = sets.next(&mut fixture.trees, &fixture.cluster).unwrap();
    assert_eq!(fixture.names(&[first, second]), ["node1", "node2"]);
    assert!(sets.next(&mut fixture.trees, &fixture.cluster).is_none());
}
