//! Installs the peers at exact versions into target/bench/peers, and knows the command line of each.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::error::{Error, WhileDoing};
use crate::legs::Leg;
use crate::machine::started_processes;
use crate::programs::Programs;

const SUPERGATEWAY_VERSION: &str = "4.0.0";
const NPM_MCP_PROXY_VERSION: &str = "6.7.19";
const PYPI_MCP_PROXY_VERSION: &str = "0.13.0";
const INSTALL_LIMIT: Duration = Duration::from_secs(240);

/// A peer's name, version and mode for the report.
pub(crate) fn described(leg: Leg) -> Option<String> {
    match leg {
        Leg::Supergateway => Some(format!("supergateway {SUPERGATEWAY_VERSION} (npm), stateful")),
        Leg::NpmMcpProxy => {
            Some(format!("mcp-proxy {NPM_MCP_PROXY_VERSION} (npm), one server for all sessions"))
        }
        Leg::PypiMcpProxy => {
            Some(format!("mcp-proxy {PYPI_MCP_PROXY_VERSION} (PyPI), one server for all sessions"))
        }
        _ => None,
    }
}

/// Installs the peer unless it is installed already.
pub(crate) async fn install(leg: Leg, directory: &Path) -> Result<(), Error> {
    fs::create_dir_all(directory).while_doing("creating target/bench/peers")?;
    match leg {
        Leg::Supergateway | Leg::NpmMcpProxy => install_from_npm(directory).await,
        Leg::PypiMcpProxy => install_from_pypi(directory).await,
        _ => Ok(()),
    }
}

async fn install_from_npm(directory: &Path) -> Result<(), Error> {
    let manifest = serde_json::json!({
        "private": true,
        "dependencies": { "supergateway": SUPERGATEWAY_VERSION, "mcp-proxy": NPM_MCP_PROXY_VERSION },
    });
    install_npm_packages(directory, &manifest).await
}

/// Installs the packages of a manifest into a directory of their own, unless they are there already.
pub(crate) async fn install_npm_packages(
    directory: &Path,
    manifest: &serde_json::Value,
) -> Result<(), Error> {
    fs::create_dir_all(directory).while_doing("creating a directory for packages")?;
    let manifest = manifest.to_string();
    let marker = directory.join("npm-installed.json");
    if fs::read_to_string(&marker).is_ok_and(|installed| installed == manifest) {
        return Ok(());
    }
    eprintln!("installing the npm peers …");
    fs::write(directory.join("package.json"), &manifest)?;
    run_installer(directory, "npm", &["install", "--no-audit", "--no-fund", "--ignore-scripts"]).await?;
    Ok(fs::write(marker, manifest)?)
}

async fn install_from_pypi(directory: &Path) -> Result<(), Error> {
    let requirement = format!("mcp-proxy=={PYPI_MCP_PROXY_VERSION}");
    let marker = directory.join("pypi-installed.txt");
    if fs::read_to_string(&marker).is_ok_and(|installed| installed == requirement) {
        return Ok(());
    }
    eprintln!("installing the PyPI peer …");
    run_installer(directory, "python3", &["-m", "venv", "venv"]).await?;
    run_installer(directory, "venv/bin/python", &["-m", "pip", "install", "--quiet", &requirement]).await?;
    Ok(fs::write(marker, requirement)?)
}

async fn run_installer(directory: &Path, program: &str, arguments: &[&str]) -> Result<(), Error> {
    let path = if program.contains('/') { directory.join(program) } else { program.into() };
    let child = Command::new(path)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .while_doing(program)?;
    started_processes::remember(child.id());
    let output = tokio::time::timeout(INSTALL_LIMIT, child.wait_with_output())
        .await
        .while_doing("installing took too long")?
        .while_doing(program)?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last_line = errors.lines().last().unwrap_or_default();
    Err(Error::new(format!("could not be installed ({program}: {last_line})")))
}

/// The program and arguments that put a peer in front of the fixture on `port`, with the least logging.
pub(crate) fn command_line(leg: Leg, programs: &Programs, port: u16) -> Vec<OsString> {
    let directory = programs.peers_directory();
    let npm_program = |name: &str| directory.join("node_modules/.bin").join(name).into_os_string();
    let fixture = programs.fixture.clone().into_os_string();
    let port = OsString::from(port.to_string());
    let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
    match leg {
        Leg::Supergateway => [
            vec![
                "node".into(),
                npm_program("supergateway"),
                "--stdio".into(),
                fixture,
                "--port".into(),
                port,
            ],
            words("--outputTransport streamableHttp --stateful --logLevel none"),
        ]
        .concat(),
        Leg::NpmMcpProxy => [
            vec!["node".into(), npm_program("mcp-proxy"), "--port".into(), port],
            words("--host 127.0.0.1 --server stream --"),
            vec![fixture],
        ]
        .concat(),
        _ => [
            vec![directory.join("venv/bin/mcp-proxy").into_os_string(), "--port".into(), port],
            words("--host 127.0.0.1 --log-level ERROR --"),
            vec![fixture],
        ]
        .concat(),
    }
}
