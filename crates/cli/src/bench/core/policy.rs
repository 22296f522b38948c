//! How KAI decides out of the box: the settings of a new installation, and the same with one action only.

use kai_core::{
    policy::{Action, MinRuntimeRule, Plugins, Policy, Strategy},
    time::Span,
};

/// KAI's defaults: five actions, binpack, every plugin of the operator's list.
pub fn standard() -> Policy {
    use Action::{Allocate, Consolidation, Preempt, Reclaim, StaleGangEviction};
    Policy {
        actions: vec![Allocate, Consolidation, Reclaim, Preempt, StaleGangEviction],
        gpu_strategy: Strategy::Binpack,
        cpu_strategy: Strategy::Binpack,
        plugins: Plugins {
            predicates: true,
            proportion: true,
            priority: true,
            elastic: true,
            kubeflow: true,
            ray: true,
            node_availability: true,
            gpu_sharing_order: true,
            gpu_pack: true,
            gpu_spread: false,
            resource_type: true,
            subgroup_order: true,
            task_order: true,
            nominated_node: true,
            dynamic_resources: true,
            node_placement: true,
            min_runtime: true,
            topology: true,
            numa: false,
            pod_affinity: true,
        },
        max_consolidation_victims: Some(16),
        consolidating_reclaim: true,
        staleness_grace: Span::seconds(60),
        stuck_after: Span::seconds(120),
        preempt_min_runtime: Span::ZERO,
        reclaim_min_runtime: Span::ZERO,
        reclaim_min_runtime_rule: MinRuntimeRule::LowestCommonAncestor,
        saturation_multiplier: 1000,
        usage_weight: 1000,
        usage: None,
        queue_depth: vec![],
    }
}

/// The same with this action alone: KAI's benchmarks of reclaim time nothing else.
pub fn only(action: Action) -> Policy {
    Policy { actions: vec![action], ..standard() }
}
