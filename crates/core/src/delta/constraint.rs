//! Where a pod may be: the constraints of a pod's specification, as kube-scheduler understands them.

use std::collections::BTreeMap;

/// Where a pod may be. Empty constraints allow every node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Constraints {
    /// Labels a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: one of these must match; empty: no requirement.
    pub node_affinity: Option<Vec<Term>>,
    /// Preferred node affinity.
    pub preferred_node_affinity: Vec<Weighted<Term>>,
    /// Taints it puts up with.
    pub tolerations: Vec<Toleration>,
    /// Required affinity to pods.
    pub pod_affinity: Vec<PodTerm>,
    /// Required distance from pods.
    pub pod_anti_affinity: Vec<PodTerm>,
    /// Preferred affinity to pods; a negative weight prefers distance.
    pub preferred_pod_affinity: Vec<Weighted<PodTerm>>,
    /// Even spread over domains.
    pub spread: Vec<SpreadConstraint>,
    /// Ports of the node it takes.
    pub host_ports: Vec<HostPort>,
    /// What its volumes need.
    pub volumes: Vec<VolumeNeed>,
    /// Required objects that do not exist (`ConfigMaps`, volume claims, resource claims), each as a sentence: until they do, no node fits.
    pub missing: Vec<String>,
    /// Nodes that refused the pod and are not to be tried now, by name.
    pub vetoed: Vec<String>,
}

/// Something with a weight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Weighted<T> {
    /// How much it counts.
    pub weight: i32,
    /// What counts.
    pub item: T,
}

/// A node selector term: all of it must match. An empty one matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Term {
    /// About the node's labels.
    pub labels: Vec<Expression>,
    /// About the node's name (`metadata.name`).
    pub names: Vec<Expression>,
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Expression {
    /// The label's key.
    pub key: String,
    /// How it is compared.
    pub operator: Operator,
    /// With what.
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Operator {
    /// It has one of the values.
    In,
    /// It is absent or has none of the values.
    NotIn,
    /// It is there.
    Exists,
    /// It is absent.
    DoesNotExist,
    /// It is an integer above the one value.
    Gt,
    /// It is an integer below the one value.
    Lt,
}

/// A label selector. `None` where one is optional selects nothing; an empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Selector {
    /// All of these must match (`matchLabels` are written as `In` with one value).
    pub expressions: Vec<Expression>,
}

/// A toleration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Toleration {
    /// The taint's key; `None`: any.
    pub key: Option<String>,
    /// The taint's value; `None`: any (operator Exists).
    pub value: Option<String>,
    /// The taint's effect; `None`: any.
    pub effect: Option<super::TaintEffect>,
}

/// Other pods and the domain in which they count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PodTerm {
    /// Which pods; `None`: none.
    pub selector: Option<Selector>,
    /// In which namespaces (the pod's own is written out; namespace selectors are resolved). `None`: all.
    pub namespaces: Option<Vec<String>>,
    /// The node label whose value names the domain.
    pub topology_key: String,
}

/// Even spread of pods over domains.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SpreadConstraint {
    /// How many more pods one domain may have than another.
    pub max_skew: u32,
    /// The node label whose value names the domain.
    pub topology_key: String,
    /// What happens if it cannot be kept.
    pub when_unsatisfiable: WhenUnsatisfiable,
    /// Which pods of the pod's namespace are counted (`matchLabelKeys` are resolved).
    pub selector: Option<Selector>,
    /// Below this number of domains the emptiest counts as having none.
    pub min_domains: Option<u32>,
    /// Whether nodes outside the pod's node affinity are left out of the count.
    pub honor_node_affinity: bool,
    /// Whether nodes with taints the pod does not tolerate are left out of the count.
    pub honor_taints: bool,
}

/// What happens if an even spread cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum WhenUnsatisfiable {
    /// The pod waits.
    DoNotSchedule,
    /// The pod is placed, better spread first.
    ScheduleAnyway,
}

/// A port of the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HostPort {
    /// The port.
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The address; empty or `0.0.0.0`: all.
    pub address: String,
}

/// What one volume needs of the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum VolumeNeed {
    /// A volume that is bound: the node must match one of these terms.
    Bound {
        /// The volume claim, `namespace/name`.
        claim: String,
        /// Its volume's node affinity; `None`: any node.
        nodes: Option<Vec<Term>>,
        /// Whether only one pod may use it (`ReadWriteOncePod`).
        exclusive: bool,
    },
    /// A volume to be made where the pod goes: the node must match one of these terms.
    Unbound {
        /// The volume claim, `namespace/name`.
        claim: String,
        /// Where its class (allowed topologies) or the volumes that would do can be; `None`: any node.
        nodes: Option<Vec<Term>>,
    },
}
