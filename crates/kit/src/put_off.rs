//! News of pods that are put off in a crowd: those that tell of a place which everybody who listens could foretell.
//!
//! Whoever places a pod knows where it is before the watch shows it, and then come the kubelet's words about it. While thousands of
//! pods come at once, reading all that would keep those that still wait from their places. So it is kept as text, only the last of each
//! pod, and read when fewer come, after [`LONGEST`] at the latest. What frees a place is read at once: the end of a pod, and
//! its deletion.

use std::{borrow::Cow, time::Duration};

use rustc_hash::FxHashMap;
use serde::{Deserialize, de::IgnoredAny};

use crate::{mirror::Key, pace::Pace};

/// So many lines within two seconds are a crowd.
const CROWD: usize = 200;
/// So long lines are gathered in a crowd before they are read: each by itself would wake whoever reads.
const GATHER: Duration = Duration::from_millis(5);
/// How often it is seen whether the crowd is over.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// With fewer lines between two looks it is.
const FEW: usize = 10;
/// The longest time for which anything is put off.
pub(crate) const LONGEST: Duration = Duration::from_secs(2);

/// The little of a line of a watch by which it is told whether it can wait.
#[derive(Debug, Deserialize)]
pub(crate) struct Glance<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: GlanceObject<'a>,
}

#[derive(Debug, Deserialize)]
struct GlanceObject<'a> {
    #[serde(borrow)]
    metadata: GlanceMetadata<'a>,
    #[serde(borrow, default)]
    spec: GlanceSpec<'a>,
    #[serde(borrow, default)]
    status: GlanceStatus<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GlanceMetadata<'a> {
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GlanceSpec<'a> {
    #[serde(borrow, default)]
    node_name: Cow<'a, str>,
}

#[derive(Debug, Default, Deserialize)]
struct GlanceStatus<'a> {
    #[serde(borrow, default)]
    phase: Cow<'a, str>,
}

impl<'a> Glance<'a> {
    /// Looks at a line. None: it tells of something that cannot wait.
    pub(crate) fn at(line: &'a str) -> Option<Self> {
        let glance: Self = serde_json::from_str(line).ok()?;
        let GlanceObject { metadata, spec, status } = &glance.object;
        let stays = metadata.deletion_timestamp.is_none() && matches!(&*status.phase, "Pending" | "Running");
        (glance.kind == "MODIFIED" && stays && !spec.node_name.is_empty()).then_some(glance)
    }

    /// Which pod.
    pub(crate) fn key(&self) -> Key {
        Key::new(&*self.object.metadata.namespace, &*self.object.metadata.name)
    }

    /// Its uid.
    pub(crate) fn uid(&self) -> &str {
        &self.object.metadata.uid
    }

    /// Its node.
    pub(crate) fn node(&self) -> &str {
        &self.object.spec.node_name
    }

    /// The version that the line tells of.
    pub(crate) fn version(&self) -> &str {
        &self.object.metadata.resource_version
    }
}

/// What was put off.
#[derive(Debug, Default)]
pub(crate) struct PutOff {
    /// The last line of each pod, and which of all lines it was.
    lines: FxHashMap<Key, (u64, String)>,
    count: u64,
    pace: Pace,
    /// Whether there was a crowd at the last line.
    crowded: bool,
    /// Lines since the last look.
    lately: usize,
}

impl PutOff {
    /// A line came; whether there is a crowd.
    pub(crate) fn is_crowd(&mut self) -> bool {
        self.lately += 1;
        self.crowded = self.pace.count(1) >= CROWD;
        self.crowded
    }

    /// In a crowd, how long to let lines gather before they are read.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.crowded.then_some(GATHER)
    }

    /// Whether fewer lines come than in a crowd, since the last time this was asked.
    pub(crate) fn is_calm(&mut self) -> bool {
        let calm = std::mem::take(&mut self.lately) < FEW;
        self.crowded &= !calm;
        calm
    }

    /// Whether there is anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Puts a line off; what was put off of the same pod is no longer of interest.
    pub(crate) fn push(&mut self, key: Key, line: &str) {
        self.count += 1;
        self.lines.insert(key, (self.count, line.to_owned()));
    }

    /// Something newer of a pod is known.
    pub(crate) fn forget(&mut self, key: &Key) {
        if !self.lines.is_empty() {
            self.lines.remove(key);
        }
    }

    /// Everything, in the order in which it came.
    pub(crate) fn take(&mut self) -> Vec<String> {
        let mut lines: Vec<(u64, String)> = std::mem::take(&mut self.lines).into_values().collect();
        lines.sort_unstable_by_key(|(number, _)| *number);
        lines.into_iter().map(|(_, line)| line).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(change: impl Fn(&mut Value)) -> String {
        let mut line = json!({"type": "MODIFIED", "object": {"metadata": {"name": "a", "namespace": "team", "uid": "u",
            "resourceVersion": "7"}, "spec": {"nodeName": "n"}, "status": {"phase": "Pending"}}});
        change(&mut line);
        line.to_string()
    }

    #[test]
    fn what_only_tells_of_a_place_can_wait_and_what_frees_one_cannot() {
        let plain = line(|_| {});
        let glance = Glance::at(&plain).expect("it can wait");
        assert_eq!(
            (glance.key(), glance.uid(), glance.node(), glance.version()),
            (Key::new("team", "a"), "u", "n", "7")
        );
        assert!(Glance::at(&line(|line| line["object"]["status"]["phase"] = json!("Running"))).is_some());
        for hurry in [
            line(|line| line["type"] = json!("ADDED")),
            line(|line| line["type"] = json!("DELETED")),
            line(|line| line["object"]["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
            line(|line| line["object"]["status"]["phase"] = json!("Succeeded")),
            line(|line| line["object"]["status"]["phase"] = json!("Failed")),
            line(|line| line["object"]["status"] = json!({})),
            line(|line| line["object"]["spec"] = json!({})),
            "no line".to_owned(),
        ] {
            assert!(Glance::at(&hurry).is_none(), "{hurry}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_lines_are_a_crowd_until_few_come() {
        let mut put_off = PutOff::default();
        assert_eq!((0..CROWD).filter(|_| put_off.is_crowd()).count(), 1);
        assert_eq!(put_off.pause(), Some(GATHER));
        assert!(!put_off.is_calm() && put_off.is_calm());
        assert_eq!(put_off.pause(), None);
    }

    #[test]
    fn of_a_pod_only_the_last_line_is_kept_and_the_order_is_that_of_the_last() {
        let mut put_off = PutOff::default();
        let keys = ["a", "b", "c"].map(|name| Key::new("team", name));
        for (key, line) in [(0, "a1"), (1, "b1"), (2, "c1"), (0, "a2")] {
            put_off.push(keys[key].clone(), line);
        }
        put_off.forget(&keys[2]);
        assert_eq!(put_off.take(), ["b1", "a2"]);
        assert!(put_off.is_empty());
    }
}
