//! The routes: `POST /infer/{model}`, `GET /metrics`, `GET /healthz`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arenaplan::ArenaPool;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use safetensors::SafeTensors;

use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::model::{Fit, ServedModel};

/// Most bytes of a request: a batch of images.
const MAX_REQUEST: usize = 64 << 20;

/// Seconds after which a client that was refused may come again.
const RETRY_AFTER: &str = "1";

/// The models of a server, and the memory that they share.
pub struct Service {
    models: BTreeMap<String, ServedModel>,
    pool: ArenaPool,
    /// Most time that a request waits for memory.
    patience: Duration,
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
        Ok(Self { models, pool, patience, metrics: Metrics::default() })
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
        .layer(DefaultBodyLimit::max(MAX_REQUEST))
        .with_state(service)
}

async fn infer(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Response {
    let start = Instant::now();
    let result = Arc::clone(&service).infer(name.clone(), body).await;
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
            Self::Plan(arenaplan::Error::PoolBusy { .. }) => StatusCode::SERVICE_UNAVAILABLE,
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
