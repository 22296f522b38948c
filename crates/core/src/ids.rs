//! Dense numbers instead of names: every object of the cluster is an index into an array.
//!
//! An id says nothing about order: it depends on who arrived first, so no decision may be made by comparing ids. Names decide ties.

/// Declares a dense id.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub u32);

        impl $name {
            /// The place in the array of its kind.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of a place in the array of its kind.
            #[must_use]
            pub fn of(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }
        }
    };
}

id!(
    /// A node of the cluster.
    NodeId
);
id!(
    /// A queue.
    QueueId
);
id!(
    /// A PodGroup: what KAI calls a job.
    GroupId
);
id!(
    /// A pod: what KAI calls a task.
    PodId
);
id!(
    /// The part of a pod's specification that decides where it fits. Equal pods share it.
    ClassId
);
id!(
    /// A ResourceClaim.
    ClaimId
);
id!(
    /// A Topology object.
    TopologyId
);
id!(
    /// An interned word: a label's key or value, a namespace, the name of a resource.
    Word
);
