//! The baseline for lists: an axum server that answers every POST with the bytes of a file. It runs as a process of
//! its own and ends with the benchmark.

use std::net::Ipv4Addr;
use std::path::Path;

use axum::Router;
use axum::http::header;
use axum::routing::post;
use axum::serve::ListenerExt;
use bytes::Bytes;

use crate::error::{Error, WhileDoing};

pub(crate) fn run(file: &Path) -> Result<(), Error> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .while_doing("tying the server to its parent")?;
    let bytes = Bytes::from(std::fs::read(file)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(serve(bytes))
}

async fn serve(bytes: Bytes) -> Result<(), Error> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    println!("{}", serde_json::json!({ "event": "listening", "url": url }));
    let listener = listener.tap_io(|stream| {
        // Without `TCP_NODELAY` the connection works, only more slowly.
        let _ = stream.set_nodelay(true);
    });
    let answer = move |_request: Bytes| {
        let bytes = bytes.clone();
        async move { ([(header::CONTENT_TYPE, "application/json")], bytes) }
    };
    let router = Router::new().route("/mcp", post(answer));
    Ok(axum::serve(listener, router).await?)
}
