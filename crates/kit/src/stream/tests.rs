//! Answers of a server that are cut into pieces, are no sense or end too soon.

use std::{collections::VecDeque, sync::Arc};

use http::{Request as HttpRequest, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body as KubeBody;
use parking_lot::Mutex;

use super::*;

/// Writes down what it hears. Lines are `ok VERSION`, `failed CODE` or no sense.
#[derive(Default)]
struct Scribe {
    heard: Vec<String>,
}

impl Ear for Scribe {
    fn begin(&mut self) {
        self.heard.push("begin".to_owned());
    }

    fn listed(&mut self, object: &str) -> Result<(), serde_json::Error> {
        let number: u32 = serde_json::from_str(object)?;
        self.heard.push(format!("listed {number}"));
        Ok(())
    }

    fn complete(&mut self) {
        self.heard.push("complete".to_owned());
    }

    fn line(&mut self, line: &str) -> Result<Line, serde_json::Error> {
        self.heard.push(line.to_owned());
        if let Some(version) = line.strip_prefix("ok ") {
            return Ok(Line::Version(version.to_owned()));
        }
        if let Some(code) = line.strip_prefix("failed ") {
            let status = Status { code: code.parse().unwrap_or_default(), ..Status::default() };
            return Ok(Line::Failed(Box::new(status)));
        }
        serde_json::from_str::<u32>(line).map(|_| Line::Version(String::new()))
    }
}

type Answer = (u16, Vec<&'static [u8]>);

/// A stream from a server with these answers; what was asked is written down.
fn stream(answers: Vec<Answer>) -> (Stream, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (answers, questions) = (Arc::new(Mutex::new(VecDeque::from(answers))), Arc::clone(&asked));
    let server = tower::service_fn(move |request: HttpRequest<KubeBody>| {
        questions.lock().push(request.uri().query().unwrap_or_default().to_owned());
        let answer = answers.lock().pop_front();
        async move {
            let (code, chunks) = answer.ok_or_else(|| std::io::Error::other("no more answers"))?;
            let chunks = futures::stream::iter(chunks.into_iter().map(Ok::<_, std::io::Error>));
            Ok::<_, std::io::Error>(
                Response::builder().status(code).body(axum::body::Body::from_stream(chunks)).unwrap(),
            )
        }
    });
    let api: Api<Pod> = Api::all(Client::new(server, "default"));
    (Stream::new(api, watcher::Config::default()), asked)
}

fn list() -> Answer {
    (200, vec![br#"{"metadata":{"resourceVersion":"5"},"items":[1]}"#])
}

/// Steps until an answer is missing; what was heard, and how the steps went.
async fn play(answers: Vec<Answer>) -> (Vec<String>, Vec<String>, Vec<String>) {
    let (mut stream, asked) = stream(answers);
    let (mut scribe, mut steps) = (Scribe::default(), Vec::new());
    loop {
        match stream.step(&mut scribe).await {
            Ok(step) => steps.push(format!("{step:?}")),
            Err(Error::Asked(error)) if error.to_string().contains("no more answers") => break,
            Err(error) => steps.push(error.to_string()),
        }
    }
    let asked = asked.lock().clone();
    (scribe.heard, steps, asked)
}

#[tokio::test]
async fn lines_are_whole_however_they_are_cut() {
    let pieces: Vec<&'static [u8]> = vec![b"ok 6\nok ", b"7", b"\n", b"ok 8\nok 9\n", b"ok 1"];
    let (heard, steps, asked) = play(vec![list(), (200, pieces)]).await;
    assert_eq!(heard, ["begin", "listed 1", "complete", "ok 6", "ok 7", "ok 8", "ok 9"]);
    assert_eq!(steps.last().map(String::as_str), Some("Silent"), "{steps:?}");
    assert!(asked.last().unwrap().contains("resourceVersion=9"), "taken up after the last whole line: {asked:?}");
}

#[tokio::test]
async fn a_list_comes_page_by_page_and_begins_again_if_one_fails() {
    let page: Answer = (200, vec![br#"{"metadata":{"resourceVersion":"5","continue":"next"},"items":[1]}"#]);
    let gone: Answer =
        (410, vec![br#"{"kind":"Status","code":410,"reason":"Expired","message":"too old","status":"Failure"}"#]);
    let empty: Answer = (200, vec![br#"{"metadata":{"resourceVersion":"6"},"items":null}"#]);
    let (heard, _, asked) = play(vec![page.clone(), gone, page, empty]).await;
    assert_eq!(heard, ["begin", "listed 1", "begin", "listed 1", "complete"]);
    assert!(asked[1].contains("continue=next") && !asked[2].contains("continue"), "{asked:?}");
}

#[tokio::test]
async fn a_list_that_cannot_be_read_is_not_complete() {
    let bad: Answer = (200, vec![br#"{"metadata":{"resourceVersion":"5"},"items":[1,"no number"]}"#]);
    let (heard, steps, _) = play(vec![bad, list()]).await;
    assert_eq!(heard, ["begin", "listed 1", "begin", "listed 1", "complete"]);
    assert!(steps[1].contains("cannot be read"), "{steps:?}");
}

#[tokio::test]
async fn a_version_that_is_gone_leads_to_a_new_list_whichever_way_it_is_said() {
    let gone: Answer =
        (410, vec![br#"{"kind":"Status","code":410,"reason":"Expired","message":"too old","status":"Failure"}"#]);
    let (heard, _, _) = play(vec![list(), gone, list(), (200, vec![b"failed 410\n"]), list()]).await;
    assert_eq!(heard.iter().filter(|line| *line == "complete").count(), 3, "{heard:?}");
}

#[tokio::test]
async fn a_line_that_cannot_be_read_hides_none_of_those_after_it() {
    let (heard, steps, asked) =
        play(vec![list(), (200, vec![b"ok 6\nnonsense\nfailed 500\nok 7\n\xff\nok 8\n"])]).await;
    assert_eq!(heard[3..], ["ok 6", "nonsense", "failed 500", "ok 7", "ok 8"]);
    assert_eq!(steps.iter().filter(|step| step.contains("cannot be read") || step.contains("no text")).count(), 2);
    assert!(asked.last().unwrap().contains("resourceVersion=8"), "{asked:?}");
}

#[tokio::test]
async fn a_watch_that_ends_before_it_told_anything_is_a_failure_so_that_there_is_a_pause() {
    let (_, steps, _) = play(vec![list(), (200, vec![]), (200, vec![b"ok 6\n"])]).await;
    assert_eq!(steps.iter().filter(|step| step.contains("before it told anything")).count(), 1, "{steps:?}");
}
