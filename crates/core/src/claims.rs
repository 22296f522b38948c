//! ResourceClaims and devices of DRA drivers.

use crate::{
    cluster::Cluster,
    delta::{self, Claim, DeviceResource},
    ids::{NodeId, PodId},
    plan::NodeRefusal,
};

impl Cluster {
    pub(crate) fn describe_claim(&mut self, _claim: &Claim) {}

    pub(crate) fn forget_claim(&mut self, _key: &str) {}

    pub(crate) fn describe_device_resource(&mut self, _resource: DeviceResource) {}

    pub(crate) fn forget_device_resource(&mut self, _name: &str) {}

    /// Notes which claims a pod uses, and that it holds those that are reserved for it.
    pub(crate) fn hold_claims(&mut self, _pod: PodId, _described: &delta::Pod) {}

    /// A pod no longer uses its claims.
    pub(crate) fn release_claims(&mut self, _pod: PodId) {}

    /// Whether a pod's claims and extended resources served by DRA drivers can be satisfied on a node.
    ///
    /// # Errors
    ///
    /// What the node's devices lack.
    pub fn check_claims(&self, _pod: PodId, _node: NodeId) -> Result<(), NodeRefusal> {
        Ok(())
    }
}
