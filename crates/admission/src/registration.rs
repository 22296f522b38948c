//! How the API server learns of the webhooks: configurations that say which requests are sent here and how this server
//! is trusted.
//!
//! Pods are only sent if they name our scheduler and say something that the rules are about (match conditions), so
//! `failurePolicy: Fail` stops nobody else's pod and no plain one when this server is away. Of their updates only those are sent that change
//! labels or annotations, and none of the components' own: while this server is away, Kubernetes' controllers and ours go on with the pods
//! that there are. The webhooks that look at pods of other schedulers, so that they cannot pass themselves off as ours, are `Ignore`. So
//! is the one for groups: the scheduler judges them again, and its own writes must not wait for this server.
//!
//! For each webhook with match conditions the server makes another form of the object, which is dear, and it does so for every pod of the
//! cluster. So a new pod meets one such webhook: who completes it also judges it, and who looks for impostors among new pods does so by
//! selectors.

mod keep;

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
        ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta},
};
use kai_api::names::{groups, labels, namespaces, webhooks};

pub use self::keep::register;
use crate::{pod, router::paths, rules::Settings};

/// Where the API server finds the router, and the certificates by which it trusts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A Service, or an address.
    pub address: Address,
    /// Certificates in PEM; none for a router in the same process.
    pub bundle: Option<String>,
}

/// A way to the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Service of the cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// `https://host:port`.
    Url(String),
}

impl Place {
    /// A router that stands for a Service in the API server's own process.
    pub fn in_process(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        let address = Address::Service { namespace: namespace.into(), name: name.into(), port: 443 };
        Self { address, bundle: None }
    }

    fn client(&self, path: &str) -> WebhookClientConfig {
        let ca_bundle = self.bundle.as_ref().map(|bundle| ByteString(bundle.clone().into_bytes()));
        match &self.address {
            Address::Service { namespace, name, port } => WebhookClientConfig {
                ca_bundle,
                service: Some(ServiceReference {
                    name: name.clone(),
                    namespace: namespace.clone(),
                    path: Some(path.to_owned()),
                    port: Some(i32::from(*port)),
                }),
                url: None,
            },
            Address::Url(url) => {
                let url = format!("{}{path}", url.trim_end_matches('/'));
                WebhookClientConfig { ca_bundle, service: None, url: Some(url) }
            }
        }
    }
}

/// Names of the configurations for pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The one that completes pods.
    pub mutating: String,
    /// The one that judges pods and topologies.
    pub validating: String,
}

impl Default for Names {
    fn default() -> Self {
        Self { mutating: webhooks::MUTATING_PODS.to_owned(), validating: webhooks::VALIDATING_PODS.to_owned() }
    }
}

/// The configurations for a router at a place: of pods first, then of queues and groups.
pub fn configurations(
    settings: &Settings,
    names: &Names,
    place: &Place,
) -> (MutatingWebhookConfiguration, Vec<ValidatingWebhookConfiguration>) {
    let metadata = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let mutating = MutatingWebhookConfiguration {
        metadata: metadata(&names.mutating),
        webhooks: Some(vec![mutating(settings, place)]),
    };
    let mut pods = vec![pods(settings, place), impostors(settings, place)];
    pods.extend(new_impostors(settings, place));
    pods.push(topologies(place));
    let validating = [
        (names.validating.clone(), pods),
        (format!("{}v2", webhooks::QUEUE_PREFIX), vec![queues(place)]),
        (format!("{}v2alpha2", webhooks::POD_GROUP_PREFIX), vec![pod_groups(place)]),
    ];
    let validating = validating
        .into_iter()
        .map(|(name, webhooks)| ValidatingWebhookConfiguration { metadata: metadata(&name), webhooks: Some(webhooks) });
    (mutating, validating.collect())
}

const POD_WEBHOOK: &str = "admission.kai.scheduler";

fn mutating(settings: &Settings, place: &Place) -> MutatingWebhook {
    let mut rules = vec![rule("", "v1", &["pods"], "Namespaced", &["CREATE"])];
    if settings.block_visible_devices {
        rules.push(rule("", "v1", &["pods/ephemeralcontainers"], "Namespaced", &["UPDATE"]));
    }
    MutatingWebhook {
        admission_review_versions: vec!["v1".to_owned()],
        client_config: place.client(paths::MUTATE_POD),
        failure_policy: Some("Fail".to_owned()),
        match_conditions: Some(vec![ours(settings), of_note(settings)]),
        match_policy: Some("Equivalent".to_owned()),
        name: POD_WEBHOOK.to_owned(),
        namespace_selector: Some(elsewhere(settings)),
        object_selector: Some(LabelSelector::default()),
        reinvocation_policy: Some("IfNeeded".to_owned()),
        rules: Some(rules),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT),
    }
}

/// As in KAI, which leaves it to the server.
const TIMEOUT: i32 = 10;

fn validating(name: String, place: &Place, path: &str, rule: RuleWithOperations) -> ValidatingWebhook {
    ValidatingWebhook {
        admission_review_versions: vec!["v1".to_owned()],
        client_config: place.client(path),
        failure_policy: Some("Fail".to_owned()),
        match_conditions: None,
        match_policy: Some("Equivalent".to_owned()),
        name,
        namespace_selector: Some(LabelSelector::default()),
        object_selector: Some(LabelSelector::default()),
        rules: Some(vec![rule]),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT),
    }
}

/// Pods that change. New ones are judged when they are completed.
fn pods(settings: &Settings, place: &Place) -> ValidatingWebhook {
    let mut resources = vec!["pods"];
    if settings.block_visible_devices {
        resources.push("pods/ephemeralcontainers");
    }
    let rule = rule("", "v1", &resources, "Namespaced", &["UPDATE"]);
    ValidatingWebhook {
        match_conditions: Some(vec![
            ours(settings),
            of_note(settings),
            metadata_changes(settings),
            not_by_components(settings),
        ]),
        namespace_selector: Some(elsewhere(settings)),
        ..validating(POD_WEBHOOK.to_owned(), place, paths::VALIDATE_POD, rule)
    }
}

/// Changes of pods of other schedulers with labels that our books are made from.
fn impostors(settings: &Settings, place: &Place) -> ValidatingWebhook {
    let expression = format!("{} || {}", labelled("object"), labelled("oldObject"));
    let rule = rule("", "v1", &["pods"], "Namespaced", &["UPDATE"]);
    ValidatingWebhook {
        failure_policy: Some("Ignore".to_owned()),
        match_conditions: Some(vec![
            foreign(settings),
            condition("labels-of-ours", &expression),
            not_by_components(settings),
        ]),
        namespace_selector: Some(elsewhere(settings)),
        ..validating(format!("labels.{POD_WEBHOOK}"), place, paths::VALIDATE_POD, rule)
    }
}

/// New pods of other schedulers with such labels. Labels of several groups cannot be selected, for the groups are part of their names; those of
/// other schedulers' pods are in nobody's books.
fn new_impostors(settings: &Settings, place: &Place) -> [ValidatingWebhook; 2] {
    let selector = |key: &str, values: Option<Vec<String>>| {
        let operator = if values.is_some() { "In" } else { "Exists" }.to_owned();
        let requirement = LabelSelectorRequirement { key: key.to_owned(), operator, values };
        LabelSelector { match_expressions: Some(vec![requirement]), match_labels: None }
    };
    let reserves = selector(labels::APP, Some(vec![namespaces::RESERVATION.to_owned()]));
    [("group-label", selector(labels::GPU_GROUP, None)), ("app-label", reserves)].map(|(name, selector)| {
        let rule = rule("", "v1", &["pods"], "Namespaced", &["CREATE"]);
        ValidatingWebhook {
            failure_policy: Some("Ignore".to_owned()),
            match_conditions: Some(vec![foreign(settings)]),
            namespace_selector: Some(elsewhere(settings)),
            object_selector: Some(selector),
            ..validating(format!("{name}.{POD_WEBHOOK}"), place, paths::VALIDATE_POD, rule)
        }
    })
}

/// Whether an object has labels that our books are made from.
fn labelled(object: &str) -> String {
    format!(
        "(has({object}.metadata.labels) && {object}.metadata.labels.exists(name, name == '{group}' || \
         name.startsWith('{prefix}') || (name == '{app}' && {object}.metadata.labels[name] == '{reservation}')))",
        group = labels::GPU_GROUP,
        prefix = labels::GPU_GROUP_PREFIX,
        app = labels::APP,
        reservation = namespaces::RESERVATION,
    )
}

fn topologies(place: &Place) -> ValidatingWebhook {
    let rule = rule(groups::KAI, "v1alpha1", &["topologies"], "Cluster", &["CREATE", "UPDATE"]);
    validating(format!("topology.{POD_WEBHOOK}"), place, paths::VALIDATE_TOPOLOGY, rule)
}

fn queues(place: &Place) -> ValidatingWebhook {
    let rule = rule(groups::SCHEDULING, "v2", &["queues"], "Cluster", &["CREATE", "UPDATE", "DELETE"]);
    ValidatingWebhook {
        match_conditions: Some(vec![spec_changes()]),
        ..validating(webhooks::QUEUE.to_owned(), place, paths::VALIDATE_QUEUE, rule)
    }
}

fn pod_groups(place: &Place) -> ValidatingWebhook {
    let rule = rule(groups::SCHEDULING, "v2alpha2", &["podgroups"], "Namespaced", &["CREATE", "UPDATE"]);
    ValidatingWebhook {
        failure_policy: Some("Ignore".to_owned()),
        match_conditions: Some(vec![spec_changes()]),
        ..validating(webhooks::POD_GROUP.to_owned(), place, paths::VALIDATE_POD_GROUP, rule)
    }
}

fn rule(group: &str, version: &str, resources: &[&str], scope: &str, operations: &[&str]) -> RuleWithOperations {
    let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    RuleWithOperations {
        api_groups: words(&[group]),
        api_versions: words(&[version]),
        operations: words(operations),
        resources: words(resources),
        scope: Some(scope.to_owned()),
    }
}

fn condition(name: &str, expression: &str) -> MatchCondition {
    MatchCondition { name: name.to_owned(), expression: expression.to_owned() }
}

fn ours(settings: &Settings) -> MatchCondition {
    condition("scheduler-name", &format!("object.spec.schedulerName == {}", quoted(&settings.scheduler)))
}

fn foreign(settings: &Settings) -> MatchCondition {
    condition("other-scheduler", &format!("object.spec.schedulerName != {}", quoted(&settings.scheduler)))
}

/// The rules are about annotations that ask for parts of GPUs, and about what only the components write. Whoever has nothing of that
/// is let in without a question, also while this server is away.
fn of_note(settings: &Settings) -> MatchCondition {
    const NAME: &str = "says-something";
    if settings.block_visible_devices {
        return condition(NAME, "true");
    }
    let names: Vec<String> = pod::NOTED_ANNOTATIONS.iter().map(|name| quoted(name)).collect();
    let noted = |object: &str| {
        let names = names.join(", ");
        let notes = format!("{object}.metadata.annotations");
        format!("(has({notes}) && {notes}.exists(name, name in [{names}])) || {}", labelled(object))
    };
    let expression = format!("{} || (request.operation == 'UPDATE' && ({}))", noted("object"), noted("oldObject"));
    condition(NAME, &expression)
}

/// The rules for updates are about labels, annotations and debug containers.
fn metadata_changes(settings: &Settings) -> MatchCondition {
    let differ = |field: &str| {
        let of = |object: &str| format!("(has({object}.metadata.{field}) ? {object}.metadata.{field} : {{}})");
        format!("{} != {}", of("object"), of("oldObject"))
    };
    let mut expression = format!("request.operation != 'UPDATE' || {} || {}", differ("labels"), differ("annotations"));
    if settings.block_visible_devices {
        expression.push_str(" || (has(request.subResource) && request.subResource == 'ephemeralcontainers')");
    }
    condition("metadata-changes", &expression)
}

/// What our components write into existing pods does not depend on this server.
fn not_by_components(settings: &Settings) -> MatchCondition {
    let accounts = quoted(&format!("system:serviceaccount:{}:", settings.namespace));
    let expression = format!(
        "request.operation != 'UPDATE' || !has(request.userInfo.username) || \
         !request.userInfo.username.startsWith({accounts})"
    );
    condition("not-by-components", &expression)
}

/// Labels, annotations and finalizers are nobody's business here.
fn spec_changes() -> MatchCondition {
    condition("spec-changes", "request.operation != 'UPDATE' || object.spec != oldObject.spec")
}

/// A string of CEL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// All namespaces but those of the system itself.
fn elsewhere(settings: &Settings) -> LabelSelector {
    let mut own = vec!["kube-system".to_owned(), namespaces::SCALE_ADJUST.to_owned()];
    own.extend([settings.namespace.clone(), settings.reservation_namespace.clone()]);
    own.sort();
    own.dedup();
    let requirement = LabelSelectorRequirement {
        key: "kubernetes.io/metadata.name".to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(own),
    };
    LabelSelector { match_expressions: Some(vec![requirement]), match_labels: None }
}
