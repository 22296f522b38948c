//! `kai bench`: figures of this machine, never assertions.

pub mod apiserver;
pub mod core;
pub mod e2e;
pub mod lab;
mod memory;
