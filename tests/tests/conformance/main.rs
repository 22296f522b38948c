//! One suite of named behaviours of an API server, run on the embedded one and on a real kube-apiserver.
//!
//! Each case is a sequence of requests and what can be observed of the answers: code, object, watch events, `reason`. Where the
//! two servers disagree, the embedded one is wrong. A case says nothing about timing and nothing about what only one of them has.

mod admission;
mod apply;
mod bodies;
mod custom;
mod custom_surface;
mod definitions;
mod deletion;
mod devices;
mod discovery;
mod kinds;
mod lists;
mod objects;
mod patches;
mod setting;
mod subresources;
mod watches;
mod webhook_server;
mod webhooks;
mod widget;
mod workloads;

use std::process::ExitCode;

use kai_tests::harness::{self, Case};

fn main() -> ExitCode {
    let cases: Vec<Case> = [
        objects::CASES,
        bodies::CASES,
        deletion::CASES,
        lists::CASES,
        watches::CASES,
        patches::CASES,
        apply::CASES,
        custom::CASES,
        custom_surface::CASES,
        definitions::CASES,
        subresources::CASES,
        discovery::CASES,
        workloads::CASES,
        kinds::CASES,
        devices::CASES,
        admission::CASES,
        webhooks::CASES,
    ]
    .concat();
    harness::main(&cases)
}
