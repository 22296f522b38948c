//! `AdmissionReview`: how a question is read and an answer written.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use json_patch::Patch;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

/// What is being done to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct User {
    pub(crate) username: String,
    pub(crate) groups: Vec<String>,
}

/// The question.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    pub(crate) uid: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) namespace: Option<String>,
    pub(crate) operation: Operation,
    #[serde(default)]
    pub(crate) user_info: User,
    #[serde(default)]
    pub(crate) object: Value,
    #[serde(default)]
    pub(crate) old_object: Value,
}

impl Request {
    /// The object as it shall be.
    pub(crate) fn object<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        decode(&self.object, "request.object")
    }

    /// The object as it was.
    pub(crate) fn old_object<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        decode(&self.old_object, "request.oldObject")
    }
}

fn decode<T: DeserializeOwned>(value: &Value, field: &str) -> Result<T, Refusal> {
    T::deserialize(value).map_err(|error| Refusal::unreadable(format!("`{field}` cannot be read: {error}")))
}

/// A no, with its reason as one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) message: String,
}

impl Refusal {
    /// A rule forbids it.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: 403, message: message.into() }
    }

    /// It is not what it should be.
    pub(crate) fn unreadable(message: impl Into<String>) -> Self {
        Self { code: 400, message: message.into() }
    }
}

/// A yes, with advice and changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Consent {
    pub(crate) warnings: Vec<String>,
    pub(crate) patch: Option<Patch>,
}

impl Consent {
    /// A yes with advice.
    pub(crate) fn with(warnings: Vec<String>) -> Self {
        Self { warnings, patch: None }
    }

    /// A yes that makes of one object another.
    pub(crate) fn changing(from: &Value, to: &Value, warnings: Vec<String>) -> Self {
        let patch = (from != to).then(|| json_patch::diff(from, to));
        Self { warnings, patch }
    }
}

/// What a rule says.
pub(crate) type Verdict = Result<Consent, Refusal>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Question {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request>,
}

/// Reads a question, or says in a sentence what is wrong with it.
pub(crate) fn read(body: &[u8]) -> Result<Request, String> {
    let question: Question = serde_json::from_slice(body)
        .map_err(|error| format!("the body is not an AdmissionReview of admission.k8s.io/v1: {error}"))?;
    if question.kind != "AdmissionReview" || question.api_version != API_VERSION {
        let (kind, version) = (question.kind, question.api_version);
        return Err(format!("the body is a `{kind}` of `{version}`, not an AdmissionReview of {API_VERSION}"));
    }
    question.request.ok_or_else(|| "the AdmissionReview has no `request`".to_owned())
}

const API_VERSION: &str = "admission.k8s.io/v1";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}

/// Writes the answer to a question.
pub(crate) fn write(uid: &str, verdict: Verdict) -> Result<Vec<u8>, serde_json::Error> {
    let mut response =
        Response { uid, allowed: true, status: None, patch_type: None, patch: None, warnings: Vec::new() };
    match verdict {
        Ok(consent) => {
            response.warnings = consent.warnings;
            if let Some(patch) = consent.patch {
                response.patch_type = Some("JSONPatch");
                response.patch = Some(STANDARD.encode(serde_json::to_vec(&patch)?));
            }
        }
        Err(refusal) => {
            response.allowed = false;
            let reason = if refusal.code == 400 { "BadRequest" } else { "Forbidden" };
            response.status = Some(Status { code: refusal.code, reason, message: refusal.message });
        }
    }
    serde_json::to_vec(&Answer { api_version: API_VERSION, kind: "AdmissionReview", response })
}
