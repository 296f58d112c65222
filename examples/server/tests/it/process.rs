//! The server as a process: routes, refusals, cancelled requests, and the end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{MODELS, base, compare, known};
use rustix::process::{Pid, Signal, kill_process};
use safetensors::SafeTensors;

/// A server that ends with the test.
struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

fn start(options: &[&str]) -> Server {
    let mut child = Command::new(env!("CARGO_BIN_EXE_server"))
        .args(["--listen", "127.0.0.1:0"])
        .args(options)
        .args(MODELS.map(|name| format!("{name}={}", base(name).display())))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.strip_prefix("listening on ").expect("it started").trim().to_owned();
    Server { child, address }
}

/// A response: status, head and body.
struct Response {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Server {
    /// Sends a request, and does not wait.
    fn send(&self, method: &str, path: &str, body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        write!(stream, "{head}content-length: {length}\r\n\r\n").unwrap();
        stream.write_all(body).unwrap();
        stream
    }

    fn ask(&self, method: &str, path: &str, body: &[u8]) -> Response {
        read(self.send(method, path, body))
    }

    /// Returns a number of the pool.
    fn metric(&self, name: &str) -> u64 {
        let response = self.ask("GET", "/metrics", &[]);
        let text = String::from_utf8(response.body).unwrap();
        let prefix = format!("arenaplan_{name} ");
        let found = text.lines().find_map(|line| line.strip_prefix(&prefix)).expect(name);
        found.parse().unwrap()
    }

    fn stop(mut self) -> bool {
        let id = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
        self.child.wait().unwrap().success()
    }
}

fn read(mut stream: TcpStream) -> Response {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, head, body: bytes[end + 4..].to_vec() }
}

#[test]
fn routes_answer_and_refuse() {
    let server = start(&[]);
    assert_eq!(server.ask("GET", "/healthz", &[]).body, b"ok\n");
    for name in MODELS {
        for known in known(name) {
            let response = server.ask("POST", &format!("/infer/{name}"), &known.request);
            assert_eq!(response.status, 200, "{}", response.head);
            compare(name, &known, &response.body);
        }
    }
    let request = known("keyword").remove(0).request;
    let status = |path, body| server.ask("POST", path, body).status;
    assert_eq!(status("/infer/other", &request), 404);
    assert_eq!(status("/infer/keyword", &b"no tensors"[..]), 422);
    assert_eq!(server.ask("POST", "/infer/keyword", &known("encoder")[0].request).status, 422);
    assert_eq!(server.ask("GET", "/infer/keyword", &[]).status, 405);
    assert_eq!(server.metric("pool_leases"), 6);
    assert_eq!(server.metric("pool_leased_bytes"), 0);
    let text = String::from_utf8(server.ask("GET", "/metrics", &[]).body).unwrap();
    let counted = r#"arenaplan_requests_total{model="keyword",status="200"} 3"#;
    assert!(text.contains(counted), "{text}");
    assert!(text.contains(r#"model="",status="404"} 1"#), "{text}");
    assert!(text.ends_with("# EOF\n"));
    assert!(server.stop());
}

/// One arena at a time, one thread, and no patience: most of many requests are refused, and the
/// others are right.
#[test]
fn a_full_pool_refuses_and_recovers() {
    let server = start(&["--cap", "376KiB", "--patience", "0", "--workers", "1"]);
    let known = known("keyword").pop().unwrap();
    let (answered, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..8 {
                    let response = server.ask("POST", "/infer/keyword", &known.request);
                    if response.status == 200 {
                        compare("keyword", &known, &response.body);
                        answered.fetch_add(1, Ordering::Relaxed);
                    } else {
                        assert_eq!(response.status, 503);
                        assert!(response.head.contains("retry-after: 1"), "{}", response.head);
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let (answered, refused) = (answered.into_inner(), refused.into_inner());
    assert!(answered > 0 && refused > 0, "{answered} {refused}");
    assert_eq!(answered + refused, 128);
    assert_eq!(server.metric("pool_leased_bytes"), 0);
    assert!(server.metric("pool_peak_bytes") <= 376 << 10);
    assert!(server.stop());
}

/// Clients that go away leave nothing behind, wherever their requests are.
#[test]
fn cancelled_requests_give_their_memory_back() {
    let server = start(&["--cap", "376KiB", "--patience", "120000", "--workers", "1"]);
    let known = known("keyword").pop().unwrap();
    for _ in 0..8 {
        let streams: Vec<_> =
            (0..8).map(|_| server.send("POST", "/infer/keyword", &known.request)).collect();
        thread::sleep(Duration::from_millis(2));
        drop(streams);
    }
    let response = server.ask("POST", "/infer/keyword", &known.request);
    assert_eq!(response.status, 200);
    compare("keyword", &known, &response.body);
    while server.metric("pool_leased_bytes") + server.metric("pool_waiting") > 0 {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(server.stop());
}

/// Heads that never end, and bodies that never come.
#[test]
fn slow_clients_hold_neither_memory_nor_the_process() {
    let server = start(&[]);
    let half: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            stream.write_all(b"POST /infer/keyword HTTP/1.1\r\nhost: x\r\n").unwrap();
            stream
        })
        .collect();
    let announced = |length: u64| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        let head = "POST /infer/keyword HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
        write!(stream, "{head}content-length: {length}\r\n\r\n").unwrap();
        stream
    };
    assert_eq!(read(announced(99_999_999_999_999)).status, 413, "refused before the body");
    // One body may have all memory for bodies, whichever request is read first; others find none.
    let mut held = vec![announced(64 << 20)];
    loop {
        let stream = announced(64 << 20);
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        if stream.peek(&mut [0]).is_ok() {
            assert_eq!(read(stream).status, 503);
            break;
        }
        held.push(stream);
    }
    drop(held);
    assert_eq!(server.ask("GET", "/nowhere", &[]).status, 404);
    let text = String::from_utf8(server.ask("GET", "/metrics", &[]).body).unwrap();
    for status in [404, 413, 503] {
        assert!(text.contains(&format!(r#"status="{status}""#)), "{status}: {text}");
    }
    assert!(server.stop(), "open connections do not hold the process");
    drop(half);
}

#[test]
fn an_input_that_no_model_reads_is_refused() {
    let server = start(&[]);
    let known = known("keyword").remove(0);
    let request = SafeTensors::deserialize(&known.request).unwrap();
    let mut tensors: Vec<(String, _)> = request
        .names()
        .into_iter()
        .map(|name| (name.to_owned(), request.tensor(name).unwrap()))
        .collect();
    let extra = tensors[0].1.clone();
    tensors.push(("other".into(), extra));
    let body = safetensors::serialize(tensors, None).unwrap();
    let response = server.ask("POST", "/infer/keyword", &body);
    assert_eq!(response.status, 422);
    assert!(String::from_utf8(response.body).unwrap().contains("other"));
    assert!(server.stop());
}

#[test]
fn a_server_that_is_stopped_answers_requests_that_it_has_read() {
    let server = start(&["--cap", "376KiB", "--patience", "120000", "--workers", "1"]);
    let known = known("keyword").pop().unwrap();
    let streams: Vec<_> =
        (0..16).map(|_| server.send("POST", "/infer/keyword", &known.request)).collect();
    // All are read once each has a lease or waits for one.
    while server.metric("pool_leases") + server.metric("pool_waiting") < 16 {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(server.stop());
    for stream in streams {
        let response = read(stream);
        assert_eq!(response.status, 200);
        compare("keyword", &known, &response.body);
    }
}

#[test]
fn a_server_does_not_start_with_models_that_do_not_fit() {
    let run = |options: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_server")).args(options).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let keyword = format!("keyword={}", base("keyword").display());
    let (code, text) = run(&["--cap", "100000", &keyword]);
    assert!(code == Some(1) && text.contains("cap"), "{text}");
    let (code, text) = run(&["missing=no/such/model"]);
    assert!(code == Some(1) && text.contains("no/such/model.plan.json"), "{text}");
    assert_eq!(run(&["--cap", "many", &keyword]).0, Some(2));
    assert_eq!(run(&[]).0, Some(2));
}
