//! Places that were given and that the watch has not shown yet. The watch asks: in a crowd it need not tell soon what is known here.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::notes::key_of;

/// The places. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Foretold {
    /// By `namespace/name` of the pod.
    places: Arc<Mutex<FxHashMap<String, Place>>>,
}

#[derive(Debug)]
struct Place {
    uid: Arc<str>,
    node: String,
}

impl Foretold {
    /// A pod was given a place, and nothing but one write is left to be done about it.
    pub(crate) fn insert(&self, key: &str, uid: Arc<str>, node: &str) {
        self.places.lock().insert(key.to_owned(), Place { uid, node: node.to_owned() });
    }

    /// The watch has shown it, or it came to nothing.
    pub(crate) fn remove(&self, key: &str) {
        self.places.lock().remove(key);
    }

    /// Whether it is known here that a pod is on a node.
    pub(crate) fn says(&self, pod: &Pod, node: &str) -> bool {
        let places = self.places.lock();
        let place = places.get(key_of(&pod.metadata).as_str());
        place.is_some_and(|place| Some(&*place.uid) == pod.metadata.uid.as_deref() && place.node == node)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_place_of_this_very_pod_is_known() {
        let pod = |uid: &str| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "team", "uid": uid}})).unwrap()
        };
        let foretold = Foretold::default();
        foretold.insert("team/a", "u".into(), "n");
        assert!(foretold.says(&pod("u"), "n"));
        assert!(!foretold.says(&pod("u"), "other") && !foretold.says(&pod("another"), "n"));
        foretold.remove("team/a");
        assert!(!foretold.says(&pod("u"), "n"));
    }
}
