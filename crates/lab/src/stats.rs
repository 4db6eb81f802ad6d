//! Medians, their confidence intervals, and a histogram of microseconds.

/// The median; 0 of nothing.
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let n = sorted.len();
    match n {
        0 => 0.0,
        _ if n % 2 == 1 => sorted[n / 2],
        _ => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// The 95 % interval of the median by order statistics: ranks n/2 ± 0.98 √n. It assumes no distribution.
pub fn median_interval(values: &[f64]) -> (f64, f64) {
    let sorted = sorted(values);
    let n = sorted.len();
    if n == 0 {
        return (0.0, 0.0);
    }
    let half_width = 0.98 * (n as f64).sqrt();
    let low = (n as f64 / 2.0 - half_width).max(0.0) as usize;
    (sorted[low], sorted[n - 1 - low])
}

/// The smallest value such that `share` of the sorted `values` are not above it; 0 of nothing.
pub fn quantile(sorted: &[u64], share: f64) -> u64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Counts of durations in buckets of one microsecond up to about a second; longer ones share the last bucket.
pub struct Histogram {
    counts: Vec<u32>,
    total: u64,
}

impl Histogram {
    const BUCKETS: usize = 1 << 20;

    /// An empty histogram.
    pub fn new() -> Self {
        Self { counts: vec![0; Self::BUCKETS], total: 0 }
    }

    /// Counts one duration.
    pub fn add(&mut self, us: u128) {
        let bucket = usize::try_from(us).unwrap_or(usize::MAX).min(Self::BUCKETS - 1);
        self.counts[bucket] += 1;
        self.total += 1;
    }

    /// The bucket (in µs) that holds the `share`-quantile.
    pub fn quantile_us(&self, share: f64) -> usize {
        let wanted = share * self.total as f64;
        let mut seen = 0_u64;
        for (us, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen > 0 && seen as f64 >= wanted {
                return us;
            }
        }
        0
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_intervals() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        let fifteen: Vec<f64> = (1..=15).map(f64::from).collect();
        // 15/2 - 0.98 * 3.87 = 3.7: the 4th smallest and the 4th largest.
        assert_eq!(median_interval(&fifteen), (4.0, 12.0));
        assert_eq!(median_interval(&[7.0]), (7.0, 7.0));
        assert_eq!(median_interval(&[]), (0.0, 0.0));
    }

    #[test]
    fn quantiles() {
        let sorted: Vec<u64> = (1..=100).collect();
        assert_eq!((quantile(&sorted, 0.5), quantile(&sorted, 0.99), quantile(&sorted, 1.0)), (50, 99, 100));
        assert_eq!(quantile(&[], 0.5), 0);
        let mut histogram = Histogram::new();
        assert_eq!(histogram.quantile_us(0.5), 0);
        (1..=100).for_each(|us| histogram.add(us));
        histogram.add(u128::MAX);
        assert_eq!((histogram.quantile_us(0.5), histogram.quantile_us(1.0)), (51, Histogram::BUCKETS - 1));
    }
}
