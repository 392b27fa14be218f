//! What a server said of itself at one moment, and what it did between two.
//!
//! In: names and values, and when they came. Out: rates and shares, or none where
//! there is none to tell. It knows neither socket nor screen.

use std::collections::BTreeMap;
use std::time::Instant;

/// Counters of requests by op begin so.
const REQUESTS: &str = "requests_";
/// What only ever grows while a server runs, beside the requests.
const COUNTERS: [&str; 5] = ["hits", "misses", "errors", "batches", "connections_accepted"];

pub(super) struct Sample {
    at: Instant,
    values: Vec<(String, String)>,
}

impl Sample {
    pub(super) fn new<'a>(at: Instant, values: impl Iterator<Item = (&'a str, &'a str)>) -> Sample {
        Sample { at, values: values.map(|(name, value)| (name.to_owned(), value.to_owned())).collect() }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.values.iter().find_map(|(of, value)| (of == name).then_some(&**value))
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// How much of a whole a part is, from 0 to 1; of nothing, all.
    pub(super) fn share(&self, part: &str, whole: &str) -> Option<f64> {
        let (part, whole) = (self.number(part)?, self.number(whole)?);
        Some(if part < whole { part as f64 / whole as f64 } else { 1.0 })
    }

    /// A histogram: the largest number of each bucket, and how many it holds.
    fn buckets(&self, name: &str) -> Option<BTreeMap<u64, u64>> {
        let bucket =
            |bucket: &str| bucket.split_once(':').and_then(|(end, count)| end.parse().ok().zip(count.parse().ok()));
        self.text(name)?.split_whitespace().map(bucket).collect()
    }

    /// The ops by which requests are counted, as the server orders them.
    pub(super) fn ops(&self) -> impl Iterator<Item = &str> {
        self.values.iter().filter_map(|(name, _)| name.strip_prefix(REQUESTS))
    }

    /// Requests of an op, since the server started.
    pub(super) fn op_count(&self, op: &str) -> Option<u64> {
        self.number(&format!("{REQUESTS}{op}"))
    }

    fn counters(&self) -> impl Iterator<Item = &str> {
        let requests = self.values.iter().map(|(name, _)| &**name).filter(|name| name.starts_with(REQUESTS));
        requests.chain(COUNTERS)
    }
}

/// What one server did between two samples.
pub(super) struct Span<'a> {
    from: &'a Sample,
    to: &'a Sample,
}

impl<'a> Span<'a> {
    /// None if no time passed, or another server answered: one that was started
    /// since. Its process may have the number that the first had, in a container.
    pub(super) fn between(from: &'a Sample, to: &'a Sample) -> Option<Span<'a>> {
        let is_same = |name| from.text(name) == to.text(name);
        let grew = |name| to.number(name) >= from.number(name);
        let is_one_server = is_same("pid") && grew("uptime_s") && to.counters().all(grew);
        (is_one_server && to.at > from.at).then_some(Span { from, to })
    }

    /// By how much a counter grew each second.
    pub(super) fn rate(&self, counter: &str) -> Option<f64> {
        Some(self.growth(counter)? as f64 / (self.to.at - self.from.at).as_secs_f64())
    }

    /// Requests of an op, each second.
    pub(super) fn op_rate(&self, op: &str) -> Option<f64> {
        self.rate(&format!("{REQUESTS}{op}"))
    }

    /// Requests of all ops, each second.
    pub(super) fn request_rate(&self) -> Option<f64> {
        self.to.ops().map(|op| self.op_rate(op)).sum()
    }

    /// How many of the keys that were looked up were there, from 0 to 1.
    pub(super) fn hit_ratio(&self) -> Option<f64> {
        let (hits, misses) = (self.growth("hits")?, self.growth("misses")?);
        (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
    }

    /// How many requests a batch had, which so large a share of them did not exceed.
    pub(super) fn batch_requests(&self, share: f64) -> Option<u64> {
        let end = self.quantile("batch_requests_buckets", share)?;
        Some(self.to.number("batch_requests_max").map_or(end, |max| end.min(max)))
    }

    /// How long a batch took, which so large a share of them did not exceed.
    pub(super) fn service_ns(&self, share: f64) -> Option<u64> {
        self.quantile("service_ns_buckets", share)
    }

    /// The number that so large a share of those are not above that came into a
    /// histogram.
    fn quantile(&self, histogram: &str, share: f64) -> Option<u64> {
        let (from, mut grown) = (self.from.buckets(histogram)?, self.to.buckets(histogram)?);
        for (end, count) in &mut grown {
            *count = count.saturating_sub(from.get(end).copied().unwrap_or(0));
        }
        let rank = (grown.values().sum::<u64>() as f64 * share).ceil() as u64;
        let mut seen = 0;
        grown.into_iter().find_map(|(end, count)| {
            seen += count;
            (count > 0 && seen >= rank).then_some(end)
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

    /// Samples of these values, so many milliseconds apart.
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
    fn rates_are_growth_by_the_time_that_passed() {
        let [from, to] = samples(500, &values("1", "7", "1000", "10"), &values("1", "7", "1900", "110"));
        let span = Span::between(&from, &to).unwrap();
        assert_eq!((span.rate("hits"), span.op_rate("exists")), (Some(1800.0), Some(200.0)));
        assert_eq!((span.request_rate(), span.hit_ratio()), (Some(2000.0), Some(0.9)));
        assert_eq!(to.ops().collect::<Vec<_>>(), ["get", "exists"]);
    }

    #[test]
    fn what_the_server_does_not_say_has_no_rate() {
        let [from, to] = samples(1000, &values("1", "7", "5", "5"), &values("1", "8", "5", "5"));
        let span = Span::between(&from, &to).unwrap();
        assert_eq!((span.rate("swaps"), span.rate("hits")), (None, Some(0.0)));
        // Of no lookups there is no ratio.
        assert_eq!(span.hit_ratio(), None);
        let [from, to] = samples(1000, &[("pid", "1"), ("hits", "many")], &[("pid", "1"), ("hits", "7")]);
        assert_eq!(Span::between(&from, &to).unwrap().rate("hits"), None);
    }

    #[test]
    fn a_server_that_was_started_anew_has_no_rates_at_first() {
        let old = values("1", "7", "1000", "10");
        for new in [
            values("2", "8", "2000", "20"),
            values("1", "0", "2000", "20"),
            values("1", "8", "999", "20"),
            values("1", "8", "2000", "9"),
        ] {
            let [from, to] = samples(1000, &old, &new);
            assert!(Span::between(&from, &to).is_none(), "{new:?}");
        }
        let [from, to] = samples(0, &old, &old);
        assert!(Span::between(&from, &to).is_none(), "no time passed");
    }

    #[test]
    fn quantiles_are_those_of_what_came_between() {
        let [from, to] = [[("ns", "10:5 20:1")], [("ns", "10:5 15:90 20:10 40:1")]];
        let [from, to] = samples(1000, &from, &to);
        let span = Span::between(&from, &to).unwrap();
        let quantiles = [0.5, 0.9, 0.99, 1.0].map(|share| span.quantile("ns", share));
        assert_eq!(quantiles, [Some(15), Some(15), Some(20), Some(40)]);
        let batches = [("batch_requests_buckets", "255:0 319:9"), ("batch_requests_max", "256")];
        let [from, to] = samples(1000, &[("batch_requests_buckets", "")], &batches);
        assert_eq!(Span::between(&from, &to).unwrap().batch_requests(0.5), Some(256));
        let [from, to] = samples(1000, &[("ns", "10:5"), ("none", "")], &[("ns", "10:5"), ("none", "")]);
        let span = Span::between(&from, &to).unwrap();
        assert_eq!(["ns", "none", "unsaid"].map(|name| span.quantile(name, 0.5)), [None; 3]);
        let [from, to] = samples(1000, &[("ns", "")], &[("ns", "7:one")]);
        assert_eq!(Span::between(&from, &to).unwrap().quantile("ns", 0.5), None);
    }

    #[test]
    fn shares_lie_between_nothing_and_all() {
        let values = [("blocks", "8"), ("blocks_verified", "2"), ("more", "9"), ("none", "0")];
        let sample = Sample::new(Instant::now(), values.into_iter());
        assert_eq!(sample.share("blocks_verified", "blocks"), Some(0.25));
        assert_eq!(sample.share("more", "blocks"), Some(1.0));
        assert_eq!(sample.share("none", "none"), Some(1.0));
        assert_eq!(sample.share("unsaid", "blocks"), None);
    }
}
