//! The rules and changes for pods of our scheduler, as a webhook.
