//! The paths of a system that every program may need to read.

/// Where programs and libraries are.
pub(super) const SYSTEM_READABLE: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/gnu/store",
    "/nix/store",
    "/nix/var/nix/profiles",
    "/opt",
    "/run/current-system",
    "/run/opengl-driver",
    "/var/guix/profiles",
    "/var/lib/ca-certificates",
    "/var/lib/gems",
    "/var/lib/ghc",
    "/var/lib/texmf",
];

/// The parts of `/etc` that programs need: certificates, names, linking, languages; no secrets and no settings of
/// other programs. Private keys lie beside certificates, where root could read them, so those directories are listed by
/// their parts. `static` is where the links of NixOS lead, in its store.
pub(super) const ETC_READABLE: &[&str] = &[
    "almalinux-release",
    "alpine-release",
    "alternatives",
    "amazon-linux-release",
    "arch-release",
    "bash.bashrc",
    "bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "centos-release",
    "crypto-policies",
    "debian_version",
    "dpkg/origins",
    "fedora-release",
    "fonts",
    "gai.conf",
    "gemrc",
    "gentoo-release",
    "ghc",
    "gitconfig",
    "gnutls",
    "group",
    "host.conf",
    "hosts",
    "inputrc",
    "java",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "java-25-openjdk",
    "java-8-openjdk",
    "jvm",
    "ld-musl-aarch64.path",
    "ld-musl-x86_64.path",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "magic",
    "magic.mime",
    "mailcap",
    "maven",
    "mavenrc",
    "mime.types",
    "npmrc",
    "nsswitch.conf",
    "openssl",
    "oracle-release",
    "os-release",
    "passwd",
    "perl",
    "pip.conf",
    "pki/ca-trust",
    "pki/java",
    "pki/nss-legacy",
    "pki/nssdb",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/ct_log_list.cnf",
    "pki/tls/openssl.cnf",
    "pki/tls/openssl.d",
    "pki/trust",
    "profile",
    "profiles/per-user",
    "protocols",
    "python",
    "python3",
    "python3.10",
    "python3.11",
    "python3.12",
    "python3.13",
    "python3.14",
    "python3.8",
    "python3.9",
    "R",
    "redhat-release",
    "resolv.conf",
    "rocky-release",
    "rpc",
    "services",
    "shells",
    "slackware-version",
    "ssh/ssh_config",
    "ssh/ssh_config.d",
    "ssh/ssh_known_hosts",
    "ssl/ca-bundle.pem",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/ct_log_list.cnf",
    "ssl/engdef.d",
    "ssl/engines.d",
    "ssl/misc",
    "ssl/openssl.cnf",
    "ssl/openssl.cnf.d",
    "ssl1.1",
    "static",
    "SuSE-release",
    "system-release",
    "terminfo",
    "texmf",
    "timezone",
    "uv",
    "xdg/pip",
    "xml",
    "zoneinfo",
];

/// The parts of the kernel's own file systems that programs need.
pub(super) const KERNEL_READABLE: &[&str] =
    &["/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup", "/sys/kernel/mm"];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::system_paths;

    fn is_readable(path: &str) -> bool {
        system_paths().any(|readable| Path::new(path).starts_with(readable))
    }

    /// Where programs of other distributions find their libraries, certificates and names. No such system is at hand, so
    /// only the list is looked at.
    const LAYOUTS: &[(&str, &[&str])] = &[
        (
            "Debian and Ubuntu",
            &[
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib64/ld-linux-x86-64.so.2",
                "/etc/debian_version",
                "/etc/ssl/certs/ca-certificates.crt",
                "/etc/ssl/openssl.cnf",
                "/etc/alternatives/java",
                "/etc/ld.so.conf.d/libc.conf",
                "/etc/java-17-openjdk/security/java.security",
                "/etc/python3.12/sitecustomize.py",
            ],
        ),
        (
            "Fedora",
            &[
                "/usr/lib64/libc.so.6",
                "/etc/fedora-release",
                "/etc/redhat-release",
                "/etc/pki/tls/certs/ca-bundle.crt",
                "/etc/pki/tls/openssl.cnf",
                "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                "/etc/pki/ca-trust/extracted/java/cacerts",
                "/etc/crypto-policies/back-ends/opensslcnf.config",
                "/etc/alternatives/java",
                "/etc/bashrc",
            ],
        ),
        (
            "openSUSE",
            &[
                "/etc/ssl/ca-bundle.pem",
                "/var/lib/ca-certificates/ca-bundle.pem",
                "/etc/pki/trust/anchors",
                "/etc/os-release",
            ],
        ),
        (
            "Arch",
            &[
                "/usr/lib/libc.so.6",
                "/etc/arch-release",
                "/etc/ssl/cert.pem",
                "/etc/ca-certificates/extracted/tls-ca-bundle.pem",
                "/etc/locale.conf",
            ],
        ),
        (
            "Alpine",
            &[
                "/lib/ld-musl-x86_64.so.1",
                "/etc/ld-musl-x86_64.path",
                "/etc/alpine-release",
                "/etc/ssl/cert.pem",
                "/etc/ssl/openssl.cnf",
            ],
        ),
        (
            "NixOS",
            &[
                "/run/current-system/sw/bin/node",
                "/nix/store/hash-nodejs/bin/node",
                "/nix/var/nix/profiles/default/bin/nix",
                "/etc/static/ssl/certs/ca-certificates.crt",
                "/etc/ssl/certs/ca-certificates.crt",
                "/etc/profiles/per-user/ada/bin/node",
                "/etc/zoneinfo/UTC",
            ],
        ),
        (
            "Guix",
            &["/gnu/store/hash-node/bin/node", "/run/current-system/profile/bin/node", "/var/guix/profiles"],
        ),
    ];

    #[test]
    fn the_layouts_of_distributions_are_readable() {
        for (distribution, paths) in LAYOUTS {
            for path in *paths {
                assert!(is_readable(path), "{distribution}: {path}");
            }
        }
    }

    #[test]
    fn secrets_of_the_system_are_not_readable() {
        for path in [
            "/etc/shadow",
            "/etc/sudoers",
            "/etc/ssh/ssh_host_ed25519_key",
            "/etc/ssl/private/server.key",
            "/etc/pki/tls/private/server.key",
            "/etc/pki/entitlement/1-key.pem",
            "/etc/NetworkManager/system-connections/home.nmconnection",
            "/etc/wireguard/wg0.conf",
            "/etc/nix/nix.conf",
            "/etc/machine-id",
            "/root/.ssh/id_ed25519",
            "/run/docker.sock",
            "/run/user/1000/bus",
        ] {
            assert!(!is_readable(path), "{path}");
        }
    }
}
