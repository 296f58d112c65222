//! A load test: starts the server as a process, sends requests from many clients at once, and prints
//! times, refusals and the memory of the process.
//!
//! Each answer is compared with the first answer to the same request, to the bit.

use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arenaplan_server::model::ServedModel;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use lexopt::{Arg, Parser, ValueExt};
use rustix::process::{Pid, Signal, kill_process};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

const USAGE: &str = "usage: load [OPTION]... NAME=BASE...
Starts the server beside this program with these models, and sends requests of every batch size.

  --clients N          connections that send one request after the other (64)
  --seconds S          how long (20)
  --requests N         stop after so many answers, of whatever kind
  --cap BYTES, --patience MS, --workers N   passed on to the server";

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Options {
    clients: usize,
    limit: Duration,
    requests: u64,
    models: Vec<String>,
    passed: Vec<String>,
}

fn options() -> Result<Option<Options>, lexopt::Error> {
    let mut options = Options {
        clients: 64,
        limit: Duration::from_secs(20),
        requests: u64::MAX,
        models: Vec::new(),
        passed: Vec::new(),
    };
    let mut parser = Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("clients") => options.clients = parser.value()?.parse()?,
            Arg::Long("seconds") => {
                options.limit = Duration::from_secs(parser.value()?.parse()?);
            }
            Arg::Long("requests") => options.requests = parser.value()?.parse()?,
            Arg::Long(name @ ("cap" | "patience" | "workers")) => {
                let name = format!("--{name}");
                options.passed.extend([name, parser.value()?.string()?]);
            }
            Arg::Long("help") => return Ok(None),
            Arg::Value(model) => options.models.push(model.string()?),
            other => return Err(other.unexpected()),
        }
    }
    if options.models.is_empty() {
        return Err("no model is given".into());
    }
    Ok(Some(options))
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("load: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // One thread: the server has the others.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(run(options))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A request, and the first answer to it.
struct Question {
    path: String,
    body: Bytes,
    answer: OnceCell<Bytes>,
}

/// Returns a request per model and batch, from one row to those of the largest shape.
fn questions(models: &[String]) -> Result<Vec<Question>, Failure> {
    let mut questions = Vec::new();
    for model in models {
        let (name, base) = model.split_once('=').ok_or("a model is NAME=BASE")?;
        let model = ServedModel::load(name, &PathBuf::from(base))?;
        let largest = model.shapes().last().ok_or("a model has no shapes")?;
        for rows in 1..=usize::try_from(largest.rows())? {
            let data: Vec<_> = largest
                .inputs()
                .iter()
                .map(|port| {
                    let mut shape = port.shape.clone();
                    shape[0] = rows;
                    let elements = shape.iter().product();
                    let bytes: Vec<u8> = match port.dtype() {
                        Dtype::I64 => {
                            (0_i64..50).cycle().take(elements).flat_map(i64::to_le_bytes).collect()
                        }
                        _ => (0..elements).flat_map(|at| wave(at).to_le_bytes()).collect(),
                    };
                    (port.name.clone(), port.dtype(), shape, bytes)
                })
                .collect();
            let tensors = data.iter().map(|(name, dtype, shape, bytes)| {
                Ok((name, TensorView::new(*dtype, shape.clone(), bytes)?))
            });
            let tensors = tensors.collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
            let body = safetensors::serialize(tensors, None)?.into();
            let path = format!("/infer/{name}");
            questions.push(Question { path, body, answer: OnceCell::new() });
        }
    }
    Ok(questions)
}

/// Returns a number between -1 and 1.
#[allow(clippy::cast_precision_loss, reason = "any number will do")]
fn wave(at: usize) -> f32 {
    (at as f32 * 0.37).sin()
}

/// Numbers of all clients.
#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    refused: AtomicU64,
    other: AtomicU64,
    wrong: AtomicU64,
}

async fn run(options: Options) -> Result<(), Failure> {
    let questions = Arc::new(questions(&options.models)?);
    let (mut server, address) = start(&options).await?;
    let pid = server.id().ok_or("the server is gone")?;
    let counts = Arc::new(Counts::default());
    let begin = Instant::now();
    let stop = begin + options.limit;
    let left = Arc::new(AtomicU64::new(options.requests));
    let mut clients = JoinSet::new();
    for client in 0..options.clients {
        let (questions, counts) = (Arc::clone(&questions), Arc::clone(&counts));
        let left = Arc::clone(&left);
        clients.spawn(ask(address.clone(), client, questions, counts, stop, left));
    }
    let mut times = Vec::new();
    let mut memory = Vec::new();
    let mut tick = tokio::time::interval(options.limit / 20);
    loop {
        tokio::select! {
            done = clients.join_next() => match done {
                Some(client) => times.extend(client??),
                None => break,
            },
            _ = tick.tick() => memory.extend(resident(pid)),
        }
    }
    memory.extend(resident(pid));
    let seconds = begin.elapsed().as_secs_f64();
    let mut connection = connect(&address).await?;
    let metrics = get(&mut connection, &address, "/metrics").await?;
    drop(connection);
    report(&counts, &mut times, seconds, &memory, &metrics);
    let id = Pid::from_raw(i32::try_from(pid)?).ok_or("no process")?;
    kill_process(id, Signal::TERM)?;
    let status = server.wait().await?;
    if !status.success() || counts.wrong.load(Ordering::Relaxed) > 0 {
        return Err(format!("the server ended with {status}, or answered wrongly").into());
    }
    Ok(())
}

/// Prints the numbers, one a line.
#[allow(clippy::cast_precision_loss, reason = "numbers for people")]
fn report(counts: &Counts, times: &mut [u32], seconds: f64, memory: &[u64], metrics: &str) {
    let [answered, refused, other, wrong] =
        [&counts.answered, &counts.refused, &counts.other, &counts.wrong]
            .map(|count| count.load(Ordering::Relaxed));
    times.sort_unstable();
    let quantile = |part: usize| {
        let at = (times.len() * part / 1000).min(times.len().saturating_sub(1));
        f64::from(times.get(at).copied().unwrap_or(0)) / 1000.0
    };
    println!("answered      {answered} ({:.0} per second)", answered as f64 / seconds);
    println!("refused       {refused} (503)");
    println!("other, wrong  {other}, {wrong}");
    println!("p50, p99      {:.2} ms, {:.2} ms", quantile(500), quantile(990));
    let warm = &memory[memory.len().min(2)..];
    let (least, most) = (warm.iter().min(), warm.iter().max());
    println!("RSS, KiB      {memory:?}");
    println!("RSS, warm     {} to {} KiB", least.unwrap_or(&0), most.unwrap_or(&0));
    for name in ["cap_bytes", "peak_bytes", "leased_bytes", "leases", "waits", "allocated"] {
        let prefix = format!("arenaplan_pool_{name} ");
        let found = metrics.lines().find_map(|line| line.strip_prefix(&prefix));
        println!("pool          {name} {}", found.unwrap_or("?"));
    }
}

/// Starts the server, and returns the address on which it listens.
async fn start(options: &Options) -> Result<(Child, String), Failure> {
    let server = std::env::current_exe()?.with_file_name("server");
    let mut child = Command::new(server)
        .args(["--listen", "127.0.0.1:0"])
        .args(&options.passed)
        .args(&options.models)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stdout = child.stdout.take().ok_or("the server has no stdout")?;
    let line = BufReader::new(stdout).lines().next_line().await?.unwrap_or_default();
    let address = line.strip_prefix("listening on ").ok_or("the server did not start")?;
    Ok((child, address.to_owned()))
}

async fn connect(address: &str) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn get(
    connection: &mut SendRequest<Full<Bytes>>,
    address: &str,
    path: &str,
) -> Result<String, Failure> {
    let request = Request::get(path).header("host", address).body(Full::default())?;
    let body = connection.send_request(request).await?.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(body.into())?)
}

/// Sends requests until the time is over; returns the microseconds of those that were answered.
async fn ask(
    address: String,
    client: usize,
    questions: Arc<Vec<Question>>,
    counts: Arc<Counts>,
    stop: Instant,
    left: Arc<AtomicU64>,
) -> Result<Vec<u32>, Failure> {
    let mut connection = connect(&address).await?;
    let mut times = Vec::new();
    for turn in client.. {
        let spent = |left: u64| left.checked_sub(1);
        let more = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent).is_ok();
        if !more || Instant::now() > stop {
            break;
        }
        let question = &questions[turn % questions.len()];
        let request = Request::post(&question.path).header("host", &address);
        let request = request.body(Full::new(question.body.clone()))?;
        let begin = Instant::now();
        let response = connection.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        match status {
            StatusCode::OK => {
                times.push(u32::try_from(begin.elapsed().as_micros()).unwrap_or(u32::MAX));
                counts.answered.fetch_add(1, Ordering::Relaxed);
                let first = question.answer.get_or_init(|| async { body.clone() }).await;
                if *first != body {
                    counts.wrong.fetch_add(1, Ordering::Relaxed);
                }
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                counts.refused.fetch_add(1, Ordering::Relaxed);
            }
            _ => {
                counts.other.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(times)
}

/// Returns the resident memory of a process in KiB, on Linux.
fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}
