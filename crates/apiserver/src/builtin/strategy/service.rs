//! Addresses and ports that the server gives to services.
//!
//! The real server keeps books of what is free. Here the values follow from the uid, so that a run repeats itself; two services
//! meet by chance once in a million, which matters to nothing that runs without a network.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::builtin::access::{Read, Write};

const NODE_PORTS: std::ops::Range<u32> = 30000..32768;

/// Gives a new service its address and ports.
pub(super) fn allocate(object: &mut Value) {
    let kind = object.text("spec.type").to_owned();
    if kind == "ExternalName" {
        return;
    }
    let seed = digest(object);
    let address = match (object.text("spec.clusterIP"), object.list("spec.clusterIPs").first()) {
        ("", Some(first)) => first.as_str().unwrap_or("").to_owned(),
        ("", None) => cluster_address(seed),
        (given, _) => given.to_owned(),
    };
    object.set("spec.clusterIP", address.as_str());
    if object.list("spec.clusterIPs").is_empty() {
        object.set("spec.clusterIPs", json!([address]));
    }
    // nobody knows what a headless service without selector will name, so it may name anything
    let anything = address == "None" && object.map("spec.selector").is_empty();
    let (families, policy) = match (anything, address.contains(':')) {
        (true, _) => (json!(["IPv4", "IPv6"]), "RequireDualStack"),
        (false, true) => (json!(["IPv6"]), "SingleStack"),
        (false, false) => (json!(["IPv4"]), "SingleStack"),
    };
    object.set_if_missing("spec.ipFamilies", families);
    object.set_if_missing("spec.ipFamilyPolicy", policy);
    let wants_ports = kind == "NodePort"
        || (kind == "LoadBalancer" && object.at("spec.allocateLoadBalancerNodePorts").as_bool() != Some(false));
    if wants_ports {
        allocate_node_ports(object, seed);
    }
    if kind == "LoadBalancer" && object.text("spec.externalTrafficPolicy") == "Local" {
        object.set_if_zero("spec.healthCheckNodePort", node_port(seed.rotate_left(16)));
    }
}

fn allocate_node_ports(object: &mut Value, seed: u32) {
    let taken =
        |object: &Value| -> Vec<i64> { object.list("spec.ports").iter().map(|port| port.count("nodePort")).collect() };
    let mut used = taken(object);
    let mut candidate = node_port(seed);
    for port in object.elements("spec.ports") {
        if port.count("nodePort") != 0 || !port.is_object() {
            continue;
        }
        while used.contains(&i64::from(candidate)) {
            candidate = if candidate + 1 < NODE_PORTS.end { candidate + 1 } else { NODE_PORTS.start };
            if used.len() >= NODE_PORTS.len() {
                return;
            }
        }
        port.set("nodePort", candidate);
        used.push(i64::from(candidate));
    }
}

/// An update that leaves out what was given out keeps it; a service that changes its type gives it back or gets it now.
pub(super) fn keep_allocated(object: &mut Value, old: &Value) {
    let (new_kind, old_kind) = (object.text("spec.type").to_owned(), old.text("spec.type"));
    if new_kind == "ExternalName" {
        if old_kind != "ExternalName" && object.at("spec.clusterIP") == old.at("spec.clusterIP") {
            for name in ["spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy"] {
                object.take_at(name);
            }
            if object.at("spec.internalTrafficPolicy") == old.at("spec.internalTrafficPolicy") {
                object.take_at("spec.internalTrafficPolicy");
            }
        }
        return;
    }
    // A client that knows only the old field changes both.
    let address = object.text("spec.clusterIP").to_owned();
    if !address.is_empty()
        && address != old.text("spec.clusterIP")
        && object.at("spec.clusterIPs") == old.at("spec.clusterIPs")
    {
        object.set("spec.clusterIPs", json!([address]));
    }
    for name in ["spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy"] {
        let unset = object.text("spec.clusterIP").is_empty() || name != "spec.clusterIP";
        if unset && old.has(name) && old_kind != "ExternalName" && object.list(name).is_empty() {
            object.set_if_zero(name, old.at(name).clone());
        }
    }
    let with_ports = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    if with_ports(&new_kind) {
        for port in object.elements("spec.ports") {
            let same_port = old
                .list("spec.ports")
                .iter()
                .find(|old| old.count("port") == port.count("port") && old.text("protocol") == port.text("protocol"));
            if let Some(number) = same_port.map(|old| old.count("nodePort")).filter(|number| *number != 0) {
                port.set_if_zero("nodePort", number);
            }
        }
    } else if with_ports(old_kind) {
        for port in object.elements("spec.ports") {
            port.take_at("nodePort");
        }
        object.take_at("spec.externalTrafficPolicy");
        object.take_at("spec.healthCheckNodePort");
        object.take_at("spec.allocateLoadBalancerNodePorts");
    }
    allocate(object);
}

fn digest(object: &Value) -> u32 {
    let identity = match object.text("metadata.uid") {
        "" => format!("{}/{}", object.text("metadata.namespace"), object.text("metadata.name")),
        uid => uid.to_owned(),
    };
    let hash = Sha256::digest(identity.as_bytes());
    hash.iter().take(4).fold(0, |sum, byte| (sum << 8) | u32::from(*byte))
}

/// An address of 10.96.0.0/12, without the ends of the range.
fn cluster_address(seed: u32) -> String {
    let offset = 11 + seed % ((1 << 20) - 32);
    let [_, second, third, fourth] = (0x0a60_0000_u32 | offset).to_be_bytes();
    format!("10.{second}.{third}.{fourth}")
}

fn node_port(seed: u32) -> u32 {
    NODE_PORTS.start + seed % (NODE_PORTS.end - NODE_PORTS.start)
}
