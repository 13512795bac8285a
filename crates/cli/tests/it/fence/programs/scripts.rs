//! What the first line of a script can make readable: nothing that is secret.

use super::fenced_run::FencedRun;

/// The finding: a script of the workspace names a key as its interpreter, and the key became readable.
#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_names_a_secret_as_its_interpreter_cannot_read_it() {
    for run in FencedRun::in_each_tier().await {
        let keys = run.ground.home().join(".ssh");
        std::fs::create_dir_all(&keys).unwrap();
        let key = keys.join("id_rsa");
        std::fs::write(&key, "KEY MATERIAL").unwrap();
        let key = key.display();
        for first in
            [format!("#!{key}"), format!("#!/usr/bin/env {key}"), format!("#!{}/bin/python3", keys.display())]
        {
            let script = format!("{first}\nprint(open('{key}').read())\n");
            run.write_in_scope("server.py", &script);
            let ended = run.run(&["--net", "none"], ["python3", "server.py"]).await;
            assert!(!ended.stdout.contains("KEY"), "{first}: {ended:?}");
            let allowed = keys.to_str().unwrap();
            let control = ["--net", "none", "--allow-sensitive-reads", allowed, "--read", allowed];
            let ended = run.run(&control, ["python3", "server.py"]).await.succeeded();
            ended.assert_stdout("KEY MATERIAL\n");
        }
    }
}
