//! What the rules may be told by whoever runs them.

use kai_api::{
    Queue,
    names::{namespaces, objects},
};
use kai_kit::{Metrics, Mirror};

use crate::{metrics::Reviews, review::User};

/// Which rules hold, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The scheduler name of pods that are ours.
    pub scheduler: String,
    /// The namespace of the components; its service accounts are trusted.
    pub namespace: String,
    /// The namespace of reservation pods.
    pub reservation_namespace: String,
    /// Whether pods may ask for parts of a GPU.
    pub gpu_sharing: bool,
    /// Whether containers are told their memory limit for `HAMi-core`.
    pub hami_core: bool,
    /// Whether containers are kept from GPUs that they did not ask for.
    pub block_visible_devices: bool,
    /// Runtime class of pods with a part of a GPU; empty: none is set.
    pub runtime_class: String,
    /// More users that may write what otherwise only components write; an entry that ends in `:` is a beginning of
    /// names.
    pub trusted_users: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            scheduler: objects::SCHEDULER.to_owned(),
            namespace: namespaces::KAI.to_owned(),
            reservation_namespace: namespaces::RESERVATION.to_owned(),
            gpu_sharing: true,
            hami_core: false,
            block_visible_devices: false,
            runtime_class: objects::NVIDIA_RUNTIME_CLASS.to_owned(),
            trusted_users: Vec::new(),
        }
    }
}

impl Settings {
    /// Whether a user may write what otherwise only components write. A real API server always names the user.
    pub(crate) fn trusts(&self, user: &User) -> bool {
        let name = user.username.as_str();
        let listed = |entry: &String| name == entry || (entry.ends_with(':') && name.starts_with(entry.as_str()));
        let own = |namespace: &str| {
            let account = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.strip_prefix(namespace));
            account.is_some_and(|rest| rest.starts_with(':'))
        };
        name.is_empty()
            || user.groups.iter().any(|group| group == "system:masters")
            || own(&self.namespace)
            || own(&self.reservation_namespace)
            || self.trusted_users.iter().any(listed)
    }
}

/// All rules, with what they look at besides the request.
#[derive(Clone, Default)]
pub struct Rules {
    /// Which rules hold.
    pub settings: Settings,
    queues: Option<Mirror<Queue>>,
    reviews: Reviews,
}

impl Rules {
    /// Rules that see nothing but the request.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Rules that also know the queues there are.
    #[must_use]
    pub fn with_queues(mut self, queues: Mirror<Queue>) -> Self {
        self.queues = Some(queues);
        self
    }

    /// Rules whose reviews are counted there.
    #[must_use]
    pub fn counted_in(self, metrics: &Metrics) -> Self {
        self.reviews.register(metrics);
        self
    }

    pub(crate) fn reviews(&self) -> &Reviews {
        &self.reviews
    }

    pub(crate) fn queues(&self) -> Option<&Mirror<Queue>> {
        self.queues.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_administrators_and_listed_users_are_trusted() {
        let settings = Settings {
            trusted_users: vec!["backup".to_owned(), "system:serviceaccount:ops:".to_owned()],
            ..Settings::default()
        };
        let user = |name: &str| User { username: name.to_owned(), groups: Vec::new() };
        for name in ["", "backup", "system:serviceaccount:ops:x", "system:serviceaccount:kai-scheduler:binder"] {
            assert!(settings.trusts(&user(name)), "{name}");
        }
        for name in
            ["alice", "backup2", "system:serviceaccount:kai-scheduler2:x", "system:serviceaccount:kai-schedulerx"]
        {
            assert!(!settings.trusts(&user(name)), "{name}");
        }
        let admin = User { username: "bob".to_owned(), groups: vec!["system:masters".to_owned()] };
        assert!(settings.trusts(&admin));
    }
}
