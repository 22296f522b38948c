//! Where a pod stands, and which standings count for what.

/// Where a pod stands. The first eight are facts; [`Self::Allocated`] and [`Self::Pipelined`] exist only inside a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Status {
    /// Waits for a place.
    Pending,
    /// Not to be scheduled yet.
    Gated,
    /// A BindRequest is on its way.
    Binding,
    /// Bound, not running yet.
    Bound,
    /// Running.
    Running,
    /// Being deleted: what it holds will be free.
    Releasing,
    /// Being deleted for too long: what it holds is not coming back.
    Stuck,
    /// Ended well.
    Succeeded,
    /// Ended badly, unknown, or not to be considered.
    Ended,
    /// Given a place in this cycle.
    Allocated,
    /// Promised a place in this cycle, once it is free.
    Pipelined,
}

impl Status {
    /// How many there are.
    pub const COUNT: usize = 11;

    /// The place in an array of counts.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Holds resources of a node, or is promised them.
    #[must_use]
    pub fn is_active(self) -> bool {
        self.is_active_allocated() || matches!(self, Self::Releasing | Self::Stuck)
    }

    /// Holds or is promised resources and is not about to give them back.
    #[must_use]
    pub fn is_active_allocated(self) -> bool {
        matches!(self, Self::Allocated | Self::Pipelined | Self::Binding | Self::Bound | Self::Running)
    }

    /// Is charged to its queue.
    #[must_use]
    pub fn is_charged(self) -> bool {
        self.is_active_allocated()
    }

    /// Counts as a member the gang can rely on, now or later.
    #[must_use]
    pub fn is_alive(self) -> bool {
        self.is_active_allocated() || matches!(self, Self::Pending | Self::Gated)
    }

    /// Occupies a node physically: everything active but promises.
    #[must_use]
    pub fn is_physical(self) -> bool {
        self.is_active() && self != Self::Pipelined
    }
}
