//! Points in time and spans of it, as whole milliseconds. The core never asks what time it is: it is told.

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Time(pub i64);

/// A span of time in milliseconds; negative where a setting uses that to say "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Span(pub i64);

impl Time {
    /// The time `span` later; the end of time where that does not exist.
    #[must_use]
    pub fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// How long after `earlier` this is; negative if it is before.
    #[must_use]
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of whole seconds.
    #[must_use]
    pub const fn seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1000))
    }
}
