//! The kinds of Kubernetes itself.

use std::sync::LazyLock;

use crate::schema::Definitions;

pub(crate) mod access;
pub mod defaults;
pub(crate) mod field_path;
pub(crate) mod format;
pub mod metadata;
pub(crate) mod quantity;
#[cfg(test)]
mod recorded;
pub mod strategy;
pub mod validation;

/// The shared definitions of the embedded OpenAPI document.
pub fn definitions() -> &'static Definitions {
    static DEFINITIONS: LazyLock<Definitions> = LazyLock::new(Definitions::default);
    &DEFINITIONS
}
