//! A listener that speaks TLS with whatever certificate is current: a new one counts from the next connection on.
//!
//! Handshakes go on beside each other and end after a while, so that a slow client holds up nobody.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::RwLock;
use rustls::{
    ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How many may go on at once.
const HANDSHAKES: usize = 512;
/// The pause after the machine could not give us a connection.
const PAUSE: Duration = Duration::from_millis(200);

/// The certificate to be shown. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown(Arc<RwLock<Option<Arc<CertifiedKey>>>>);

impl Shown {
    /// Shows another one from now on.
    pub(crate) fn set(&self, key: Arc<CertifiedKey>) {
        *self.0.write() = Some(key);
    }

    /// Whether there is one.
    pub(crate) fn is_set(&self) -> bool {
        self.0.read().is_some()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().clone()
    }
}

type Connection = (TlsStream<TcpStream>, SocketAddr);

/// A listener for TLS.
pub(crate) struct TlsListener {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
    handshakes: FuturesUnordered<BoxFuture<'static, Option<Connection>>>,
}

impl TlsListener {
    /// Speaks TLS on what `tcp` accepts.
    pub(crate) fn new(tcp: TcpListener, shown: Shown) -> Result<Self, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(shown));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { tcp, acceptor: TlsAcceptor::from(Arc::new(config)), handshakes: FuturesUnordered::new() })
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                Some(done) = self.handshakes.next(), if !self.handshakes.is_empty() => {
                    if let Some(connection) = done {
                        return connection;
                    }
                }
                accepted = self.tcp.accept(), if self.handshakes.len() < HANDSHAKES => match accepted {
                    Ok((stream, from)) => {
                        let handshake = tokio::time::timeout(HANDSHAKE, self.acceptor.accept(stream));
                        self.handshakes.push(async move { Some((handshake.await.ok()?.ok()?, from)) }.boxed());
                    }
                    Err(error) => {
                        tracing::warn!(%error, "no connection accepted");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}
