//! Metrics: one recorder a process, read as Prometheus text. What is counted where is said beside each counter.

use std::sync::OnceLock;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

/// Names that end in this are durations; the bounds are seconds.
const SECONDS: &str = "_seconds";
const SECONDS_BOUNDS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

/// Names that end in this are a plugin's units of work.
const FUEL: &str = "_fuel";
const FUEL_BOUNDS: [f64; 9] =
    [10_000.0, 50_000.0, 100_000.0, 500_000.0, 1_000_000.0, 5_000_000.0, 10_000_000.0, 50_000_000.0, 100_000_000.0];

/// The media type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the process has measured. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

impl Metrics {
    /// Starts measuring for the whole process. What registers before that is not measured. A second start in one process goes on
    /// with the first one.
    ///
    /// # Errors
    /// When another recorder was installed.
    pub fn start() -> Result<Self, BuildError> {
        static STARTED: OnceLock<PrometheusHandle> = OnceLock::new();
        if let Some(handle) = STARTED.get() {
            return Ok(Self(handle.clone()));
        }
        let handle = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix(SECONDS.to_owned()), &SECONDS_BOUNDS)?
            .set_buckets_for_metric(Matcher::Suffix(FUEL.to_owned()), &FUEL_BOUNDS)?
            .install_recorder()?;
        describe();
        Ok(Self(STARTED.get_or_init(|| handle).clone()))
    }

    /// All of it, as [`CONTENT_TYPE`].
    pub fn render(&self) -> String {
        self.0.render()
    }

    /// Makes room: observations pile up until they are read or this is called.
    pub fn tidy(&self) {
        self.0.run_upkeep();
    }
}

fn describe() {
    use metrics::{describe_counter as counter, describe_gauge as gauge, describe_histogram as histogram};
    counter!("onceward_requests_total", "Requests, by what became of them: the `decision` of the event's log line.");
    counter!("onceward_claims_total", "Deliveries that asked the store, by what they met there.");
    counter!("onceward_replays_total", "Kept answers that were given again.");
    counter!("onceward_mismatches_total", "Deliveries of another event under a known key.");
    counter!(
        "onceward_in_flight_conflicts_total",
        "Duplicates that were told to come again, since the event still ran."
    );
    counter!("onceward_takeovers_total", "Claims over an attempt whose outcome nobody knew, after its lease.");
    counter!("onceward_lease_lost_total", "Claims that another owner had taken over before their outcome was written.");
    counter!("onceward_unknown_outcomes_total", "Attempts that may or may not have taken effect.");
    counter!("onceward_finalise_failures_total", "Outcomes that the store never took.");
    counter!("onceward_window_resets_total", "Times the store was found to have forgotten everything.");
    gauge!("onceward_processing", "Events being forwarded by this process, and orphans found in the store.");
    gauge!("onceward_processing_oldest_seconds", "Age of the oldest of these.");
    histogram!("onceward_request_seconds", "From a request's head to its answer's.");
    histogram!("onceward_upstream_seconds", "From sending to the upstream to the end of its answer.");
    histogram!("onceward_store_seconds", "One call of the store.");
    counter!("onceward_store_errors_total", "Calls of the store that failed.");
    histogram!("onceward_plugin_seconds", "Time of one plugin call, without the time that others ran.");
    histogram!("onceward_plugin_fuel", "Units of work of one plugin call.");
    counter!("onceward_plugin_failures_total", "Plugin calls without a verdict.");
    counter!("onceward_plugin_log_dropped_total", "Log lines of plugins that were over a limit.");
    gauge!("onceward_plugin_breaker", "1 while the active version is left alone since it fails too often.");
    counter!("onceward_plugin_breaker_transitions_total", "Versions that were switched off, or came back.");
    counter!("onceward_limited_total", "Requests that met a limit of their tenant.");
    counter!(
        "onceward_plugin_shadow_total",
        "Deliveries that a candidate read beside the active version, by what differs most."
    );
    counter!("onceward_captures_total", "Requests of routes that capture, by whether they were kept.");
    gauge!("onceward_config_generation", "Configurations that were put into force since the start.");
}
