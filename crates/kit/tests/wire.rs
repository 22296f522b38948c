//! Connections that requests poll themselves, against a server that does as it is told.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _, stream};
use kai_kit::wire;
use kube::{Client, Config};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

const YES: &str = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes";

/// What a server does on a connection about one request.
#[derive(Clone, Copy)]
enum Does {
    Says(&'static str),
    /// Ends the connection, before or instead of an answer.
    Ends,
    /// Never answers.
    Nothing,
}

struct Server {
    address: String,
    connections: Arc<AtomicUsize>,
    /// What was asked.
    heard: mpsc::UnboundedReceiver<String>,
}

/// A server that does the same on every connection, and ends it after the last.
async fn server(script: &'static [Does]) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let (tell, heard) = mpsc::unbounded_channel();
    let counter = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counter.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(act(stream, script, tell.clone()));
        }
    });
    Server { address, connections, heard }
}

async fn act(mut stream: TcpStream, script: &'static [Does], tell: mpsc::UnboundedSender<String>) {
    let mut buffer = vec![0; 65536];
    for does in script {
        if let Does::Ends = does {
            return;
        }
        let Ok(length @ 1..) = stream.read(&mut buffer).await else { return };
        let _ = tell.send(String::from_utf8_lossy(&buffer[..length]).into_owned());
        match does {
            Does::Says(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
            Does::Nothing => std::future::pending().await,
            Does::Ends => return,
        }
    }
}

fn client(server: &Server, change: impl FnOnce(&mut Config)) -> Client {
    let mut config = Config::new(server.address.parse().unwrap());
    config.default_retry = false;
    change(&mut config);
    wire::builder(&config).unwrap().expect("nothing special is asked for").build()
}

async fn ask(client: &Client) -> Result<String, kube::Error> {
    client.request_text(http::Request::get("/api/v1/pods?limit=1").body(Vec::new()).unwrap()).await
}

#[tokio::test]
async fn requests_one_after_the_other_share_a_connection() {
    let mut server = server(&[Does::Says(YES); 5]).await;
    let client = client(&server, |_| ());
    for _ in 0..5 {
        assert_eq!(ask(&client).await.unwrap(), "yes");
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
    let asked = server.heard.recv().await.unwrap();
    let host = server.address.trim_start_matches("http://");
    assert!(asked.starts_with("GET /api/v1/pods?limit=1 HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains(&format!("host: {host}\r\n")), "{asked}");
}

#[tokio::test]
async fn requests_at_the_same_time_have_connections_of_their_own_which_are_used_again() {
    let server = server(&[Does::Says(YES); 50]).await;
    let client = client(&server, |_| ());
    for _ in 0..3 {
        let answers = stream::iter(0..40).map(|_| ask(&client)).buffer_unordered(8);
        assert_eq!(answers.try_collect::<Vec<_>>().await.unwrap().len(), 40);
    }
    let connections = server.connections.load(Ordering::Relaxed);
    assert!((1..=8).contains(&connections), "{connections}");
}

#[tokio::test]
async fn a_connection_that_the_server_ended_while_it_was_idle_is_not_used_again() {
    let server = server(&[Does::Says(YES), Does::Ends]).await;
    let client = client(&server, |_| ());
    for number in 1..4 {
        assert_eq!(ask(&client).await.unwrap(), "yes");
        assert_eq!(server.connections.load(Ordering::Relaxed), number);
        // The end of the connection is on its way.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_server_that_ends_the_connection_instead_of_answering_is_an_error_and_is_asked_once() {
    let mut server = server(&[Does::Says(YES), Does::Says("")]).await;
    let client = client(&server, |_| ());
    assert_eq!(ask(&client).await.unwrap(), "yes");
    assert!(ask(&client).await.is_err(), "what was asked may have happened");
    server.heard.recv().await.unwrap();
    server.heard.recv().await.unwrap();
    assert!(server.heard.try_recv().is_err(), "it was asked again");
    assert_eq!(ask(&client).await.unwrap(), "yes", "the next request has a new connection");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error() {
    let server = server(&[Does::Says("HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\nhalf of it")]).await;
    assert!(ask(&client(&server, |_| ())).await.is_err());
}

#[tokio::test]
async fn a_server_that_is_silent_is_not_waited_for_for_ever() {
    const HALF: &str = "HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\nhalf";
    for script in [&[Does::Nothing][..], &[Does::Says(HALF), Does::Nothing]] {
        let server = server(script).await;
        let client = client(&server, |config| config.read_timeout = Some(Duration::from_millis(200)));
        let error = format!("{:?}", ask(&client).await.unwrap_err());
        assert!(error.contains("Silent"), "{error}");
    }
}

#[tokio::test]
async fn nobody_at_the_address_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let nobody = Server { address, connections: Arc::default(), heard: mpsc::unbounded_channel().1 };
    assert!(ask(&client(&nobody, |_| ())).await.is_err());
}

#[tokio::test]
async fn a_body_without_a_length_is_read_as_it_comes_and_its_connection_used_again() {
    const LINES: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n";
    let server = server(&[Does::Says(LINES); 3]).await;
    let client = client(&server, |_| ());
    for _ in 0..3 {
        let body = client.request_stream(http::Request::get("/watch").body(Vec::new()).unwrap()).await.unwrap();
        assert_eq!(body.lines().try_collect::<Vec<_>>().await.unwrap(), ["one", "two"]);
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_request_that_is_given_up_takes_its_connection_along() {
    let server = server(&[Does::Nothing]).await;
    let client = client(&server, |_| ());
    for number in 1..3 {
        assert!(tokio::time::timeout(Duration::from_millis(50), ask(&client)).await.is_err());
        assert_eq!(server.connections.load(Ordering::Relaxed), number);
    }
}

#[tokio::test]
async fn credentials_go_along_and_what_needs_a_proxy_is_left_to_others() {
    let mut server = server(&[Does::Says(YES)]).await;
    let client = client(&server, |config| {
        config.auth_info.token = Some("secret".to_owned().into());
        config.headers.push((http::HeaderName::from_static("x-ours"), http::HeaderValue::from_static("1")));
    });
    assert_eq!(ask(&client).await.unwrap(), "yes");
    let asked = server.heard.recv().await.unwrap();
    assert!(asked.contains("authorization: Bearer secret\r\n") && asked.contains("x-ours: 1\r\n"), "{asked}");
    let mut config = Config::new(server.address.parse().unwrap());
    config.default_retry = false;
    config.proxy_url = Some("http://127.0.0.1:1".parse().unwrap());
    assert!(wire::builder(&config).unwrap().is_none());
}
