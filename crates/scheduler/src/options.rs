//! Flags. Names and defaults are KAI's where it has them. What a flag does not say, the SchedulingShard and the Config may
//! ([`crate::setup`]).

use std::{path::PathBuf, time::Duration};

/// How a scheduler is run.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Name by which pods ask for this scheduler [default: what the Config says, else kai-scheduler]
    #[arg(long, value_name = "NAME")]
    pub scheduler_name: Option<String>,
    /// Label that names the node pool of nodes, queues and groups; empty: everything belongs to this scheduler [default: what the
    /// Config says, else kai.scheduler/node-pool]
    #[arg(long, value_name = "LABEL")]
    pub nodepool_label_key: Option<String>,
    /// Value of that label in this scheduler's pool; empty: objects without the label
    #[arg(long, default_value = "", value_name = "VALUE")]
    pub partition_label_value: String,
    /// Label of pods and shared resource claims that names their queue [default: what the Config says, else kai.scheduler/queue]
    #[arg(long, value_name = "LABEL")]
    pub queue_label_key: Option<String>,
    /// Only the replica that holds the lease writes; the others follow and wait
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub leader_elect: bool,
    /// Milliseconds from the first change to the cycle that it starts
    #[arg(long, default_value_t = 20, value_name = "MILLISECONDS")]
    pub batch_window: u64,
    /// Milliseconds by which further changes can put off a cycle at most, while earlier decisions are still being written
    #[arg(long, default_value_t = 50, value_name = "MILLISECONDS")]
    pub longest_batch_window: u64,
    /// Time between cycles while somebody waits and nothing changes, such as `1s`; a number alone is seconds [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = period)]
    pub schedule_period: Option<Duration>,
    /// How many decisions are written at the same time
    #[arg(long, default_value_t = 32)]
    pub writes_in_flight: usize,
    /// While so many pods are placed within two seconds, those that need no preparation are bound without a BindRequest; 0: never
    #[arg(long, default_value_t = 32, value_name = "COUNT")]
    pub direct_binds_from: usize,
    /// Place a pod without an owner before the pod-grouper has made its PodGroup, where it is plain what that will be. Not where the
    /// pod-grouper selects pods or namespaces, or has defaults by kind
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub implied_groups: bool,
    /// How many conditions are written at the same time [default: 5]
    #[arg(long, value_name = "COUNT")]
    pub num_of_status_recording_workers: Option<usize>,
    /// Also write the condition `DisruptionTarget` on pods before they are evicted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub update_pod_eviction_condition: Option<bool>,
    /// How many groups one consolidation may move; -1: any number; 0: none is made [default: 16]
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub max_consolidation_preemptees: Option<i64>,
    /// Whether victims of reclaim that found another place count as unharmed [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub allow_consolidating_reclaim: Option<bool>,
    /// How long a gang below its minimum is left alone; negative: for ever [default: 60s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub default_staleness_grace_period: Option<kai_api::Duration>,
    /// After this long in deletion a pod's resources are taken as not coming back [default: 2m]
    #[arg(long, value_name = "TIME")]
    pub stuck_in_releasing_threshold: Option<kai_api::Duration>,
    /// Use only nodes with the label of CPU or GPU workers: pods with GPUs on GPU workers, others on CPU workers
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub restrict_node_scheduling: Option<bool>,
    /// Label of nodes for pods without GPUs [default: node-role.kubernetes.io/cpu-worker]
    #[arg(long, value_name = "LABEL")]
    pub cpu_worker_node_label_key: Option<String>,
    /// Label of nodes for pods with GPUs [default: node-role.kubernetes.io/gpu-worker]
    #[arg(long, value_name = "LABEL")]
    pub gpu_worker_node_label_key: Option<String>,
    /// Divide fairly on every level of queues; false: all queues that have a parent are siblings, others do not count [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub full_hierarchy_fairness: Option<bool>,
    /// File with actions and plugins as KAI's operator writes it; without it, the SchedulingShard tells
    #[arg(long, value_name = "PATH")]
    pub scheduler_conf: Option<PathBuf>,
    /// Seconds after which a cycle that did not finish makes the process unready
    #[arg(long, default_value_t = 60)]
    pub longest_cycle: u64,
    /// Port on loopback for `/get-snapshot` and `/get-job-order`; 0: not served
    #[arg(long, default_value_t = 0)]
    pub plugin_server_port: u16,
    /// Write everything that is decided, and what from, to this file for `kai trace`
    #[arg(long)]
    pub record: Option<PathBuf>,
    /// Flags of KAI that change nothing here.
    #[command(flatten)]
    pub accepted: Accepted,
}

/// Flags of KAI's scheduler that have nothing to change here. Taken, so that a Deployment written for KAI starts.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Accepted for manifests written for KAI, without effect")]
pub struct Accepted {
    /// Reasons always name the numbers that decide
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub detailed_fit_errors: Option<bool>,
    /// Volumes always count
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub schedule_csi_storage: Option<bool>,
    /// What was refused once is never tried twice in a cycle
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub use_scheduling_signatures: Option<bool>,
    /// Nodes with MIG devices are known by what they offer
    #[arg(long, value_name = "LABEL")]
    pub mig_worker_node_label_key: Option<String>,
    /// Reservation pods are known by the label that the binder gives them
    #[arg(long, value_name = "VALUE")]
    pub resource_reservation_app_label: Option<String>,
}

/// A time as Go writes it; a number alone is seconds.
fn period(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    let time: kai_api::Duration = text.parse().map_err(|error: kai_api::ParseDurationError| error.to_string())?;
    time.to_std().ok_or_else(|| "a period cannot be negative".to_owned())
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scheduler_name: None,
            nodepool_label_key: None,
            partition_label_value: String::new(),
            queue_label_key: None,
            leader_elect: false,
            batch_window: 20,
            longest_batch_window: 50,
            schedule_period: None,
            writes_in_flight: 32,
            direct_binds_from: 32,
            implied_groups: true,
            num_of_status_recording_workers: None,
            update_pod_eviction_condition: None,
            max_consolidation_preemptees: None,
            allow_consolidating_reclaim: None,
            default_staleness_grace_period: None,
            stuck_in_releasing_threshold: None,
            restrict_node_scheduling: None,
            cpu_worker_node_label_key: None,
            gpu_worker_node_label_key: None,
            full_hierarchy_fairness: None,
            scheduler_conf: None,
            longest_cycle: 60,
            plugin_server_port: 0,
            record: None,
            accepted: Accepted::default(),
        }
    }
}

impl Options {
    pub(crate) fn window(&self) -> Duration {
        Duration::from_millis(self.batch_window)
    }

    pub(crate) fn longest_window(&self) -> Duration {
        Duration::from_millis(self.longest_batch_window.max(self.batch_window))
    }

    /// The flags that a SchedulingShard may set as well, as its `args` have them.
    pub(crate) fn args(&self) -> Vec<(&'static str, String)> {
        let text = |flag: Option<bool>| flag.map(|flag| flag.to_string());
        let time = |time: Option<kai_api::Duration>| time.map(|time| time.to_string());
        let all = [
            ("schedule-period", self.schedule_period.map(|period| format!("{}ms", period.as_millis()))),
            ("num-of-status-recording-workers", self.num_of_status_recording_workers.map(|count| count.to_string())),
            ("update-pod-eviction-condition", text(self.update_pod_eviction_condition)),
            ("max-consolidation-preemptees", self.max_consolidation_preemptees.map(|count| count.to_string())),
            ("allow-consolidating-reclaim", text(self.allow_consolidating_reclaim)),
            ("default-staleness-grace-period", time(self.default_staleness_grace_period)),
            ("stuck-in-releasing-threshold", time(self.stuck_in_releasing_threshold)),
            ("restrict-node-scheduling", text(self.restrict_node_scheduling)),
            ("cpu-worker-node-label-key", self.cpu_worker_node_label_key.clone()),
            ("gpu-worker-node-label-key", self.gpu_worker_node_label_key.clone()),
            ("full-hierarchy-fairness", text(self.full_hierarchy_fairness)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
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
    fn every_flag_of_kai_is_taken_as_go_programs_take_it() {
        let flags = Command::parse_from([
            "kai",
            "--scheduler-name=kai-scheduler",
            "--schedule-period=1s",
            "--leader-elect=false",
            "--update-pod-eviction-condition",
            "--max-consolidation-preemptees=-1",
            "--default-staleness-grace-period=-1s",
            "--restrict-node-scheduling=true",
            "--full-hierarchy-fairness=false",
            "--detailed-fit-errors",
            "--schedule-csi-storage=true",
            "--use-scheduling-signatures=false",
            "--mig-worker-node-label-key=x",
            "--resource-reservation-app-label=y",
            "--plugin-server-port=8081",
        ])
        .options;
        assert_eq!(flags.schedule_period, Some(Duration::from_secs(1)));
        assert_eq!((flags.leader_elect, flags.update_pod_eviction_condition), (false, Some(true)));
        let args = flags.args();
        assert!(args.contains(&("max-consolidation-preemptees", "-1".to_owned())), "{args:?}");
        assert_eq!(
            Command::parse_from(["kai", "--schedule-period", "30"]).options.schedule_period.unwrap().as_secs(),
            30
        );
        let wrong = Command::try_parse_from(["kai", "--schedule-period=soon"]).unwrap_err().to_string();
        assert!(wrong.contains("--schedule-period") && wrong.contains("soon"), "{wrong}");
    }
}
