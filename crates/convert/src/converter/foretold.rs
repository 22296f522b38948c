//! Devices for extended resources between the decision and the claim that the binder makes for them.
//!
//! Until such a claim is there and reserved for the pod, the BindRequest alone says which devices are taken. The core is told of them
//! as of a claim that nobody else can name.

use kai_core::delta::{Claim, Delta};

use super::Converter;
use crate::{bind_request::BindRecord, pod::Draft};

impl Converter {
    /// Tells of the devices that a request gives a pod, unless there is a claim that does.
    pub(super) fn foretell(&mut self, pod: &str, draft: &Draft, out: &mut Vec<Delta>) {
        let uid = &draft.pod.uid;
        let bind = self.bind_of.get(pod).and_then(|bind| self.binds.get(bind));
        let owned = |bind: &&BindRecord| bind.owner.as_ref().is_none_or(|owner| owner == uid);
        let Some(bind) = bind.filter(owned).filter(|bind| bind.live && draft.pod.deleted.is_none()) else { return };
        let Some(chosen) = bind.extended.as_ref().filter(|_| !self.devices.is_reserved_for(uid)) else { return };
        let claim = Claim {
            // No object has a name with a slash.
            key: format!("{pod}/extended-resources"),
            requests: Vec::new(),
            allocation: Some(self.devices.foretold(chosen)),
            reserved_for: vec![uid.clone()],
            max_consumers: 1,
            queue: None,
            of_one_pod: true,
            impossible: None,
        };
        self.foretold.insert(uid.clone(), claim.key.clone());
        out.push(Delta::Claim(Box::new(claim)));
    }

    /// Takes back what was told so of a pod: it is gone, told anew, or has its claim.
    pub(super) fn fulfil(&mut self, uid: &str, out: &mut Vec<Delta>) {
        out.extend(self.foretold.remove(uid).map(Delta::ClaimGone));
    }
}
