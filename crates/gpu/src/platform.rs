//! What kind of machine a node is: an ordinary one with discrete GPUs, or a Tegra board whose GPU is part of the chip.
//!
//! What an administrator sets counts first, then the label that a node's agent writes, then the Node's own fields. A machine
//! with an x86 processor is never a Tegra, whatever anybody says: what a Tegra needs (privileges, the folder of libraries) must
//! not reach it.

use std::collections::BTreeMap;

/// The label by which a node's agent says what the machine is: `tegra` or `standard`.
pub const LABEL: &str = "kai.scheduler/platform";

/// The kubelet's label for the processor.
const ARCHITECTURE: &str = "kubernetes.io/arch";

/// What kind of machine a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Platform {
    /// Discrete GPUs behind the ordinary driver: `runtimeClassName` is all a container needs.
    Standard,
    /// A Jetson: no NVML in containers unless the libraries and devices are put there.
    Tegra,
}

impl Platform {
    /// The value of [`LABEL`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Tegra => "tegra",
        }
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What the administrator says: `binder.resourceReservation.tegra.mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Setting {
    /// Find out.
    #[default]
    Auto,
    /// Every node that can be one is a Tegra.
    On,
    /// No node is a Tegra.
    Off,
}

/// The platform of a node and how it was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detection {
    /// What it is.
    pub platform: Platform,
    /// Why, as the end of the sentence "the node is … because …".
    pub reason: String,
}

/// What a node is, from its labels and `status.nodeInfo.kernelVersion`.
pub fn detect(setting: Setting, labels: &BTreeMap<String, String>, kernel_version: &str) -> Detection {
    let standard = |reason: String| Detection { platform: Platform::Standard, reason };
    let tegra = |reason: String| Detection { platform: Platform::Tegra, reason };
    let architecture = labels.get(ARCHITECTURE).map_or("", String::as_str);
    if matches!(architecture, "amd64" | "386") {
        return standard(format!("its label {ARCHITECTURE} is {architecture}, and no Tegra is"));
    }
    match setting {
        Setting::On => return tegra("tegra.mode is on".to_owned()),
        Setting::Off => return standard("tegra.mode is off".to_owned()),
        Setting::Auto => {}
    }
    let label = labels.get(LABEL).map(|value| value.trim());
    match label {
        Some("tegra") => return tegra(format!("its label {LABEL} is tegra")),
        Some("standard") => return standard(format!("its label {LABEL} is standard")),
        _ => {}
    }
    let ignored = label.map(|value| {
        format!(" (its label {LABEL} is {value:?}, which is neither tegra nor standard and counts for nothing)")
    });
    let ignored = ignored.unwrap_or_default();
    if kernel_version.ends_with("-tegra") {
        tegra(format!("its kernel {kernel_version} ends in -tegra{ignored}"))
    } else {
        standard(format!("its kernel {kernel_version} does not end in -tegra{ignored}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(setting: Setting, labels: &[(&str, &str)], kernel: &str) -> (Platform, String) {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let Detection { platform, reason } = detect(setting, &labels, kernel);
        (platform, reason)
    }

    const ARM: (&str, &str) = ("kubernetes.io/arch", "arm64");

    #[test]
    fn a_kernel_tells_a_jetson() {
        let (platform, reason) = found(Setting::Auto, &[ARM], "6.8.12-tegra");
        assert_eq!((platform, reason.as_str()), (Platform::Tegra, "its kernel 6.8.12-tegra ends in -tegra"));
        assert_eq!(found(Setting::Auto, &[ARM], "6.8.0-1040-aws").0, Platform::Standard);
        assert_eq!(found(Setting::Auto, &[], "6.8.12-tegra").0, Platform::Tegra);
        assert_eq!(found(Setting::Auto, &[ARM], "").0, Platform::Standard);
    }

    #[test]
    fn the_setting_counts_more_than_the_label_and_the_label_more_than_the_kernel() {
        let tegra = ("kai.scheduler/platform", "tegra");
        let standard = ("kai.scheduler/platform", "standard");
        assert_eq!(found(Setting::Auto, &[ARM, tegra], "6.8.0-custom").0, Platform::Tegra);
        assert_eq!(found(Setting::Auto, &[ARM, standard], "6.8.12-tegra").0, Platform::Standard);
        assert_eq!(found(Setting::Off, &[ARM, tegra], "6.8.12-tegra").0, Platform::Standard);
        assert_eq!(found(Setting::On, &[ARM, standard], "6.8.0").0, Platform::Tegra);
    }

    #[test]
    fn a_label_that_says_nothing_known_is_named_and_ignored() {
        let (platform, reason) = found(Setting::Auto, &[ARM, ("kai.scheduler/platform", "orin")], "5.15.148-tegra");
        assert_eq!(platform, Platform::Tegra);
        assert!(reason.contains("\"orin\""), "{reason}");
    }

    #[test]
    fn nothing_makes_a_tegra_of_an_x86_machine() {
        let labels = [("kubernetes.io/arch", "amd64"), ("kai.scheduler/platform", "tegra")];
        for setting in [Setting::On, Setting::Off, Setting::Auto] {
            assert_eq!(found(setting, &labels, "6.8.12-tegra").0, Platform::Standard);
        }
    }
}
