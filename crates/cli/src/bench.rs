//! `kai bench`: figures of this machine, never assertions.

pub mod apiserver;
mod memory;
