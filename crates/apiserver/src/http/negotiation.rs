//! Which form of an answer a client wants, from its `Accept` header.

use crate::status::ApiError;
use crate::table::IncludeObject;

/// What a client is told it could have asked for.
const REPRESENTATIONS: &str = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                               application/vnd.kubernetes.protobuf, application/json;stream=watch, \
                               application/vnd.kubernetes.protobuf;stream=watch";

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The object itself.
    Object,
    /// `meta.k8s.io/v1` Table.
    Table,
    /// `meta.k8s.io/v1` PartialObjectMetadata or its list.
    Partial,
    /// `apidiscovery.k8s.io/v2` aggregated discovery.
    AggregatedDiscovery,
}

/// One clause of the header.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

/// Reads the header; 406 if nothing in it can be answered.
pub fn negotiate(accept: Option<&str>) -> Result<Form, ApiError> {
    let Some(accept) = accept.filter(|text| !text.trim().is_empty()) else { return Ok(Form::Object) };
    let mut clauses: Vec<Clause<'_>> = accept.split(',').map(Clause::parse).collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses.iter().find_map(Clause::form).ok_or_else(|| ApiError::new(406, "NotAcceptable", REPRESENTATIONS))
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let quality = parameters.iter().find(|(name, _)| *name == "q").and_then(|(_, q)| q.parse().ok()).unwrap_or(1.0);
        Self { media, parameters, quality }
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    fn form(&self) -> Option<Form> {
        // JSON is YAML, so a client that wants YAML is served too.
        if !matches!(self.media, "application/json" | "application/yaml" | "application/*" | "*/*") {
            return None;
        }
        match (self.parameter("as"), self.parameter("g"), self.parameter("v")) {
            (None, _, _) => Some(Form::Object),
            (Some("Table"), Some("meta.k8s.io"), Some("v1")) => Some(Form::Table),
            (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("meta.k8s.io"), Some("v1")) => {
                Some(Form::Partial)
            }
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => Some(Form::AggregatedDiscovery),
            _ => None,
        }
    }
}

/// Reads `includeObject` of a table request.
pub fn include_object(text: Option<&str>) -> Result<IncludeObject, ApiError> {
    match text {
        None | Some("" | "Metadata") => Ok(IncludeObject::Metadata),
        Some("None") => Ok(IncludeObject::None),
        Some("Object") => Ok(IncludeObject::Object),
        Some(other) => {
            Err(ApiError::bad_request(format!("unrecognized includeObject value: {}", serde_json::Value::from(other))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_the_best_form_they_ask_for() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let discovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        let cases = [
            (None, Form::Object),
            (Some("*/*"), Form::Object),
            (Some(kubectl), Form::Table),
            (Some("application/vnd.kubernetes.protobuf,application/json"), Form::Object),
            (Some("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"), Form::Partial),
            (Some(discovery), Form::AggregatedDiscovery),
            (Some("application/json;as=Table;v=v9;g=meta.k8s.io,application/json;q=0.1"), Form::Object),
        ];
        for (accept, form) in cases {
            assert_eq!(negotiate(accept), Ok(form), "{accept:?}");
        }
    }

    #[test]
    fn unknown_media_types_are_not_acceptable() {
        for accept in
            ["text/html", "application/vnd.kubernetes.protobuf", "application/json;as=Chair;g=meta.k8s.io;v=v1"]
        {
            assert_eq!(negotiate(Some(accept)).unwrap_err().code, 406, "{accept}");
        }
    }
}
