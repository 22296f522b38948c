//! The server as a client sees it: requests through the router, no sockets.

mod crud;
mod deletion;
mod subresources;
mod support;
mod watch;
