//! The entries of `metadata.managedFields`: who owns which fields, since when and through which version.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::Writer;
use super::fields::{Fields, normalize, subtract, unite};

/// How a manager wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    /// Server-side apply.
    Apply,
    /// Create, update and the other patches.
    Update,
}

impl Operation {
    fn word(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// One entry. Manager, operation and subresource identify it; for updates the version does too.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
    pub(super) time: Option<String>,
    pub(super) fields: Fields,
}

impl Entry {
    /// An entry of the writer that owns nothing yet.
    pub(super) fn of(writer: &Writer<'_>, operation: Operation) -> Self {
        Self {
            manager: if writer.manager.is_empty() { "unknown" } else { writer.manager }.to_owned(),
            operation,
            api_version: writer.api_version.to_owned(),
            subresource: writer.subresource.unwrap_or_default().to_owned(),
            time: None,
            fields: Fields::new(),
        }
    }

    pub(super) fn is_same_writer(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    fn seconds(&self) -> i64 {
        self.time.as_deref().and_then(|t| t.parse::<Timestamp>().ok()).map_or(0, Timestamp::as_second)
    }

    /// The identifier by which a real server sorts conflicting managers.
    pub(super) fn identifier(&self) -> (&str, Operation, &str, &str) {
        let version = if self.operation == Operation::Apply { "" } else { &self.api_version };
        (&self.manager, self.operation, version, &self.subresource)
    }

    fn decode(value: Value) -> Option<Self> {
        let Value::Object(mut entry) = value else { return None };
        let mut word = |key: &str| match entry.remove(key) {
            None | Some(Value::Null) => Some(String::new()),
            Some(Value::String(word)) => Some(word),
            Some(_) => None,
        };
        let operation = match word("operation")?.as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        let api_version = word("apiVersion").filter(|v| !v.is_empty())?;
        word("fieldsType").filter(|t| t == "FieldsV1")?;
        let (manager, subresource) = (word("manager")?, word("subresource")?);
        let time = word("time").filter(|t| !t.is_empty());
        let fields = match entry.remove("fieldsV1") {
            None | Some(Value::Null) => Fields::new(),
            Some(Value::Object(fields)) => fields,
            Some(_) => return None,
        };
        Some(Self { manager, operation, api_version, subresource, time, fields })
    }

    fn encode(self) -> Value {
        let mut entry = Map::new();
        let mut put = |key: &str, word: String| {
            if !word.is_empty() {
                entry.insert(key.to_owned(), Value::String(word));
            }
        };
        put("manager", self.manager);
        put("operation", self.operation.word().to_owned());
        put("apiVersion", self.api_version);
        put("time", self.time.unwrap_or_default());
        put("fieldsType", "FieldsV1".to_owned());
        put("subresource", self.subresource);
        entry.insert("fieldsV1".to_owned(), Value::Object(self.fields));
        Value::Object(entry)
    }
}

/// Where entries come from, and so whether they must be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Written by this server.
    Ours,
    /// Sent by a client.
    Theirs,
}

/// All entries of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Managed {
    pub(super) entries: Vec<Entry>,
}

/// Most entries of updates that an object keeps; older ones are united.
const MAXIMUM_UPDATERS: usize = 10;

/// The manager of united entries.
const UNITED: &str = "ancient-changes";

impl Managed {
    /// Reads `metadata.managedFields`; `None` when any entry is not readable.
    pub(super) fn decode(value: Value, trust: Trust) -> Option<Self> {
        let list = match value {
            Value::Array(list) => list,
            Value::Null => Vec::new(),
            _ => return None,
        };
        let mut managed = Self::default();
        for value in list {
            let mut entry = Entry::decode(value)?;
            if trust == Trust::Theirs && !normalize(&mut entry.fields) {
                return None;
            }
            // The last of two entries of one writer counts.
            managed.take(&entry);
            managed.entries.push(entry);
        }
        Some(managed)
    }

    /// Takes the entry of the same writer out.
    pub(super) fn take(&mut self, like: &Entry) -> Option<Entry> {
        let position = self.entries.iter().position(|e| e.is_same_writer(like))?;
        Some(self.entries.remove(position))
    }

    /// Takes fields from everyone and forgets those who own nothing any more.
    pub(super) fn release(&mut self, sets: &[&Fields]) {
        for entry in &mut self.entries {
            for set in sets {
                subtract(&mut entry.fields, set);
            }
        }
        self.entries.retain(|entry| !entry.fields.is_empty());
    }

    /// Unites the oldest entries of updates until there are not too many.
    pub(super) fn cap(&mut self) {
        let mut updaters: Vec<usize> =
            (0..self.entries.len()).filter(|i| self.entries.get(*i).is_some_and(is_update)).collect();
        let mut count = updaters.len();
        if count <= MAXIMUM_UPDATERS {
            return;
        }
        updaters.sort_by_cached_key(|i| {
            self.entries.get(*i).map(|e| (e.seconds(), e.manager.clone(), e.api_version.clone(), e.subresource.clone()))
        });
        let oldest: Vec<Entry> = updaters.iter().filter_map(|i| self.entries.get(*i).cloned()).collect();
        let mut first_of_version: Vec<Entry> = Vec::new();
        for entry in oldest {
            if count <= MAXIMUM_UPDATERS {
                break;
            }
            let Some(first) = first_of_version.iter().find(|f| f.api_version == entry.api_version) else {
                first_of_version.push(entry);
                continue;
            };
            let bucket = Entry {
                manager: UNITED.to_owned(),
                operation: Operation::Update,
                api_version: entry.api_version.clone(),
                subresource: String::new(),
                time: entry.time.clone(),
                fields: Fields::new(),
            };
            let Some(mut united) = self.take(&bucket).or_else(|| self.take(first)) else { continue };
            if !entry.is_same_writer(&bucket) {
                self.take(&entry);
            }
            unite(&mut united.fields, &entry.fields);
            self.entries.push(Entry { fields: united.fields, ..bucket });
            count -= 1;
        }
    }

    /// The list as it is stored; `None` when no one owns anything.
    pub(super) fn encode(mut self) -> Option<Value> {
        if self.entries.is_empty() {
            return None;
        }
        if self.entries.len() > 1 {
            self.entries.sort_by_cached_key(|e| {
                (e.operation, e.seconds(), e.manager.clone(), e.api_version.clone(), e.subresource.clone())
            });
        }
        Some(self.entries.into_iter().map(Entry::encode).collect())
    }
}

fn is_update(entry: &Entry) -> bool {
    entry.operation == Operation::Update
}
