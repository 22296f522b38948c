//! Flags. Names and defaults are KAI's where it has them.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use kai_api::names::{labels, objects};
use kai_convert::{NodePool, Settings};

/// How a scheduler is run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Name by which pods ask for this scheduler
    #[arg(long, default_value = objects::SCHEDULER)]
    pub scheduler_name: String,
    /// Label that names the node pool of nodes, queues and groups; empty: everything belongs to this scheduler
    #[arg(long, default_value = labels::NODE_POOL)]
    pub nodepool_label_key: String,
    /// Value of that label in this scheduler's pool; empty: objects without the label
    #[arg(long, default_value = "")]
    pub partition_label_value: String,
    /// Label of shared resource claims that names their queue
    #[arg(long, default_value = labels::QUEUE)]
    pub queue_label_key: String,
    /// Only the replica that holds the lease writes; the others follow and wait
    #[arg(long)]
    pub leader_elect: bool,
    /// Milliseconds from the first change to the cycle that it starts
    #[arg(long, default_value_t = 20)]
    pub batch_window: u64,
    /// Milliseconds by which further changes can put off a cycle at most
    #[arg(long, default_value_t = 200)]
    pub longest_batch_window: u64,
    /// Seconds between cycles while somebody waits and nothing changes
    #[arg(long, default_value_t = 10)]
    pub schedule_period: u64,
    /// How many decisions are written at the same time
    #[arg(long, default_value_t = 32)]
    pub writes_in_flight: usize,
    /// How many conditions are written at the same time
    #[arg(long, default_value_t = 5)]
    pub num_of_status_recording_workers: usize,
    /// Also write the condition `DisruptionTarget` on pods before they are evicted
    #[arg(long)]
    pub update_pod_eviction_condition: bool,
    /// Seconds after which a cycle that did not finish makes the process unready
    #[arg(long, default_value_t = 60)]
    pub longest_cycle: u64,
    /// Port on loopback for `/get-snapshot`; 0: not served
    #[arg(long, default_value_t = 0)]
    pub plugin_server_port: u16,
    /// Write everything that is decided, and what from, to this file for `kai trace`
    #[arg(long)]
    pub record: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scheduler_name: objects::SCHEDULER.to_owned(),
            nodepool_label_key: labels::NODE_POOL.to_owned(),
            partition_label_value: String::new(),
            queue_label_key: labels::QUEUE.to_owned(),
            leader_elect: false,
            batch_window: 20,
            longest_batch_window: 200,
            schedule_period: 10,
            writes_in_flight: 32,
            num_of_status_recording_workers: 5,
            update_pod_eviction_condition: false,
            longest_cycle: 60,
            plugin_server_port: 0,
            record: None,
        }
    }
}

impl Options {
    /// Which objects count.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let value = Some(self.partition_label_value.clone()).filter(|value| !value.is_empty());
        let label = Some(self.nodepool_label_key.clone()).filter(|label| !label.is_empty());
        Settings {
            scheduler: self.scheduler_name.clone(),
            queue_label: self.queue_label_key.clone(),
            pool: label.map(|label| NodePool { label, value }),
            numa_ignored: BTreeSet::new(),
        }
    }

    /// The lease of this scheduler's replicas.
    pub(crate) fn lease(&self) -> String {
        match self.partition_label_value.as_str() {
            "" => self.scheduler_name.clone(),
            pool => format!("{}-{pool}", self.scheduler_name),
        }
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_millis(self.batch_window)
    }

    pub(crate) fn longest_window(&self) -> Duration {
        Duration::from_millis(self.longest_batch_window.max(self.batch_window))
    }

    pub(crate) fn period(&self) -> Duration {
        Duration::from_secs(self.schedule_period.max(1))
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
    fn flags_and_code_have_the_same_defaults() {
        let flags = Command::parse_from(["kai"]).options;
        assert_eq!(format!("{flags:?}"), format!("{:?}", Options::default()));
    }

    #[test]
    fn the_lease_is_named_after_scheduler_and_pool() {
        let options = Options { partition_label_value: "blue".to_owned(), ..Options::default() };
        assert_eq!(
            (options.lease(), Options::default().lease()),
            ("kai-scheduler-blue".into(), "kai-scheduler".into())
        );
    }
}
