//! Topology: the levels (block, rack, host) in which nodes are near to each other, named by node labels.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The levels of a cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "kai.scheduler",
    version = "v1alpha1",
    kind = "Topology",
    plural = "topologies",
    doc = "Levels in which nodes are near to each other.",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpec {
    /// Levels, widest first. Their node labels cannot be changed; aliases can.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new("self.map(l, l.nodeLabel) == oldSelf.map(l, l.nodeLabel)")
            .message("the node labels of levels cannot be changed, only their aliases"),
        validation = Rule::new("self.all(a, self.exists_one(b, b.nodeLabel == a.nodeLabel))")
            .message("each level needs a node label of its own"),
        validation = Rule::new(
            "!self.exists(l, l.nodeLabel == 'kubernetes.io/hostname') || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'"
        )
        .message("only the last level can be kubernetes.io/hostname")
    )]
    pub levels: Vec<TopologyLevel>,
}

/// One level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// Node label whose values are the domains of this level, such as `topology.kubernetes.io/zone`.
    #[schemars(
        length(min = 1, max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub node_label: String,
    /// Another name by which workloads may ask for this level.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub alias: Option<String>,
}
