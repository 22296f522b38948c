//! Fields that an endpoint resets, so that writing them through it makes no one their owner.
//!
//! The main endpoint of a kind with a `status` subresource resets `status`; the `status` endpoint resets `spec`, and for some
//! kinds a part of the metadata. These are the `GetResetFields` of the strategies of Kubernetes.

use super::fields::{Fields, keep_paths, remove_path};
use crate::resource::{Origin, Resource};
use crate::schema::Schema;

/// What an endpoint resets.
#[derive(Clone, Copy, Debug)]
pub struct ResetFields {
    paths: &'static [&'static [&'static str]],
    meaning: Meaning,
}

#[derive(Clone, Copy, Debug)]
enum Meaning {
    /// The paths and everything below them are reset.
    These,
    /// Everything but the paths is reset.
    AllBut,
}

const STATUS: &[&[&str]] = &[&["status"]];
const SPEC: &[&[&str]] = &[&["spec"]];
const SPEC_AND_METADATA: &[&[&str]] = &[&["spec"], &["metadata"]];

impl ResetFields {
    /// An endpoint that resets nothing.
    pub const NONE: Self = Self::these(&[]);

    const fn these(paths: &'static [&'static [&'static str]]) -> Self {
        Self { paths, meaning: Meaning::These }
    }

    /// What the main endpoint or a subresource of `resource` resets.
    pub fn of(resource: &Resource, subresource: Option<&str>) -> Self {
        let built_in = resource.origin == Origin::BuiltIn;
        let kind = resource.gvk.kind.as_str();
        match subresource {
            None if built_in && kind == "CertificateSigningRequest" => Self::these(&[&["spec"], &["status"]]),
            None if resource.has_subresource("status") => Self::these(STATUS),
            Some("status") if built_in => match kind {
                "Pod" => {
                    Self::these(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
                }
                "Deployment" => Self::these(&[&["spec"], &["metadata", "labels"]]),
                "CertificateSigningRequest" => Self::these(&[&["spec"], &["status", "conditions"]]),
                "CustomResourceDefinition"
                | "FlowSchema"
                | "PriorityLevelConfiguration"
                | "ValidatingAdmissionPolicy"
                | "VolumeAttachment" => Self::these(SPEC_AND_METADATA),
                _ => Self::these(SPEC),
            },
            Some("status") => Self::these(SPEC),
            Some("approval") if built_in => Self::these(&[&["spec"], &["status", "certificate"]]),
            Some("ephemeralcontainers") if built_in => {
                Self { paths: &[&["spec", "ephemeralContainers"]], meaning: Meaning::AllBut }
            }
            Some("resize") if built_in => Self {
                paths: &[
                    &["spec", "containers", "*", "resources"],
                    &["spec", "containers", "*", "resizePolicy"],
                    &["spec", "initContainers", "*", "resources"],
                    &["spec", "initContainers", "*", "resizePolicy"],
                ],
                meaning: Meaning::AllBut,
            },
            _ => Self::NONE,
        }
    }

    /// The best guess without the resource: built-in kinds with a status have it as a subresource.
    pub(super) fn guess(schema: Option<&Schema>, subresource: Option<&str>) -> Self {
        let built_in = schema.map(Schema::resolved).filter(|s| s.source.is_none());
        match subresource {
            Some("status") => Self::these(SPEC),
            None if built_in.is_some_and(|s| s.properties.contains_key("status")) => Self::these(STATUS),
            _ => Self::NONE,
        }
    }

    pub(super) fn apply(self, set: &mut Fields) {
        match self.meaning {
            Meaning::These => self.paths.iter().for_each(|path| remove_path(set, path)),
            Meaning::AllBut => *set = keep_paths(set, self.paths),
        }
    }
}
