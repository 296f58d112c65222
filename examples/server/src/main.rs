//! The command: `server --cap 64MiB keyword=models/keyword encoder=models/encoder`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use arenaplan_server::model::ServedModel;
use arenaplan_server::service::{Service, router};
use arenaplan_server::serving::serve as serve_connections;
use lexopt::{Arg, Parser, ValueExt};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: server [OPTION]... NAME=BASE...
Serves models that arenaplan made: BASE.plan.json and BASE.safetensors.

  --listen ADDRESS     where to listen (127.0.0.1:8080); port 0 is any free port
  --cap BYTES          most bytes of all arenas, such as 64MiB (64MiB)
  --patience MS        most milliseconds that a request waits for memory (100)
  --workers N          threads that run kernels (one per core)";

struct Options {
    listen: String,
    cap: u64,
    patience: Duration,
    workers: usize,
    models: Vec<(String, PathBuf)>,
}

fn options() -> Result<Option<Options>, lexopt::Error> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options {
        listen: "127.0.0.1:8080".into(),
        cap: 64 << 20,
        patience: Duration::from_millis(100),
        workers: cores,
        models: Vec::new(),
    };
    let mut parser = Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("listen") => options.listen = parser.value()?.string()?,
            Arg::Long("cap") => options.cap = parser.value()?.parse_with(bytes)?,
            Arg::Long("patience") => {
                options.patience = Duration::from_millis(parser.value()?.parse()?);
            }
            Arg::Long("workers") => options.workers = parser.value()?.parse()?,
            Arg::Long("help") => return Ok(None),
            Arg::Value(model) => {
                let model = model.string()?;
                let pair = model.split_once('=').ok_or("a model is NAME=BASE")?;
                options.models.push((pair.0.into(), pair.1.into()));
            }
            other => return Err(other.unexpected()),
        }
    }
    if options.models.is_empty() || options.workers == 0 {
        return Err("at least one model, and one thread, is needed".into());
    }
    Ok(Some(options))
}

/// Reads a number of bytes, such as `65536`, `48KiB` or `1GiB`.
fn bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let unit = units.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    number.ok_or_else(|| format!("{text:?} is no number of bytes"))
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("server: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(options.workers)
        .build();
    let served = runtime
        .map_err(|error| error.to_string())
        .and_then(|runtime| runtime.block_on(serve(options)).map_err(|error| error.to_string()));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("server: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(options: Options) -> Result<(), Box<dyn std::error::Error>> {
    let models = options.models.into_iter().map(|(name, base)| {
        let model = ServedModel::load(name, &base)?;
        let (weights, arena) = (model.weight_bytes(), model.arena_bytes());
        eprintln!("{}: {weights} bytes of weights, arenas up to {arena} bytes", model.name());
        Ok(model)
    });
    let models = models.collect::<arenaplan_server::Result<Vec<_>>>()?;
    let service = Arc::new(Service::new(models, options.cap, options.patience)?);
    let listener = TcpListener::bind(&options.listen).await?;
    println!("listening on {}", listener.local_addr()?);
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stopped = async move {
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
        }
        eprintln!("stopping: requests that are running are answered");
    };
    Ok(serve_connections(listener, router(service), stopped).await?)
}
