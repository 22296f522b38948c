//! The kinds of Kubernetes itself.

use std::sync::LazyLock;

use crate::schema::Definitions;

/// The shared definitions of the embedded OpenAPI document.
pub fn definitions() -> &'static Definitions {
    static DEFINITIONS: LazyLock<Definitions> = LazyLock::new(Definitions::default);
    &DEFINITIONS
}
