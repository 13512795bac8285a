//! One line of `strace`: the call, its arguments, and the paths among them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// A system call with its arguments as `strace` prints them.
#[derive(Debug)]
pub(super) struct SystemCall<'l> {
    pub(super) name: &'l str,
    arguments: Vec<&'l str>,
    result: &'l str,
}

/// A path that a call resolves.
#[derive(Debug)]
pub(super) struct UsedPath {
    /// Where the kernel begins: the working directory, or the place of a descriptor.
    base: PathBuf,
    pub(super) has_descriptor: bool,
    /// As it was written.
    pub(super) text: PathBuf,
    /// The call follows a link at its end.
    pub(super) follows_last: bool,
}

impl UsedPath {
    /// Where the kernel begins.
    pub(super) fn begins_at(&self) -> &Path {
        if self.text.is_absolute() { Path::new("/") } else { &self.base }
    }

    /// Where the path leads if there are no links.
    pub(super) fn place(&self) -> PathBuf {
        let mut place = PathBuf::new();
        for component in self.base.join(&self.text).components() {
            match component {
                Component::ParentDir => drop(place.pop()),
                Component::CurDir => {}
                other => place.push(other),
            }
        }
        place
    }
}

/// How a call takes its paths: the places of its arguments.
enum Shape {
    /// A path from the working directory.
    Plain(&'static [usize]),
    /// A descriptor and a path, each with the place of the descriptor.
    At(&'static [usize]),
    /// No path of interest.
    None,
}

impl<'l> SystemCall<'l> {
    /// Returns `None` for a line that is no call.
    pub(super) fn parse(line: &'l str) -> Option<Self> {
        let (name, rest) = line.split_once('(')?;
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return None;
        }
        let mut arguments = Vec::new();
        let (mut depth, mut begin, mut in_text, mut in_path) = (0_usize, 0, false, false);
        let mut characters = rest.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => drop(characters.next()),
                '"' if !in_path => in_text = !in_text,
                _ if in_text => {}
                '<' if rest[..at].ends_with(|c: char| c.is_ascii_alphanumeric()) => in_path = true,
                '>' => in_path = false,
                _ if in_path => {}
                '{' | '[' | '(' => depth += 1,
                ')' if depth == 0 => {
                    arguments.push(rest[begin..at].trim());
                    let result = rest[at + 1..].trim_start().strip_prefix('=')?.trim();
                    return Some(Self { name, arguments, result });
                }
                '}' | ']' | ')' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    arguments.push(rest[begin..at].trim());
                    begin = at + 1;
                }
                _ => {}
            }
        }
        None
    }

    pub(super) fn succeeded(&self) -> bool {
        !self.result.starts_with(['-', '?'])
    }

    /// The process or thread that a call has made.
    pub(super) fn new_task(&self) -> Option<u32> {
        matches!(self.name, "clone" | "clone3" | "fork" | "vfork").then(|| self.result.parse().ok()).flatten()
    }

    pub(super) fn makes_a_thread(&self) -> bool {
        self.arguments.iter().any(|argument| argument.contains("CLONE_THREAD"))
    }

    /// Whether the process sees other files, or may open fewer, from now on.
    pub(super) fn confines(&self) -> bool {
        matches!(self.name, "pivot_root" | "landlock_restrict_self")
    }

    /// The new working directory.
    pub(super) fn new_directory(&self, current: &Path) -> Option<PathBuf> {
        if !self.succeeded() {
            return None;
        }
        match self.name {
            "chdir" => Some(current.join(text_of(self.arguments.first()?)?)),
            "fchdir" => path_of_descriptor(self.arguments.first()?),
            _ => None,
        }
    }

    /// Where an opened descriptor really leads.
    pub(super) fn opened(&self) -> Option<PathBuf> {
        matches!(self.name, "open" | "openat" | "openat2" | "creat")
            .then(|| path_of_descriptor(self.result))?
    }

    pub(super) fn has(&self, flag: &str) -> bool {
        self.arguments.iter().any(|argument| !argument.starts_with('"') && argument.contains(flag))
    }

    /// Whether the call only asks about a path.
    pub(super) fn only_asks(&self) -> bool {
        matches!(
            self.name,
            "stat" | "lstat" | "newfstatat" | "statx" | "access" | "faccessat" | "faccessat2" | "readlink"
        ) || self.name == "readlinkat"
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.name, "open" | "openat" | "openat2")
    }

    /// The paths that the call resolves. Panics for a call that this list does not know.
    pub(super) fn paths(&self, directory: &Path) -> Vec<UsedPath> {
        let used = |base: Option<&str>, text: PathBuf| UsedPath {
            has_descriptor: base.is_some_and(|base| !base.starts_with("AT_FDCWD")),
            base: base
                .filter(|base| !base.starts_with("AT_FDCWD"))
                .map_or(Some(directory.to_owned()), path_of_descriptor)
                .unwrap_or_default(),
            text,
            follows_last: self.follows_last(),
        };
        match self.shape() {
            Shape::None => self.socket_path().map(|text| used(None, text)).into_iter().collect(),
            Shape::Plain(places) => {
                let texts = places.iter().filter_map(|place| text_of(self.arguments.get(*place)?));
                texts.map(|text| used(None, text)).collect()
            }
            Shape::At(places) => {
                let pairs = places.iter().filter_map(|place| {
                    Some((*self.arguments.get(*place)?, text_of(self.arguments.get(place + 1)?)?))
                });
                pairs.map(|(base, text)| used(Some(base), text)).collect()
            }
        }
    }

    fn shape(&self) -> Shape {
        match self.name {
            "open" | "creat" | "stat" | "lstat" | "access" | "chmod" | "chown" | "lchown" | "unlink"
            | "rmdir" | "mkdir" | "mknod" | "readlink" | "truncate" | "chdir" | "chroot" | "execve"
            | "statfs" | "utime" | "utimes" | "getxattr" | "lgetxattr" | "setxattr" | "lsetxattr"
            | "listxattr" | "llistxattr" | "removexattr" | "lremovexattr" | "umount2" => Shape::Plain(&[0]),
            "rename" | "link" | "mount" | "pivot_root" => Shape::Plain(&[0, 1]),
            // The first argument of `symlink` is a text. A watch has a descriptor that is no directory.
            "symlink" | "inotify_add_watch" => Shape::Plain(&[1]),
            "openat" | "openat2" | "newfstatat" | "statx" | "faccessat" | "faccessat2" | "fchmodat"
            | "fchmodat2" | "fchownat" | "unlinkat" | "mkdirat" | "mknodat" | "readlinkat" | "utimensat"
            | "futimesat" | "name_to_handle_at" | "execveat" | "open_tree" | "mount_setattr" => {
                Shape::At(&[0])
            }
            "renameat" | "renameat2" | "linkat" | "move_mount" => Shape::At(&[0, 2]),
            "symlinkat" => Shape::At(&[1]),
            "fanotify_mark" => Shape::At(&[3]),
            "getcwd"
            | "fsconfig"
            | "fchdir"
            | "clone"
            | "clone3"
            | "fork"
            | "vfork"
            | "bind"
            | "connect"
            | "landlock_restrict_self" => Shape::None,
            unknown => panic!("teach the watcher what {unknown} does with paths"),
        }
    }

    /// The path of a unix socket.
    fn socket_path(&self) -> Option<PathBuf> {
        let address = self.arguments.get(1)?;
        let (_, path) = address.split_once("sun_path=")?;
        text_of(&path[..=path.rfind('"')?])
    }

    fn follows_last(&self) -> bool {
        match self.name {
            "lstat" | "readlink" | "readlinkat" | "unlink" | "unlinkat" | "rmdir" | "mkdir" | "mkdirat"
            | "mknod" | "mknodat" | "rename" | "renameat" | "renameat2" | "link" | "symlink"
            | "symlinkat" | "lchown" | "lgetxattr" | "lsetxattr" | "llistxattr" | "lremovexattr" => false,
            "linkat" | "name_to_handle_at" => self.has("AT_SYMLINK_FOLLOW"),
            "open" | "openat" | "openat2" => {
                !(self.has("O_NOFOLLOW") || self.has("O_CREAT") && self.has("O_EXCL"))
            }
            _ => !self.has("AT_SYMLINK_NOFOLLOW"),
        }
    }
}

/// The path in `7</srv/project>`.
fn path_of_descriptor(argument: &str) -> Option<PathBuf> {
    let (_, rest) = argument.split_once('<')?;
    Some(unescaped(&rest[..rest.rfind('>')?]))
}

/// The text of an argument in quotes.
fn text_of(argument: &str) -> Option<PathBuf> {
    let text = argument.strip_prefix('"')?;
    assert!(!text.ends_with("..."), "a path was cut short: {argument}");
    Some(unescaped(text.strip_suffix('"')?))
}

/// Undoes the escapes of C.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        rest = more;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        let digits = rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
        if digits > 0 {
            let value = rest[..digits].iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
            bytes.push(u8::try_from(value).unwrap_or(b'?'));
            rest = &rest[digits..];
        } else if let Some((&escaped, more)) = rest.split_first() {
            bytes.push(match escaped {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'v' => 11,
                b'f' => 12,
                other => other,
            });
            rest = more;
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only_path(line: &str) -> (UsedPath, PathBuf) {
        let call = SystemCall::parse(line).unwrap();
        let mut paths = call.paths(Path::new("/cwd"));
        assert_eq!(paths.len(), 1, "{line}");
        let used = paths.remove(0);
        let place = used.place();
        (used, place)
    }

    #[test]
    fn paths_are_read_from_every_shape_of_call() {
        for (line, place, has_descriptor, follows_last) in [
            (r#"open("/a/b", O_RDONLY) = 3</a/b>"#, "/a/b", false, true),
            (
                r#"openat(AT_FDCWD</cwd>, "x/../y", O_RDONLY|O_NOFOLLOW) = -1 ENOENT (No)"#,
                "/cwd/y",
                false,
                false,
            ),
            (
                r#"openat(7</s (1), {2}>, "n", O_WRONLY|O_CREAT|O_EXCL, 0644) = 8</s>"#,
                "/s (1), {2}/n",
                true,
                false,
            ),
            (
                r#"statx(7</s>, "n", AT_STATX_SYNC_AS_STAT, STATX_ALL, {stx_mode=S_IFDIR|0755, ...}) = 0"#,
                "/s/n",
                true,
                true,
            ),
            (r#"readlink("/a \"q\"\303\244", "/result", 4096) = 7"#, "/a \"q\"ä", false, false),
            (r#"symlinkat("/target", 5</s>, "n") = 0"#, "/s/n", true, false),
            (r#"inotify_add_watch(4<anon_inode:inotify>, "/w", IN_MODIFY) = 1"#, "/w", false, true),
            (r#"bind(3<socket:[1]>, {sa_family=AF_UNIX, sun_path="/s/x"}, 9) = 0"#, "/s/x", false, true),
        ] {
            let (used, found) = only_path(line);
            assert_eq!((found, used.has_descriptor), (PathBuf::from(place), has_descriptor), "{line}");
            assert_eq!(used.follows_last, follows_last, "{line}");
        }
    }

    #[test]
    fn threads_are_told_from_children() {
        let thread = SystemCall::parse("clone3({flags=CLONE_VM|CLONE_THREAD, stack=0x7}, 88) = 12").unwrap();
        assert_eq!((thread.new_task(), thread.makes_a_thread()), (Some(12), true));
        let child = SystemCall::parse("clone(child_stack=NULL, flags=CLONE_PARENT|SIGCHLD) = 13").unwrap();
        assert_eq!((child.new_task(), child.makes_a_thread()), (Some(13), false));
        assert_eq!(SystemCall::parse("fork() = -1 EAGAIN (x)").unwrap().new_task(), None);
    }
}
