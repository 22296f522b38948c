//! What a reboot of the machine does to a pod.

use jiff::Timestamp;

use super::{
    machine::{ContainerState, Effect, PodMachine, Stage, State, after},
    plan::{RestartPolicy, Role},
};

impl PodMachine {
    /// The machine came up again and nothing of the pod runs any more. A pod that never restarts is over; any other gets a new
    /// sandbox, in which initialisation begins anew and the containers start again.
    pub fn rebooted(&mut self, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        let until = after(now, self.plan.start);
        match self.stage {
            Stage::Ended => {}
            Stage::Creating { .. } => self.stage = Stage::Creating { until },
            Stage::Stopping { .. } => self.end_all(137, "ContainerStatusUnknown", now, &mut effects),
            Stage::Active => {
                for index in 0..self.containers.len() {
                    self.terminate(index, 255, "Unknown", now, &mut effects);
                }
                let begun = |container: &ContainerState| container.is_done() || container.last.is_some();
                if self.plan.restart == RestartPolicy::Never && self.containers.iter().any(begun) {
                    self.end_all(255, "Unknown", now, &mut effects);
                    return effects;
                }
                for (plan, container) in self.plan.containers.iter().zip(&mut self.containers) {
                    container.forget_start();
                    let State::Terminated(exit) = &container.state else { continue };
                    let done =
                        plan.role == Role::App && self.plan.restart == RestartPolicy::OnFailure && exit.code == 0;
                    if !done {
                        container.last = Some(exit.clone());
                        container.state = State::Waiting { why: None };
                    }
                }
                self.sandbox = false;
                self.stage = Stage::Creating { until };
            }
        }
        effects
    }

    /// Whether a container is said to run since before this time, in whole seconds, as statuses say it.
    pub fn runs_since_before(&self, time: Timestamp) -> bool {
        self.containers.iter().any(|container| match container.state {
            State::Running { since } => since.as_second() < time.as_second(),
            _ => false,
        })
    }

    /// Whether deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.deleting
    }
}
