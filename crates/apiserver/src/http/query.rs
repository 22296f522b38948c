//! Query parameters and the options that travel in them.

use serde_json::{Value, json};

use super::path::{Plus, decode};
use crate::status::{ApiError, FieldError, Subject};

/// The parameters of a request, in order.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

/// What to do about fields the server does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and say so.
    Warn,
    /// Refuse the request.
    Strict,
}

/// Whether a request is only a rehearsal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// Everything but the write happens.
    Yes,
    /// The write happens.
    No,
}

/// Which options object a verb reads, for error messages.
#[derive(Clone, Copy, Debug)]
pub enum OptionsKind {
    /// `CreateOptions`.
    Create,
    /// `UpdateOptions`.
    Update,
    /// `PatchOptions`.
    Patch,
    /// `DeleteOptions`.
    Delete,
}

impl OptionsKind {
    /// The kind as clients know it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Patch => "PatchOptions",
            Self::Delete => "DeleteOptions",
        }
    }

    /// 422 about these options.
    pub fn invalid(self, errors: &[FieldError]) -> ApiError {
        let subject = Subject { group: "meta.k8s.io", resource: "", kind: self.name(), name: "" };
        ApiError::invalid(subject, errors)
    }
}

impl Query {
    /// Parses the part of a URL after the question mark.
    pub fn parse(query: Option<&str>) -> Self {
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(name, Plus::Space), decode(value, Plus::Space))
                })
                .collect(),
        )
    }

    /// The first value of a parameter, if it is there and not empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values(name).next().filter(|value| !value.is_empty())
    }

    /// All values of a parameter.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A boolean: anything but `false` and `0` is true, as in apimachinery.
    pub fn flag(&self, name: &str) -> bool {
        self.values(name).next().is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// An integer.
    pub fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            ApiError::bad_request(format!("strconv.ParseInt: parsing {}: invalid syntax", Value::from(text)))
        })
    }

    /// `dryRun`.
    pub fn dry_run(&self, options: OptionsKind) -> Result<DryRun, ApiError> {
        let values: Vec<&str> = self.values("dryRun").collect();
        if let Some(unknown) = values.iter().find(|value| **value != "All") {
            let error = FieldError::not_supported("dryRun", &json!([unknown]), &["All"]);
            return Err(options.invalid(&[error]));
        }
        Ok(if values.is_empty() { DryRun::No } else { DryRun::Yes })
    }

    /// `fieldValidation`; the server's default is to warn.
    pub fn field_validation(&self, options: OptionsKind) -> Result<FieldValidation, ApiError> {
        match self.text("fieldValidation") {
            None | Some("Warn") => Ok(FieldValidation::Warn),
            Some("Ignore") => Ok(FieldValidation::Ignore),
            Some("Strict") => Ok(FieldValidation::Strict),
            Some(other) => {
                let supported = ["Ignore", "Strict", "Warn"];
                let error = FieldError::not_supported("fieldValidation", &Value::from(other), &supported);
                Err(options.invalid(&[error]))
            }
        }
    }

    /// `fieldManager`, checked as the real server does.
    pub fn field_manager(&self, options: OptionsKind) -> Result<Option<&str>, ApiError> {
        let Some(manager) = self.text("fieldManager") else { return Ok(None) };
        if manager.len() > 128 {
            let error = FieldError {
                field: "fieldManager".to_owned(),
                reason: "FieldValueTooLong",
                message: "Too long: may not be more than 128 bytes".to_owned(),
            };
            return Err(options.invalid(&[error]));
        }
        if manager.chars().any(char::is_control) {
            let why = "should only contain printable characters";
            return Err(options.invalid(&[FieldError::invalid("fieldManager", &Value::from(manager), why)]));
        }
        Ok(Some(manager))
    }

    /// The options object that admission webhooks get to see.
    pub fn options(&self, kind: OptionsKind) -> Value {
        let mut options = json!({"kind": kind.name(), "apiVersion": "meta.k8s.io/v1"});
        let dry_run: Vec<&str> = self.values("dryRun").collect();
        if !dry_run.is_empty() {
            options["dryRun"] = json!(dry_run);
        }
        for name in ["fieldManager", "fieldValidation"] {
            if let Some(text) = self.text(name) {
                options[name] = json!(text);
            }
        }
        if matches!(kind, OptionsKind::Patch) && self.flag("force") {
            options["force"] = json!(true);
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse(Some("labelSelector=a%3Db%2Cc+in+(d)&watch=1&limit=5&x"));
        assert_eq!(query.text("labelSelector"), Some("a=b,c in (d)"));
        assert!(query.flag("watch") && query.flag("x") && !query.flag("y"));
        assert_eq!(query.integer("limit"), Ok(Some(5)));
    }

    #[test]
    fn unknown_values_of_options_are_refused() {
        let query = Query::parse(Some("dryRun=Some&fieldValidation=Maybe&limit=x"));
        assert_eq!(query.dry_run(OptionsKind::Create).unwrap_err().code, 422);
        let error = query.field_validation(OptionsKind::Patch).unwrap_err();
        assert!(
            error.message.starts_with("PatchOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value")
        );
        assert_eq!(query.integer("limit").unwrap_err().code, 400);
    }
}
