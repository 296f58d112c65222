//! Numbers for Prometheus: requests by their result, their times, and the state of the pool.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use arenaplan::ArenaPool;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// A request, as the numbers count it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Labels {
    model: String,
    status: u16,
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        [("model", self.model.as_str())].encode(encoder)?;
        [("status", self.status)].encode(encoder)
    }
}

/// A number that is read when it is asked for.
type Reading = Gauge<u64, AtomicU64>;

/// The numbers of a server.
pub struct Metrics {
    registry: Registry,
    requests: Family<Labels, Counter>,
    seconds: Histogram,
    pool: [(&'static str, &'static str, Reading); 9],
}

impl Default for Metrics {
    fn default() -> Self {
        let requests = Family::default();
        let seconds = Histogram::new(exponential_buckets(1e-4, 2.0, 16));
        let gauge = |name, help| (name, help, Reading::default());
        let pool = [
            gauge("cap_bytes", "Most bytes of all arenas"),
            gauge("leased_bytes", "Bytes of arenas that are leased"),
            gauge("free_bytes", "Bytes of arenas that are kept for later leases"),
            gauge("peak_bytes", "Most bytes of arenas at any time"),
            gauge("waiting", "Requests that wait for memory"),
            gauge("leases", "Leases that were given"),
            gauge("waits", "Requests that had to wait for memory"),
            gauge("refused", "Requests that got no memory in time"),
            gauge("allocated", "Blocks that were allocated"),
        ];
        let mut registry = Registry::with_prefix("arenaplan");
        registry.register("requests", "Requests by model and status", requests.clone());
        registry.register("request_seconds", "Time of answered requests", seconds.clone());
        let part = registry.sub_registry_with_prefix("pool");
        for (name, help, gauge) in &pool {
            part.register(*name, *help, gauge.clone());
        }
        Self { registry, requests, seconds, pool }
    }
}

impl Metrics {
    /// Counts a request.
    pub fn count(&self, model: &str, status: u16, time: Duration) {
        self.requests.get_or_create(&Labels { model: model.to_owned(), status }).inc();
        if status == 200 {
            self.seconds.observe(time.as_secs_f64());
        }
    }

    /// Returns all numbers in the text format of Prometheus.
    pub fn text(&self, pool: &ArenaPool) -> String {
        let now = pool.statistics();
        let numbers = [
            pool.cap(),
            now.leased_bytes,
            now.free_bytes,
            now.peak_bytes,
            now.waiting as u64,
            now.leases,
            now.waits,
            now.refused,
            now.allocated,
        ];
        for ((_, _, gauge), number) in self.pool.iter().zip(numbers) {
            gauge.set(number);
        }
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
