//! A pod as the rules see it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use kai_api::names::{annotations, resources};
use kai_quantity::Quantity;

use crate::review::{Refusal, Request};

/// A pod with its place, for messages.
pub(super) struct Subject<'a> {
    pub(super) pod: &'a Pod,
    /// `namespace/name`; what is generated later is shown as `*`.
    place: String,
    namespace: String,
}

impl<'a> Subject<'a> {
    pub(super) fn new(pod: &'a Pod, request: &Request) -> Self {
        let namespace = request.namespace.clone().or_else(|| pod.metadata.namespace.clone()).unwrap_or_default();
        let given = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
        let name = given(&pod.metadata.name)
            .or_else(|| given(&Some(request.name.clone())))
            .or_else(|| given(&pod.metadata.generate_name).map(|beginning| format!("{beginning}*")))
            .unwrap_or_else(|| "*".to_owned());
        Self { pod, place: format!("{namespace}/{name}"), namespace }
    }

    /// Whether the pod asks for this scheduler.
    pub(super) fn is_of(&self, scheduler: &str) -> bool {
        self.pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()) == Some(scheduler)
    }

    /// Refuses a pod that names another namespace than its request.
    pub(super) fn check_namespace(&self, request: &Request) -> Result<(), Refusal> {
        match (&self.pod.metadata.namespace, &request.namespace) {
            (Some(own), Some(asked)) if !own.is_empty() && own != asked => Err(self.refuse(
                "field `metadata.namespace`",
                format_args!("`{own}` is not the namespace `{asked}` of the request"),
                "write the same namespace in both places",
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn spec(&self) -> Option<&'a PodSpec> {
        self.pod.spec.as_ref()
    }

    /// The node that the pod is bound to.
    pub(super) fn node(&self) -> Option<&str> {
        self.spec().and_then(|spec| spec.node_name.as_deref()).filter(|node| !node.is_empty())
    }

    pub(super) fn annotations(&self) -> Option<&'a BTreeMap<String, String>> {
        self.pod.metadata.annotations.as_ref()
    }

    /// An annotation as it stands.
    pub(super) fn annotation(&self, name: &str) -> Option<&'a str> {
        self.annotations()?.get(name).map(String::as_str)
    }

    /// An annotation that says something: the scheduler, too, takes an empty one for none.
    pub(super) fn written(&self, name: &str) -> Option<&'a str> {
        self.annotation(name).map(str::trim).filter(|text| !text.is_empty())
    }

    /// The beginning of the names of its `ConfigMaps`.
    pub(super) fn prefix(&self) -> Option<&'a str> {
        self.written(annotations::SHARED_GPU_CONFIG_MAP)
    }

    pub(super) fn label(&self, name: &str) -> Option<&'a str> {
        self.pod.metadata.labels.as_ref()?.get(name).map(String::as_str)
    }

    pub(super) fn containers(&self) -> impl Iterator<Item = &'a Container> + use<'a> {
        self.pod.spec.iter().flat_map(|spec| &spec.containers)
    }

    pub(super) fn init_containers(&self) -> impl Iterator<Item = &'a Container> + use<'a> {
        self.pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten())
    }

    /// A refusal that names the pod, what is wrong in it, and the remedy.
    pub(super) fn refuse(&self, field: &str, what: impl std::fmt::Display, remedy: &str) -> Refusal {
        Refusal::new(format!("pod `{}`: {field}: {what}; hint: {remedy}", self.place))
    }

    /// A refusal in words of the scheduler, which name field and remedy.
    pub(super) fn refuse_as_scheduler(&self, complaint: &str) -> Refusal {
        Refusal::new(format!("pod `{}`: {complaint}", self.place))
    }

    /// A refusal because of an annotation.
    pub(super) fn refuse_annotation(&self, name: &str, what: impl std::fmt::Display, remedy: &str) -> Refusal {
        self.refuse(&format!("annotation `{name}`"), what, remedy)
    }

    /// Advice about an annotation.
    pub(super) fn advise(&self, name: &str, what: impl std::fmt::Display) -> String {
        format!("pod `{}`: annotation `{name}`: {what}", self.place)
    }
}

/// Resources of which a container has whole GPUs or MIG devices, in its requests or limits.
pub(super) fn devices(resources: Option<&ResourceRequirements>) -> Option<&str> {
    let lists = resources.into_iter().flat_map(|resources| [&resources.limits, &resources.requests]);
    let mut amounts = lists.flatten().flatten();
    let found = amounts.find(|(name, amount)| {
        let is_device = matches!(name.as_str(), resources::NVIDIA_GPU | resources::AMD_GPU)
            || name.starts_with(resources::MIG_PREFIX);
        // What is no quantity is the API server's to refuse; until then it asks for something.
        is_device && amount.0.parse::<Quantity>().map_or(true, |amount| !amount.is_zero())
    });
    found.map(|(name, _)| name.as_str())
}
