//! What the names of sampled GPU metrics tell.

/// The unit that stands in brackets behind a name, or in its last words; `%` for all shares.
///
/// nsys writes `SMs Active [Throughput %]` and `GPC Clock Frequency [MHz]`, PerfWorks
/// `sm__cycles_active.avg.pct_of_peak_sustained_elapsed`. `[Avg]` is how a figure was summed up, and no unit.
pub(crate) fn unit(name: &str) -> Option<&str> {
    if name.contains(".pct_of_peak_") || name.ends_with(".pct") {
        return Some("%");
    }
    let (_, unit) = name.trim_end().strip_suffix(']')?.rsplit_once('[')?;
    let unit = unit.trim();
    if unit.ends_with('%') { Some("%") } else { Some(unit).filter(|unit| !matches!(*unit, "" | "Avg")) }
}

/// What the values of a metric can be, by its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Shares, from 0 to 100.
    Share,
    /// Clocks: the names say MHz, and nsys writes Hz.
    Clock,
    /// Whatever is counted.
    Count,
}

impl Scale {
    pub(crate) fn of(unit: Option<&str>) -> Self {
        match unit {
            Some("%") => Self::Share,
            Some("MHz") => Self::Clock,
            _ => Self::Count,
        }
    }

    /// The value in the metric's unit; null where no GPU can have it.
    ///
    /// What is counted is never below 0, and shares are whole numbers from 0 to 100 in all versions of nsys:
    /// others are differences of a counter that wrapped. No clock has a million MHz, or below one of them.
    pub(crate) fn value(self, recorded: f64) -> Option<f64> {
        let highest = if self == Self::Share { 100.0 } else { f64::MAX };
        let is_hertz = self == Self::Clock && recorded >= MEGA;
        let possible = Some(recorded).filter(|value| (0.0..=highest).contains(value));
        possible.map(|value| if is_hertz { value / MEGA } else { value })
    }
}

const MEGA: f64 = 1e6;

/// The GPU that a process called `GPU n Counters` stands for, as Kineto writes its samples.
pub(crate) fn gpu_of_process(name: &str) -> Option<i32> {
    let number = name.strip_prefix("GPU ")?.strip_suffix(" Counters")?;
    number.bytes().all(|digit| digit.is_ascii_digit()).then(|| number.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::{Scale, gpu_of_process, unit};

    #[test]
    fn units_stand_behind_names() {
        for (name, expected) in [
            ("SMs Active [Throughput %]", Some("%")),
            ("L2 Hit [Ratio %] ", Some("%")),
            ("GPC Clock Frequency [MHz]", Some("MHz")),
            ("Compute Warps in Flight [Avg Warps per Cycle]", Some("Avg Warps per Cycle")),
            ("sm__cycles_active.avg.pct_of_peak_sustained_elapsed", Some("%")),
            ("Compute Warps in Flight [Avg]", None),
            ("SM Active", None),
            ("odd []", None),
            ("odd ]", None),
            ("", None),
        ] {
            assert_eq!(unit(name), expected, "{name}");
        }
    }

    #[test]
    fn values_are_in_the_unit_of_the_name() {
        let clock = Scale::of(Some("MHz"));
        for (scale, recorded, expected) in [
            (clock, 1_979_991_750.0, Some(1979.99175)),
            (clock, 1410.0, Some(1410.0)),
            (clock, 0.0, Some(0.0)),
            (clock, -1.0, None),
            (Scale::of(Some("%")), 100.0, Some(100.0)),
            (Scale::of(Some("%")), 101.0, None),
            (Scale::of(None), 2e6, Some(2e6)),
            (Scale::of(Some("Warps")), f64::NAN, None),
            (Scale::of(Some("Warps")), f64::INFINITY, None),
        ] {
            assert_eq!(scale.value(recorded), expected, "{scale:?} {recorded}");
        }
    }

    #[test]
    fn processes_of_samples_name_a_gpu() {
        assert_eq!(gpu_of_process("GPU 3 Counters"), Some(3));
        for other in
            ["GPU  Counters", "GPU -1 Counters", "GPU +1 Counters", "GPU 99999999999 Counters", "GPU 0"]
        {
            assert_eq!(gpu_of_process(other), None, "{other}");
        }
    }
}
