//! No two pods get the same port of a node.
//!
//! Source: kai-core.md §3.12 (host ports): ports conflict if number and protocol are equal and one of the addresses is every address or
//! both are the same.

use kai_core::delta::HostPort;

use crate::{Cycle, Violation, neighbours::neighbours};

/// Pods that the plan puts where their port is taken.
#[must_use]
pub fn check(cycle: &Cycle<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !cycle.policy.plugins.predicates {
        return violations;
    }
    let all = neighbours(cycle);
    for one in all.iter().filter(|one| one.new) {
        for other in all.iter().filter(|other| other.pod.uid != one.pod.uid && other.node.name == one.node.name) {
            let theirs = &other.pod.constraints.host_ports;
            let taken =
                one.pod.constraints.host_ports.iter().find(|port| theirs.iter().any(|taken| conflict(port, taken)));
            if let Some(port) = taken {
                violations.push(Violation {
                    invariant: "a port of a node has one owner",
                    object: one.pod.uid.clone(),
                    what: format!("port {} of node `{}` belongs to `{}`", port.port, one.node.name, other.pod.uid),
                });
            }
        }
    }
    violations
}

fn conflict(one: &HostPort, other: &HostPort) -> bool {
    let protocol = |port: &HostPort| if port.protocol.is_empty() { "TCP".to_owned() } else { port.protocol.clone() };
    let everywhere = |port: &HostPort| port.address.is_empty() || port.address == "0.0.0.0";
    one.port != 0
        && one.port == other.port
        && protocol(one) == protocol(other)
        && (everywhere(one) || everywhere(other) || one.address == other.address)
}
