//! What the rules between pods ask of the census. Answers hold for a pod that was prepared, see [`Census::prepare`].

use crate::{
    cluster::{Cluster, node::Node, pod::Pod},
    constraints::{
        Compiled,
        census::{Census, Entry},
        domain::DomainCounts,
        spread::Spread,
        volume,
    },
    ids::{NodeId, PodId},
    plan::NodeRefusal,
};

impl Census {
    /// Whether [`Self::check_pods`] can refuse any node to a pod: its own constraints look at other pods, or a pod that
    /// has a place wants it away. Asked once per pod, it spares asking each node.
    #[must_use]
    pub fn minds_pods(&self, cluster: &Cluster, pod: PodId) -> bool {
        cluster.pods.get(pod.index()).is_some_and(|known| {
            cluster.classes.get(known.class).constraints.is_dynamic()
                || self.speaking_of(known).any(|entry| !entry.repelling.is_empty())
        })
    }

    /// Whether pods that have places could stand against the pod: only then can it help that some leave.
    #[must_use]
    pub fn is_opposed(&self, cluster: &Cluster, pod: PodId) -> bool {
        let Some(known) = cluster.pods.get(pod.index()) else { return false };
        let constraints = &cluster.classes.get(known.class).constraints;
        let enrolled = self.enrolled.get(&(known.class, known.namespace));
        let avoided = enrolled.into_iter().flat_map(|enrolled| enrolled.anti_affinity.iter());
        let present = |rule: &u32| {
            let matching = self.rules.get(*rule as usize).and_then(|entry| entry.matching.as_ref());
            matching.is_none_or(|matching| !matching.is_empty())
        };
        !constraints.ports.is_empty()
            || constraints.exclusive_claims().next().is_some()
            || constraints.spread.iter().any(|rule| rule.hard)
            || avoided.into_iter().any(present)
            || self.speaking_of(known).any(|entry| !entry.repelling.is_empty())
    }

    /// Whether the pods on nodes allow the pod on this one.
    ///
    /// # Errors
    ///
    /// What stands against it.
    pub fn check_pods(&self, cluster: &Cluster, pod: PodId, node: NodeId) -> Result<(), NodeRefusal> {
        let (Some(known), Some(place)) = (cluster.pods.get(pod.index()), cluster.nodes.get(node.index())) else {
            return Ok(());
        };
        let constraints = &cluster.classes.get(known.class).constraints;
        let taken = self.ports.get(&node).map_or(&[][..], |ports| ports);
        if constraints.ports.iter().any(|port| taken.iter().any(|taken| taken.conflicts(port))) {
            return Err(NodeRefusal::HostPort);
        }
        if !constraints.pod_affinity.is_empty() && !self.affinity_holds(cluster, pod, place) {
            return Err(NodeRefusal::PodAffinity);
        }
        if !constraints.pod_anti_affinity.is_empty() && !self.anti_affinity_holds(known, place) {
            return Err(NodeRefusal::PodAntiAffinity);
        }
        let against = |entry: &Entry| entry.rule.domain(place).is_some_and(|domain| entry.repelling.of(domain) > 0);
        if self.speaking_of(known).any(against) {
            return Err(NodeRefusal::ExistingAntiAffinity);
        }
        for (index, rule) in constraints.spread.iter().enumerate().filter(|(_, rule)| rule.hard) {
            let Some(spread) = self.spread(known, index) else { continue };
            let joins = spread.pods.holds(known.namespace, cluster.pod_labels(pod), &cluster.words);
            if !spread.allows(rule, place, joins) {
                return Err(NodeRefusal::Spread);
            }
        }
        let mut claims = constraints.exclusive_claims();
        match claims.find(|claim| self.claims.get(claim).is_some_and(|holders| *holders > 0)) {
            Some(claim) => Err(volume::taken(cluster.word(claim))),
            None => Ok(()),
        }
    }

    /// How much pods that have a place, and the pod because of them, want it on the node: weights times pods.
    pub(super) fn attraction(&self, pod: &Pod, node: &Node) -> i64 {
        let wishes = self.speaking_of(pod).map(|entry| match entry.rule.domain(node) {
            Some(domain) => entry.pulling.of(domain),
            None => 0,
        });
        let wished = wishes.fold(0, i64::saturating_add);
        let Some(enrolled) = self.enrolled.get(&(pod.class, pod.namespace)) else { return wished };
        enrolled.preferred.iter().fold(wished, |sum, (weight, rule)| {
            let entry = &self.rules[*rule as usize];
            let pods = entry.matching.as_ref().zip(entry.rule.domain(node)).map_or(0, |(sums, domain)| sums.of(domain));
            sum.saturating_add(i64::from(*weight).saturating_mul(pods))
        })
    }

    /// Whether some pod that has a place would rather have the pod near or far.
    pub(super) fn is_pulled(&self, pod: &Pod) -> bool {
        self.speaking_of(pod).any(|entry| !entry.pulling.is_empty())
    }

    /// Whether some node has a taint that discourages the pod.
    pub(super) fn is_discouraged(&self, cluster: &Cluster, constraints: &Compiled) -> bool {
        let mut nodes = self.discouraged.1.iter().filter_map(|node| cluster.nodes.get(node.index()));
        nodes.any(|node| constraints.discouraging_taints(node) > 0)
    }

    /// The spread by one constraint of the pod's class.
    pub(super) fn spread(&self, pod: &Pod, index: usize) -> Option<&Spread> {
        let enrolled = self.enrolled.get(&(pod.class, pod.namespace))?;
        self.spreads.get(enrolled.spread + index)
    }

    /// Whether the pods are there that the pod must be near to, or the pod may be the first of its kind.
    fn affinity_holds(&self, cluster: &Cluster, id: PodId, node: &Node) -> bool {
        let pod = &cluster.pods[id.index()];
        let Some(enrolled) = self.enrolled.get(&(pod.class, pod.namespace)) else { return true };
        let mut entries = enrolled.affinity.iter().map(|rule| &self.rules[*rule as usize]);
        let mut near = true;
        for entry in entries.clone() {
            let Some(domain) = entry.rule.domain(node) else { return false };
            near &= entry.matching.as_ref().is_some_and(|matching| matching.of(domain) > 0);
        }
        near || entries.all(|entry| {
            entry.matching.as_ref().is_none_or(DomainCounts::is_empty)
                && entry.rule.holds(pod.namespace, cluster.pod_labels(id), &cluster.words)
        })
    }

    /// Whether no pod is there that the pod must stay away from.
    fn anti_affinity_holds(&self, pod: &Pod, node: &Node) -> bool {
        let Some(enrolled) = self.enrolled.get(&(pod.class, pod.namespace)) else { return true };
        enrolled.anti_affinity.iter().map(|rule| &self.rules[*rule as usize]).all(|entry| {
            let matching = entry.matching.as_ref().zip(entry.rule.domain(node));
            matching.is_none_or(|(matching, domain)| matching.of(domain) == 0)
        })
    }

    /// The rules that speak of a pod.
    fn speaking_of(&self, pod: &Pod) -> impl Iterator<Item = &Entry> {
        let rules = self.spoken_of.get(&(pod.namespace, pod.labels)).map_or(&[][..], |rules| rules);
        rules.iter().map(|rule| &self.rules[*rule as usize])
    }
}
