//! Threads, child processes, temporary files and the like, as JavaScript and Python programs use them.

use testkit::{node_binary, python_binary};

use super::fenced_run::FencedRun;

const NODE_FEATURES: &str = include_str!("node_features.mjs");
const PYTHON_FEATURES: &str = include_str!("python_features.py");
const MULTIPROCESSING: &str = include_str!("python_multiprocessing.py");
const OFFLINE: &[&str] = &["--net", "none"];

#[tokio::test(flavor = "multi_thread")]
async fn node_has_threads_children_watches_random_numbers_and_temporary_files() {
    for run in FencedRun::in_each_tier().await {
        run.write_in_scope("features.mjs", NODE_FEATURES);
        for node in ["node".into(), node_binary()] {
            let ended = run.run(OFFLINE, [node.to_str().unwrap(), "features.mjs"]).await.succeeded();
            let found = ended.json();
            assert_eq!(found["worker"], 42, "{ended:?}");
            assert_eq!(found["fork"], "over ipc", "{ended:?}");
            assert_eq!(found["spawn"], "through pipes", "{ended:?}");
            assert_eq!(found["spawn_ipc"], "over ipc too", "{ended:?}");
            assert_eq!(found["exec_sync"], "synchronously\n", "{ended:?}");
            assert_eq!(found["watched"], "appeared", "{ended:?}");
            assert_eq!(found["temporary"], "temporary text", "{ended:?}");
            assert_eq!(found["random_bytes"], 16, "{ended:?}");
            assert_eq!(found["derived_bytes"], 32, "{ended:?}");
            assert!(found["processors"].as_u64() >= Some(1), "{ended:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn python_has_threads_children_temporary_files_and_databases() {
    for run in FencedRun::in_each_tier().await {
        run.write_in_scope("features.py", PYTHON_FEATURES);
        for python in ["python3".into(), python_binary()] {
            let ended = run.run(OFFLINE, [python.to_str().unwrap(), "features.py"]).await.succeeded();
            let found = ended.json();
            assert_eq!(found["thread"], "ran", "{ended:?}");
            assert_eq!(found["subprocess"], "PIPED", "{ended:?}");
            assert_eq!(found["asynchronous"], "awaited", "{ended:?}");
            assert_eq!(found["temporary"], "temporary text", "{ended:?}");
            assert_eq!(found["journal"], "wal", "{ended:?}");
            assert_eq!(found["rows"], 1000, "{ended:?}");
            assert_eq!(found["mapped"], "mapped", "{ended:?}");
            std::fs::remove_file(run.in_scope("rows.sqlite")).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn multiprocessing_needs_shared_memory_which_tier_a_has_on_request_only() {
    for run in FencedRun::in_each_tier().await {
        run.write_in_scope("processes.py", MULTIPROCESSING);
        let program = ["python3", "processes.py"];
        let without = run.run(OFFLINE, program).await;
        if run.tier == "a" {
            without.assert_code(1);
            assert!(without.stderr.contains("PermissionError: [Errno 13]"), "{without:?}");
        } else {
            without.succeeded().assert_stdout("[1, 4, 9]\n");
        }
        let with = run.run(&[OFFLINE, &["--shm"]].concat(), program).await;
        with.succeeded().assert_stdout("[1, 4, 9]\n");
    }
}
