//! Files: finding them, reading them, and saying what is wrong with them.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::short::Short;

const HINT: &str = "the format is in tests/scenarios/README.md";

/// A file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It cannot be read.
    #[error("read `{path}`")]
    Read {
        /// Where it is.
        path: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A directory without scenarios: that nothing failed would prove nothing.
    #[error("no scenario (*.yaml, *.yml, *.json) below `{path}`")]
    Empty {
        /// Where none is.
        path: String,
    },
    /// It does not say what a scenario says.
    #[error("field `{field}`: {problem}; hint: {hint}")]
    Field {
        /// Which part of it.
        field: String,
        /// What is wrong.
        problem: String,
        /// What to do.
        hint: String,
    },
}

impl ScenarioError {
    pub(super) fn field(field: impl Into<String>, problem: impl ToString, hint: &str) -> Self {
        Self::Field { field: field.into(), problem: problem.to_string(), hint: hint.to_owned() }
    }
}

/// How a scenario is driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// Full cycles with the world moving between them.
    #[default]
    Rounds,
    /// One cycle of some actions.
    SingleAction,
}

/// How many cycles.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Rounds {
    pub(super) until_match: u32,
    pub(super) after_match: u32,
    /// Whether one scheduler lives through all cycles and keeps its promises, instead of starting from a snapshot each time.
    pub(super) remember: bool,
    /// Time between cycles of the original; the clock here stands still.
    delay_seconds: f64,
}

impl Default for Rounds {
    fn default() -> Self {
        Self { until_match: 2, after_match: 3, remember: false, delay_seconds: 0.0 }
    }
}

/// How this scheduler differs from the default.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Config {
    pub(super) max_consolidation_preemptees: Option<i64>,
    pub(super) default_staleness_grace_period: Option<String>,
    pub(super) allow_consolidating_reclaim: Option<bool>,
    pub(super) tiers: Option<Vec<Tier>>,
    /// Nothing is skipped by signature here, so that nothing changes.
    use_scheduling_signatures: Option<bool>,
    /// The search for victims is complete and needs no budget.
    scenario_search_budgets: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tier {
    pub(super) plugins: Vec<TierPlugin>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TierPlugin {
    pub(super) name: String,
    #[serde(deserialize_with = "texts")]
    pub(super) arguments: BTreeMap<String, String>,
}

/// Arguments are text; numbers and switches may be written as such.
fn texts<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let written: BTreeMap<String, Value> = Deserialize::deserialize(from)?;
    let text = |value: Value| if let Value::String(text) = value { text } else { value.to_string() };
    Ok(written.into_iter().map(|(name, value)| (name, text(value))).collect())
}

/// What must come out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Expectation {
    /// By `namespace/name` or by name.
    pub pods: BTreeMap<String, PodExpectation>,
    /// Sums over the pods of groups.
    pub(super) pod_groups: BTreeMap<String, GroupExpectation>,
    /// What nodes have left.
    pub(super) nodes: BTreeMap<String, NodeExpectation>,
    /// The whole explanation of a group.
    pub(super) messages: BTreeMap<String, String>,
    /// Parts of the explanation of a group.
    pub(super) reasons: BTreeMap<String, Vec<String>>,
    /// Parts of verdicts on objects.
    pub(super) verdicts: Vec<String>,
    /// Upper bounds for each cycle.
    pub(super) limits: Limits,
    /// Which pods share devices.
    pub(super) gpu_group_hints: BTreeMap<String, Vec<String>>,
}

/// What must come out for a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodExpectation {
    /// Its status.
    pub status: String,
    /// Its node.
    #[serde(default)]
    pub node: Option<String>,
    /// One of these is its node.
    #[serde(default)]
    pub node_in: Option<Vec<String>>,
    /// The zones it draws from.
    #[serde(default)]
    pub numa_zones: Option<Vec<u32>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct GroupExpectation {
    pub(super) gpus_requested: Option<f64>,
    pub(super) gpus_accepted: Option<f64>,
    pub(super) milli_cpu_requested: Option<f64>,
    pub(super) memory_requested: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct NodeExpectation {
    pub(super) idle_gpus: Option<f64>,
    pub(super) releasing_gpus: Option<f64>,
    pub(super) numa_zones_available: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Limits {
    #[serde(rename = "maxBinds")]
    pub(super) binds: Option<usize>,
    #[serde(rename = "maxEvictions")]
    pub(super) evictions: Option<usize>,
    #[serde(rename = "maxPipelines")]
    pub(super) pipelines: Option<usize>,
}

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The rule, as a sentence.
    pub name: String,
    /// Whether the format can say it at all.
    pub expressible: bool,
    pub(super) kind: Kind,
    pub(super) actions: Vec<String>,
    pub(super) now: Timestamp,
    pub(super) rounds: Rounds,
    pub(super) config: Config,
    pub(super) stays_terminating: Vec<String>,
    pub(super) objects: Vec<Value>,
    /// What must come out.
    pub expect: Expectation,
}

/// What is written in a file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default)]
    kind: Kind,
    #[serde(default)]
    action: Option<String>,
    #[serde(default)]
    now: Option<String>,
    #[serde(default)]
    rounds: Rounds,
    #[serde(default)]
    config: Config,
    #[serde(default)]
    stays_terminating: Vec<String>,
    #[serde(default)]
    short: Option<Short>,
    #[serde(default)]
    objects: Vec<Value>,
    expect: Expectation,
    #[serde(default)]
    expressible: Option<bool>,
    // About the file, not about the cluster.
    #[serde(default, rename = "source")]
    _source: Value,
    #[serde(default, rename = "passesInKai")]
    _passes_in_kai: Value,
    #[serde(default, rename = "renamed")]
    _renamed: Value,
    #[serde(default, rename = "notes")]
    _notes: Value,
    #[serde(default, rename = "sensitiveTo")]
    _sensitive_to: Value,
}

impl Scenario {
    /// Reads a file, JSON or YAML by its ending.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: path.display().to_string(), source })?;
        let json = path.extension().is_some_and(|extension| extension == "json");
        Self::parse(&text, json)
    }

    /// Reads a text, as JSON or YAML.
    pub fn parse(text: &str, json: bool) -> Result<Self, ScenarioError> {
        let first_line = |problem: String| problem.lines().next().unwrap_or("cannot be read").to_owned();
        let read = |error: String| ScenarioError::field("content", first_line(error), HINT);
        // Read at once, since maps of the short form are in order; part by part only to name the part that is wrong.
        let written: Result<Written, String> = if json {
            serde_json::from_str(text).map_err(|error| error.to_string())
        } else {
            serde_saphyr::from_str(text).map_err(|error| error.to_string())
        };
        let written = written.map_err(|error| {
            let value: Result<Value, String> = if json {
                serde_json::from_str(text).map_err(|error| error.to_string())
            } else {
                serde_saphyr::from_str(text).map_err(|error| error.to_string())
            };
            match value {
                Ok(Value::Object(parts)) => {
                    parts.iter().find_map(|(name, part)| check_part(name, part).err()).unwrap_or_else(|| read(error))
                }
                Ok(_) => read("a scenario is one object".to_owned()),
                Err(syntax) => read(syntax),
            }
        })?;
        Self::of(written)
    }

    fn of(written: Written) -> Result<Self, ScenarioError> {
        let now = written.now.as_deref().unwrap_or("2026-01-01T12:00:00Z");
        let now: Timestamp =
            now.parse().map_err(|error| ScenarioError::field("now", error, "write e.g. `2026-01-01T12:00:00Z`"))?;
        let actions: Vec<String> = match (written.kind, &written.action) {
            (Kind::SingleAction, Some(text)) => text.split(',').map(|action| action.trim().to_owned()).collect(),
            (Kind::SingleAction, None) => {
                return Err(ScenarioError::field(
                    "action",
                    "is missing",
                    "name the actions of the cycle, such as `allocate`",
                ));
            }
            (Kind::Rounds, _) => Vec::new(),
        };
        let mut objects = match written.short {
            Some(short) => short.objects(now)?,
            None => Vec::new(),
        };
        objects.extend(written.objects);
        let mut expect = written.expect;
        expect.pods = qualified(expect.pods);
        expect.gpu_group_hints = qualified(expect.gpu_group_hints);
        Ok(Self {
            name: written.name,
            expressible: written.expressible.unwrap_or(true),
            kind: written.kind,
            actions,
            now,
            rounds: written.rounds,
            config: written.config,
            stays_terminating: written.stays_terminating.into_iter().map(|name| full(&name)).collect(),
            objects,
            expect,
        })
    }
}

/// `namespace/name`, in the namespace `default` where none is written.
pub(super) fn full(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("default/{name}") }
}

fn qualified<T>(entries: BTreeMap<String, T>) -> BTreeMap<String, T> {
    entries.into_iter().map(|(name, value)| (full(&name), value)).collect()
}

/// Reads one part alone, for the sake of an error that names it.
fn check_part(name: &str, part: &Value) -> Result<(), ScenarioError> {
    let told = |error: serde_json::Error, field: String| ScenarioError::field(field, error, HINT);
    match (name, part) {
        ("expect", Value::Object(parts)) => {
            for (inner, part) in parts {
                let one = Value::Object([(inner.clone(), part.clone())].into_iter().collect());
                Expectation::deserialize(&one).map_err(|error| told(error, format!("expect.{inner}")))?;
            }
            Ok(())
        }
        ("config", _) => Config::deserialize(part).map(drop).map_err(|error| told(error, name.to_owned())),
        ("rounds", _) => Rounds::deserialize(part).map(drop).map_err(|error| told(error, name.to_owned())),
        ("short", Value::Object(parts)) => {
            for (inner, part) in parts {
                let one = Value::Object([(inner.clone(), part.clone())].into_iter().collect());
                Short::deserialize(&one).map_err(|error| told(error, format!("short.{inner}")))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// All scenario files below a path, sorted.
pub(super) fn find(path: &Path) -> Result<Vec<PathBuf>, ScenarioError> {
    let read = |source| ScenarioError::Read { path: path.display().to_string(), source };
    if fs::metadata(path).map_err(read)?.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let mut open = vec![path.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).map_err(read)? {
            let entry = entry.map_err(read)?;
            // A link is not followed: it could lead back.
            let kind = entry.file_type().map_err(read)?;
            let path = entry.path();
            let scenario = path.extension().is_some_and(|end| end == "json" || end == "yaml" || end == "yml");
            if kind.is_dir() {
                open.push(path);
            } else if scenario {
                found.push(path);
            }
        }
    }
    if found.is_empty() {
        return Err(ScenarioError::Empty { path: path.display().to_string() });
    }
    found.sort();
    Ok(found)
}

/// The area of a file: its directory below the path that was given; for a single file the directory it is in.
pub(super) fn area(root: &Path, file: &Path) -> String {
    let directory = file.parent().unwrap_or(Path::new(""));
    let below = directory.strip_prefix(root).ok().map(|below| below.display().to_string());
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match below {
        Some(below) if !below.is_empty() => below,
        Some(_) => name(root),
        None => name(directory),
    }
}
