//! From a pod to its PodGroup: the owner walk, and one file per kind of workload.
