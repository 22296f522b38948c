//! KAI's kinds as Rust types and CRDs, its names, and every default in one place; knows no client, no controller and no core.
//!
//! ```text
//!  scheduling.run.ai   Queue v2          who may use how much          BindRequest v1alpha2   a decision about one pod
//!                      PodGroup v2alpha2 pods that start together
//!  kai.scheduler       Topology v1alpha1 which nodes are near          SchedulingShard v1     a scheduler for a node pool
//!                                                                      Config v1              the whole installation
//! ```
//!
//! Field names are KAI's, so its users' manifests work unchanged. What KAI leaves out of an object is left out here: optional
//! fields are `Option`s or empty collections, and none has a default in the schema. Defaults are applied where a field is read,
//! from [`defaults`].

mod bind_request;
pub mod config;
mod crds;
pub mod defaults;
mod duration;
mod embedded;
mod group_of_pod;
pub mod names;
mod pod_group;
mod queue;
mod scheduling_shard;
mod topology;

pub use bind_request::{
    BindRequest, BindRequestSpec, BindRequestStatus, ExtendedResourceClaimAllocation, NumaZonePlacement, ReceivedGpu,
    ResourceClaimAllocation,
};
pub use config::{Config, ConfigSpec, ConfigStatus};
pub use crds::{WriteCrdsError, crds, crds_yaml, write_crds};
pub use duration::{Duration, ParseDurationError};
pub use group_of_pod::{group_name, group_of, implied_group, implies_group, is_alone, named_group};
pub use pod_group::{
    PodGroup, PodGroupCondition, PodGroupResourcesStatus, PodGroupSpec, PodGroupStatus, Preemptibility, QuotaDetails,
    SchedulingCondition, SubGroup, TopologyConstraint, UnschedulableExplanation, UnschedulableExplanationDetails,
};
pub use queue::{Queue, QueueCondition, QueueResource, QueueResources, QueueSpec, QueueStatus};
pub use scheduling_shard::{
    ActionConfig, MinRuntime, PlacementStrategy, PluginConfig, ScenarioSearchBudgets, SchedulingShard,
    SchedulingShardSpec, SchedulingShardStatus, UsageDbConfig, UsageParams,
};
pub use topology::{Topology, TopologyLevel, TopologySpec};
