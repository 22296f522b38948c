//! What each component may do, as Kubernetes wants it: a service account, a role for the cluster, a role for each namespace.
//!
//! The components say what they call (`rights`); nobody writes manifests by hand, so what is granted is what is needed.

use std::{collections::BTreeMap, fmt::Write as _};

use k8s_openapi::{
    api::{
        core::v1::ServiceAccount,
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kai_api::names::namespaces;
use kai_kit::rbac::{Right, Scope};
use serde_json::Value;

use super::Part;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Somebody with a service account of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A component of the control plane.
    Part(Part),
    /// The program in reservation pods.
    Reservation,
}

impl Holder {
    /// Everybody.
    pub const ALL: [Self; 6] = [
        Self::Part(Part::PodGrouper),
        Self::Part(Part::Scheduler),
        Self::Part(Part::Binder),
        Self::Part(Part::Controllers),
        Self::Part(Part::Admission),
        Self::Reservation,
    ];

    /// The name on the command line.
    pub fn component(self) -> &'static str {
        match self {
            Self::Part(part) => part.component(),
            Self::Reservation => "resource-reservation",
        }
    }

    /// The name of the service account and of the roles.
    pub fn account(self) -> String {
        match self {
            Self::Part(part) => format!("kai-{}", part.component()),
            // As in KAI: pods of an older installation use it too.
            Self::Reservation => namespaces::RESERVATION.to_owned(),
        }
    }

    /// The namespace of the service account, where `namespace` is that of the components.
    pub fn namespace(self, namespace: &str) -> &str {
        match self {
            Self::Part(_) => namespace,
            Self::Reservation => namespaces::RESERVATION,
        }
    }

    /// What it may do.
    pub fn rights(self, namespace: &str) -> Vec<Right> {
        match self {
            Self::Part(Part::PodGrouper) => kai_podgrouper::rights(namespace),
            Self::Part(Part::Scheduler) => kai_scheduler::rights(namespace),
            Self::Part(Part::Binder) => kai_binder::rights(namespace),
            Self::Part(Part::Controllers) => kai_controllers::rights(namespace),
            Self::Part(Part::Admission) => kai_admission::rights(namespace),
            Self::Reservation => kai_reservation::rights(namespaces::RESERVATION),
        }
    }
}

/// The objects that give one component its rights.
#[derive(Clone, Debug)]
pub struct Grants {
    /// Who.
    pub account: ServiceAccount,
    /// What in the whole cluster.
    pub cluster: Option<(ClusterRole, ClusterRoleBinding)>,
    /// What in single namespaces.
    pub namespaced: Vec<(Role, RoleBinding)>,
}

impl Grants {
    /// All of them, in the order in which they can be created.
    pub fn objects(&self) -> serde_json::Result<Vec<Value>> {
        let mut objects = vec![serde_json::to_value(&self.account)?];
        if let Some((role, binding)) = &self.cluster {
            objects.extend([serde_json::to_value(role)?, serde_json::to_value(binding)?]);
        }
        for (role, binding) in &self.namespaced {
            objects.extend([serde_json::to_value(role)?, serde_json::to_value(binding)?]);
        }
        Ok(objects)
    }
}

/// The service accounts of everybody.
pub fn accounts(namespace: &str) -> Vec<ServiceAccount> {
    Holder::ALL.iter().map(|holder| account(*holder, namespace)).collect()
}

/// The objects for `rights`, which are usually all of the component's.
pub fn grants(holder: Holder, namespace: &str, rights: &[Right]) -> Grants {
    let name = holder.account();
    let subject = Subject {
        api_group: None,
        kind: "ServiceAccount".to_owned(),
        name: name.clone(),
        namespace: Some(holder.namespace(namespace).to_owned()),
    };
    let meta = |namespace: Option<&String>| ObjectMeta {
        name: Some(name.clone()),
        namespace: namespace.cloned(),
        ..ObjectMeta::default()
    };
    let reference = |kind: &str| RoleRef { api_group: GROUP.to_owned(), kind: kind.to_owned(), name: name.clone() };
    let mut cluster: Vec<PolicyRule> = Vec::new();
    let mut namespaced: BTreeMap<&String, Vec<PolicyRule>> = BTreeMap::new();
    for right in rights {
        match &right.scope {
            Scope::Cluster => cluster.push(right.rule()),
            Scope::Namespace(namespace) => namespaced.entry(namespace).or_default().push(right.rule()),
        }
    }
    let cluster = (!cluster.is_empty()).then(|| {
        let role = ClusterRole { metadata: meta(None), rules: Some(cluster), ..ClusterRole::default() };
        let binding = ClusterRoleBinding {
            metadata: meta(None),
            role_ref: reference("ClusterRole"),
            subjects: Some(vec![subject.clone()]),
        };
        (role, binding)
    });
    let namespaced = namespaced.into_iter().map(|(namespace, rules)| {
        let role = Role { metadata: meta(Some(namespace)), rules: Some(rules) };
        let binding = RoleBinding {
            metadata: meta(Some(namespace)),
            role_ref: reference("Role"),
            subjects: Some(vec![subject.clone()]),
        };
        (role, binding)
    });
    Grants { account: account(holder, namespace), cluster, namespaced: namespaced.collect() }
}

fn account(holder: Holder, namespace: &str) -> ServiceAccount {
    ServiceAccount {
        metadata: ObjectMeta {
            name: Some(holder.account()),
            namespace: Some(holder.namespace(namespace).to_owned()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    }
}

/// The manifest of one component, with what each rule is for.
pub fn manifest(holder: Holder, namespace: &str) -> String {
    let rights = holder.rights(namespace);
    let name = holder.account();
    let home = holder.namespace(namespace);
    let mut text =
        format!("---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {name}\n  namespace: {home}\n");
    let mut scopes: Vec<Option<&String>> = rights.iter().map(|right| place(&right.scope)).collect();
    scopes.sort();
    scopes.dedup();
    for scope in scopes {
        let kind = if scope.is_some() { "Role" } else { "ClusterRole" };
        let place_line = scope.map(|namespace| format!("  namespace: {namespace}\n")).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ =
            write!(text, "---\napiVersion: {GROUP}/v1\nkind: {kind}\nmetadata:\n  name: {name}\n{place_line}rules:\n");
        for right in rights.iter().filter(|right| place(&right.scope) == scope) {
            let verbs: Vec<String> = right.verbs.iter().map(|verb| format!("\"{verb}\"")).collect();
            let _ = write!(
                text,
                "  # {}\n  - apiGroups: [\"{}\"]\n    resources: [\"{}\"]\n    verbs: [{}]\n",
                right.why,
                right.group,
                right.resource,
                verbs.join(", ")
            );
        }
        let _ = write!(
            text,
            "---\napiVersion: {GROUP}/v1\nkind: {kind}Binding\nmetadata:\n  name: {name}\n{place_line}roleRef:\n  apiGroup: {GROUP}\n  \
             kind: {kind}\n  name: {name}\nsubjects:\n  - kind: ServiceAccount\n    name: {name}\n    namespace: {home}\n"
        );
    }
    text
}

fn place(scope: &Scope) -> Option<&String> {
    match scope {
        Scope::Cluster => None,
        Scope::Namespace(namespace) => Some(namespace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_says_what_the_objects_say() {
        for holder in Holder::ALL {
            let text = manifest(holder, "kai-scheduler");
            let parsed: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            let grants = grants(holder, "kai-scheduler", &holder.rights("kai-scheduler"));
            let expected = grants.objects().unwrap();
            assert_eq!(parsed, expected, "{}", holder.component());
        }
    }

    #[test]
    fn nobody_has_a_right_twice_or_all_rights() {
        for holder in Holder::ALL {
            let rights = holder.rights("kai-scheduler");
            for (index, right) in rights.iter().enumerate() {
                let same = |other: &Right| {
                    (&other.scope, other.group, other.resource) == (&right.scope, right.group, right.resource)
                };
                assert!(!rights[..index].iter().any(same), "{}: {} twice", holder.component(), right.resource);
                assert!(!right.verbs.contains(&"*") && right.resource != "*" && right.group != "*", "{right:?}");
                assert!(!right.why.is_empty() && !right.why.contains('\n'), "{right:?}");
            }
        }
    }
}
