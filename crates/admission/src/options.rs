//! What can be set when the admission server is started.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use kai_api::{
    defaults::config::{WEBHOOK_PORT, WEBHOOK_TARGET_PORT},
    names::{namespaces, objects, webhooks},
};

use crate::{registration::Names, rules::Settings};

const SERVICE: &str = "admission";
const LOOK: u64 = 60;

/// Flags of the admission server.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Address that the API server's questions are answered at, over TLS.
    #[arg(long, default_value_t = listen())]
    pub webhook_listen: SocketAddr,
    /// Where the API server finds this process, such as `https://10.0.0.7:9443`, if it is not behind the Service; outside of a cluster
    /// it is this machine's own address when not given.
    #[arg(long)]
    pub webhook_url: Option<String>,
    /// Service through which the API server finds this process.
    #[arg(long, default_value = SERVICE)]
    pub webhook_service: String,
    /// Port of that Service.
    #[arg(long, default_value_t = port())]
    pub webhook_service_port: u16,
    /// How often certificates and webhook configurations are looked at, in seconds.
    #[arg(long, default_value_t = LOOK)]
    pub webhook_check_seconds: u64,
    /// Scheduler name of the pods that are looked at.
    #[arg(long, default_value = objects::SCHEDULER)]
    pub scheduler_name: String,
    /// Namespace of reservation pods.
    #[arg(long, default_value = namespaces::RESERVATION)]
    pub resource_reservation_namespace: String,
    /// Whether pods may ask for parts of a GPU.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub gpu_sharing_enabled: bool,
    /// Whether containers are told their limit of GPU memory for `HAMi-core`.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub hami_core_enabled: bool,
    /// Whether containers are kept from GPUs that they did not ask for.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub block_nvidia_visible_devices: bool,
    /// Runtime class of pods with a part of a GPU that name none; empty sets none.
    #[arg(long, default_value = objects::NVIDIA_RUNTIME_CLASS, alias = "gpu-pod-runtime-class-name", overrides_with = "gpu_fraction_runtime_class_name")]
    pub gpu_fraction_runtime_class_name: String,
    /// Users that may write what otherwise only components write; an entry that ends in `:` is a beginning of names.
    #[arg(long, value_delimiter = ',')]
    pub trusted_users: Vec<String>,
    /// Accepted for manifests written for KAI, without effect: every replica answers, none leads.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub leader_elect: Option<bool>,
    /// Name of the configuration that completes pods.
    #[arg(long, default_value = webhooks::MUTATING_PODS)]
    pub mutating_webhook_configuration: String,
    /// Name of the configuration that judges pods and topologies.
    #[arg(long, default_value = webhooks::VALIDATING_PODS)]
    pub validating_webhook_configuration: String,
}

fn listen() -> SocketAddr {
    let port = u16::try_from(WEBHOOK_TARGET_PORT).unwrap_or(9443);
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)
}

fn port() -> u16 {
    u16::try_from(WEBHOOK_PORT).unwrap_or(443)
}

impl Default for Options {
    fn default() -> Self {
        Self {
            webhook_listen: listen(),
            webhook_url: None,
            webhook_service: SERVICE.to_owned(),
            webhook_service_port: port(),
            webhook_check_seconds: LOOK,
            scheduler_name: objects::SCHEDULER.to_owned(),
            resource_reservation_namespace: namespaces::RESERVATION.to_owned(),
            gpu_sharing_enabled: true,
            hami_core_enabled: false,
            block_nvidia_visible_devices: false,
            gpu_fraction_runtime_class_name: objects::NVIDIA_RUNTIME_CLASS.to_owned(),
            trusted_users: Vec::new(),
            leader_elect: None,
            mutating_webhook_configuration: webhooks::MUTATING_PODS.to_owned(),
            validating_webhook_configuration: webhooks::VALIDATING_PODS.to_owned(),
        }
    }
}

impl Options {
    /// The names of the configurations that these flags ask for.
    #[must_use]
    pub fn names(&self) -> Names {
        Names {
            mutating: self.mutating_webhook_configuration.clone(),
            validating: self.validating_webhook_configuration.clone(),
        }
    }

    /// The rules that these flags ask for, for components in this namespace.
    #[must_use]
    pub fn settings(&self, namespace: &str) -> Settings {
        Settings {
            scheduler: self.scheduler_name.clone(),
            namespace: namespace.to_owned(),
            reservation_namespace: self.resource_reservation_namespace.clone(),
            gpu_sharing: self.gpu_sharing_enabled,
            hami_core: self.hami_core_enabled,
            block_visible_devices: self.block_nvidia_visible_devices,
            runtime_class: self.gpu_fraction_runtime_class_name.clone(),
            trusted_users: self.trusted_users.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};

    use super::*;

    #[test]
    fn no_flags_are_the_defaults() {
        let matches = Options::augment_args(Command::new("admission")).get_matches_from(["admission"]);
        let options = Options::from_arg_matches(&matches).unwrap();
        assert_eq!(format!("{options:?}"), format!("{:?}", Options::default()));
        let flags = ["admission", "--gpu-sharing-enabled=false", "--gpu-fraction-runtime-class-name="];
        let matches = Options::augment_args(Command::new("admission")).get_matches_from(flags);
        let settings = Options::from_arg_matches(&matches).unwrap().settings("kai-scheduler");
        assert!(!settings.gpu_sharing && settings.runtime_class.is_empty());
    }
}
