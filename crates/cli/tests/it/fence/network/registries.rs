//! `--net http` with the real package registries that this machine uses.

use testkit::python_binary;

use crate::fence::programs::fenced_run::{FencedRun, npm_registry, pip_index};

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap();
    authority.rsplit('@').next().unwrap().split(':').next().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn npm_reaches_its_registry_through_the_proxy_if_that_is_allowed() {
    let registry = npm_registry().await;
    let host = host_of(&registry);
    let setting = format!("--env=NPM_CONFIG_REGISTRY={registry}");
    let [_, run] = FencedRun::in_each_tier().await;
    let view = ["npm", "view", "--fetch-retries=0", "semver@7.6.3", "version"];
    let allowed = ["--net", "http", "--allow-host", host, &setting];
    run.run(&allowed, view).await.succeeded().assert_stdout("7.6.3\n");
    let refused = run.run(&["--net", "http", "--allow-host", "elsewhere.example", &setting], view).await;
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.stderr.contains("403"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pip_reaches_its_index_through_the_proxy_if_that_is_allowed() {
    let python = python_binary();
    let python = python.to_str().unwrap();
    let index = pip_index().await;
    let setting = format!("--env=PIP_INDEX_URL={index}");
    let [_, run] = FencedRun::in_each_tier().await;
    let versions = [python, "-m", "pip", "--retries", "0", "index", "versions", "six"];
    let allowed = run.run(&["--net", "http", "--allow-host", host_of(&index), &setting], versions).await;
    assert!(allowed.succeeded().stdout.contains("1.17.0"));
    let refused = run.run(&["--net", "http", "--allow-host", "elsewhere.example", &setting], versions).await;
    assert_ne!(refused.code, Some(0), "{refused:?}");
}
