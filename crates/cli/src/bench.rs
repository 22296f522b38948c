//! `kai bench`: figures of this machine, never assertions.

pub mod apiserver;
pub mod core;
pub mod lab;
mod memory;
