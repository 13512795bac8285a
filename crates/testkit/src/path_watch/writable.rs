//! The directories that fences can write, and whether a call reached into one of them by name.

use std::path::{Path, PathBuf};

use super::system_call::{SystemCall, UsedPath};

/// Directories whose contents fences can swap at any time.
#[derive(Clone, Debug, Default)]
pub struct WritableDirectories {
    scopes: Vec<PathBuf>,
    /// Ringfence's own directory. In it, the homes and caches of sessions are writable.
    own: Option<PathBuf>,
}

/// What a call does with a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing that a fence can change lies on the way.
    Elsewhere,
    /// The way begins at a descriptor or follows no link.
    Sound,
    /// A fence can change where it leads, for this reason.
    ByName(&'static str),
}

impl WritableDirectories {
    /// The scopes of sessions, and the directories of servers' data, without links.
    pub fn of(scopes: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { scopes: scopes.into_iter().collect(), own: None }
    }

    /// Adds what is writable in ringfence's own directory.
    #[must_use]
    pub fn with_own(mut self, own: PathBuf) -> Self {
        self.own = Some(own);
        self
    }

    /// The outermost writable directory that a path lies in, or is.
    fn holder(&self, path: &Path) -> Option<PathBuf> {
        let of_session = self.own.as_ref().and_then(|own| {
            let mut names = path.strip_prefix(own).ok()?.components();
            let (kind, session, part) = (names.next()?, names.next()?, names.next());
            let place = own.join(kind).join(session);
            match kind.as_os_str().to_str()? {
                "sessions" => {
                    let part =
                        part.filter(|part| part.as_os_str() == "home" || part.as_os_str() == "temp")?;
                    Some(place.join(part))
                }
                "caches" => Some(place),
                _ => None,
            }
        });
        let scopes = self.scopes.iter().filter(|scope| path.starts_with(scope));
        of_session.or_else(|| scopes.min_by_key(|scope| scope.components().count()).cloned())
    }

    /// Whether a path is a scope or lies above one, inside another.
    fn leads_to_scope(&self, path: &Path) -> bool {
        self.scopes.iter().any(|scope| scope.starts_with(path))
    }

    pub(super) fn judge(&self, call: &SystemCall<'_>, used: &UsedPath) -> Verdict {
        let place = used.place();
        let Some(holder) = self.holder(&place) else { return self.judge_opened(call, used) };
        let follows_no_link = call.has("RESOLVE_NO_SYMLINKS");
        let begins_inside = used.has_descriptor && used.begins_at().starts_with(&holder);
        if begins_inside {
            let mut names = used.text.components();
            let is_one_name =
                names.next().is_none_or(|name| name.as_os_str() != "..") && names.next().is_none();
            return match (used.text.as_os_str().is_empty(), is_one_name) {
                _ if follows_no_link || call.has("RESOLVE_BENEATH") || call.has("RESOLVE_IN_ROOT") => {
                    Verdict::Sound
                }
                (true, _) => Verdict::Sound,
                (_, false) => Verdict::ByName("follows links between the descriptor and the name"),
                (_, true) if used.follows_last => Verdict::ByName("follows a link at the name"),
                (_, true) => Verdict::Sound,
            };
        }
        if follows_no_link {
            return Verdict::Sound;
        }
        if place == holder {
            // The directory itself, for the one who vets it, and for a launcher that starts there.
            let is_vetting = call.only_asks() || call.is_open() && !used.follows_last;
            let is_entered_or_made =
                matches!(call.name, "mkdir" | "mkdirat" | "rmdir" | "unlinkat" | "chdir");
            if is_vetting || is_entered_or_made {
                return Verdict::Elsewhere;
            }
            return Verdict::ByName("acts on the directory by its name");
        }
        // A scope inside another is looked at by name when it is vetted.
        if call.only_asks() && self.leads_to_scope(&place) {
            return Verdict::Elsewhere;
        }
        Verdict::ByName("reaches into the directory by name")
    }

    /// A path elsewhere may be a link into a scope.
    fn judge_opened(&self, call: &SystemCall<'_>, used: &UsedPath) -> Verdict {
        let is_descriptor = used.text.starts_with("/proc/self/fd");
        match call.opened().and_then(|opened| Some((self.holder(&opened)?, opened))) {
            Some((holder, opened)) if holder != opened && !is_descriptor => {
                Verdict::ByName("is led into the directory by a link outside")
            }
            _ => Verdict::Elsewhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(line: &str) -> Verdict {
        let writable =
            WritableDirectories::of(["/s".into(), "/s/a/inner".into(), "/t".into()]).with_own("/own".into());
        let call = SystemCall::parse(line).unwrap();
        let paths = call.paths(Path::new("/s"));
        let verdicts: Vec<Verdict> = paths.iter().map(|used| writable.judge(&call, used)).collect();
        assert!(!verdicts.is_empty(), "{line}");
        let by_name = verdicts.into_iter().max_by_key(|verdict| match verdict {
            Verdict::Elsewhere => 0,
            Verdict::Sound => 1,
            Verdict::ByName(_) => 2,
        });
        by_name.unwrap()
    }

    #[test]
    fn what_goes_by_name_is_told_from_what_goes_by_descriptor() {
        for line in [
            r#"open("/s/file", O_RDONLY|O_NOFOLLOW) = 3</s/file>"#,
            r#"openat(AT_FDCWD</s>, "file", O_RDONLY|O_NOFOLLOW) = 3</s/file>"#,
            r#"stat("/s/file", {st_mode=S_IFREG|0644, ...}) = 0"#,
            r#"readlink("/s/a/b", 0x7, 1023) = -1 EINVAL (Invalid argument)"#,
            r#"chmod("/s/file", 0755) = 0"#,
            r#"chmod("/s", 0755) = 0"#,
            r#"open("/s", O_RDONLY) = 3</s>"#,
            r#"openat(7</s>, "a/b", O_RDONLY|O_NOFOLLOW) = 3</s/a/b>"#,
            r#"openat(7</s>, "file", O_RDONLY) = 3</s/file>"#,
            r#"openat(7</>, "s/file", O_RDONLY|O_NOFOLLOW) = 3</s/file>"#,
            r#"openat(7</s>, "../t/x", O_RDONLY|O_NOFOLLOW) = 3</t/x>"#,
            r#"rename("/outside", "/s/file") = 0"#,
            r#"inotify_add_watch(4<anon_inode:inotify>, "/s/file", IN_MODIFY) = 1"#,
            r#"open("/elsewhere/link", O_RDONLY) = 3</s/file>"#,
            r#"open("/s/a/inner", O_RDONLY|O_NOFOLLOW) = 3</s/a/inner>"#,
            r#"openat(AT_FDCWD</s>, "/own/sessions/x/home/.gitconfig", O_WRONLY|O_CREAT, 0666) = 3</e>"#,
        ] {
            assert!(matches!(judge(line), Verdict::ByName(_)), "{line}");
        }
        for line in [
            r#"openat(7</s>, "file", O_RDONLY|O_NOFOLLOW) = 3</s/file>"#,
            r#"openat(7</s/a>, "b", O_RDONLY|O_NOFOLLOW|O_DIRECTORY) = 3</s/a/b>"#,
            r#"newfstatat(7</s>, "file", {st_mode=S_IFREG|0644, ...}, AT_SYMLINK_NOFOLLOW) = 0"#,
            r#"openat2(7</s>, "a/b", {flags=O_RDONLY, resolve=RESOLVE_BENEATH}, 24) = 3</s/a/b>"#,
            r#"openat2(AT_FDCWD</s>, "/s/a/inner", {flags=O_PATH, resolve=RESOLVE_NO_SYMLINKS}, 24) = 3</s/a/inner>"#,
            r#"unlinkat(7</s>, "file", 0) = 0"#,
        ] {
            assert_eq!(judge(line), Verdict::Sound, "{line}");
        }
        for line in [
            r#"open("/s", O_RDONLY|O_NOFOLLOW|O_DIRECTORY) = 3</s>"#,
            r#"statx(AT_FDCWD</s>, "/s", AT_STATX_SYNC_AS_STAT, STATX_ALL, {stx_mode=S_IFDIR|0755}) = 0"#,
            r#"readlink("/s/a", 0x7, 1023) = -1 EINVAL (Invalid argument)"#,
            r#"openat(AT_FDCWD</s>, "/etc/hosts", O_RDONLY) = 3</etc/hosts>"#,
            r#"chmod("/proc/self/fd/7", 0755) = 0"#,
            r#"openat(AT_FDCWD</s>, "/proc/self/fd/7", O_RDONLY) = 8</s/file>"#,
            r#"openat(AT_FDCWD</s>, "/own/sessions/x/scope", O_RDONLY) = 3</own/sessions/x/scope>"#,
        ] {
            assert_eq!(judge(line), Verdict::Elsewhere, "{line}");
        }
    }
}
