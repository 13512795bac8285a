//! The effects of the attempts, observed from outside after the run. Attempts without an observable effect are
//! omitted.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::IFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use testkit::{
    ARGUMENT_SECRET, AttackResult, AttackStage, ENVIRONMENT_SECRET, KEY_SECRET, MEMORY_SECRET,
    SEGMENT_SECRET, VictimReport,
};

use super::expected::Expected;
use super::ground::is_locked;
use super::stage::{GIT_CONFIG, ORIGINAL};
use super::verdict::Finding;

/// The state before the attempts, to detect changes.
pub(super) struct Before {
    times: BTreeMap<&'static str, i64>,
    change_of_f29: (i64, i64),
    cores_of_victim: String,
    scheduling_of_victim: [String; 2],
    files_of_victim: String,
    launcher: (u64, u64),
}

impl Before {
    pub(super) fn of(stage: &AttackStage) -> Self {
        Self {
            times: ["f27", "f46"].map(|name| (name, stage.outside(name).metadata().unwrap().mtime())).into(),
            change_of_f29: change_time(&stage.outside("f29")),
            cores_of_victim: line_of_victim(stage, "status", "Cpus_allowed_list:"),
            scheduling_of_victim: scheduling_of_victim(stage),
            files_of_victim: line_of_victim(stage, "limits", "Max open files"),
            launcher: identity_and_length(&stage.launcher),
        }
    }
}

/// The rows with an observable effect, and whether it occurred.
pub(super) struct PostRunScan {
    effects: BTreeMap<&'static str, bool>,
}

impl PostRunScan {
    /// Joins each attempt with its observed effect and its expected outcome.
    pub(super) fn compare<'a>(
        &self,
        results: &'a [AttackResult],
        expected: impl Fn(&str) -> Expected,
    ) -> Vec<Finding<'a>> {
        let finding = |result: &'a AttackResult| Finding {
            result,
            effect: self.effects.get(result.id.as_str()).copied(),
            expected: expected(&result.id),
        };
        results.iter().map(finding).collect()
    }

    /// Checks for every effect, and removes the files and processes that attempts left outside the stage.
    pub(super) fn look(
        stage: &AttackStage,
        before: &Before,
        victim: &VictimReport,
        results: &[AttackResult],
    ) -> Self {
        let scene = Scene { stage, before, victim, results };
        let mut effects = BTreeMap::new();
        scene.look_at_files(&mut effects);
        scene.look_at_metadata(&mut effects);
        scene.look_at_kept_files(&mut effects);
        scene.look_at_shared_places(&mut effects);
        scene.look_at_what_was_learnt(&mut effects);
        scene.look_at_victim(&mut effects);
        scene.look_at_leftovers(&mut effects);
        Self { effects }
    }
}

struct Scene<'a> {
    stage: &'a AttackStage,
    before: &'a Before,
    victim: &'a VictimReport,
    results: &'a [AttackResult],
}

type Effects = BTreeMap<&'static str, bool>;

impl Scene<'_> {
    fn look_at_files(&self, effects: &mut Effects) {
        // Created outside, under the row's name.
        for id in [
            "F01", "F07", "F13", "F14", "F15", "F16", "F17", "F18", "F21", "F23", "F24", "F25", "F31", "F33",
            "F34", "F39", "F44", "F50", "S07", "S08", "K25", "X3",
        ] {
            effects.insert(id, self.stage.outside(id.to_lowercase()).symlink_metadata().is_ok());
        }
        // Modified outside.
        for id in ["F02", "F03", "F04", "F05", "F11", "F12", "F20", "F42", "F49", "D09", "D10", "W7"] {
            let path = self.stage.outside(id.to_lowercase());
            effects.insert(id, std::fs::read_to_string(path).unwrap() != ORIGINAL);
        }
        effects.insert("F43", !self.stage.outside("f43").symlink_metadata().unwrap().is_file());
        // Removed from outside.
        for id in ["F06", "F08", "F22"] {
            effects.insert(id, self.stage.outside(id.to_lowercase()).symlink_metadata().is_err());
        }
        // Created in the scope.
        for (id, name) in
            [("F10", "f10"), ("F32", "f32"), ("F40", "f40"), ("F41", "f41-b/moved/file"), ("D07", "d07")]
        {
            effects.insert(id, self.stage.in_scope(name).symlink_metadata().is_ok());
        }
    }

    fn look_at_metadata(&self, effects: &mut Effects) {
        let outside = |name: &str| self.stage.outside(name);
        for (id, name) in [("F26", "f26"), ("F47", "f47")] {
            effects.insert(id, mode(&outside(name)) != 0o600);
        }
        for (id, name) in [("F27", "f27"), ("F46", "f46")] {
            effects.insert(id, outside(name).metadata().unwrap().mtime() != self.before.times[name]);
        }
        for (id, name) in [("F28", "f28"), ("F45", "f45")] {
            effects.insert(id, has_attribute(&outside(name), "user.attacker"));
        }
        let flags = rustix::fs::ioctl_getflags(File::open(outside("f48")).unwrap()).unwrap();
        effects.insert("F48", flags.contains(IFlags::NODUMP));
        effects.insert("F29", change_time(&outside("f29")) != self.before.change_of_f29);
    }

    /// Looks at the files of the scope that programs outside obey. Rows that follow may have moved them.
    fn look_at_kept_files(&self, effects: &mut Effects) {
        let moved = [(".git/info", ".git/moved"), ("shared", "moved"), (".git", "moved-git")];
        let place = |name: &str| {
            let path = self.stage.in_scope(name);
            let was_moved = |(from, to): &(&str, &str)| {
                let below = Path::new(name).strip_prefix(from).ok()?;
                let path = self.stage.in_scope(to).join(below);
                path.symlink_metadata().is_ok().then_some(path)
            };
            if path.symlink_metadata().is_ok() {
                path
            } else {
                moved.iter().find_map(was_moved).unwrap_or(path)
            }
        };
        let is_file = |name: &str| place(name).is_file();
        let is_changed = |name: &str| std::fs::read_to_string(place(name)).unwrap() != ORIGINAL;
        let is_moved = |name: &str| self.stage.in_scope(name).exists();
        for (id, effect) in [
            ("M01", is_file(".git/hooks/pre-commit")),
            ("M02", std::fs::read_to_string(place(".git/config")).unwrap() != GIT_CONFIG),
            ("M03", is_moved(".git/moved") || is_moved("moved-git/moved")),
            ("M04", is_file(".git/commondir")),
            ("M05", place(".vscode").is_symlink()),
            ("M06", is_file(".claude/settings.json")),
            ("M07", is_file(".envrc")),
            ("M08", is_file(".devcontainer/devcontainer.json")),
            ("M09", is_file(".husky/pre-commit")),
            ("M10", is_file(".cursor/mcp.json")),
            ("M11", is_changed(".mcp.json")),
            ("M12", mode(&place(".idea/run.xml")) != 0o600),
            ("M13", is_file("shared/codex/config.toml")),
            ("M14", !place(".codex").is_symlink()),
            ("M15", is_file("later/gemini")),
            ("M16", is_moved("moved")),
            ("M17", is_moved("moved-git")),
            ("M18", !place("step").is_symlink()),
            ("M19", is_changed("scripts/commit-msg")),
            ("M20", is_file("more.gitconfig")),
            ("M21", is_file(".git/extra") && place(".git/extra").metadata().unwrap().len() > 0),
            ("M22", is_file("tools/hooks/pre-commit")),
            ("M23", ["HEAD", "objects", "refs"].iter().all(|name| is_moved(name))),
        ] {
            effects.insert(id, effect);
        }
    }

    fn look_at_shared_places(&self, effects: &mut Effects) {
        for (id, directory) in [("F36", "/dev/shm"), ("F37", "/tmp"), ("F38", "/var/tmp")] {
            effects
                .insert(id, std::fs::remove_file(Path::new(directory).join(&self.stage.unique_name)).is_ok());
        }
        let groups = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        let candidates = groups.map(|group| group.path()).chain([PathBuf::from("/sys/fs/cgroup")]);
        let removed =
            candidates.filter(|group| std::fs::remove_dir(group.join(&self.stage.unique_name)).is_ok());
        effects.insert("Q11", removed.count() > 0);
        effects.insert("Z5", std::fs::remove_file(self.stage.other_temp.join("z5")).is_ok());
    }

    /// Looks for secrets in the details that the attacker reported.
    fn look_at_what_was_learnt(&self, effects: &mut Effects) {
        for (id, secret) in [
            ("R01", KEY_SECRET),
            ("R02", "id_rsa"),
            ("R05", KEY_SECRET),
            ("R06", KEY_SECRET),
            ("R08", KEY_SECRET),
            ("R09", KEY_SECRET),
            ("P01", ENVIRONMENT_SECRET),
            ("P02", ARGUMENT_SECRET),
            ("P03", MEMORY_SECRET),
            ("P06", MEMORY_SECRET),
            ("K17", ORIGINAL.trim()),
            ("I12", SEGMENT_SECRET),
        ] {
            effects.insert(id, self.detail(id).contains(secret));
        }
        effects.insert("S09", self.detail("S09") == id_of_root_mount());
        // Device and inode tell the real file or directory from an empty one mounted over it.
        let directory = self.stage.home.join(".ssh");
        for (id, path) in
            [("R03", self.stage.private_key()), ("R04", directory), ("R07", self.stage.private_key())]
        {
            let metadata = path.metadata().unwrap();
            effects.insert(id, self.detail(id) == format!("{}:{}", metadata.dev(), metadata.ino()));
        }
    }

    fn look_at_victim(&self, effects: &mut Effects) {
        for id in [
            "N01", "N02", "N03", "N04", "N10", "N11", "N12", "N18", "N20", "N23", "N24", "N25", "N28", "N29",
            "N30", "N35", "D08",
        ] {
            effects.insert(id, self.victim.received.contains(id));
        }
        for (id, signal) in [("P09", 10), ("P10", 12), ("P17", 34), ("P18", 35), ("P19", 36)] {
            effects.insert(id, self.victim.signals.contains(&signal));
        }
        let [nice, policy] = scheduling_of_victim(self.stage);
        effects.insert("P20", nice != self.before.scheduling_of_victim[0]);
        effects.insert("P22", policy != self.before.scheduling_of_victim[1]);
        effects.insert("I01", self.victim.segment.starts_with('!'));
        effects.insert("I02", self.victim.queued > 0);
        let messages = self.victim.messages.expect("two queues that no row removes");
        effects.insert("I05", messages[0] > 0);
        effects.insert("I06", messages[1] == 0);
        effects.insert("I07", self.victim.semaphore != 1);
        effects.insert("I08", !self.victim.has_queue);
        effects.insert("I09", !self.victim.has_named_queue);
        let line = |file, start| line_of_victim(self.stage, file, start);
        effects.insert("P11", line("limits", "Max open files") != self.before.files_of_victim);
        if self.before.cores_of_victim.contains(['-', ',']) {
            effects.insert("P13", line("status", "Cpus_allowed_list:") != self.before.cores_of_victim);
        }
        effects.insert("P14", line("oom_score_adj", "").trim() == "500");
    }

    fn look_at_leftovers(&self, effects: &mut Effects) {
        for id in ["L01", "L02", "L03"] {
            let is_left = is_locked(&self.stage.in_scope(id.to_lowercase()));
            effects.insert(id, is_left);
            if is_left && let Ok(pid) = self.detail(id).parse() {
                kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
            }
        }
        effects.insert("X4", identity_and_length(&self.stage.launcher) != self.before.launcher);
        effects.insert("Z4", has_set_id_files(&self.stage.scope));
    }

    fn detail(&self, id: &str) -> &str {
        self.results.iter().find(|result| result.id == id).map_or("", |result| &result.detail)
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o777
}

fn change_time(path: &Path) -> (i64, i64) {
    let metadata = path.metadata().unwrap();
    (metadata.ctime(), metadata.ctime_nsec())
}

fn identity_and_length(path: &Path) -> (u64, u64) {
    let metadata = path.metadata().unwrap();
    (metadata.ino(), metadata.len())
}

fn has_attribute(path: &Path, name: &str) -> bool {
    let mut value = [0_u8; 100];
    match rustix::fs::getxattr(path, name, &mut value) {
        Ok(_) => true,
        Err(Errno::NODATA) => false,
        Err(errno) => panic!("{}: {errno}", path.display()),
    }
}

/// The number of the mount at `/` in the table of mounts.
fn id_of_root_mount() -> String {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some("/")).unwrap();
    line.split(' ').next().unwrap().to_owned()
}

/// How nice the victim is, and its scheduling policy.
fn scheduling_of_victim(stage: &AttackStage) -> [String; 2] {
    let line = line_of_victim(stage, "stat", "");
    let fields: Vec<&str> = line.rsplit_once(") ").unwrap().1.split(' ').collect();
    // Fields 19 and 41 of the line; these begin with the third.
    [16, 38].map(|field| fields[field].to_owned())
}

fn line_of_victim(stage: &AttackStage, file: &str, start: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{}/{file}", stage.victim.pid)).unwrap();
    text.lines().find(|line| line.starts_with(start)).unwrap().to_owned()
}

fn has_set_id_files(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        (metadata.is_file() && metadata.mode() & 0o6000 != 0)
            || (metadata.is_dir() && has_set_id_files(&path))
    })
}
