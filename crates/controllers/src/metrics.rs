//! What queues are guaranteed and hold, as gauges: the input of fair shares over time, so every device counts.

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use kai_api::{Queue, defaults};
use kai_kit::Metrics;
use parking_lot::Mutex;
use prometheus_client::metrics::{family::Family, gauge::Gauge};

use crate::{Error, tree::View};

type Labels = Vec<(String, String)>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;

/// The gauges of queues.
pub struct QueueMetrics {
    info: Gauges,
    deserved_gpus: Gauges,
    quota_cpu: Gauges,
    quota_memory: Gauges,
    allocated_gpus: Gauges,
    allocated_cpu: Gauges,
    allocated_memory: Gauges,
    requested_gpus: Gauges,
    extra: Vec<ExtraLabel>,
    known: Mutex<BTreeMap<String, Labels>>,
}

/// A label of queues that is also a label of their series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraLabel {
    from: String,
    to: String,
    default: String,
}

impl ExtraLabel {
    /// Reads the two options, both of the form `a=b,c=d`.
    pub fn read(labels: &str, defaults: &str) -> Result<Vec<Self>, Error> {
        let defaults: BTreeMap<String, String> =
            pairs("--queue-label-to-default-metric-value", defaults)?.into_iter().collect();
        let option = "--queue-label-to-metric-label";
        let read = pairs(option, labels)?.into_iter().map(|(from, to)| {
            let begins = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
            let goes_on = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            if !to.starts_with(begins) || !to.chars().all(goes_on) {
                let what = format!("`{to}` is no name of a metric label");
                return Err(Error::Option { option, what });
            }
            let default = defaults.get(&from).cloned().unwrap_or_default();
            Ok(Self { from, to, default })
        });
        read.collect()
    }
}

fn pairs(option: &'static str, text: &str) -> Result<Vec<(String, String)>, Error> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    let read = items.map(|item| match item.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(Error::Option { option, what: format!("`{item}` is not of the form `queue-label=value`") }),
    });
    read.collect()
}

impl QueueMetrics {
    /// Registers the gauges.
    pub fn new(metrics: &Metrics, extra: Vec<ExtraLabel>) -> Self {
        let found = Self {
            info: Gauges::default(),
            deserved_gpus: Gauges::default(),
            quota_cpu: Gauges::default(),
            quota_memory: Gauges::default(),
            allocated_gpus: Gauges::default(),
            allocated_cpu: Gauges::default(),
            allocated_memory: Gauges::default(),
            requested_gpus: Gauges::default(),
            extra,
            known: Mutex::default(),
        };
        metrics.register(|registry| {
            let mut add = |name: &str, help: &str, gauges: &Gauges| registry.register(name, help, gauges.clone());
            add("queue_info", "Queues that exist; always 1", &found.info);
            add("queue_deserved_gpus", "GPUs a queue is guaranteed; -1 is unlimited", &found.deserved_gpus);
            add("queue_quota_cpu_cores", "CPU cores a queue is guaranteed; -1 is unlimited", &found.quota_cpu);
            add("queue_quota_memory_bytes", "Memory a queue is guaranteed; -1 is unlimited", &found.quota_memory);
            add("queue_allocated_gpus", "GPUs a queue and those below it hold", &found.allocated_gpus);
            add("queue_allocated_cpu_cores", "CPU cores a queue and those below it hold", &found.allocated_cpu);
            add("queue_allocated_memory_bytes", "Memory a queue and those below it hold", &found.allocated_memory);
            add("queue_requested_gpus", "GPUs a queue and those below it ask for or hold", &found.requested_gpus);
        });
        found
    }

    /// Shows these queues and no others.
    pub fn show<'a>(&self, queues: impl Iterator<Item = (&'a Queue, &'a View)>) {
        let mut known = self.known.lock();
        let mut now = BTreeMap::new();
        for (queue, view) in queues {
            let labels = self.labels(queue);
            self.set(&labels, queue, view);
            now.insert(queue.metadata.name.clone().unwrap_or_default(), labels);
        }
        for (name, old) in known.iter() {
            if now.get(name) != Some(old) {
                self.forget(old);
            }
        }
        *known = now;
    }

    fn labels(&self, queue: &Queue) -> Labels {
        let name = queue.metadata.name.clone().unwrap_or_default();
        let display = queue.spec.display_name.clone().unwrap_or_default();
        let own = [("queue_name", name.clone()), ("queue_metadata_name", name), ("queue_display_name", display)];
        let mut labels: Labels = own.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        for extra in &self.extra {
            let value = queue.metadata.labels.as_ref().and_then(|all| all.get(&extra.from));
            labels.push((extra.to.clone(), value.unwrap_or(&extra.default).clone()));
        }
        labels
    }

    fn set(&self, labels: &Labels, queue: &Queue, view: &View) {
        let set = |gauges: &Gauges, value: f64| {
            gauges.get_or_create(labels).set(value);
        };
        let resources = queue.spec.resources.unwrap_or_default();
        let quota = |given: Option<kai_api::QueueResource>, unit: f64| {
            let quota = given.unwrap_or_default().quota;
            if quota < 0.0 { quota } else { quota * unit }
        };
        let held = &view.sums.allocated;
        set(&self.info, 1.0);
        set(&self.deserved_gpus, quota(resources.gpu, 1.0));
        set(&self.quota_cpu, quota(resources.cpu, 0.001));
        #[expect(clippy::cast_precision_loss, reason = "a million is exact")]
        set(&self.quota_memory, quota(resources.memory, defaults::QUEUE_MEMORY_UNIT as f64));
        set(&self.allocated_gpus, number(held.gpus()));
        set(&self.allocated_cpu, number(held.of("cpu")));
        set(&self.allocated_memory, number(held.of("memory")));
        set(&self.requested_gpus, number(view.sums.requested.gpus()));
    }

    fn forget(&self, labels: &Labels) {
        for gauges in [
            &self.info,
            &self.deserved_gpus,
            &self.quota_cpu,
            &self.quota_memory,
            &self.allocated_gpus,
            &self.allocated_cpu,
            &self.allocated_memory,
            &self.requested_gpus,
        ] {
            gauges.remove(labels);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
fn number(nano: i128) -> f64 {
    nano as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use kai_api::{QueueResource, QueueResources, QueueSpec};

    use super::*;
    use crate::amounts::NANO;

    fn queue(display: &str) -> Queue {
        let gpu = Some(QueueResource { quota: -1.0, ..QueueResource::default() });
        let cpu = Some(QueueResource { quota: 1500.0, ..QueueResource::default() });
        let memory = Some(QueueResource { quota: 2.0, ..QueueResource::default() });
        let resources = Some(QueueResources { gpu, cpu, memory });
        Queue::new("q", QueueSpec { display_name: Some(display.into()), resources, ..QueueSpec::default() })
    }

    #[test]
    fn series_follow_the_queue_and_go_with_it() {
        let metrics = Metrics::default();
        let extra = ExtraLabel::read("team=team, tier=level", "tier=low").expect("good options");
        let gauges = QueueMetrics::new(&metrics, extra);
        let mut view = View::default();
        view.sums.allocated.add("nvidia.com/mig-2g.10gb", NANO);
        gauges.show([(&queue("old"), &view)].into_iter());
        gauges.show([(&queue("new"), &view)].into_iter());
        let text = metrics.text();
        let labels = "{queue_name=\"q\",queue_metadata_name=\"q\",queue_display_name=\"new\",team=\"\",level=\"low\"}";
        for line in [
            "kai_queue_info{l} 1.0",
            "kai_queue_deserved_gpus{l} -1.0",
            "kai_queue_quota_cpu_cores{l} 1.5",
            "kai_queue_quota_memory_bytes{l} 2000000.0",
            "kai_queue_allocated_gpus{l} 2.0",
        ] {
            assert!(text.contains(&line.replace("{l}", labels)), "{line} in {text}");
        }
        assert!(!text.contains("\"old\""), "{text}");
        gauges.show(std::iter::empty());
        assert!(!metrics.text().contains("queue_name"), "{}", metrics.text());
    }

    #[test]
    fn bad_options_are_named() {
        let error = |labels: &str| ExtraLabel::read(labels, "").expect_err("refused").to_string();
        assert!(error("team").contains("`team`"));
        assert!(error("team=9-lives").contains("`9-lives`"));
    }
}
