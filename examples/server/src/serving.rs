//! Connections: how many there are, how long a client may take, and the end of the process.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most connections at a time; others wait to be accepted.
const MOST_CONNECTIONS: usize = 1024;
/// Longest time from the first byte of a request to the last byte of its head.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// Longest time from the signal that ends the process to its end.
const LAST_TIME: Duration = Duration::from_secs(10);

/// Serves connections until `stopped` is ready, then answers requests that are running.
///
/// # Errors
///
/// The error of a listener that accepts no more.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stopped: impl Future<Output = ()>,
) -> io::Result<()> {
    let (ends, seats) = (GracefulShutdown::new(), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
    let mut stopped = pin!(stopped);
    loop {
        let (stream, seat) = tokio::select! {
            () = &mut stopped => break,
            next = accepted(&listener, &seats) => next?,
        };
        let service = TowerToHyperService::new(router.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .serve_connection(TokioIo::new(stream), service);
        let connection = ends.watch(connection);
        tokio::spawn(async move {
            // A client that goes away, or is late, gets no answer.
            let _ = connection.await;
            drop(seat);
        });
    }
    drop(listener);
    // A client that holds its connection does not hold the process.
    let _ = tokio::time::timeout(LAST_TIME, ends.shutdown()).await;
    Ok(())
}

/// Returns the next connection, with its seat.
async fn accepted(
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let seat = Arc::clone(seats).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, seat))
}
