//! Every name that users, other programs and our own components agree on: KAI's, unchanged, so that either system can read what
//! the other wrote. Grouped by what carries the name.

/// API groups of the kinds.
pub mod groups {
    /// Group of queues, groups of pods and bind requests.
    pub const SCHEDULING: &str = "scheduling.run.ai";

    /// Group of topologies, shards and the configuration.
    pub const KAI: &str = "kai.scheduler";
}

/// Objects with a fixed name.
pub mod objects {
    /// The one Config that counts.
    pub const CONFIG: &str = "kai-config";

    /// `SchedulingShard` of a new installation.
    pub const DEFAULT_SHARD: &str = "default";

    /// Top queue of a new installation.
    pub const DEFAULT_PARENT_QUEUE: &str = "default-parent-queue";

    /// Queue of pods that name none.
    pub const DEFAULT_QUEUE: &str = "default-queue";

    /// Name that a group without subgroups gives its only one.
    pub const DEFAULT_POD_SET: &str = "default";

    /// Scheduler name by which pods ask for this system.
    pub const SCHEDULER: &str = "kai-scheduler";

    /// `RuntimeClass` whose containers see GPUs.
    pub const NVIDIA_RUNTIME_CLASS: &str = "nvidia";

    /// `PriorityClass` of training, 50.
    pub const PRIORITY_TRAIN: &str = "train";

    /// `PriorityClass` of interactive work that may be stopped, 75.
    pub const PRIORITY_BUILD_PREEMPTIBLE: &str = "build-preemptible";

    /// `PriorityClass` of interactive work, 100.
    pub const PRIORITY_BUILD: &str = "build";

    /// `PriorityClass` of inference, 125.
    pub const PRIORITY_INFERENCE: &str = "inference";
}

/// Namespaces, and the service accounts of the same name.
pub mod namespaces {
    /// The components.
    pub const KAI: &str = "kai-scheduler";

    /// Reservation pods; also their service account and the value of their label `app`.
    pub const RESERVATION: &str = "kai-resource-reservation";

    /// Scaling pods; also their service account.
    pub const SCALE_ADJUST: &str = "kai-scale-adjust";
}

/// Labels on pods, workloads, groups, queues and bind requests.
pub mod labels {
    /// Which utility pod this is.
    pub const APP: &str = "app";

    /// Value of `app` on scaling pods.
    pub const APP_SCALING_POD: &str = "scaling-pod";

    /// Queue of a pod or workload (the key can be configured).
    pub const QUEUE: &str = "kai.scheduler/queue";

    /// Node pool of a node, queue, group or bind request (the key can be configured); without it, the default pool.
    pub const NODE_POOL: &str = "kai.scheduler/node-pool";

    /// Leaf subgroup that a pod belongs to.
    pub const SUBGROUP: &str = "kai.scheduler/subgroup-name";

    /// Which Spark application a pod belongs to, as Spark labels it.
    pub const SPARK_SELECTOR: &str = "spark-app-selector";

    /// Order of pods within a subgroup, higher first.
    pub const TASK_PRIORITY: &str = "kai.scheduler/task-priority";

    /// Whether a workload may be stopped: `preemptible` or `non-preemptible`.
    pub const PREEMPTIBILITY: &str = "kai.scheduler/preemptibility";

    /// `PriorityClass` of a workload.
    pub const PRIORITY_CLASS: &str = "priorityClassName";

    /// Queue of a workload that names none, with `-<node pool>` if it has one.
    pub const PROJECT: &str = "project";

    /// User of a workload, copied to its group.
    pub const USER: &str = "user";

    /// Shared GPU that a pod uses or a reservation pod holds.
    pub const GPU_GROUP: &str = "runai-gpu-group";

    /// With the group as suffix and value: one of several shared GPUs that a pod uses.
    pub const GPU_GROUP_PREFIX: &str = "runai-gpu-group/";

    /// Node of a bind request.
    pub const SELECTED_NODE: &str = "selected-node";

    /// Marks monitors and rules for usage measurements, with the value `true`.
    pub const ACCOUNTING: &str = "kai.scheduler/accounting";

    /// Role of a Kubeflow pod; `master` and `launcher` start first.
    pub const KUBEFLOW_JOB_ROLE: &str = "training.kubeflow.org/job-role";

    /// Role of a Ray pod; `head` starts first.
    pub const RAY_NODE_TYPE: &str = "ray.io/node-type";
}

/// Annotations on pods, workloads and groups.
pub mod annotations {
    /// Group that a pod belongs to, in the same namespace.
    pub const POD_GROUP: &str = "pod-group-name";

    /// Share of each GPU that a pod asks for, between 0 and 1.
    pub const GPU_FRACTION: &str = "gpu-fraction";

    /// Memory of each GPU that a pod asks for, in MiB.
    pub const GPU_MEMORY: &str = "gpu-memory";

    /// Number of GPUs of which a pod asks for a part.
    pub const GPU_FRACTION_DEVICES: &str = "gpu-fraction-num-devices";

    /// Container that gets the part of a GPU.
    pub const GPU_FRACTION_CONTAINER: &str = "gpu-fraction-container-name";

    /// Whether a pod with part of a GPU uses the multi-process service.
    pub const MPS: &str = "mps";

    /// With a profile as suffix: an old way of asking for MIG devices.
    pub const MIG_PREFIX: &str = "nvidia.com/mig-";

    /// Beginning of the names of the `ConfigMaps` through which a container learns its GPU.
    pub const SHARED_GPU_CONFIG_MAP: &str = "runai/shared-gpu-configmap";

    /// How a pod got its GPUs.
    pub const RECEIVED_RESOURCE_TYPE: &str = "received-resource-type";

    /// UUID of the GPU that a reservation pod holds.
    pub const RESERVED_GPU: &str = "run.ai/reserve_for_gpu_index";

    /// Where on its node a pod was expected, as JSON.
    pub const NUMA_PREDICTED: &str = "kai.scheduler/numa-placement-predicted";

    /// Where on its node a pod is, as JSON.
    pub const NUMA_OBSERVED: &str = "kai.scheduler/numa-placement-observed";

    /// `true` keeps the pod-grouper away from a pod or from all pods of an owner.
    pub const SKIP_POD_GROUPER: &str = "kai.scheduler/skip-podgrouper";

    /// Topology of a workload.
    pub const TOPOLOGY: &str = "kai.scheduler/topology";

    /// Level within which a workload must run.
    pub const TOPOLOGY_REQUIRED: &str = "kai.scheduler/topology-required-placement";

    /// Level within which a workload should run.
    pub const TOPOLOGY_PREFERRED: &str = "kai.scheduler/topology-preferred-placement";

    /// Number of pods that form a segment of a workload.
    pub const SEGMENT_SIZE: &str = "kai.scheduler/segment-size";

    /// Level within which each segment must run.
    pub const SEGMENT_TOPOLOGY_REQUIRED: &str = "kai.scheduler/segment-topology-required-placement";

    /// Level within which each segment should run.
    pub const SEGMENT_TOPOLOGY_PREFERRED: &str = "kai.scheduler/segment-topology-preferred-placement";

    /// Number of pods of a Job or `JobSet` that must start together.
    pub const BATCH_MIN_MEMBER: &str = "kai.scheduler/batch-min-member";

    /// How long a workload waits before others are stopped for it.
    pub const PREEMPTION_DELAY: &str = "kai.scheduler/preemption-delay";

    /// How long a workload may run with too few pods.
    pub const STALENESS_GRACE_PERIOD: &str = "kai.scheduler/staleness-grace-period";

    /// On a group: the object that its pods belong to, as YAML.
    pub const TOP_OWNER: &str = "kai.scheduler/top-owner-metadata";

    /// On a group: since when it has too few pods.
    pub const STALE_SINCE: &str = "kai.scheduler/stale-podgroup-timestamp";

    /// On a group: when it last started.
    pub const LAST_START: &str = "kai.scheduler/last-start-timestamp";

    /// On a group: when it was last stopped for another.
    pub const LAST_EVICTION: &str = "kai.scheduler/last-eviction-timestamp";

    /// On a pod with parts of GPUs: the UUID of each, by group, as JSON. Not in KAI.
    pub const GPU_DEVICES: &str = "kai.scheduler/gpu-devices";

    /// On a reservation pod that replaces one that vanished: the UUID that the pods of its group were told. Not in KAI.
    pub const RESERVATION_EXPECTS: &str = "kai.scheduler/reservation-expects";

    /// On a reservation pod: how often its container had restarted when the UUID was last checked. Not in KAI.
    pub const RESERVATION_RESTARTS: &str = "kai.scheduler/reservation-restarts";

    /// On a volume or volume claim: uid of the pod for which the binder chose its place. Not in KAI.
    pub const PLACED_FOR: &str = "kai.scheduler/placed-for";

    /// On a bind request: how often binding the pod failed before, as JSON by node. Not in KAI.
    pub const BIND_ATTEMPTS: &str = "kai.scheduler/bind-attempts";

    /// On a bind request: nodes that refused the pod before and until when they are avoided, as JSON. Not in KAI.
    pub const BIND_VETOES: &str = "kai.scheduler/bind-vetoes";

    /// `true` on reservation pods: Karpenter must not remove their node.
    pub const KARPENTER_DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

    /// On a Prometheus that was turned off: since when.
    pub const PROMETHEUS_DEPRECATION: &str = "kai/deprecation-timestamp";

    /// Domains of the names above.
    const DOMAINS: [&str; 6] = ["kai.scheduler", "kai", "run.ai", "runai", "nvidia.com", "karpenter.sh"];

    /// Whether an annotation of this name may mean something to a component. Network plugins and others write theirs on every pod, under
    /// domains of their own.
    #[must_use]
    pub fn may_be_read(name: &str) -> bool {
        name.split_once('/').is_none_or(|(domain, _)| DOMAINS.contains(&domain))
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn every_annotation_that_has_a_name_here_may_be_read() {
            let (_, own) = include_str!("names.rs").split_once("pub mod annotations {").expect("this module");
            let (own, _) = own.split_once("const DOMAINS").expect("the end of the names");
            let names: Vec<&str> = own.split("&str = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
            assert!(names.len() > 30 && names.contains(&"gpu-fraction"), "{names:?}");
            for name in names {
                assert!(super::may_be_read(name), "{name}");
            }
            assert!(!super::may_be_read("cni.projectcalico.org/podIP"));
        }
    }
}

/// Labels of nodes.
pub mod node_labels {
    /// Memory of each GPU in MiB.
    pub const GPU_MEMORY: &str = "nvidia.com/gpu.memory";

    /// Number of physical GPUs.
    pub const GPU_COUNT: &str = "nvidia.com/gpu.count";

    /// How often each GPU is advertised where time is sliced.
    pub const GPU_REPLICAS: &str = "nvidia.com/gpu.replicas";

    /// Model of the GPUs; ends in `-SHARED` where time is sliced.
    pub const GPU_PRODUCT: &str = "nvidia.com/gpu.product";

    /// How MIG devices are offered: `none`, `single` or `mixed`.
    pub const MIG_STRATEGY: &str = "nvidia.com/mig.strategy";

    /// `true` on nodes whose GPUs are simulated.
    pub const FAKE_GPU: &str = "run.ai/fake.gpu";

    /// Node for workloads without GPUs.
    pub const CPU_WORKER: &str = "node-role.kubernetes.io/cpu-worker";

    /// Node for workloads with GPUs.
    pub const GPU_WORKER: &str = "node-role.kubernetes.io/gpu-worker";

    /// Whether the node offers MIG devices.
    pub const MIG_ENABLED: &str = "node-role.kubernetes.io/mig-enabled";

    /// `true` on nodes with NUMA zones.
    pub const MEMORY_NUMA: &str = "feature.node.kubernetes.io/memory-numa";

    /// `standard` or `tegra`: what kind of board the node is, as its agent found out. Not in KAI.
    pub const PLATFORM: &str = "kai.scheduler/platform";

    /// The node itself, the last level of a topology.
    pub const HOSTNAME: &str = "kubernetes.io/hostname";
}

/// Resources of nodes and containers.
pub mod resources {
    /// NVIDIA GPUs.
    pub const NVIDIA_GPU: &str = "nvidia.com/gpu";

    /// AMD GPUs.
    pub const AMD_GPU: &str = "amd.com/gpu";

    /// With a profile such as `1g.5gb` as suffix: MIG devices.
    pub const MIG_PREFIX: &str = "nvidia.com/mig-";

    /// In a group's status: MiB of GPU memory that pods ask for by memory.
    pub const GPU_MEMORY: &str = "run.ai/gpu.memory";
}

/// How a pod gets its GPUs (`receivedResourceType`).
pub mod resource_types {
    /// Whole GPUs, or none.
    pub const REGULAR: &str = "Regular";

    /// Parts of shared GPUs.
    pub const FRACTION: &str = "Fraction";

    /// MIG devices.
    pub const MIG_INSTANCE: &str = "MigInstance";
}

/// Phases of a bind request.
pub mod bind_phases {
    /// Being worked on.
    pub const PENDING: &str = "Pending";

    /// The pod is bound.
    pub const SUCCEEDED: &str = "Succeeded";

    /// The last attempt failed.
    pub const FAILED: &str = "Failed";
}

/// What the binder is doing (`status.step`).
pub mod bind_steps {
    /// Waits for the reservation pods of shared GPUs.
    pub const RESERVING: &str = "Reserving";

    /// Volumes, claims and ConfigMaps are being made ready.
    pub const PREPARING: &str = "Preparing";

    /// The pod is being bound.
    pub const BINDING: &str = "Binding";

    /// The pod is bound.
    pub const BOUND: &str = "Bound";
}

/// What kind of failure a bind request met (`status.errorClass`).
pub mod bind_errors {
    /// It is tried again on the same node.
    pub const TRANSIENT: &str = "Transient";

    /// This node is not tried again before `nextRetry`.
    pub const REFUSED: &str = "Refused";

    /// Pod or node is no longer there.
    pub const GONE: &str = "Gone";
}

/// Types of conditions.
pub mod conditions {
    /// Of a group: it waits.
    pub const UNSCHEDULABLE_ON_NODE_POOL: &str = "UnschedulableOnNodePool";

    /// Of a queue: its parent is missing.
    pub const QUEUE_ORPHAN: &str = "Orphan";

    /// Of a queue: it uses more than its guaranteed amount.
    pub const QUEUE_OVER_QUOTA: &str = "OverQuota";

    /// Of a pod: the binder bound it, or could not.
    pub const POD_BOUND: &str = "PodBound";

    /// Of the configuration or a shard: work is under way.
    pub const RECONCILING: &str = "Reconciling";

    /// Of the configuration or a shard: all objects are there.
    pub const DEPLOYED: &str = "Deployed";

    /// Of the configuration or a shard: all pods are up.
    pub const AVAILABLE: &str = "Available";

    /// Of the configuration or a shard: what it needs from others is there.
    pub const DEPENDENCIES_FULFILLED: &str = "DependenciesFulfilled";

    /// Of the configuration or a shard: it works.
    pub const READY: &str = "Ready";
}

/// Why a group waits.
pub mod reasons {
    /// The one reason that old clients know.
    pub const UNSCHEDULABLE: &str = "Unschedulable";

    /// Its queue would hold more that cannot be preempted than it is guaranteed.
    pub const NON_PREEMPTIBLE_OVER_QUOTA: &str = "NonPreemptibleOverQuota";

    /// Its queue would hold more than it may.
    pub const OVER_LIMIT: &str = "OverLimit";

    /// It must wait before others are stopped for it.
    pub const PREEMPTION_DELAY_NOT_ELAPSED: &str = "PreemptionDelayNotElapsed";

    /// Its queue, or a queue above it, is missing.
    pub const QUEUE_DOES_NOT_EXIST: &str = "QueueDoesNotExist";

    /// Its pods do not fit.
    pub const POD_SCHEDULING_ERRORS: &str = "PodSchedulingErrors";
}

/// Webhook configurations, their webhooks and the secrets of their servers.
pub mod webhooks {
    /// Configuration that validates pods and topologies.
    pub const VALIDATING_PODS: &str = "validating-kai-admission";

    /// Configuration that completes pods.
    pub const MUTATING_PODS: &str = "mutating-kai-admission";

    /// With the version as suffix: configuration that validates queues.
    pub const QUEUE_PREFIX: &str = "kai-queue-validation-";

    /// Webhook that validates queues.
    pub const QUEUE: &str = "queue-validation.kai.scheduler";

    /// With the version as suffix: configuration that validates groups.
    pub const POD_GROUP_PREFIX: &str = "kai-podgroup-validation-";

    /// Webhook that validates groups.
    pub const POD_GROUP: &str = "podgroup-validation.kai.scheduler";

    /// Certificate of the admission server.
    pub const ADMISSION_SECRET: &str = "kai-admission-webhook-tls-secret";

    /// Certificate of the queue controller.
    pub const QUEUE_SECRET: &str = "queue-webhook-tls-secret";

    /// Certificate of the pod group controller.
    pub const POD_GROUP_SECRET: &str = "podgroup-webhook-tls-secret";
}

/// Leases by which replicas agree on a leader; schedulers use their own name, with the node pool if they have one.
pub mod leases {
    /// The operator.
    pub const OPERATOR: &str = "41fce092.run.ai";

    /// The binder.
    pub const BINDER: &str = "2ad35f9c.kai.scheduler";

    /// The admission server.
    pub const ADMISSION: &str = "ojptxr84.kai.scheduler";

    /// The controllers of groups and queues.
    pub const CONTROLLERS: &str = "controllers.kai.scheduler";
}

/// Finalizers.
pub mod finalizers {
    /// On resource claims that the binder makes; Kubernetes removes it when no pod uses the claim.
    pub const RESOURCE_CLAIM: &str = "resource.kubernetes.io/delete-protection";
}

/// Environment variables.
pub mod env {
    /// GPUs that the NVIDIA runtime puts into a container.
    pub const NVIDIA_VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

    /// Share of a GPU that a container has.
    pub const GPU_PORTION: &str = "GPU_PORTION";

    /// Older name of `GPU_PORTION`.
    pub const RUNAI_NUM_OF_GPUS: &str = "RUNAI_NUM_OF_GPUS";

    /// Older key of the visible GPUs in a `ConfigMap`.
    pub const RUNAI_VISIBLE_DEVICES: &str = "RUNAI-VISIBLE-DEVICES";

    /// GPU memory that `HAMi-core` lets a container use, such as `4096m`.
    pub const CUDA_DEVICE_MEMORY_LIMIT: &str = "CUDA_DEVICE_MEMORY_LIMIT";

    /// Own name of a reservation pod.
    pub const POD_NAME: &str = "POD_NAME";

    /// Own namespace of a reservation pod.
    pub const POD_NAMESPACE: &str = "POD_NAMESPACE";

    /// Namespace of a component.
    pub const NAMESPACE: &str = "NAMESPACE";

    /// Repository of images for which the configuration names none.
    pub const IMAGE_REPOSITORY: &str = "MS_REPOSITORY";

    /// Tag of images for which the configuration names none.
    pub const IMAGE_TAG: &str = "MS_TAG";

    /// Part of the memory limit that KAI's scheduler uses.
    pub const GO_MEMORY_RATIO: &str = "KAI_GOMEMLIMIT_RATIO";

    /// Memory limit of Go programs.
    pub const GO_MEMORY_LIMIT: &str = "GOMEMLIMIT";

    /// Garbage collection setting of Go programs.
    pub const GO_GC: &str = "GOGC";
}
