//! What the flags, the `Config` object and the cluster together say, read again from time to time.
//!
//! Kinds that do not exist here (no GPU operator, no `Config`) say nothing; that is no error.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::{
    core::v1::{PodSecurityContext, ResourceRequirements, SecurityContext},
    node::v1::RuntimeClass,
};
use kai_api::{
    Config,
    config::{BinderPluginConfig, Image, TegraMode, TegraReservation},
    defaults,
    names::objects,
};
use kai_kit::{
    Process,
    errors::{Class, classify},
    events::Kind,
};
use kube::{Api, api::ListParams, core::DynamicObject};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;

use crate::{Error, cluster_policy, options::Options};

/// How often they are read.
const PERIOD: Duration = Duration::from_secs(30);

/// All that is set.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "switches that have nothing to do with each other")]
pub(crate) struct Settings {
    pub(crate) namespace: String,
    pub(crate) service_account: String,
    pub(crate) app_label: String,
    pub(crate) image: String,
    pub(crate) pull_policy: String,
    pub(crate) runtime_class: Option<String>,
    pub(crate) resources: Option<ResourceRequirements>,
    pub(crate) pod_security: Option<PodSecurityContext>,
    pub(crate) container_security: Option<SecurityContext>,
    pub(crate) openshift: bool,
    pub(crate) tegra: TegraReservation,
    pub(crate) cdi: bool,
    /// Whether containers are told a limit of GPU memory for `HAMi-core`.
    pub(crate) memory_limit: bool,
    pub(crate) fake_gpus: bool,
    /// Whether volumes are bound, claims are allocated and containers are told their shared GPUs: KAI's plugins.
    pub(crate) volumes: bool,
    pub(crate) claims: bool,
    pub(crate) sharing: bool,
    pub(crate) allocation_timeout: Duration,
    pub(crate) volume_timeout: Duration,
}

/// KAI's plugins and the arguments that they know.
const PLUGINS: [(&str, &[&str]); 4] = [
    ("volumebinding", &["bindTimeoutSeconds"]),
    ("dynamicresources", &["bindTimeoutSeconds"]),
    ("gpusharing", &["cdiEnabled"]),
    ("hamicore", &[]),
];

type Plugins = BTreeMap<String, BinderPluginConfig>;

impl Settings {
    /// What the flags alone say.
    pub(crate) fn of(options: &Options) -> Result<Self, Error> {
        let mut settings = Self {
            namespace: options.resource_reservation_namespace.clone(),
            service_account: options.resource_reservation_service_account.clone(),
            app_label: options.resource_reservation_app_label.clone(),
            image: options.resource_reservation_pod_image.clone(),
            pull_policy: defaults::config::IMAGE_PULL_POLICY.to_owned(),
            runtime_class: non_empty(&options.runtime_class_name),
            resources: json("--resource-reservation-pod-resources", &options.resource_reservation_pod_resources)?,
            pod_security: json(
                "--resource-reservation-pod-security-context",
                &options.resource_reservation_pod_security_context,
            )?,
            container_security: json(
                "--resource-reservation-container-security-context",
                &options.resource_reservation_container_security_context,
            )?,
            openshift: false,
            tegra: TegraReservation::default(),
            cdi: false,
            memory_limit: false,
            fake_gpus: options.fake_gpu_nodes,
            volumes: true,
            claims: true,
            sharing: true,
            allocation_timeout: Duration::from_secs(options.resource_reservation_allocation_timeout),
            volume_timeout: Duration::from_secs(options.volume_binding_timeout),
        };
        let plugins: Option<Plugins> = json("--plugins", &options.plugins)?;
        let mut complaints = Vec::new();
        settings.plug("--plugins", &plugins.unwrap_or_default(), &mut complaints);
        match complaints.into_iter().next() {
            Some(complaint) => Err(Error::Plugins(complaint)),
            None => Ok(settings),
        }
    }

    /// Which nodes are Jetson boards.
    pub(crate) fn tegra_mode(&self) -> TegraMode {
        self.tegra.mode.unwrap_or_default()
    }

    /// These settings where the cluster says nothing, else what the cluster says; and complaints about that.
    fn with(mut self, found: Found) -> (Self, Vec<String>) {
        let spec = found.config.map(|config| config.spec).unwrap_or_default();
        let global = spec.global.unwrap_or_default();
        let binder = spec.binder.unwrap_or_default();
        let reservation = binder.resource_reservation.unwrap_or_default();
        let set = |to: &mut String, from: Option<String>| {
            if let Some(from) = from.filter(|text| !text.is_empty()) {
                *to = from;
            }
        };
        set(&mut self.namespace, reservation.namespace);
        set(&mut self.app_label, reservation.app_label);
        set(&mut self.service_account, reservation.service_account_name);
        if let Some(image) = reservation.image {
            set(&mut self.pull_policy, image.pull_policy.clone());
            self.image = with_image(&self.image, &image);
        }
        let wanted = reservation.runtime_class_name.or(self.runtime_class);
        let usual = found.runtime_class.then(|| objects::NVIDIA_RUNTIME_CLASS.to_owned());
        self.runtime_class = wanted.or(usual).filter(|class| !class.is_empty());
        self.resources = reservation.pod_resources.or(self.resources);
        self.pod_security = reservation.reservation_pod_security_context.or(self.pod_security);
        let container = reservation.reservation_container_security_context.or(self.container_security);
        self.container_security = container.or(global.security_context);
        self.openshift = global.openshift.unwrap_or(false);
        self.tegra = reservation.tegra.unwrap_or_default();
        let seconds = |from: Option<i64>| from.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
        self.allocation_timeout = seconds(reservation.allocation_timeout).unwrap_or(self.allocation_timeout);
        self.volume_timeout = seconds(binder.volume_binding_timeout_seconds).unwrap_or(self.volume_timeout);
        self.cdi = binder.cdi_enabled.unwrap_or_else(|| self.cdi || cluster_policy::uses_cdi(&found.policies));
        let mut complaints = Vec::new();
        self.plug("spec.binder.plugins", &binder.plugins, &mut complaints);
        (self, complaints)
    }

    /// Takes in what is said about plugins; what cannot be understood is complained about and left as it was.
    fn plug(&mut self, field: &str, plugins: &Plugins, complaints: &mut Vec<String>) {
        let is_on = |name: &str| plugins.get(name).map(|plugin| plugin.enabled.unwrap_or(true));
        self.volumes = is_on("volumebinding").unwrap_or(self.volumes);
        self.claims = is_on("dynamicresources").unwrap_or(self.claims);
        self.sharing = is_on("gpusharing").unwrap_or(self.sharing);
        self.memory_limit = is_on("hamicore").unwrap_or(self.memory_limit);
        if self.memory_limit && !self.sharing {
            complaints
                .push(format!("field `{field}.hamicore`: it needs `gpusharing`, which is off; switch one of them"));
            self.memory_limit = false;
        }
        for (name, plugin) in plugins {
            let Some((_, known)) = PLUGINS.iter().find(|(known, _)| known == name) else {
                let names: Vec<&str> = PLUGINS.iter().map(|(name, _)| *name).collect();
                complaints
                    .push(format!("field `{field}`: there is no plugin `{name}`; there are {}", names.join(", ")));
                continue;
            };
            for (argument, value) in plugin.arguments.iter().flatten() {
                let place = format!("{field}.{name}.arguments[{argument}]");
                match argument.as_str() {
                    "bindTimeoutSeconds" if known.contains(&"bindTimeoutSeconds") => match value.parse() {
                        // Volumes and claims are waited for together.
                        Ok(seconds) => self.volume_timeout = Duration::from_secs(seconds),
                        Err(_) => complaints.push(format!("field `{place}`: `{value}` is not a number of seconds")),
                    },
                    "cdiEnabled" if known.contains(&"cdiEnabled") => match value.parse() {
                        Ok(cdi) => self.cdi = cdi,
                        Err(_) => complaints.push(format!("field `{place}`: `{value}` is neither `true` nor `false`")),
                    },
                    _ => complaints.push(format!("field `{place}`: the plugin has no such argument; remove it")),
                }
            }
        }
    }
}

/// What the cluster says.
struct Found {
    config: Option<Config>,
    policies: Vec<DynamicObject>,
    runtime_class: bool,
}

/// The settings as last read. Clones share them.
#[derive(Clone)]
pub(crate) struct Current {
    flags: Arc<Settings>,
    latest: Arc<RwLock<Arc<Settings>>>,
    /// What was complained about last.
    complaints: Arc<RwLock<Vec<String>>>,
}

impl Current {
    /// Settings that only know the flags yet.
    pub(crate) fn new(flags: Settings) -> Self {
        let flags = Arc::new(flags);
        Self { latest: Arc::new(RwLock::new(Arc::clone(&flags))), flags, complaints: Arc::default() }
    }

    /// The settings.
    pub(crate) fn get(&self) -> Arc<Settings> {
        Arc::clone(&self.latest.read())
    }

    /// Reads them once. What cannot be read stays as it was; what cannot be understood is told.
    pub(crate) async fn read(&self, process: &Process) -> Result<(), kube::Error> {
        let client = &process.client;
        let configs = Api::<Config>::all(client.clone());
        let config = if_known(configs.get(objects::CONFIG).await)?;
        let classes = Api::<RuntimeClass>::all(client.clone());
        let runtime_class = if_known(classes.get(objects::NVIDIA_RUNTIME_CLASS).await)?.is_some();
        let policies = Api::<DynamicObject>::all_with(client.clone(), &cluster_policy::resource());
        let policies =
            if_known(policies.list(&ListParams::default()).await)?.map(|list| list.items).unwrap_or_default();
        let found = Found { config: config.clone(), policies, runtime_class };
        let (settings, complaints) = (*self.flags).clone().with(found);
        let old = std::mem::replace(&mut *self.complaints.write(), complaints.clone());
        if let Some(config) = config {
            for complaint in complaints.into_iter().filter(|complaint| !old.contains(complaint)) {
                tracing::warn!(config = objects::CONFIG, complaint, "setting passed over");
                process.events.tell(&config, Kind::Warning, "InvalidSetting", complaint);
            }
        }
        *self.latest.write() = Arc::new(settings);
        Ok(())
    }

    /// Reads them until the process ends.
    pub(crate) async fn follow(self, process: Process) {
        while process.sleep(PERIOD).await {
            if let Err(error) = self.read(&process).await {
                tracing::debug!(%error, "settings not read");
            }
        }
    }
}

/// Nothing where the object, or its whole kind, does not exist. The answer about an unknown kind is no `Status`: only its code tells.
fn if_known<T>(answer: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if classify(&error) == Class::Gone => Ok(None),
        Err(error) => Err(error),
    }
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn json<T: DeserializeOwned>(flag: &'static str, text: &str) -> Result<Option<T>, Error> {
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_str(text).map(Some).map_err(|source| Error::Flag { flag, source })
}

/// `repository/name:tag`, each part from the configuration where it has it.
fn with_image(known: &str, image: &Image) -> String {
    let (path, tag) = match known.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, tag),
        _ => (known, ""),
    };
    let (repository, name) = path.rsplit_once('/').unwrap_or(("", path));
    let or = |own: &Option<String>, usual: &str| own.clone().unwrap_or_else(|| usual.to_owned());
    let (repository, name, tag) = (or(&image.repository, repository), or(&image.name, name), or(&image.tag, tag));
    let mut text = if repository.is_empty() { name } else { format!("{repository}/{name}") };
    if !tag.is_empty() {
        text = format!("{text}:{tag}");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: serde_json::Value) -> Settings {
        judge(config).0
    }

    fn judge(config: serde_json::Value) -> (Settings, Vec<String>) {
        let object = json!({"metadata": {"name": "kai-config"}, "spec": config});
        let config = serde_json::from_value(object).expect("a config");
        let flags = Settings::of(&Options::default()).expect("flags");
        flags.with(Found { config: Some(config), policies: Vec::new(), runtime_class: true })
    }

    #[test]
    fn the_configuration_wins_and_the_usual_class_is_taken_where_it_exists() {
        let usual = read(json!({}));
        assert_eq!(usual.runtime_class.as_deref(), Some("nvidia"));
        assert_eq!(usual.image, "kai:latest");
        let set = read(json!({"binder": {"cdiEnabled": true, "resourceReservation": {
            "runtimeClassName": "mine", "image": {"repository": "local/team", "tag": "v2"}, "tegra": {"mode": "off"}}}}));
        assert_eq!(set.runtime_class.as_deref(), Some("mine"));
        assert_eq!(set.image, "local/team/kai:v2");
        assert!(set.cdi && set.tegra_mode() == TegraMode::Off);
    }

    #[test]
    fn plugins_are_switched_and_what_is_wrong_with_them_is_named() {
        let usual = read(json!({}));
        assert!(usual.volumes && usual.claims && usual.sharing && !usual.memory_limit && !usual.cdi);
        let (set, complaints) = judge(json!({"binder": {"plugins": {
            "volumebinding": {"enabled": false}, "dynamicresources": {"arguments": {"bindTimeoutSeconds": "7"}},
            "gpusharing": {"arguments": {"cdiEnabled": "true"}}, "hamicore": {}}}}));
        assert!(!set.volumes && set.claims && set.sharing && set.memory_limit && set.cdi);
        assert_eq!((set.volume_timeout, complaints), (Duration::from_secs(7), Vec::<String>::new()));
        let (_, complaints) = judge(json!({"binder": {"plugins": {
            "dance": {}, "gpusharing": {"enabled": false, "arguments": {"cdiEnabled": "maybe"}}, "hamicore": {},
            "volumebinding": {"arguments": {"bindTimeoutSeconds": "soon", "colour": "blue"}}}}}));
        assert_eq!(complaints.len(), 5, "{complaints:?}");
        assert!(complaints.iter().any(|text| text.contains("there is no plugin `dance`; there are volumebinding")));
        assert!(
            complaints
                .iter()
                .any(|text| text.contains("spec.binder.plugins.gpusharing.arguments[cdiEnabled]`: `maybe`"))
        );
    }

    #[test]
    fn an_image_with_a_port_keeps_it() {
        let tag = Image { tag: Some("v3".to_owned()), ..Image::default() };
        assert_eq!(with_image("host:5000/kai", &tag), "host:5000/kai:v3");
        assert_eq!(with_image("host:5000/kai:v1", &tag), "host:5000/kai:v3");
    }
}
