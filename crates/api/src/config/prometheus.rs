//! Measurements of usage, for fairness over time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Prometheus that measures usage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prometheus {
    /// Whether there is one. False when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Its name. `prometheus` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_name: Option<String>,
    /// How long it keeps samples. `2w` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_period: Option<String>,
    /// Time between samples. `1m` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_interval: Option<String>,
    /// Whether samples are kept on a volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_persistent_storage: Option<bool>,
    /// Size of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_size: Option<String>,
    /// Storage class of the volume. `standard` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// How components are scraped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_monitor: Option<ServiceMonitor>,
    /// Address of a Prometheus that is there already, instead of a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_prometheus_url: Option<String>,
    /// How it is probed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_prometheus_health_probe: Option<ExternalPrometheusHealthProbe>,
    /// Label of the monitors and rules that it finds. `kai.scheduler/accounting` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accounting_label_key: Option<String>,
    /// Value of that label. `true` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accounting_label_value: Option<String>,
}

/// How components are scraped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMonitor {
    /// Whether they are. True when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Time between scrapes. `30s` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// How long a scrape may take. `10s` when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrape_timeout: Option<String>,
    /// File with the token for scraping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_token_file: Option<String>,
}

/// How a Prometheus is probed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, Copy)]
#[serde(rename_all = "camelCase")]
pub struct ExternalPrometheusHealthProbe {
    /// Seconds between probes. 30 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<i64>,
    /// Seconds a probe may take. 10 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
    /// Probes before it counts as down. 5 when not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<i64>,
}
