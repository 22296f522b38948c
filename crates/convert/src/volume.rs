//! Volumes: which nodes a pod's volume claims leave it. A bound claim follows its volume; an unbound one follows its class, or the
//! volumes that would do.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{core::v1 as k8s, storage::v1::StorageClass};
use kai_core::delta::{Expression, Operator, Selector, Term, VolumeNeed};

use crate::{
    amount::{Round, amount},
    pod::constraint::{selector, selects, terms},
    queue::{key, name},
};

/// Marks the class of claims that name none.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// The provisioner of classes whose volumes are made by hand.
const BY_HAND: &str = "kubernetes.io/no-provisioner";

/// What is kept of a volume claim.
#[derive(Debug)]
struct ClaimRecord {
    volume: Option<String>,
    class: Option<String>,
    modes: BTreeSet<String>,
    storage: i64,
    selector: Selector,
    deleted: bool,
}

/// What is kept of a volume.
#[derive(Debug)]
struct VolumeRecord {
    nodes: Option<Vec<Term>>,
    class: String,
    modes: BTreeSet<String>,
    storage: i64,
    labels: BTreeMap<String, String>,
    /// The claim it is promised to.
    claim: Option<String>,
    free: bool,
}

/// What is kept of a storage class.
#[derive(Debug)]
struct ClassRecord {
    waits: bool,
    by_hand: bool,
    default: bool,
    nodes: Option<Vec<Term>>,
}

/// The volumes of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    claims: BTreeMap<String, ClaimRecord>,
    made: BTreeMap<String, VolumeRecord>,
    classes: BTreeMap<String, ClassRecord>,
}

impl Volumes {
    /// Takes a volume claim.
    pub(crate) fn insert_claim(&mut self, object: &k8s::PersistentVolumeClaim) {
        let spec = object.spec.clone().unwrap_or_default();
        let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
        let record = ClaimRecord {
            volume: spec.volume_name.filter(|volume| !volume.is_empty()),
            class: spec.storage_class_name,
            modes: spec.access_modes.unwrap_or_default().into_iter().collect(),
            storage: requests.get("storage").and_then(|q| amount("", "storage", q, Round::Up).ok()).unwrap_or(0),
            selector: spec.selector.as_ref().map(selector).unwrap_or_default(),
            deleted: object.metadata.deletion_timestamp.is_some(),
        };
        self.claims.insert(key(&object.metadata), record);
    }

    /// Forgets a volume claim.
    pub(crate) fn remove_claim(&mut self, claim: &str) {
        self.claims.remove(claim);
    }

    /// Takes a volume.
    pub(crate) fn insert_volume(&mut self, object: &k8s::PersistentVolume) {
        let spec = object.spec.clone().unwrap_or_default();
        let capacity = spec.capacity.unwrap_or_default();
        let phase = object.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Available");
        let claim = spec
            .claim_ref
            .map(|claim| format!("{}/{}", claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default()));
        let required = spec.node_affinity.and_then(|affinity| affinity.required);
        let record = VolumeRecord {
            nodes: required.map(|required| terms(&required.node_selector_terms)),
            class: spec.storage_class_name.unwrap_or_default(),
            modes: spec.access_modes.unwrap_or_default().into_iter().collect(),
            storage: capacity.get("storage").and_then(|q| amount("", "storage", q, Round::Down).ok()).unwrap_or(0),
            labels: object.metadata.labels.clone().unwrap_or_default(),
            claim,
            free: phase == "Available" && object.metadata.deletion_timestamp.is_none(),
        };
        self.made.insert(name(&object.metadata), record);
    }

    /// Forgets a volume.
    pub(crate) fn remove_volume(&mut self, volume: &str) {
        self.made.remove(volume);
    }

    /// Takes a storage class.
    pub(crate) fn insert_class(&mut self, object: &StorageClass) {
        let annotations = object.metadata.annotations.as_ref();
        let allowed = object.allowed_topologies.as_ref().filter(|allowed| !allowed.is_empty());
        let record = ClassRecord {
            waits: object.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            by_hand: object.provisioner == BY_HAND,
            default: annotations.and_then(|all| all.get(DEFAULT_CLASS)).is_some_and(|text| text == "true"),
            nodes: allowed.map(|allowed| allowed.iter().map(domain).collect()),
        };
        self.classes.insert(name(&object.metadata), record);
    }

    /// Forgets a storage class.
    pub(crate) fn remove_class(&mut self, class: &str) {
        self.classes.remove(class);
    }

    /// The claims whose needs may change when a volume or a class does.
    pub(crate) fn claims_of(&self, volume: Option<&str>) -> Vec<String> {
        let affected = self.claims.iter().filter(|(_, claim)| match (&claim.volume, volume) {
            (Some(bound), Some(volume)) => bound == volume,
            (Some(_), None) => false,
            (None, _) => true,
        });
        affected.map(|(key, _)| key.clone()).collect()
    }

    /// What a claim needs of a node, or why no node will do yet.
    pub(crate) fn need(&self, claim: &str) -> Result<VolumeNeed, String> {
        let Some(record) = self.claims.get(claim) else {
            return Err(format!("persistentvolumeclaim \"{}\" not found", short(claim)));
        };
        if record.deleted {
            return Err(format!("persistentvolumeclaim \"{}\" is being deleted", short(claim)));
        }
        if let Some(volume) = &record.volume {
            let Some(bound) = self.made.get(volume) else {
                return Err(format!("persistentvolume \"{volume}\" of claim \"{}\" not found", short(claim)));
            };
            let exclusive = record.modes.contains("ReadWriteOncePod");
            return Ok(VolumeNeed::Bound { claim: claim.to_owned(), nodes: bound.nodes.clone(), exclusive });
        }
        let class = match record.class.as_deref() {
            Some(name) => self.classes.get(name),
            None => self.classes.values().find(|class| class.default),
        };
        match class {
            Some(class) if class.waits => {
                let nodes = if class.by_hand { self.homes(claim, record) } else { class.nodes.clone() };
                Ok(VolumeNeed::Unbound { claim: claim.to_owned(), nodes })
            }
            _ => Err(format!("pod has unbound immediate persistentvolumeclaim \"{}\"", short(claim))),
        }
    }

    /// Where the volumes are that would do for a claim; `None`: one of them is everywhere.
    fn homes(&self, claim: &str, record: &ClaimRecord) -> Option<Vec<Term>> {
        let class = record.class.as_deref().unwrap_or_default();
        let mut homes = Vec::new();
        for volume in self.made.values() {
            let promised = volume.claim.as_deref().is_none_or(|to| to == claim);
            let fits =
                volume.class == class && volume.storage >= record.storage && volume.modes.is_superset(&record.modes);
            if volume.free && promised && fits && selects(&record.selector, &volume.labels) {
                homes.extend(volume.nodes.clone()?);
            }
        }
        Some(homes)
    }
}

fn domain(term: &k8s::TopologySelectorTerm) -> Term {
    let labels = term.match_label_expressions.iter().flatten();
    let labels =
        labels.map(|one| Expression { key: one.key.clone(), operator: Operator::In, values: one.values.clone() });
    Term { labels: labels.collect(), names: Vec::new() }
}

fn short(key: &str) -> &str {
    key.split_once('/').map_or(key, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(volumes: &mut Volumes, spec: Value) {
        let object = json!({"metadata": {"name": "data", "namespace": "team"}, "spec": spec});
        volumes.insert_claim(&serde_json::from_value(object).expect("a claim"));
    }

    fn volume(volumes: &mut Volumes, name: &str, size: &str, node: &str) {
        let required =
            json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "host", "operator": "In", "values": [node]}]}]});
        let object = json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local", "nodeAffinity": {"required": required}}});
        volumes.insert_volume(&serde_json::from_value(object).expect("a volume"));
    }

    fn class(volumes: &mut Volumes, name: &str, extra: Value) {
        let mut object = json!({"metadata": {"name": name}, "provisioner": "made.example.com"});
        object.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
        volumes.insert_class(&serde_json::from_value(object).expect("a class"));
    }

    #[test]
    fn a_bound_claim_is_where_its_volume_is() {
        let mut volumes = Volumes::default();
        claim(&mut volumes, json!({"volumeName": "v", "accessModes": ["ReadWriteOncePod"]}));
        assert!(volumes.need("team/data").expect_err("no volume").contains("persistentvolume \"v\""));
        volume(&mut volumes, "v", "1Gi", "a");
        let need = volumes.need("team/data").expect("bound");
        assert!(matches!(need, VolumeNeed::Bound { nodes: Some(nodes), exclusive: true, .. } if nodes.len() == 1));
        assert!(volumes.need("team/other").expect_err("no claim").contains("not found"));
    }

    #[test]
    fn an_unbound_claim_may_be_where_its_class_allows() {
        let mut volumes = Volumes::default();
        claim(&mut volumes, json!({"storageClassName": "fast"}));
        assert!(volumes.need("team/data").expect_err("no class").contains("immediate"));
        let allowed = json!([{"matchLabelExpressions": [{"key": "zone", "values": ["z1"]}]}]);
        class(&mut volumes, "fast", json!({"volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": allowed}));
        let need = volumes.need("team/data").expect("waits");
        assert!(matches!(need, VolumeNeed::Unbound { nodes: Some(nodes), .. } if nodes[0].labels[0].key == "zone"));
    }

    #[test]
    fn volumes_made_by_hand_say_where_an_unbound_claim_may_be() {
        let mut volumes = Volumes::default();
        let local = json!({"provisioner": BY_HAND, "volumeBindingMode": "WaitForFirstConsumer"});
        class(&mut volumes, "local", local);
        claim(
            &mut volumes,
            json!({"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}),
        );
        volume(&mut volumes, "small", "1Gi", "a");
        volume(&mut volumes, "large", "2Gi", "b");
        let need = volumes.need("team/data").expect("waits");
        assert!(
            matches!(need, VolumeNeed::Unbound { nodes: Some(nodes), .. } if nodes.len() == 1 && nodes[0].labels[0].values == ["b"])
        );
    }

    #[test]
    fn a_claim_without_a_class_has_the_default_one() {
        let mut volumes = Volumes::default();
        claim(&mut volumes, json!({}));
        let marked = json!({"volumeBindingMode": "WaitForFirstConsumer", "metadata": {"name": "usual", "annotations": {DEFAULT_CLASS: "true"}}});
        class(&mut volumes, "usual", marked);
        assert!(volumes.need("team/data").is_ok());
        assert_eq!(volumes.claims_of(Some("any")), ["team/data"]);
    }
}
