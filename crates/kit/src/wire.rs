//! Connections to an API server on which whoever asks also sends and reads: no task and no queue is between a request and its socket.
//!
//! ```text
//!  request ─▶ idle connection, or a new one ─▶ head of the answer ─▶ body ─▶ idle again
//!              (polled by the request itself)     (the body polls it until its end)
//! ```
//!
//! Ordinary clients have a task for each connection. In a crowd, handing every binding and every line of a watch from task to task costs
//! as much as sending it. A connection that nobody uses is not looked at; whether it still lives is seen when it is needed.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use http::{HeaderValue, Request, Response, Uri, header::HOST};
use http_body::{Body as _, Frame, SizeHint};
use hyper::{
    body::{Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
};
use hyper_util::client::legacy::connect::HttpConnector;
use kube::{
    Config,
    client::{Body, ClientBuilder, ConfigExt as _},
};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tower::{BoxError, Layer as _, Service, ServiceBuilder, ServiceExt as _, util::BoxCloneSyncService};

/// Servers and what is between may end a connection that is idle for longer.
const LONGEST_IDLE: Duration = Duration::from_mins(1);

/// Sends requests and gives answers.
pub type Wire = BoxCloneSyncService<Request<Body>, Response<Answer>, BoxError>;

type Connector = hyper_rustls::HttpsConnector<HttpConnector>;
type Connection = http1::Connection<<Connector as Service<Uri>>::Response, Body>;

/// A client over such connections, with the address and the credentials of `config`. None: only the library's own client can do what
/// the config asks for.
pub fn builder(config: &Config) -> Result<Option<ClientBuilder<Wire>>, kube::Error> {
    if config.proxy_url.is_some() || config.default_retry {
        return Ok(None);
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    let connections = Connections(Arc::new(Shared {
        connector: config.rustls_https_connector_with_connector(connector)?,
        connect: config.connect_timeout.unwrap_or(Duration::MAX),
        read: config.read_timeout.unwrap_or(Duration::MAX),
        idle: Mutex::default(),
    }));
    let service = config.extra_headers_layer()?.layer(connections);
    let service = match config.auth_layer()? {
        Some(auth) => BoxCloneSyncService::new(auth.layer(service).map_err(BoxError::from)),
        None => BoxCloneSyncService::new(service),
    };
    let service = ServiceBuilder::new().layer(config.base_uri_layer()).service(service);
    Ok(Some(ClientBuilder::new(BoxCloneSyncService::new(service), config.default_namespace.clone())))
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("no connection within {0:?}")]
    Unreachable(Duration),
    #[error("no answer within {0:?}")]
    Silent(Duration),
    #[error("a request without an address")]
    NoAddress,
    #[error("a connection on which HTTP/1 is not spoken")]
    Protocol,
}

/// The connections to one server.
#[derive(Clone)]
struct Connections(Arc<Shared>);

struct Shared {
    connector: Connector,
    /// How long a connection may take.
    connect: Duration,
    /// How long the server may be silent.
    read: Duration,
    /// The last used is last.
    idle: Mutex<Vec<Open>>,
}

struct Open {
    sender: SendRequest<Body>,
    connection: Option<Pin<Box<Connection>>>,
    since: Instant,
}

impl Service<Request<Body>> for Connections {
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Answer>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        async move {
            let read = shared.read;
            timeout(read, shared.send(request)).await.unwrap_or_else(|_| Err(Error::Silent(read).into()))
        }
        .boxed()
    }
}

impl Shared {
    async fn send(self: Arc<Self>, mut request: Request<Body>) -> Result<Response<Answer>, BoxError> {
        let address = request.uri().clone();
        let host = address.authority().ok_or(Error::NoAddress)?.as_str();
        // Credentials in an address are not part of the name.
        let host = HeaderValue::from_str(host.rsplit('@').next().unwrap_or(host))?;
        request.headers_mut().entry(HOST).or_insert(host);
        *request.uri_mut() = address.path_and_query().map_or_else(Uri::default, |path| Uri::from(path.clone()));
        loop {
            let known = self.idle().await;
            let fresh = known.is_none();
            let mut open = match known {
                Some(open) => open,
                None => self.open(&address).await?,
            };
            let sent = open.sender.try_send_request(request);
            match drive(&mut open.connection, sent).await {
                Ok(answer) => {
                    let (parts, incoming) = answer.into_parts();
                    return Ok(Response::from_parts(parts, Answer::new(incoming, open, self)));
                }
                Err(mut error) => match error.take_message() {
                    // It ended before anything was sent.
                    Some(again) if !fresh => request = again,
                    _ => return Err(error.into_error().into()),
                },
            }
        }
    }

    /// A connection that was used before and lives.
    async fn idle(&self) -> Option<Open> {
        loop {
            let mut open = self.idle.lock().pop()?;
            if open.since.elapsed() >= LONGEST_IDLE {
                // Those below are older.
                self.idle.lock().clear();
                return None;
            }
            let ready = open.sender.ready();
            if drive(&mut open.connection, ready).await.is_ok() && open.connection.is_some() {
                return Some(open);
            }
        }
    }

    async fn open(&self, address: &Uri) -> Result<Open, BoxError> {
        let connecting = self.connector.clone().oneshot(address.clone());
        let stream = timeout(self.connect, connecting).await.map_err(|_| Error::Unreachable(self.connect))??;
        if hyper_util::client::legacy::connect::Connection::connected(&stream).is_negotiated_h2() {
            return Err(Error::Protocol.into());
        }
        let (mut sender, connection) = http1::handshake(stream).await?;
        let mut connection = Some(Box::pin(connection));
        drive(&mut connection, sender.ready()).await?;
        Ok(Open { sender, connection, since: Instant::now() })
    }

    /// Keeps a connection for the next request.
    fn keep(&self, mut open: Open) {
        open.since = Instant::now();
        self.idle.lock().push(open);
    }
}

/// Waits for something that happens only while the connection is polled. What has ended is none afterwards.
async fn drive<F: Future>(connection: &mut Option<Pin<Box<Connection>>>, what: F) -> F::Output {
    let mut what = std::pin::pin!(what);
    poll_fn(|context| {
        let Some(polled) = connection else { return what.as_mut().poll(context) };
        let ended = polled.as_mut().poll(context).is_ready();
        if ended {
            *connection = None;
        }
        what.as_mut().poll(context)
    })
    .await
}

/// The body of an answer, and the connection that it comes on.
pub struct Answer {
    incoming: Incoming,
    open: Option<Open>,
    shared: Arc<Shared>,
    /// Runs while nothing comes.
    silence: Option<Pin<Box<Sleep>>>,
}

impl Answer {
    fn new(incoming: Incoming, open: Open, shared: Arc<Shared>) -> Self {
        let mut answer = Self { incoming, open: Some(open), shared, silence: None };
        if answer.incoming.is_end_stream() {
            answer.over();
        }
        answer
    }

    /// The connection is free for the next request.
    fn over(&mut self) {
        if let Some(open) = self.open.take().filter(|open| open.connection.is_some()) {
            self.shared.keep(open);
        }
    }

    fn poll_incoming(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let first = Pin::new(&mut self.incoming).poll_frame(context);
        let connection = self.open.as_mut().and_then(|open| open.connection.as_mut());
        let (Poll::Pending, Some(polled)) = (&first, connection) else { return first };
        if polled.as_mut().poll(context).is_ready()
            && let Some(open) = &mut self.open
        {
            open.connection = None;
        }
        Pin::new(&mut self.incoming).poll_frame(context)
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let answer = self.get_mut();
        match answer.poll_incoming(context) {
            Poll::Ready(frame) => {
                answer.silence = None;
                if frame.is_none() || answer.incoming.is_end_stream() {
                    answer.over();
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => {
                let read = answer.shared.read;
                let silence = answer.silence.get_or_insert_with(|| Box::pin(sleep(read)));
                silence.as_mut().poll(context).map(|()| Some(Err(Error::Silent(read).into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
