//! Webhook configurations, parsed: kept until an object of theirs changes.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use parking_lot::RwLock;
use serde_json::Value;

use super::caller::Client;
use crate::admission::match_condition::{Condition, Programs};
use crate::admission::{Attributes, ClusterReader, Operation};
use crate::resource::{Origin, Resource, lookup};
use crate::select::LabelSelector;
use crate::status::{ApiError, Subject};

/// The configurations of one kind, parsed as they were when last asked for.
#[derive(Debug)]
pub(super) struct Configurations {
    storage_key: &'static str,
    parsed: RwLock<Parsed>,
}

#[derive(Debug, Default)]
struct Parsed {
    /// What was parsed, in the order of names. The store hands out the same object until it is another version.
    objects: Vec<Arc<Value>>,
    webhooks: Arc<Vec<Webhook>>,
}

/// One webhook of a configuration.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the API that has two values")]
pub(super) struct Webhook {
    /// Name in messages.
    pub(super) name: String,
    /// Configuration and name, which no other webhook has.
    pub(super) identity: String,
    pub(super) client: Client,
    pub(super) timeout: Duration,
    /// The first version of `AdmissionReview` that both sides know.
    pub(super) review_version: Option<&'static str>,
    pub(super) conditions: Vec<Arc<Condition>>,
    pub(super) ignores_failures: bool,
    pub(super) allows_dry_run: bool,
    pub(super) reinvoke_if_needed: bool,
    rules: Vec<Rule>,
    equivalent: bool,
    namespace_selector: Result<LabelSelector, ApiError>,
    object_selector: Result<LabelSelector, ApiError>,
}

#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: String,
}

/// The resource as the webhook knows it: the request's, or the same in another version.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) resource: &'a Resource,
    pub(super) version: String,
}

impl Configurations {
    pub(super) fn new(storage_key: &'static str) -> Self {
        Self { storage_key, parsed: RwLock::default() }
    }

    /// The webhooks of all configurations, in the order of their names; `None` when there are no configurations.
    pub(super) fn current(&self, cluster: &dyn ClusterReader, programs: &Programs) -> Option<Arc<Vec<Webhook>>> {
        let objects = cluster.list(self.storage_key, None);
        if objects.is_empty() {
            return None;
        }
        {
            let parsed = self.parsed.read();
            let same = |(now, then): (&Arc<Value>, &Arc<Value>)| Arc::ptr_eq(now, then);
            if parsed.objects.len() == objects.len() && objects.iter().zip(&parsed.objects).all(same) {
                return Some(Arc::clone(&parsed.webhooks));
            }
        }
        let webhooks: Arc<Vec<Webhook>> = Arc::new(objects.iter().flat_map(|object| parse(object, programs)).collect());
        *self.parsed.write() = Parsed { objects, webhooks: Arc::clone(&webhooks) };
        Some(webhooks)
    }
}

fn parse<'a>(configuration: &'a Value, programs: &'a Programs) -> impl Iterator<Item = Webhook> + 'a {
    let webhooks = list(configuration, "webhooks").iter();
    let configuration = text(configuration, "metadata.name");
    webhooks.map(move |webhook| {
        let name = text(webhook, "name").to_owned();
        let conditions = list(webhook, "matchConditions").iter();
        let seconds = webhook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(10);
        let known = |version: &Value| match version.as_str() {
            Some("v1") => Some("v1"),
            Some("v1beta1") => Some("v1beta1"),
            _ => None,
        };
        let selector = |field: &str| {
            let selector = webhook.get(field).filter(|selector| !selector.is_null());
            selector.map_or_else(|| Ok(LabelSelector::everything()), LabelSelector::from_value)
        };
        Webhook {
            identity: format!("{configuration}/{name}"),
            client: client(webhook.get("clientConfig").unwrap_or(&Value::Null)),
            timeout: Duration::from_secs(seconds.clamp(1, 30)),
            review_version: list(webhook, "admissionReviewVersions").iter().find_map(known),
            conditions: conditions.map(|condition| programs.compile(text(condition, "expression"))).collect(),
            ignores_failures: text(webhook, "failurePolicy") == "Ignore",
            allows_dry_run: matches!(text(webhook, "sideEffects"), "None" | "NoneOnDryRun"),
            reinvoke_if_needed: text(webhook, "reinvocationPolicy") == "IfNeeded",
            rules: list(webhook, "rules").iter().map(rule).collect(),
            equivalent: text(webhook, "matchPolicy") != "Exact",
            namespace_selector: selector("namespaceSelector"),
            object_selector: selector("objectSelector"),
            name,
        }
    })
}

fn client(config: &Value) -> Client {
    let bundle = text(config, "caBundle");
    let bundle = base64::engine::general_purpose::STANDARD.decode(bundle).unwrap_or_default();
    match config.get("service").filter(|service| !service.is_null()) {
        Some(service) => Client::Service {
            namespace: text(service, "namespace").to_owned(),
            name: text(service, "name").to_owned(),
            path: text(service, "path").to_owned(),
            port: service.get("port").and_then(Value::as_u64).unwrap_or(443),
        },
        None => Client::Url { url: text(config, "url").to_owned(), bundle },
    }
}

fn rule(rule: &Value) -> Rule {
    let words = |field: &str| list(rule, field).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    Rule {
        operations: words("operations"),
        groups: words("apiGroups"),
        versions: words("apiVersions"),
        resources: words("resources"),
        scope: text(rule, "scope").to_owned(),
    }
}

impl Rule {
    /// Whether the rule is for this request, but for the version.
    fn matches_all_but_version(&self, attributes: &Attributes<'_>) -> bool {
        let one_of = |words: &[String], word: &str| words.iter().any(|candidate| candidate == "*" || candidate == word);
        let namespaced = attributes.namespace.is_some() && !is_namespaces(attributes.resource);
        let in_scope = match self.scope.as_str() {
            "" | "*" => true,
            "Namespaced" => namespaced,
            "Cluster" => !namespaced,
            _ => false,
        };
        in_scope
            && one_of(&self.operations, attributes.operation.as_str())
            && one_of(&self.groups, &attributes.resource.gvk.group)
            && self.matches_resource(&attributes.resource.plural, attributes.subresource.unwrap_or_default())
    }

    fn matches_resource(&self, plural: &str, subresource: &str) -> bool {
        self.resources.iter().any(|resource| {
            let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
            (resource == "*" || resource == plural) && (sub == "*" || sub == subresource)
        })
    }

    fn matches_version(&self, version: &str) -> bool {
        self.versions.iter().any(|candidate| candidate == "*" || candidate == version)
    }
}

impl Webhook {
    /// The resource in the first version that a rule names.
    pub(super) fn matching_rule<'a>(
        &self,
        attributes: &Attributes<'a>,
        cluster: &dyn ClusterReader,
    ) -> Option<Target<'a>> {
        let resource = attributes.resource;
        let version = &resource.gvk.version;
        let mut candidates = self.rules.iter().filter(|rule| rule.matches_all_but_version(attributes)).peekable();
        candidates.peek()?;
        let candidates: Vec<&Rule> = candidates.collect();
        if candidates.iter().any(|rule| rule.matches_version(version)) {
            return Some(Target { resource, version: version.clone() });
        }
        if !self.equivalent {
            return None;
        }
        let others = other_versions(resource, cluster);
        let found = candidates.iter().find_map(|rule| others.iter().find(|version| rule.matches_version(version)));
        found.map(|version| Target { resource, version: version.clone() })
    }

    /// Whether the request's namespace is selected; cluster-wide objects always are.
    pub(super) fn selects_namespace(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterReader,
    ) -> Result<bool, ApiError> {
        let about_namespace = is_namespaces(attributes.resource);
        let Some(name) = attributes.namespace.or_else(|| about_namespace.then_some(attributes.name)) else {
            return Ok(true);
        };
        let selector = self.namespace_selector.as_ref().map_err(|error| ApiError::internal(&error.message))?;
        if selector.is_empty() {
            return Ok(true);
        }
        let written = about_namespace
            && attributes.subresource.is_none()
            && matches!(attributes.operation, Operation::Create | Operation::Update);
        if let Some(object) = object.filter(|_| written) {
            return Ok(selector.matches_object(object));
        }
        let subject = Subject { group: "", resource: "namespaces", kind: "Namespace", name };
        let namespace = cluster.get("namespaces", None, name).ok_or_else(|| ApiError::not_found(subject))?;
        Ok(selector.matches_object(&namespace))
    }

    /// Whether the object, as it was or as it will be, is selected.
    pub(super) fn selects_object(&self, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<bool, ApiError> {
        let selector = self.object_selector.as_ref().map_err(|error| ApiError::internal(&error.message))?;
        let selected = |object: Option<&Value>| object.is_some_and(|object| selector.matches_object(object));
        Ok(selector.is_empty() || selected(object) || selected(attributes.old))
    }
}

/// Other served versions of a custom resource. Built-in resources are the same object in one version only.
fn other_versions(resource: &Resource, cluster: &dyn ClusterReader) -> Vec<String> {
    let Origin::Custom { definition, .. } = &resource.origin else { return Vec::new() };
    let definition = cluster.get("customresourcedefinitions.apiextensions.k8s.io", None, definition);
    let Some(definition) = definition else { return Vec::new() };
    let served = list(&definition, "spec.versions")
        .iter()
        .filter(|version| version.get("served").and_then(Value::as_bool).unwrap_or(false));
    served.map(|version| text(version, "name").to_owned()).filter(|name| *name != resource.gvk.version).collect()
}

fn is_namespaces(resource: &Resource) -> bool {
    resource.gvk.group.is_empty() && resource.plural == "namespaces"
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    lookup(value, path).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    lookup(value, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
