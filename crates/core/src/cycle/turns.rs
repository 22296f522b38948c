//! Every waiting group has its turn in an action that takes from others.

use rustc_hash::FxHashMap;

use crate::{
    cycle::{Cycle, order::ServingOrder, search::Refusals, signature::Refused, tasks::Steps},
    ids::GroupId,
    plan::Cause,
    policy::Action,
};

/// What an action does for a group in its turn.
pub type Turn<'t, C> = dyn FnMut(&mut C, &ServingOrder, GroupId, &Steps) -> Result<(), Refusals> + 't;

impl Cycle<'_> {
    /// Gives the waiting groups their turns in an action, and notes what was refused to whom. What was refused to one is refused to its equals.
    pub(super) fn take_turns(&mut self, action: Action, turn: &mut Turn<'_, Self>) {
        let mut order = self.waiting_order(action);
        let mut refused: Refused = FxHashMap::default();
        while let Some(group) = order.pop(&self.view(), &|_| false) {
            let steps = self.tasks().to_place(group);
            if steps.is_empty() {
                continue;
            }
            let signature = self.signature(group, &steps);
            if signature.as_ref().is_some_and(|signature| refused.contains_key(signature)) {
                continue;
            }
            if let Err(refusals) = turn(self, &order, group, &steps) {
                self.refuse(group, Cause::Victims { action, refused: refusals });
                refused.extend(signature.map(|signature| (signature, group)));
            }
        }
    }
}
