//! The admission server as a process of its own: certificates from a Secret, TLS, registration.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::{Namespace, Pod, Secret},
        node::v1::RuntimeClass,
    },
};
use kai_admission::{Options, serve};
use kai_apiserver::ApiServer;
use kai_clock::Clock;
use kai_kit::Process;
use kai_lab::client::client_for;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const SECRET: &str = "kai-admission-webhook-tls-secret";

async fn put<K>(api: Api<K>, object: Value) -> Result<K, kube::Error>
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await
}

async fn cluster() -> (ApiServer, Client) {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let server = ApiServer::start(kai_apiserver::Options::new(Clock::real()));
    let client = client_for(server.router());
    for definition in kai_api::crds() {
        put::<CustomResourceDefinition>(Api::all(client.clone()), json!(definition)).await.unwrap();
    }
    for name in ["team", "kai-scheduler"] {
        put::<Namespace>(Api::all(client.clone()), json!({"metadata": {"name": name}})).await.unwrap();
    }
    let class = json!({"metadata": {"name": "nvidia"}, "handler": "nvidia"});
    put::<RuntimeClass>(Api::all(client.clone()), class).await.unwrap();
    (server, client)
}

struct Replica {
    process: Process,
    task: tokio::task::JoinHandle<Result<(), kai_admission::Error>>,
    url: String,
}

async fn start(client: &Client, name: &str, url: Option<&str>) -> Replica {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = format!("https://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let url = url.unwrap_or(&own).to_owned();
    let cancel = CancellationToken::new();
    let process = Process::new("admission", client.clone(), Clock::real(), cancel, "kai-scheduler", name);
    let options = Options { webhook_url: Some(url.clone()), webhook_check_seconds: 1, ..Options::default() };
    let task = tokio::spawn(serve(process.clone(), options, listener));
    Replica { process, task, url }
}

impl Replica {
    async fn ready(&self) {
        let ready = async {
            while !self.process.health.unmet().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let unmet = || format!("{:?}", self.process.health.unmet());
        tokio::time::timeout(Duration::from_secs(20), ready).await.unwrap_or_else(|_| panic!("{}", unmet()));
    }

    async fn stop(self) {
        self.process.cancel.cancel();
        self.task.await.unwrap().unwrap();
    }
}

async fn create(client: &Client, name: &str) -> Result<Pod, kube::Error> {
    let object = json!({
        "metadata": {"name": name, "annotations": {"gpu-fraction": "0.5"}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "cuda"}]},
    });
    put(Api::namespaced(client.clone(), "team"), object).await
}

async fn secret(client: &Client) -> Secret {
    Api::<Secret>::namespaced(client.clone(), "kai-scheduler").get(SECRET).await.unwrap()
}

fn text(secret: &Secret, key: &str) -> String {
    String::from_utf8(secret.data.as_ref().unwrap()[key].0.clone()).unwrap()
}

#[tokio::test]
async fn the_api_server_asks_over_tls_and_trusts_the_registered_authority() {
    let (_server, client) = cluster().await;
    let replica = start(&client, "one", None).await;
    replica.ready().await;
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let configuration = api.get("mutating-kai-admission").await.unwrap();
    let webhook = &configuration.webhooks.as_ref().unwrap()[0];
    assert_eq!(webhook.client_config.url.as_deref(), Some(format!("{}/mutate--v1-pod", replica.url).as_str()));
    let bundle = webhook.client_config.ca_bundle.clone().unwrap();
    assert_eq!(bundle, ByteString(text(&secret(&client).await, "ca.crt").into_bytes()));
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    for name in ["validating-kai-admission", "kai-queue-validation-v2", "kai-podgroup-validation-v2alpha2"] {
        assert!(api.get_opt(name).await.unwrap().is_some(), "{name}");
    }
    let stored = create(&client, "p").await.unwrap();
    assert_eq!(stored.spec.unwrap().runtime_class_name.as_deref(), Some("nvidia"));
    // Bad bodies over the real connection do no harm, and its end stops our pods only.
    replica.stop().await;
    assert!(create(&client, "q").await.unwrap_err().to_string().contains("failed calling webhook"));
    let foreign = json!({"metadata": {"name": "f"}, "spec": {"containers": [{"name": "main", "image": "x"}]}});
    put::<Pod>(Api::namespaced(client.clone(), "team"), foreign).await.unwrap();
}

#[tokio::test]
async fn replicas_agree_and_what_others_left_in_the_secret_and_the_configurations_is_replaced() {
    let (_server, client) = cluster().await;
    let old = json!({"metadata": {"name": SECRET}, "data": {"tls.crt": "b2xk", "tls.key": "b2xk"}});
    put::<Secret>(Api::namespaced(client.clone(), "kai-scheduler"), old).await.unwrap();
    let stale = json!({"metadata": {"name": "mutating-kai-admission"}, "webhooks": [{
        "name": "old.kai.scheduler", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": {"namespace": "kai-scheduler", "name": "gone"}},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
    }]});
    put::<MutatingWebhookConfiguration>(Api::all(client.clone()), stale).await.unwrap();
    let first = start(&client, "one", None).await;
    let second = start(&client, "two", Some(&first.url)).await;
    first.ready().await;
    second.ready().await;
    create(&client, "p").await.unwrap();
    let before = secret(&client).await;
    assert!(text(&before, "ca.key").contains("PRIVATE KEY"));
    first.stop().await;
    second.stop().await;
    // A later one finds everything good.
    let third = start(&client, "three", None).await;
    third.ready().await;
    create(&client, "q").await.unwrap();
    assert_eq!(secret(&client).await.data, before.data);
    third.stop().await;
}

#[tokio::test]
async fn a_new_certificate_counts_without_a_restart() {
    let (_server, client) = cluster().await;
    let replica = start(&client, "one", None).await;
    replica.ready().await;
    create(&client, "p").await.unwrap();
    let before = secret(&client).await;
    // Somebody spoils the leaf: it is made anew at the next look, by the same authority.
    let api: Api<Secret> = Api::namespaced(client.clone(), "kai-scheduler");
    let spoiled = Patch::Merge(json!({"data": {"tls.crt": "bm8=", "tls.key": "bm8="}}));
    api.patch(SECRET, &PatchParams::default(), &spoiled).await.unwrap();
    let after = eventually(async || {
        let now = api.get(SECRET).await.unwrap();
        text(&now, "tls.crt").contains("CERTIFICATE").then_some(now)
    });
    let after = after.await;
    assert_eq!(text(&after, "ca.crt"), text(&before, "ca.crt"));
    assert_ne!(text(&after, "tls.crt"), text(&before, "tls.crt"));
    let (authorities, leaf) = (text(&after, "ca.crt"), text(&after, "tls.crt"));
    eventually(async || (shown(&replica.url, &authorities).await? == certificates(&leaf)).then_some(())).await;
    create(&client, "q").await.unwrap();
    // Somebody deletes it: it comes back as it was.
    api.delete(SECRET, &DeleteParams::default()).await.unwrap();
    let again = eventually(async || api.get_opt(SECRET).await.unwrap()).await;
    assert_eq!(again.data, after.data);
    create(&client, "r").await.unwrap();
    replica.stop().await;
}

#[tokio::test]
async fn a_slow_or_rude_client_holds_up_nobody() {
    use tokio::io::AsyncWriteExt as _;
    let (_server, client) = cluster().await;
    let replica = start(&client, "one", None).await;
    replica.ready().await;
    let address = replica.url.strip_prefix("https://").unwrap().to_owned();
    let mut open = Vec::new();
    for _ in 0..20 {
        open.push(tokio::net::TcpStream::connect(&address).await.unwrap());
    }
    for stream in open.iter_mut().take(5) {
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    }
    create(&client, "p").await.unwrap();
    drop(open);
    replica.stop().await;
}

async fn eventually<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), found).await.expect("it never came")
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
}

/// The certificate that a client sees that trusts these authorities.
async fn shown(url: &str, authorities: &str) -> Option<Vec<CertificateDer<'static>>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(certificates(authorities));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let address = url.strip_prefix("https://").unwrap();
    let stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    stream.get_ref().1.peer_certificates().map(|chain| chain.iter().map(|c| c.clone().into_owned()).collect())
}
