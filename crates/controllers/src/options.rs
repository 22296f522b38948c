//! The flags of the component.

use std::time::Duration;

use kai_api::names::objects;

/// Options of the controllers.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Scheduler name of the pods that count.
    #[arg(long, default_value = objects::SCHEDULER, value_name = "NAME")]
    pub scheduler_name: String,
    /// Work only while holding the lease, so that several replicas may run.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub leader_elect: bool,
    /// Accepted for manifests written for KAI, without effect: groups are checked by admission.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_podgroup_webhook: Option<bool>,
    /// How many statuses may be written at the same time. Few: in a flood the server is left to those who place pods.
    #[arg(long, default_value_t = 3, value_name = "COUNT")]
    pub max_concurrent_reconciles: usize,
    /// How long changes of a group's pods are gathered before its status is written, in milliseconds.
    #[arg(long, default_value_t = 250, value_name = "MILLISECONDS")]
    pub group_pause: u64,
    /// How long changes are gathered before the tree of queues is added up, in milliseconds.
    #[arg(long, default_value_t = 100, value_name = "MILLISECONDS")]
    pub queue_pause: u64,
    /// Labels of queues that their series also have, as `queue-label=metric-label,...`.
    #[arg(long, default_value = "", value_name = "PAIRS")]
    pub queue_label_to_metric_label: String,
    /// What such a label is for queues without it, as `queue-label=value,...`.
    #[arg(long, default_value = "", value_name = "PAIRS")]
    pub queue_label_to_default_metric_value: String,
}

impl Options {
    /// The shortest time between two writes of one group's status.
    pub(crate) fn group_pause(&self) -> Duration {
        Duration::from_millis(self.group_pause)
    }

    /// How long changes of the tree are gathered.
    pub(crate) fn queue_pause(&self) -> Duration {
        Duration::from_millis(self.queue_pause)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scheduler_name: objects::SCHEDULER.to_owned(),
            leader_elect: false,
            enable_podgroup_webhook: None,
            max_concurrent_reconciles: 3,
            group_pause: 250,
            queue_pause: 100,
            queue_label_to_metric_label: String::new(),
            queue_label_to_default_metric_value: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    #[test]
    fn the_defaults_of_the_command_line_and_of_code_are_the_same() {
        let matches = Options::augment_args(clap::Command::new("controllers")).get_matches_from(["controllers"]);
        let parsed = Options::from_arg_matches(&matches).expect("no flags");
        assert_eq!(format!("{parsed:?}"), format!("{:?}", Options::default()));
    }
}
