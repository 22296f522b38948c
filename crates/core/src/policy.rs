//! How to decide: what a SchedulingShard and the scheduler's settings say. Defaults are written in `kai-api`; the core has none.

use crate::time::{Span, Time};

/// One step of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Action {
    /// Place pending groups on what is free.
    Allocate,
    /// Move running pods so that a pending group fits.
    Consolidation,
    /// Take from queues above their share for queues below theirs.
    Reclaim,
    /// Take from lower priorities of the same queue.
    Preempt,
    /// Evict what is left of gangs that lost members.
    StaleGangEviction,
}

/// Fill nodes up, or use them evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Strategy {
    /// The fullest node or device that still fits.
    Binpack,
    /// The emptiest.
    Spread,
}

/// Which set minimum runtime protects a victim from reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MinRuntimeRule {
    /// The first one from the victim's child of the lowest common ancestor upwards.
    LowestCommonAncestor,
    /// The first one from the victim's own queue upwards.
    Queue,
}

/// The parts of the scoring and ordering that can be switched off, as KAI's plugins can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[expect(clippy::struct_excessive_bools, reason = "KAI's plugins are switches, each on its own")]
pub struct Plugins {
    /// Node conditions, selectors, affinity, taints, ports, volumes.
    pub predicates: bool,
    /// Fair share, quotas and limits of queues.
    pub proportion: bool,
    /// Groups of higher priority first.
    pub priority: bool,
    /// Gangs below their minimum first.
    pub elastic: bool,
    /// Kubeflow's master and launcher first.
    pub kubeflow: bool,
    /// Ray's head first.
    pub ray: bool,
    /// Nodes where the pod fits now before nodes where it must wait.
    pub node_availability: bool,
    /// Nodes with a partly used device that fits before others.
    pub gpu_sharing_order: bool,
    /// The fullest device that fits.
    pub gpu_pack: bool,
    /// The emptiest device that fits.
    pub gpu_spread: bool,
    /// Pods without GPU keep away from nodes with GPUs.
    pub resource_type: bool,
    /// Subgroups below their minimum first.
    pub subgroup_order: bool,
    /// Pods by their task priority.
    pub task_order: bool,
    /// The node a pod was nominated for.
    pub nominated_node: bool,
    /// ResourceClaims.
    pub dynamic_resources: bool,
    /// Binpack or spread over nodes.
    pub node_placement: bool,
    /// Minimum runtime of victims.
    pub min_runtime: bool,
    /// Topology constraints.
    pub topology: bool,
    /// NUMA alignment.
    pub numa: bool,
    /// Scores of preferred inter-pod affinity.
    pub pod_affinity: bool,
}

/// Historical usage in the division of surplus.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct UsagePolicy {
    /// After this time usage counts half; `None`: it never fades.
    pub half_life: Option<Span>,
    /// How far back usage counts.
    pub window: Window,
}

/// Which past counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Window {
    /// The last so much time.
    Sliding(Span),
    /// Since the last multiple of `length` after `start`.
    Tumbling {
        /// A moment at which a window begins.
        start: Time,
        /// How long one is.
        length: Span,
    },
    /// Since this moment; whoever reads cron expressions moves it on.
    Since(Time),
}

/// How a cycle decides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Policy {
    /// The steps of a cycle, in order.
    pub actions: Vec<Action>,
    /// How nodes are chosen for pods with GPUs.
    pub gpu_strategy: Strategy,
    /// How nodes are chosen for pods without.
    pub cpu_strategy: Strategy,
    /// What is switched on.
    pub plugins: Plugins,
    /// How many groups one consolidation may move; `None`: any number; 0: the action is off.
    pub max_consolidation_victims: Option<u32>,
    /// Whether victims of reclaim that found another place count as unharmed.
    pub consolidating_reclaim: bool,
    /// How long a gang below its minimum is left alone; negative: for ever.
    pub staleness_grace: Span,
    /// After this long in deletion a running pod is taken as stuck: its resources are not coming back.
    pub stuck_after: Span,
    /// Minimum runtime before preemption where no queue says otherwise.
    pub preempt_min_runtime: Span,
    /// Minimum runtime before reclaim where no queue says otherwise.
    pub reclaim_min_runtime: Span,
    /// Whose minimum runtime protects from reclaim.
    pub reclaim_min_runtime_rule: MinRuntimeRule,
    /// How far above its share a reclaimer's ancestor may be compared to its siblings, in thousandths; at least 1000.
    pub saturation_multiplier: u32,
    /// Weight of historical usage, in thousandths.
    pub usage_weight: u32,
    /// Historical usage; `None`: it does not count.
    pub usage: Option<UsagePolicy>,
    /// At most so many groups per queue are tried by an action.
    pub queue_depth: Vec<(Action, u32)>,
}
