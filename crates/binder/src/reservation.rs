//! Reservation pods: each takes one whole device from the kubelet and stands for a group of pods that share it.
//!
//! The scheduler invents groups; only when the kubelet has given a device to the group's reservation pod is it known which one the
//! group has. There is one holder per group and node: its name follows from both, and [`keeper`] compares what is with what should
//! be, per node, on every change and from time to time. Which device a holder gets is the kubelet's choice; where pods of a group already
//! run with one, the holder that got it becomes theirs.

mod holder;
mod keeper;
mod plan;
mod pod;

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

pub(crate) use self::{
    holder::{Hold, Holder, hold, unguarded},
    keeper::Keeper,
};

/// More holders of one group are never there at once.
const MOST_NAMES: usize = 64;

/// The name of the reservation pod of a group on a node.
#[must_use]
pub fn reservation_name(node: &str, group: &str) -> String {
    named(&format!("{node}/{group}"))
}

/// The same, and those that are taken where it is not free: a holder that stands for another group by now keeps its name.
fn reservation_names(node: &str, group: &str) -> impl Iterator<Item = String> {
    let further = (2..=MOST_NAMES).map(move |number| named(&format!("{node}/{group}/{number}")));
    std::iter::once(reservation_name(node, group)).chain(further)
}

fn named(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().take(8).fold("gpu-reservation-".to_owned(), |mut name, byte| {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_follows_from_node_and_group() {
        assert_eq!(reservation_name("thor-0", "g"), reservation_name("thor-0", "g"));
        assert_ne!(reservation_name("thor-0", "g"), reservation_name("thor-1", "g"));
        assert_eq!(reservation_name("thor-0", "g").len(), "gpu-reservation-".len() + 16);
    }
}
