//! The server as a client sees it: requests through the router, no sockets.

mod crud;
mod support;
mod watch;
