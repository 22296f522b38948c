//! Flags of the binder: KAI's names and defaults where KAI has them.

use kai_api::{
    defaults,
    names::{namespaces, objects},
};

/// Image of reservation pods when nobody says otherwise.
const IMAGE: &str = "kai:latest";

/// Flags of the binder. The `Config` object, where it says something, wins.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Scheduler name of the pods that are bound.
    #[arg(long, default_value = objects::SCHEDULER)]
    pub scheduler_name: String,
    /// Namespace of reservation pods.
    #[arg(long, default_value = namespaces::RESERVATION)]
    pub resource_reservation_namespace: String,
    /// Service account of reservation pods.
    #[arg(long, default_value = namespaces::RESERVATION)]
    pub resource_reservation_service_account: String,
    /// Value of the label `app` of reservation pods.
    #[arg(long, default_value = namespaces::RESERVATION)]
    pub resource_reservation_app_label: String,
    /// Image of reservation pods; it must understand `resource-reservation` as its argument.
    #[arg(long, default_value = IMAGE, env = "KAI_IMAGE")]
    pub resource_reservation_pod_image: String,
    /// Seconds after which a reservation pod that runs must have reported its GPU.
    #[arg(long, default_value_t = seconds(defaults::config::RESERVATION_TIMEOUT))]
    pub resource_reservation_allocation_timeout: u64,
    /// CPU and memory of reservation pods, as JSON of `resources`.
    #[arg(long, default_value = "")]
    pub resource_reservation_pod_resources: String,
    /// Security context of reservation pods, as JSON.
    #[arg(long, default_value = "")]
    pub resource_reservation_pod_security_context: String,
    /// Security context of the container of reservation pods, as JSON.
    #[arg(long, default_value = "")]
    pub resource_reservation_container_security_context: String,
    /// Runtime class of reservation pods; `nvidia` where there is such a class when not given.
    #[arg(long, default_value = "")]
    pub runtime_class_name: String,
    /// Seconds after which the volumes of a pod must be bound.
    #[arg(long, default_value_t = seconds(defaults::config::BIND_TIMEOUT))]
    pub volume_binding_timeout: u64,
    /// Requests that are worked on at once. No worker ever waits for the cluster.
    #[arg(long, default_value_t = 24)]
    pub max_concurrent_reconciles: usize,
    /// Seconds of the first pause after a failure that may pass.
    #[arg(long, default_value_t = 1)]
    pub rate_limiter_base_delay: u64,
    /// Seconds of the longest pause after a failure that may pass.
    #[arg(long, default_value_t = 60)]
    pub rate_limiter_max_delay: u64,
    /// Seconds between two checks of all reservations.
    #[arg(long, default_value_t = 60)]
    pub resync_period: u64,
    /// Whether one of several binders is elected to work.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub leader_elect: bool,
    /// Changes to plugins as JSON, as `spec.binder.plugins` of the Config has them; the Config wins.
    #[arg(long, default_value = "")]
    pub plugins: String,
    /// Accepted for manifests written for KAI, without effect: there are no scaling pods.
    #[arg(long, value_name = "NAMESPACE")]
    pub scale_adjust_namespace: Option<String>,
    /// Whether reservation pods do nothing, because simulated nodes report the GPU for them.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub fake_gpu_nodes: bool,
}

fn seconds(duration: kai_api::Duration) -> u64 {
    duration.to_std().map_or(0, |duration| duration.as_secs())
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scheduler_name: objects::SCHEDULER.to_owned(),
            resource_reservation_namespace: namespaces::RESERVATION.to_owned(),
            resource_reservation_service_account: namespaces::RESERVATION.to_owned(),
            resource_reservation_app_label: namespaces::RESERVATION.to_owned(),
            resource_reservation_pod_image: IMAGE.to_owned(),
            resource_reservation_allocation_timeout: seconds(defaults::config::RESERVATION_TIMEOUT),
            resource_reservation_pod_resources: String::new(),
            resource_reservation_pod_security_context: String::new(),
            resource_reservation_container_security_context: String::new(),
            runtime_class_name: String::new(),
            volume_binding_timeout: seconds(defaults::config::BIND_TIMEOUT),
            max_concurrent_reconciles: 24,
            rate_limiter_base_delay: 1,
            rate_limiter_max_delay: 60,
            resync_period: 60,
            leader_elect: false,
            plugins: String::new(),
            scale_adjust_namespace: None,
            fake_gpu_nodes: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn the_flags_have_the_same_defaults_as_the_type() {
        let parsed = Command::parse_from(["binder"]).options;
        assert_eq!(format!("{parsed:?}"), format!("{:?}", Options::default()));
        assert!(Command::parse_from(["binder", "--leader-elect"]).options.leader_elect);
        assert!(!Command::parse_from(["binder", "--leader-elect=false"]).options.leader_elect);
    }
}
