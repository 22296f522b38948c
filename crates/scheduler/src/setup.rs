//! What flags, SchedulingShard and Config say together, as KAI's operator would put it on a command line: a flag wins over the shard's
//! `args`, those over the Config, that over the defaults.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use kai_api::{
    Config, SchedulingShard, SchedulingShardSpec,
    names::{labels, objects},
};
use kai_convert::{
    NodePool, Settings,
    policy::{self, Plugin},
};
use kai_core::policy::Policy;
use kai_kit::{Class, classify};
use kube::{Api, Client, api::ListParams};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    Error, Options,
    reshape::{Roles, Shape},
};

/// How often a scheduler looks while somebody waits, if nobody says.
const PERIOD: Duration = Duration::from_secs(10);
/// How many conditions are written at the same time, if nobody says.
const STATUS_WORKERS: usize = 5;
/// Labels of workers, if nobody says.
const CPU_WORKER: &str = "node-role.kubernetes.io/cpu-worker";
const GPU_WORKER: &str = "node-role.kubernetes.io/gpu-worker";

/// What a scheduler is set up with. Another one means beginning again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setup {
    /// Which objects count.
    pub(crate) settings: Settings,
    /// As what objects are seen.
    pub(crate) shape: Shape,
    /// The lease of this scheduler's replicas.
    pub(crate) lease: String,
    /// Time between cycles while somebody waits.
    pub(crate) period: Duration,
    /// How many conditions are written at the same time.
    pub(crate) status_workers: usize,
    /// Whether victims get the condition `DisruptionTarget`.
    pub(crate) disruption_condition: bool,
}

/// What the cluster says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// The Config.
    pub(crate) config: Option<Config>,
    /// The shards by name.
    pub(crate) shards: BTreeMap<String, SchedulingShard>,
}

/// What follows.
pub(crate) struct Conclusion {
    /// What needs beginning again if it changes.
    pub(crate) setup: Setup,
    /// How to decide.
    pub(crate) policy: Policy,
    /// What the shard says wrongly.
    pub(crate) complaints: Vec<String>,
}

impl Found {
    /// Asks the cluster. A kind that is not served says nothing.
    pub(crate) async fn read(client: &Client) -> Result<Self, kube::Error> {
        let (configs, shards) = tokio::try_join!(all::<Config>(client), all::<SchedulingShard>(client))?;
        Ok(Self {
            config: configs.into_iter().find(|config| config.metadata.name.as_deref() == Some(objects::CONFIG)),
            shards: shards.into_iter().map(|shard| (shard.metadata.name.clone().unwrap_or_default(), shard)).collect(),
        })
    }

    /// The shard of a scheduler.
    pub(crate) fn shard(&self, options: &Options) -> Option<&SchedulingShard> {
        let mine = options.partition_label_value.as_str();
        self.shards.values().find(|shard| shard.spec.partition_label_value.as_deref().unwrap_or_default() == mine)
    }

    /// Everything together; `file` is what `--scheduler-conf` names.
    pub(crate) fn conclude(&self, options: &Options, file: Option<&File>) -> Conclusion {
        let mut spec = self.shard(options).map(|shard| shard.spec.clone()).unwrap_or_default();
        for (name, value) in options.args() {
            spec.args.insert(name.to_owned(), value);
        }
        let (mut policy, mut complaints) = policy::from_shard(&spec);
        if let Some(file) = file {
            file.apply(&mut policy, &mut complaints);
        }
        let setup = self.setup(options, &spec, &mut complaints);
        Conclusion { setup, policy, complaints }
    }

    fn setup(&self, options: &Options, spec: &SchedulingShardSpec, complaints: &mut Vec<String>) -> Setup {
        let global = self.config.as_ref().and_then(|config| config.spec.global.clone()).unwrap_or_default();
        let or = |flag: &Option<String>, config: Option<String>, usual: &str| {
            flag.clone().or(config.filter(|text| !text.is_empty())).unwrap_or_else(|| usual.to_owned())
        };
        let scheduler = or(&options.scheduler_name, global.scheduler_name, objects::SCHEDULER);
        let pool_label = or(&options.nodepool_label_key, global.node_pool_label_key, labels::NODE_POOL);
        let value = Some(options.partition_label_value.clone()).filter(|value| !value.is_empty());
        let lease = value.as_ref().map_or_else(|| scheduler.clone(), |pool| format!("{scheduler}-{pool}"));
        let mut args = Args { args: &spec.args, complaints };
        let restricts = args.read::<bool>("restrict-node-scheduling", "true or false").unwrap_or(false);
        let roles = Roles {
            cpu: args.text("cpu-worker-node-label-key", CPU_WORKER),
            gpu: args.text("gpu-worker-node-label-key", GPU_WORKER),
        };
        let full = args.read::<bool>("full-hierarchy-fairness", "true or false").unwrap_or(true);
        let period = args.read::<kai_api::Duration>("schedule-period", "a time such as `1s`");
        Setup {
            settings: Settings {
                scheduler,
                queue_label: or(&options.queue_label_key, global.queue_label_key, labels::QUEUE),
                implied_groups: options.implied_groups,
                pool: (!pool_label.is_empty()).then_some(NodePool { label: pool_label, value }),
                numa_ignored: BTreeSet::new(),
            },
            shape: Shape { roles: restricts.then_some(roles), flat: !full },
            lease,
            period: period.and_then(kai_api::Duration::to_std).unwrap_or(PERIOD).max(Duration::from_millis(100)),
            status_workers: args
                .read("num-of-status-recording-workers", "a number from 1")
                .unwrap_or(STATUS_WORKERS)
                .max(1),
            disruption_condition: args.read("update-pod-eviction-condition", "true or false").unwrap_or(false),
        }
    }
}

/// The `args` of a shard.
struct Args<'a> {
    args: &'a BTreeMap<String, String>,
    complaints: &'a mut Vec<String>,
}

impl Args<'_> {
    fn text(&self, name: &str, usual: &str) -> String {
        self.args.get(name).filter(|text| !text.is_empty()).cloned().unwrap_or_else(|| usual.to_owned())
    }

    fn read<T: std::str::FromStr>(&mut self, name: &str, wanted: &str) -> Option<T> {
        let text = self.args.get(name)?;
        let read = text.parse().ok();
        if read.is_none() {
            self.complaints.push(format!("field `spec.args[{name}]`: `{text}` is not {wanted}"));
        }
        read
    }
}

async fn all<K>(client: &Client) -> Result<Vec<K>, kube::Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    match Api::<K>::all(client.clone()).list(&ListParams::default()).await {
        Ok(list) => Ok(list.items),
        Err(error) if classify(&error) == Class::Gone => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Actions and plugins as KAI's operator writes them into a file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct File {
    actions: Option<String>,
    tiers: Option<Vec<Tier>>,
    queue_depth_per_action: BTreeMap<String, u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Tier {
    plugins: Vec<FilePlugin>,
}

#[derive(Clone, Debug, Deserialize)]
struct FilePlugin {
    name: String,
    #[serde(default)]
    arguments: BTreeMap<String, String>,
}

impl File {
    /// Reads what `--scheduler-conf` names.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| Error::Configuration {
            path: PathBuf::from(path),
            source,
        };
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.into()))?;
        let file: Self = serde_saphyr::from_str(&text).map_err(|error| failed(error.to_string().into()))?;
        let mut complaints = Vec::new();
        file.apply(&mut policy::default_policy(), &mut complaints);
        match complaints.first() {
            Some(complaint) => Err(failed(complaint.clone().into())),
            None => Ok(file),
        }
    }

    fn apply(&self, policy: &mut Policy, complaints: &mut Vec<String>) {
        if let Some(actions) = &self.actions {
            let names = actions.split(',').map(str::trim).filter(|name| !name.is_empty());
            policy.actions = names
                .filter_map(|name| {
                    let action = policy::action(name);
                    if action.is_none() {
                        complaints.push(format!("field `actions`: there is no action `{name}`"));
                    }
                    action
                })
                .collect();
        }
        if let Some(tiers) = &self.tiers {
            let plugins = tiers.iter().flat_map(|tier| &tier.plugins);
            let plugins: Vec<Plugin> = plugins
                .map(|plugin| Plugin { name: plugin.name.clone(), arguments: plugin.arguments.clone() })
                .collect();
            policy::apply_plugins(policy, &plugins, complaints);
        }
        for (name, depth) in &self.queue_depth_per_action {
            match policy::action(name) {
                Some(action) => policy.queue_depth.push((action, *depth)),
                None => complaints.push(format!("field `queueDepthPerAction`: there is no action `{name}`")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(config: serde_json::Value, args: serde_json::Value) -> Found {
        let config = serde_json::from_value(json!({"metadata": {"name": "kai-config"}, "spec": config})).unwrap();
        let shard: SchedulingShard =
            serde_json::from_value(json!({"metadata": {"name": "default"}, "spec": {"args": args}})).unwrap();
        Found { config: Some(config), shards: BTreeMap::from([("default".to_owned(), shard)]) }
    }

    #[test]
    fn a_flag_wins_over_the_shard_and_the_shard_over_the_config() {
        let found = found(
            json!({"global": {"schedulerName": "ours", "nodePoolLabelKey": "pool", "queueLabelKey": "queue"}}),
            json!({"schedule-period": "3s", "max-consolidation-preemptees": "4", "full-hierarchy-fairness": "false"}),
        );
        let usual = found.conclude(&Options::default(), None);
        assert_eq!((usual.setup.settings.scheduler.as_str(), usual.setup.lease.as_str()), ("ours", "ours"));
        assert_eq!(usual.setup.settings.queue_label, "queue");
        assert_eq!(usual.setup.settings.pool.as_ref().map(|pool| pool.label.as_str()), Some("pool"));
        assert_eq!((usual.setup.period, usual.policy.max_consolidation_victims), (Duration::from_secs(3), Some(4)));
        assert!(usual.setup.shape.flat && usual.complaints.is_empty());
        let options = Options {
            scheduler_name: Some("mine".to_owned()),
            nodepool_label_key: Some(String::new()),
            max_consolidation_preemptees: Some(-1),
            full_hierarchy_fairness: Some(true),
            ..Options::default()
        };
        let flags = found.conclude(&options, None);
        assert_eq!((flags.setup.settings.scheduler.as_str(), &flags.setup.settings.pool), ("mine", &None));
        assert_eq!((flags.policy.max_consolidation_victims, flags.setup.shape.flat), (None, false));
    }

    #[test]
    fn without_objects_the_defaults_are_kais() {
        let nothing = Found::default().conclude(&Options::default(), None).setup;
        let pool = Some(NodePool { label: "kai.scheduler/node-pool".to_owned(), value: None });
        let kais = Settings { pool, implied_groups: true, ..Settings::default() };
        assert_eq!((nothing.settings, nothing.lease.as_str()), (kais, "kai-scheduler"));
        let pool = Options { partition_label_value: "blue".to_owned(), ..Options::default() };
        assert_eq!(Found::default().conclude(&pool, None).setup.lease, "kai-scheduler-blue");
    }

    #[test]
    fn a_wrong_argument_of_a_shard_is_named() {
        let found = found(json!({}), json!({"schedule-period": "soon", "restrict-node-scheduling": "maybe"}));
        let complaints = found.conclude(&Options::default(), None).complaints;
        assert_eq!(
            complaints,
            [
                "field `spec.args[restrict-node-scheduling]`: `maybe` is not true or false",
                "field `spec.args[schedule-period]`: `soon` is not a time such as `1s`",
            ]
        );
    }

    #[test]
    fn a_file_of_kais_operator_says_which_actions_and_plugins_there_are() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        let text = "actions: \"allocate, reclaim\"\ntiers:\n- plugins:\n  - name: predicates\n  - name: nodeplacement\n    \
                    arguments:\n      gpu: spread\nqueueDepthPerAction:\n  reclaim: 7\n";
        std::fs::write(&path, text).unwrap();
        let file = File::read(&path).unwrap();
        let policy = Found::default().conclude(&Options::default(), Some(&file)).policy;
        assert_eq!(policy.actions.len(), 2);
        assert!(policy.plugins.predicates && !policy.plugins.proportion);
        assert_eq!(policy.gpu_strategy, kai_core::policy::Strategy::Spread);
        std::fs::write(&path, "actions: dance\n").unwrap();
        let error = File::read(&path).unwrap_err();
        let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
        assert!(text.contains("config.yaml") && text.contains("there is no action `dance`"), "{text}");
    }
}
