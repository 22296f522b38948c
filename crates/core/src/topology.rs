//! Topology domains: into which sets of nodes a constrained subgroup may go, best first.
