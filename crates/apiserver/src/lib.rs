//! The Kubernetes API in memory: what a kube-apiserver with etcd answers, from one process and without root.
//!
//! The server knows the kinds of Kubernetes itself and whatever arrives as a CustomResourceDefinition; it knows nothing of kai.
//! It is one axum [`Router`](axum::Router): in process it is the transport of a `kube::Client`, over TCP it serves kubectl.
//!
//! ```text
//!  request -> http (path, negotiation, body) -> verbs (create, update, patch, delete, list, watch)
//!                 |                                |  builtin/schema: default, prune, validate   admission: plugins, webhooks
//!                 |                                |  patch, apply: what the new object is, who owns which field
//!                 v                                v
//!          discovery, openapi, table            store (revisions, snapshots, watch history) -> housekeeping: garbage, namespace
//! ```

pub mod admission;
pub mod apply;
pub mod builtin;
pub mod crd;
pub mod discovery;
pub mod event_conversion;
mod garbage;
mod housekeeping;
mod http;
mod namespace;
mod object;
pub mod openapi;
pub mod patch;
pub mod protobuf;
mod random;
mod registry;
pub mod resource;
pub mod schema;
pub mod select;
mod server;
pub mod status;
mod store;
mod subresource;
pub mod table;
mod verbs;
mod watch;

pub use server::{ApiServer, NodeProxy, Options};
