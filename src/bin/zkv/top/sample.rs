//! Samples of a server's Info, and the difference of two samples.
//!
//! In: for each sample, its time and the names and values of its fields. Out: rates, shares, and quantiles, or `None`
//! if they are unknown. This module depends neither on sockets nor on screens.

use std::collections::BTreeMap;
use std::time::Instant;

/// The beginning of a field's name if the field counts the requests for one op.
const REQUESTS: &str = "requests_";
/// Counters that are compared, in addition to the fields whose names begin with `requests_`, to detect a restart of the
/// server. A counter never decreases while a server runs.
const COUNTERS: &[&str] = &["hits", "misses", "errors", "batches", "connections_accepted"];

pub(super) struct Sample {
    at: Instant,
    values: Vec<(String, String)>,
}

impl Sample {
    pub(super) fn new<'a>(at: Instant, values: impl Iterator<Item = (&'a str, &'a str)>) -> Sample {
        Sample { at, values: values.map(|(name, value)| (name.to_owned(), value.to_owned())).collect() }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.values.iter().find_map(|(field, value)| (field == name).then_some(&**value))
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Returns the values of the numeric fields whose names begin with `prefix`, each with the part of the name after
    /// `prefix`.
    #[cfg(feature = "full")]
    pub(super) fn numbers_after(&self, prefix: &str) -> impl Iterator<Item = (&str, u64)> {
        let fields = self.values.iter();
        fields.filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.parse().ok()?)))
    }

    /// Returns the value of the field `part` divided by the value of the field `whole`, but at most 1. Returns 1 if the
    /// field `whole` is 0.
    pub(super) fn share(&self, part: &str, whole: &str) -> Option<f64> {
        let (part, whole) = (self.number(part)?, self.number(whole)?);
        Some(if part < whole { part as f64 / whole as f64 } else { 1.0 })
    }

    /// Parses a field that is a histogram, as a map from the largest value of each bucket to the bucket's count.
    fn buckets(&self, name: &str) -> Option<BTreeMap<u64, u64>> {
        let bucket =
            |bucket: &str| bucket.split_once(':').and_then(|(end, count)| end.parse().ok().zip(count.parse().ok()));
        self.text(name)?.split_whitespace().map(bucket).collect()
    }

    /// Returns the ops that the server counts, in the server's order.
    pub(super) fn ops(&self) -> impl Iterator<Item = &str> {
        self.values.iter().filter_map(|(name, _)| name.strip_prefix(REQUESTS))
    }

    /// Returns the number of requests for an op since the server started.
    #[cfg(feature = "full")]
    pub(super) fn op_count(&self, op: &str) -> Option<u64> {
        self.number(&format!("{REQUESTS}{op}"))
    }

    fn counters(&self) -> impl Iterator<Item = &str> {
        let requests = self.values.iter().map(|(name, _)| &**name).filter(|name| name.starts_with(REQUESTS));
        requests.chain(COUNTERS.iter().copied())
    }
}

/// The difference between two samples of one server process.
pub(super) struct Delta<'a> {
    from: &'a Sample,
    to: &'a Sample,
}

impl<'a> Delta<'a> {
    /// Compares two samples. Returns `None` if no time passed between them, or if the server was restarted. The process
    /// ID does not reveal every restart, because a container's first process always has ID 1. A decreased uptime or
    /// counter therefore also means that the server was restarted.
    pub(super) fn between(from: &'a Sample, to: &'a Sample) -> Option<Delta<'a>> {
        let is_same = |name| from.text(name) == to.text(name);
        let grew = |name| to.number(name) >= from.number(name);
        let is_one_server = is_same("pid") && grew("uptime_s") && to.counters().all(grew);
        (is_one_server && to.at > from.at).then_some(Delta { from, to })
    }

    pub(super) fn rate(&self, counter: &str) -> Option<f64> {
        Some(self.growth(counter)? as f64 / (self.to.at - self.from.at).as_secs_f64())
    }

    pub(super) fn op_rate(&self, op: &str) -> Option<f64> {
        self.rate(&format!("{REQUESTS}{op}"))
    }

    pub(super) fn request_rate(&self) -> Option<f64> {
        self.to.ops().map(|op| self.op_rate(op)).sum()
    }

    /// Returns the share of looked-up keys that were found, from 0 to 1.
    pub(super) fn hit_ratio(&self) -> Option<f64> {
        let (hits, misses) = (self.growth("hits")? as f64, self.growth("misses")? as f64);
        (hits + misses > 0.0).then(|| hits / (hits + misses))
    }

    /// Returns a quantile of the number of requests per batch.
    pub(super) fn batch_requests(&self, quantile: f64) -> Option<u64> {
        let end = self.quantile("batch_requests_buckets", quantile)?;
        Some(self.to.number("batch_requests_max").map_or(end, |max| end.min(max)))
    }

    pub(super) fn service_ns(&self, quantile: f64) -> Option<u64> {
        self.quantile("service_ns_buckets", quantile)
    }

    /// Returns a quantile of the values that were added to a histogram between the samples.
    fn quantile(&self, histogram: &str, quantile: f64) -> Option<u64> {
        let (from, mut grown) = (self.from.buckets(histogram)?, self.to.buckets(histogram)?);
        for (end, count) in &mut grown {
            *count = count.saturating_sub(from.get(end).copied().unwrap_or(0));
        }
        let rank =
            (grown.values().fold(0, |sum: u64, count| sum.saturating_add(*count)) as f64 * quantile).ceil() as u64;
        let mut cumulative = 0;
        grown.into_iter().find_map(|(end, count)| {
            cumulative = count.saturating_add(cumulative);
            (count > 0 && cumulative >= rank).then_some(end)
        })
    }

    fn growth(&self, counter: &str) -> Option<u64> {
        self.to.number(counter)?.checked_sub(self.from.number(counter)?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns two samples that were taken `apart_ms` milliseconds apart.
    fn samples(apart_ms: u64, from: &[(&str, &str)], to: &[(&str, &str)]) -> [Sample; 2] {
        let start = Instant::now();
        [(start, from), (start + Duration::from_millis(apart_ms), to)]
            .map(|(at, values)| Sample::new(at, values.iter().copied()))
    }

    fn values<'a>(pid: &'a str, uptime_s: &'a str, hits: &'a str, misses: &'a str) -> [(&'a str, &'a str); 6] {
        let (get, exists) = (("requests_get", hits), ("requests_exists", misses));
        [("pid", pid), ("uptime_s", uptime_s), ("hits", hits), ("misses", misses), get, exists]
    }

    #[test]
    fn rates_are_the_growth_of_counters_per_second() {
        let [from, to] = samples(500, &values("1", "7", "1000", "10"), &values("1", "7", "1900", "110"));
        let delta = Delta::between(&from, &to).unwrap();
        assert_eq!((delta.rate("hits"), delta.op_rate("exists")), (Some(1800.0), Some(200.0)));
        assert_eq!((delta.request_rate(), delta.hit_ratio()), (Some(2000.0), Some(0.9)));
        assert_eq!(to.ops().collect::<Vec<_>>(), ["get", "exists"]);
    }

    #[test]
    fn no_rate_is_computed_from_missing_and_malformed_fields() {
        let [from, to] = samples(1000, &values("1", "7", "5", "5"), &values("1", "8", "5", "5"));
        let delta = Delta::between(&from, &to).unwrap();
        assert_eq!((delta.rate("swaps"), delta.rate("hits")), (None, Some(0.0)));
        // Without lookups, the ratio is unknown.
        assert_eq!(delta.hit_ratio(), None);
        let [from, to] = samples(1000, &[("pid", "1"), ("hits", "many")], &[("pid", "1"), ("hits", "7")]);
        assert_eq!(Delta::between(&from, &to).unwrap().rate("hits"), None);
    }

    #[test]
    fn no_rate_is_computed_across_a_restart_of_the_server() {
        let old = values("1", "7", "1000", "10");
        for new in [
            values("2", "8", "2000", "20"),
            values("1", "0", "2000", "20"),
            values("1", "8", "999", "20"),
            values("1", "8", "2000", "9"),
        ] {
            let [from, to] = samples(1000, &old, &new);
            assert!(Delta::between(&from, &to).is_none(), "{new:?}");
        }
        let [from, to] = samples(0, &old, &old);
        assert!(Delta::between(&from, &to).is_none(), "no time passed");
    }

    #[test]
    fn quantiles_cover_only_values_counted_between_the_samples() {
        let [from, to] = [[("ns", "10:5 20:1")], [("ns", "10:5 15:90 20:10 40:1")]];
        let [from, to] = samples(1000, &from, &to);
        let delta = Delta::between(&from, &to).unwrap();
        let quantiles = [0.5, 0.9, 0.99, 1.0].map(|quantile| delta.quantile("ns", quantile));
        assert_eq!(quantiles, [Some(15), Some(15), Some(20), Some(40)]);
        let batches = [("batch_requests_buckets", "255:0 319:9"), ("batch_requests_max", "256")];
        let [from, to] = samples(1000, &[("batch_requests_buckets", "")], &batches);
        assert_eq!(Delta::between(&from, &to).unwrap().batch_requests(0.5), Some(256));
        let [from, to] = samples(1000, &[("ns", "10:5"), ("none", "")], &[("ns", "10:5"), ("none", "")]);
        let delta = Delta::between(&from, &to).unwrap();
        assert_eq!(["ns", "none", "missing"].map(|name| delta.quantile(name, 0.5)), [None; 3]);
        let [from, to] = samples(1000, &[("ns", "")], &[("ns", "7:one")]);
        assert_eq!(Delta::between(&from, &to).unwrap().quantile("ns", 0.5), None);
    }

    #[test]
    fn shares_are_between_zero_and_one() {
        let values = [("blocks", "8"), ("blocks_verified", "2"), ("more", "9"), ("none", "0")];
        let sample = Sample::new(Instant::now(), values.into_iter());
        assert_eq!(sample.share("blocks_verified", "blocks"), Some(0.25));
        assert_eq!(sample.share("more", "blocks"), Some(1.0));
        assert_eq!(sample.share("none", "none"), Some(1.0));
        assert_eq!(sample.share("missing", "blocks"), None);
    }
}
