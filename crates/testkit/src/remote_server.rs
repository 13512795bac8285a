//! A real MCP server at a URL: the parts `http-server-ts1.mjs` and `http-server-ts2.mjs`, made with the official
//! TypeScript SDK.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::{PipedProcess, node_binary, parts_dir, within_deadline};

/// A running server, which ends when this is dropped.
#[derive(Debug)]
pub struct RemoteServer {
    /// The URL of its MCP endpoint.
    pub url: String,
    port: u16,
    _process: PipedProcess,
}

impl RemoteServer {
    /// Starts the server on a free port. The comment at the top of the script lists the variables it reads from the
    /// environment.
    pub async fn start(environment: &[(&str, &str)]) -> Self {
        Self::start_script("http-server-ts1.mjs", environment).await
    }

    /// Like `start`, with the server that speaks only revision 2026-07-28.
    pub async fn start_modern(environment: &[(&str, &str)]) -> Self {
        Self::start_script("http-server-ts2.mjs", environment).await
    }

    async fn start_script(script: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(node_binary());
        command.arg(script).arg("0").current_dir(parts_dir());
        command.envs(environment.iter().copied());
        let mut process = PipedProcess::start(&mut command);
        let listening = process.read().await;
        let port = listening["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        let url = listening["url"].as_str().expect("the server says its URL").to_owned();
        Self { url, port: port.expect("the server says its port"), _process: process }
    }

    /// Makes the server forget all sessions, as a restart would. It must have been started with `FORGET=1`.
    pub async fn forget(&self) {
        let request = format!(
            "POST /forget HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            self.port
        );
        let exchange = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        let answer = within_deadline("the server forgets", exchange).await.expect("the server listens");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}
