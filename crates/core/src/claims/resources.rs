//! Extended resources that devices of DRA drivers serve on nodes that do not offer them themselves.

use super::{Served, ledger::GPUS};
use crate::{amounts::Resource, cluster::Cluster, delta::DeviceResource, ids::NodeId};

impl Cluster {
    pub(crate) fn describe_device_resource(&mut self, resource: DeviceResource) {
        let mut resource = resource;
        resource.kinds.sort_unstable();
        resource.kinds.dedup();
        let resources = &mut self.claims.resources;
        if resources.contains(&resource) {
            return;
        }
        resources.retain(|known| known.resource != resource.resource);
        let place = resources.partition_point(|known| known.resource < resource.resource);
        resources.insert(place, resource);
        self.serve_nodes();
    }

    pub(crate) fn forget_device_resource(&mut self, name: &str) {
        self.claims.resources.retain(|known| known.resource != name);
        self.serve_nodes();
    }

    /// Every node with devices offers what its devices serve now.
    fn serve_nodes(&mut self) {
        let served = self.served();
        for node in (0..self.nodes.len()).map(NodeId::of) {
            if self.nodes[node.index()].devices.is_empty() {
                continue;
            }
            let pods = self.lift_pods(node);
            let claims = self.lift_claims(node);
            self.nodes[node.index()].withdraw();
            self.nodes[node.index()].serve(served.iter().cloned());
            self.lower_claims(node, &claims, &pods);
            self.lower_pods(&pods);
        }
        self.nodes_version += 1;
    }

    /// The extended resources that devices serve, in the order of their names.
    pub(crate) fn served(&mut self) -> Vec<Served> {
        let words = &mut self.words;
        let served = self.claims.resources.iter().map(|known| {
            let name = words.intern(&known.resource);
            let gpus = known.resource == "nvidia.com/gpu";
            let resource = if gpus { GPUS } else { Resource::Extended(name) };
            Served { name, resource, kinds: known.kinds.clone() }
        });
        served.collect()
    }
}
