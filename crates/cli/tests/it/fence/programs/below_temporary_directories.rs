//! Scopes, programs and ringfence's own files below /tmp and /var/tmp, where Tier B mounts private directories.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use testkit::{Gateway, NEWEST};

use super::fenced_run::{Ended, FencedRun};

const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// A directory below a temporary directory of the host, removed at the end of the test.
struct TemporaryPlace(PathBuf);

impl TemporaryPlace {
    fn new(parent: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(parent).join(format!("ringfence-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(path.join("project/part")).unwrap();
        std::fs::write(path.join("beside"), "of another program\n").unwrap();
        Self(path)
    }

    fn project(&self) -> PathBuf {
        self.0.join("project")
    }
}

impl Drop for TemporaryPlace {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a script with the place's project as its scope.
async fn run_in(run: &FencedRun, place: &TemporaryPlace, options: &[&str], script: &str) -> Ended {
    let options = [&["--net", "none"], options].concat();
    run.finish(run.command_in(&place.project(), &options, ["sh", "-c", script])).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_below_a_temporary_directory_is_the_hosts_and_the_rest_is_not() {
    for run in FencedRun::in_each_tier().await {
        for parent in TEMPORARY {
            let place = TemporaryPlace::new(parent);
            let script = "pwd; echo text > file; ls; cat ../beside || echo hidden; \
                          (echo x > ../stray) 2> /dev/null; true";
            let ended = run_in(&run, &place, &[], script).await.succeeded();
            let scope = place.project().display().to_string();
            ended.assert_stdout(&format!("{scope}\nfile\npart\nhidden\n"));
            assert_eq!(std::fs::read_to_string(place.project().join("file")).unwrap(), "text\n");
            assert!(!place.0.join("stray").exists(), "{ended:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_scope_below_a_temporary_directory_stays_as_it_is() {
    for run in FencedRun::in_each_tier().await {
        for parent in TEMPORARY {
            let place = TemporaryPlace::new(parent);
            let script = "(echo x > file) 2> /dev/null || echo refused; ls";
            let ended = run_in(&run, &place, &["--read-only"], script).await.succeeded();
            ended.assert_stdout("refused\npart\n");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ringfences_own_files_can_lie_below_a_temporary_directory() {
    for run in FencedRun::in_each_tier().await {
        for parent in TEMPORARY {
            let (place, scoped) = (TemporaryPlace::new(parent), TemporaryPlace::new(parent));
            let own = place.0.join("cache/ringfence");
            std::fs::create_dir_all(own.join("packages")).unwrap();
            std::fs::write(own.join("packages/secret"), "of another session\n").unwrap();
            let script = format!(
                "set -e; pwd; echo home > $HOME/file; echo cached > $XDG_CACHE_HOME/file; cat $HOME/file; \
                 file=$(mktemp); echo temporary > $file; cat $file; \
                 cat '{own}/packages/secret' 2> /dev/null || echo hidden; \
                 (echo x > '{own}/stray') 2> /dev/null || echo refused; ls '{own}/sessions' | wc -l",
                own = own.display()
            );
            for command_scope in [scoped.project(), run.ground.scope()] {
                let scope = command_scope.to_str().unwrap();
                let mut command = run.command_in(&command_scope, &["--net", "none"], ["sh", "-c", &script]);
                command.env("XDG_CACHE_HOME", place.0.join("cache"));
                let ended = run.finish(command).await.succeeded();
                // In Tier B the stray file lies in the command's own temporary directory.
                let expected_end = if run.tier == "a" { "refused\n0\n" } else { "1\n" };
                ended.assert_stdout(&format!("{scope}\nhome\ntemporary\nhidden\n{expected_end}"));
                assert!(!own.join("stray").exists(), "{ended:?}");
                assert_eq!(std::fs::read_dir(own.join("sessions")).unwrap().count(), 0, "{ended:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_below_a_covered_directory_can_be_run() {
    for run in FencedRun::in_each_tier().await {
        for parent in TEMPORARY {
            let place = TemporaryPlace::new(parent);
            let program = place.0.join("tool/bin/tool");
            std::fs::create_dir_all(program.parent().unwrap()).unwrap();
            std::fs::copy("/bin/echo", &program).unwrap();
            let ended = run.run(&["--net", "none"], [program.to_str().unwrap(), "ran"]).await.succeeded();
            ended.assert_stdout("ran\n");
        }
    }
}

#[tokio::test]
async fn a_gateway_can_keep_packages_and_sessions_below_a_temporary_directory() {
    for parent in TEMPORARY {
        let place = TemporaryPlace::new(parent);
        let gateway = Gateway::builder()
            .command(["npx", "-y", "@modelcontextprotocol/server-everything"])
            .flags(["--start-timeout", "120"])
            .env("XDG_CACHE_HOME", place.0.join("cache"))
            .current_dir(place.project())
            .start()
            .await;
        let mut client = gateway.client();
        client.open(json!({}), NEWEST).await;
        let echoed = client.call_tool_for_text("echo", json!({"message": "from the package"})).await;
        assert!(echoed.contains("from the package"), "{echoed}");
        let packages = std::fs::read_dir(place.0.join("cache/ringfence/packages")).unwrap();
        assert!(packages.count() > 0);
    }
}
