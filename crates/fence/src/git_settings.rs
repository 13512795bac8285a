//! What a fenced command gets of its user's git settings: author, aliases, and habits that name no program and no file.
//!
//! A user who signs commits must not get unsigned ones from inside. So the setting comes along, and git signs through a
//! small program that runs the real one and, where the fence keeps the key away, says so.

use std::collections::BTreeMap;
use std::path::Path;

/// The settings that are copied, as section and name in lower case. `*` stands for every name.
const COPIED: &[(&str, &str)] = &[
    ("user", "name"),
    ("user", "email"),
    ("user", "signingkey"),
    ("alias", "*"),
    ("commit", "gpgsign"),
    ("tag", "gpgsign"),
    ("tag", "forcesignannotated"),
    ("gpg", "format"),
    ("init", "defaultbranch"),
    ("pull", "rebase"),
    ("pull", "ff"),
    ("push", "default"),
    ("merge", "conflictstyle"),
    ("merge", "ff"),
    ("rebase", "autosquash"),
    ("rebase", "autostash"),
    ("fetch", "prune"),
    ("core", "autocrlf"),
    ("core", "eol"),
    ("diff", "algorithm"),
    ("rerere", "enabled"),
];

/// Longer settings are not read.
const MAX_BYTES: u64 = 1024 * 1024;

/// Where the program that signs lies in a home, and what it runs.
pub(crate) const SIGNERS: [(&str, &str, &str); 3] = [
    ("gpg", ".local/share/ringfence/sign-gpg", "gpg"),
    ("gpg \"ssh\"", ".local/share/ringfence/sign-ssh", "ssh-keygen"),
    ("gpg \"x509\"", ".local/share/ringfence/sign-x509", "gpgsm"),
];

/// The settings for a fenced home, which is to lie at `home`.
pub(crate) fn for_home(home: &Path, of_user: Option<&Path>) -> String {
    let mut copied = Copied::default();
    if let Some(of_user) = of_user {
        // git reads both, and the second one wins.
        for file in [".config/git/config", ".gitconfig"] {
            copied.read(&of_user.join(file), of_user, true);
        }
    }
    for (section, place, _) in SIGNERS {
        let line = format!("\tprogram = {}", home.join(place).display());
        copied.0.entry(section.to_owned()).or_default().push(line);
    }
    copied.text()
}

/// A program that signs with another one, and names the fence where that fails.
pub(crate) fn signer(program: &str) -> String {
    format!(
        "#!/bin/sh\n\
         # git signs with this inside a fence.\n\
         {program} \"$@\" && exit 0\n\
         status=$?\n\
         case \" $* \" in *' -bsau '*|*' -Y sign '*)\n\
         echo 'ringfence: your git settings ask for a signature, and the fence keeps the signing key away, so nothing was committed.' >&2\n\
         echo 'hint: sign outside the fence, leave the signature out with --no-gpg-sign if the user agrees, or have the operator open the key: --read KEY with gpg.format ssh, --allow-sensitive-reads ~/.gnupg with gpg' >&2 ;;\n\
         esac\n\
         exit $status\n"
    )
}

/// Lines of settings, by section.
#[derive(Default)]
struct Copied(BTreeMap<String, Vec<String>>);

impl Copied {
    fn read(&mut self, file: &Path, home: &Path, with_included: bool) {
        let Some(text) = read_text(file) else { return };
        let mut section = String::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let mut setting = line.trim().to_owned();
            if setting.starts_with('[') {
                let Some((header, rest)) = setting[1..].split_once(']') else { continue };
                section = header.trim().to_ascii_lowercase();
                setting = rest.trim().to_owned();
            }
            while setting.ends_with('\\') {
                let Some(next) = lines.next() else { break };
                setting = format!("{setting}\n{next}");
            }
            let (name, value) = setting.split_once('=').unwrap_or((&setting, ""));
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
            if section == "include" && name == "path" && with_included {
                self.read(&from_home(value.trim_matches('"'), home, file), home, false);
            } else if COPIED.iter().any(|(of, copied)| section == *of && (*copied == "*" || name == *copied))
                && !name.is_empty()
                && !name.starts_with(['#', ';'])
            {
                let setting = match value.strip_prefix("~/") {
                    // The command has another home.
                    Some(below) if name == "signingkey" => {
                        format!("signingkey = {}", home.join(below).display())
                    }
                    _ => setting.clone(),
                };
                self.0.entry(section.clone()).or_default().push(format!("\t{setting}"));
            }
        }
    }

    fn text(self) -> String {
        let section = |(name, lines): (String, Vec<String>)| {
            [vec![format!("[{name}]")], lines, vec![String::new()]].concat().join("\n")
        };
        self.0.into_iter().map(section).collect::<Vec<_>>().concat()
    }
}

fn from_home(path: &str, home: &Path, file: &Path) -> std::path::PathBuf {
    match path.strip_prefix("~/") {
        Some(below) => home.join(below),
        None => file.parent().unwrap_or(home).join(path),
    }
}

fn read_text(file: &Path) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(file).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn author_aliases_and_signing_come_along_and_programs_do_not() {
        let user = crate::test_directory::directory("git-settings");
        std::fs::create_dir_all(user.join(".config/git")).unwrap();
        std::fs::write(user.join(".config/git/config"), "[user]\n\tname = Old\n[pull] rebase = true\n")
            .unwrap();
        let text = "[core]\n\tsshCommand = evil\n\teditor = vi\n[user]\n\tname = A B\n\tsigningkey = ~/.ssh/k.pub\n\
                    [include]\n\tpath = ~/more\n[alias]\n\tst = status\n\tx = \"!f() { \\\n echo; }; f\"\n\
                    [credential]\n\thelper = store\n[url \"ssh://x\"]\n\tinsteadOf = y\n";
        std::fs::write(user.join(".gitconfig"), text).unwrap();
        std::fs::write(user.join("more"), "[commit]\n\tgpgSign = true\n[include]\n\tpath = more\n").unwrap();
        let settings = for_home(Path::new("/inside"), Some(&user));
        for line in [
            "\tname = Old\n\tname = A B\n",
            "[pull]\n\trebase = true\n",
            "\tst = status\n",
            "\tx = \"!f() { \\\n echo; }; f\"\n",
            "[commit]\n\tgpgSign = true\n",
            &format!("\tsigningkey = {}\n", user.join(".ssh/k.pub").display()),
            "[gpg \"ssh\"]\n\tprogram = /inside/.local/share/ringfence/sign-ssh\n",
        ] {
            assert!(settings.contains(line), "{line}: {settings}");
        }
        for left in ["sshCommand", "editor", "helper", "insteadOf"] {
            assert!(!settings.contains(left), "{left}: {settings}");
        }
    }
}
