//! Flags of KAI's programs that every component takes, so that a Deployment written for KAI starts here as well.

/// Flags of KAI that change nothing here, but for `--log-json`.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Accepted for manifests written for KAI, without effect")]
pub struct Accepted {
    /// Log an object a line: the same as --log-format json
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    log_json: Option<bool>,
    /// Requests to the API server are as many as the work needs
    #[arg(long, value_name = "NUMBER")]
    qps: Option<f64>,
    /// As --qps
    #[arg(long, value_name = "NUMBER")]
    burst: Option<u64>,
    /// How much to log is told with --log
    #[arg(long, short, value_name = "LEVEL")]
    v: Option<i64>,
    /// Logs are written at once
    #[arg(long, value_name = "TIME")]
    log_flush_frequency: Option<String>,
    /// Health is served where metrics are (--listen)
    #[arg(long, value_name = "ADDRESS")]
    health_probe_bind_address: Option<String>,
    /// There is no profiler
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    enable_profiler: Option<bool>,
    /// There is no profiler
    #[arg(long, value_name = "PORT")]
    profiler_port: Option<u16>,
    /// There is no profiler
    #[arg(long, value_name = "ADDRESS")]
    pyroscope_address: Option<String>,
    /// There is no profiler
    #[arg(long, value_name = "NUMBER")]
    pyroscope_mutex_profiler_rate: Option<i64>,
    /// There is no profiler
    #[arg(long, value_name = "NUMBER")]
    pyroscope_block_profiler_rate: Option<i64>,
    /// Features are found out from the cluster
    #[arg(long, value_name = "LIST")]
    feature_gates: Option<String>,
    /// How to log is told with --log-format
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    zap_devel: Option<bool>,
    /// How to log is told with --log-format
    #[arg(long, value_name = "FORMAT")]
    zap_encoder: Option<String>,
    /// How much to log is told with --log
    #[arg(long, value_name = "LEVEL")]
    zap_log_level: Option<String>,
    /// How to log is told with --log-format
    #[arg(long, value_name = "LEVEL")]
    zap_stacktrace_level: Option<String>,
    /// How to log is told with --log-format
    #[arg(long, value_name = "FORMAT")]
    zap_time_encoding: Option<String>,
}

impl Accepted {
    /// Whether logs are to be JSON.
    pub fn json(&self) -> bool {
        self.log_json == Some(true)
    }
}
