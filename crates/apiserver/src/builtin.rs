//! The kinds of Kubernetes itself.
//!
//! Their facts are embedded (see `data/README.md`): schemas, resources and binary encodings of one Kubernetes release. Reading
//! them is lazy: the table of resources is built at the first question, a schema when it is first looked at.

use std::sync::{Arc, LazyLock};

use crate::resource::Resource;
use crate::schema::Definitions;

pub(crate) mod access;
pub mod data;
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
    static DEFINITIONS: LazyLock<Definitions> = LazyLock::new(data::definitions);
    &DEFINITIONS
}

/// Every built-in resource the server has, in all served versions, ordered by group, version and plural.
pub fn resources() -> &'static [Arc<Resource>] {
    static RESOURCES: LazyLock<Vec<Arc<Resource>>> = LazyLock::new(data::resources);
    &RESOURCES
}
