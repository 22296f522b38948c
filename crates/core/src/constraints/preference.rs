//! How much better one node is than another by what a pod and its neighbours wish.
//!
//! The scale is KAI's for node scores, where packing is worth up to 9, the kind of node 10, starting at once 1,000, a
//! shared device 10,000, a topology level 100,000 and up:
//!
//! | wish | worth |
//! |---|---|
//! | preferred affinity between pods, of the pod and of pods that are there | weight × pods × 1,000,000 |
//! | preferred node affinity | 20 for each point of weight |
//! | a `PreferNoSchedule` taint that is not tolerated | −2,000, as a weight of 100 |
//! | `ScheduleAnyway` spread | −200 for each counted pod in the node's domain |
//!
//! The last three are not KAI's. Together they stay within ±499,999, so that they never outweigh one point between
//! pods. The least of them outranks packing; a weight above 50 outranks starting at once.

use crate::{
    cluster::Cluster,
    constraints::{Compiled, census::Census},
    ids::{NodeId, PodId},
};

const POD_WEIGHT: i64 = 1_000_000;
const NODE_WEIGHT: i64 = 20;
const TAINT: i64 = 2_000;
const CROWD: i64 = 200;
/// Less than half of what a weight of 1 between pods is worth.
const MOST_SMALL: i64 = POD_WEIGHT / 2 - 1;
/// Far beyond any real sum, and far from the end of the numbers: others add to it.
const MOST: i64 = 1 << 60;

impl Compiled {
    /// Whether some nodes are better than others by these constraints.
    #[must_use]
    pub fn has_preferences(&self) -> bool {
        !self.preferred_nodes.is_empty() || !self.preferred_pods.is_empty() || self.spread.iter().any(|rule| !rule.hard)
    }

    /// How much better than others a node is: higher first. It counts all pods; [`Census::preference`] does not.
    #[must_use]
    pub fn preference(&self, cluster: &Cluster, pod: PodId, node: NodeId) -> i64 {
        let mut census = Census::default();
        census.prepare(cluster, pod);
        census.preference(cluster, pod, node)
    }
}

impl Census {
    /// Whether [`Self::preference`] can tell nodes apart for a pod: by its own wishes, by those of pods that have a
    /// place, or by taints that only discourage. Asked once per pod, it spares asking each node.
    #[must_use]
    pub fn minds_nodes(&self, cluster: &Cluster, pod: PodId) -> bool {
        let Some(known) = cluster.pods.get(pod.index()) else { return false };
        let constraints = &cluster.classes.get(known.class).constraints;
        constraints.has_preferences() || self.is_pulled(known) || self.is_discouraged(cluster, constraints)
    }

    /// How much better than others a node is for a pod that was prepared: higher first.
    #[must_use]
    pub fn preference(&self, cluster: &Cluster, pod: PodId, node: NodeId) -> i64 {
        let (Some(known), Some(place)) = (cluster.pods.get(pod.index()), cluster.nodes.get(node.index())) else {
            return 0;
        };
        let constraints = &cluster.classes.get(known.class).constraints;
        let pods = self.attraction(known, place).saturating_mul(POD_WEIGHT).clamp(-MOST, MOST);
        let nodes = constraints.preferred_nodes.iter().filter(|(_, term)| term.holds(place, &cluster.words));
        let mut small = nodes.map(|(weight, _)| i64::from(*weight) * NODE_WEIGHT).fold(0, i64::saturating_add);
        let taints = i64::try_from(constraints.discouraging_taints(place)).unwrap_or(i64::MAX);
        small = small.saturating_sub(taints.saturating_mul(TAINT));
        for (index, rule) in constraints.spread.iter().enumerate().filter(|(_, rule)| !rule.hard) {
            let crowd = self.spread(known, index).map_or(0, |spread| spread.crowd(rule, place));
            small = small.saturating_sub(i64::from(crowd) * CROWD);
        }
        pods + small.clamp(-MOST_SMALL, MOST_SMALL)
    }
}
