//! The routes: `POST /infer/{model}`, `GET /metrics`, `GET /healthz`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arenaplan::ArenaPool;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_body_util::LengthLimitError;
use safetensors::SafeTensors;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::model::{Fit, ServedModel};

/// Most bytes of a request: a batch of images.
const MAX_REQUEST: usize = 64 << 20;
/// Bytes of a permit: memory for bodies is counted in these.
const PERMIT: usize = 1 << 10;
/// Longest time in which the body of a request arrives.
const BODY_TIME: Duration = Duration::from_secs(20);

/// Seconds after which a client that was refused may come again.
const RETRY_AFTER: &str = "1";

/// The models of a server, and the memory that they share.
pub struct Service {
    models: BTreeMap<String, ServedModel>,
    pool: ArenaPool,
    /// Most time that a request waits for memory.
    patience: Duration,
    /// Memory for the bodies of all requests together: that of the largest one.
    bodies: Semaphore,
    metrics: Metrics,
}

impl Service {
    /// Returns a service whose arenas have at most `cap` bytes together.
    ///
    /// # Errors
    ///
    /// [`arenaplan::Error::LeaseTooLarge`] if some shape of a model needs more.
    pub fn new(
        models: impl IntoIterator<Item = ServedModel>,
        cap: u64,
        patience: Duration,
    ) -> Result<Self> {
        let models: BTreeMap<_, _> =
            models.into_iter().map(|model| (model.name().to_owned(), model)).collect();
        // A pool of its own, so that the numbers of the other one are those of requests.
        let trial = ArenaPool::builder().cap(cap).build()?;
        for shape in models.values().flat_map(ServedModel::shapes) {
            drop(trial.try_lease(shape.program())?);
        }
        let pool = ArenaPool::builder().cap(cap).build()?;
        let bodies = Semaphore::new(MAX_REQUEST / PERMIT);
        Ok(Self { models, pool, patience, bodies, metrics: Metrics::default() })
    }

    /// Returns the pool.
    pub const fn pool(&self) -> &ArenaPool {
        &self.pool
    }

    /// Returns a model.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownModel`] if there is none of this name.
    pub fn model(&self, name: &str) -> Result<&ServedModel> {
        self.models.get(name).ok_or_else(|| Error::UnknownModel {
            name: name.into(),
            known: self.models.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        })
    }

    /// Returns the body of a request, and the permit for its memory.
    async fn body(&self, body: Body) -> Result<(Bytes, SemaphorePermit<'_>)> {
        let size = body.size_hint();
        if size.lower() > MAX_REQUEST as u64 {
            return Err(Error::TooLarge { limit: MAX_REQUEST });
        }
        // A request that does not tell its size may be as large as any.
        let most = size.upper().and_then(|bytes| usize::try_from(bytes).ok());
        let most = most.unwrap_or(MAX_REQUEST).min(MAX_REQUEST);
        let permits = u32::try_from(most.div_ceil(PERMIT)).unwrap_or(u32::MAX);
        let permit = timeout(self.patience, self.bodies.acquire_many(permits)).await;
        let permit = permit.ok().and_then(Result::ok).ok_or(Error::Busy)?;
        let read = timeout(BODY_TIME, to_bytes(body, MAX_REQUEST)).await;
        let read = read.map_err(|_| Error::Late { seconds: BODY_TIME.as_secs() })?;
        let bytes = read.map_err(|error| {
            let is_long = error.into_inner().is::<LengthLimitError>();
            if is_long { Error::TooLarge { limit: MAX_REQUEST } } else { Error::Broken }
        })?;
        Ok((bytes, permit))
    }

    /// Counts and returns the answer to a request that leads nowhere.
    fn astray(&self, status: StatusCode) -> Response {
        self.metrics.count("", status.as_u16(), Duration::ZERO);
        (status, "there are POST /infer/MODEL, GET /metrics and GET /healthz\n").into_response()
    }

    /// Answers a request: safetensors with the inputs in, safetensors with the outputs out.
    ///
    /// The task waits for the memory. The kernels run on a blocking thread, which has the lease: a
    /// future that is dropped leaves the queue, or lets the run end, and the memory is given back.
    ///
    /// # Errors
    ///
    /// [`arenaplan::Error::PoolBusy`] if there is no memory in time; else as
    /// [`ServedModel::fit`] and [`ServedShape::run`](crate::model::ServedShape::run).
    pub async fn infer(self: Arc<Self>, name: String, body: Bytes) -> Result<Vec<u8>> {
        let program = {
            let fit = self.model(&name)?.fit(&parse(&body)?)?;
            Arc::clone(fit.shape.program())
        };
        let timer = tokio::time::sleep(self.patience);
        let mut lease = self.pool.lease_until(&program, timer).await?;
        let failed = Error::Failed { name: name.clone() };
        let run = tokio::task::spawn_blocking(move || {
            let request = parse(&body)?;
            let Fit { shape, rows } = self.model(&name)?.fit(&request)?;
            shape.write_inputs(&mut lease, &request)?;
            shape.run(&mut lease)?;
            shape.read_outputs(&lease, rows)
        });
        run.await.unwrap_or(Err(failed))
    }
}

fn parse(body: &Bytes) -> Result<SafeTensors<'_>> {
    SafeTensors::deserialize(body)
        .map_err(|source| Error::Tensors { what: "the request".into(), source })
}

/// Returns the routes of a service.
pub fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/infer/{model}", post(infer))
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .fallback(async |State(service): State<Arc<Service>>| service.astray(StatusCode::NOT_FOUND))
        .method_not_allowed_fallback(async |State(service): State<Arc<Service>>| {
            service.astray(StatusCode::METHOD_NOT_ALLOWED)
        })
        .with_state(service)
}

async fn infer(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let start = Instant::now();
    let result = match service.body(request.into_body()).await {
        Ok((body, _permit)) => Arc::clone(&service).infer(name.clone(), body).await,
        Err(error) => Err(error),
    };
    let response = match result {
        Ok(outputs) => {
            ([(header::CONTENT_TYPE, "application/octet-stream")], outputs).into_response()
        }
        Err(error) => error.into_response(),
    };
    // Names of models that are not there would be numbers without end.
    let model = if service.models.contains_key(&name) { name.as_str() } else { "" };
    service.metrics.count(model, response.status().as_u16(), start.elapsed());
    response
}

async fn metrics(State(service): State<Arc<Service>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], service.metrics.text(&service.pool)).into_response()
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Plan(arenaplan::Error::PoolBusy { .. }) | Self::Busy => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Late { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::Broken => StatusCode::BAD_REQUEST,
            Self::UnknownModel { .. } => StatusCode::NOT_FOUND,
            Self::Plan(
                arenaplan::Error::ShapeNotPlanned { .. } | arenaplan::Error::InvalidOption { .. },
            )
            | Self::Input { .. }
            | Self::Tensors { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut response = (status, format!("{self}\n")).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let seconds = header::HeaderValue::from_static(RETRY_AFTER);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}
