//! The effects of the attempts, observed from outside after the run. Attempts without an observable effect are
//! omitted.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use testkit::{
    ARGUMENT_SECRET, AttackResult, AttackStage, ENVIRONMENT_SECRET, KEY_SECRET, MEMORY_SECRET, VictimReport,
};

use super::expected::Expected;
use super::ground::is_locked;
use super::stage::ORIGINAL;
use super::verdict::Finding;

/// The state before the attempts, to detect changes.
pub(super) struct Before {
    times_of_f27: i64,
    change_of_f29: (i64, i64),
    cores_of_victim: String,
    files_of_victim: String,
    launcher: (u64, u64),
}

impl Before {
    pub(super) fn of(stage: &AttackStage) -> Self {
        Self {
            times_of_f27: stage.outside("f27").metadata().unwrap().mtime(),
            change_of_f29: change_time(&stage.outside("f29")),
            cores_of_victim: line_of_victim(stage, "status", "Cpus_allowed_list:"),
            files_of_victim: line_of_victim(stage, "limits", "Max open files"),
            launcher: identity_and_length(&stage.launcher),
        }
    }
}

/// The rows with an observable effect, and whether it occurred.
pub(super) struct Aftermath {
    effects: BTreeMap<&'static str, bool>,
}

impl Aftermath {
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
            "F34", "F39", "X3",
        ] {
            effects.insert(id, self.stage.outside(id.to_lowercase()).symlink_metadata().is_ok());
        }
        // Modified outside.
        for id in ["F02", "F03", "F04", "F05", "F11", "F12", "F20", "W7"] {
            effects.insert(
                id,
                std::fs::read_to_string(self.stage.outside(id.to_lowercase())).unwrap() != ORIGINAL,
            );
        }
        // Removed from outside.
        for id in ["F06", "F08", "F22"] {
            effects.insert(id, self.stage.outside(id.to_lowercase()).symlink_metadata().is_err());
        }
        // Created in the scope.
        for (id, name) in [("F10", "f10"), ("F32", "f32"), ("F40", "f40"), ("F41", "f41-b/moved/file")] {
            effects.insert(id, self.stage.in_scope(name).symlink_metadata().is_ok());
        }
    }

    fn look_at_metadata(&self, effects: &mut Effects) {
        let outside = |name: &str| self.stage.outside(name);
        effects.insert("F26", outside("f26").metadata().unwrap().mode() & 0o777 != 0o600);
        effects.insert("F27", outside("f27").metadata().unwrap().mtime() != self.before.times_of_f27);
        effects.insert("F28", has_attribute(&outside("f28"), "user.attacker"));
        effects.insert("F29", change_time(&outside("f29")) != self.before.change_of_f29);
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
        ] {
            effects.insert(id, self.detail(id).contains(secret));
        }
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
        for id in ["N01", "N02", "N03", "N04", "N10", "N11", "N12", "N18", "N20", "N23", "N24", "N25"] {
            effects.insert(id, self.victim.received.contains(id));
        }
        effects.insert("P09", self.victim.user_signals[0] > 0);
        effects.insert("P10", self.victim.user_signals[1] > 0);
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
        let is_left = is_locked(&self.stage.in_scope("l01"));
        effects.insert("L01", is_left);
        if is_left && let Ok(pid) = self.detail("L01").parse() {
            kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        }
        effects.insert("X4", identity_and_length(&self.stage.launcher) != self.before.launcher);
        effects.insert("Z4", has_set_id_files(&self.stage.scope));
    }

    fn detail(&self, id: &str) -> &str {
        self.results.iter().find(|result| result.id == id).map_or("", |result| &result.detail)
    }
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
