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
    "/nix/store",
    "/opt",
    "/run/current-system",
];

/// The parts of `/etc` that programs need: certificates, names, linking, languages; no secrets and no settings of
/// other programs.
pub(super) const ETC_READABLE: &[&str] = &[
    "alternatives",
    "alpine-release",
    "arch-release",
    "ca-certificates",
    "centos-release",
    "debian_version",
    "fedora-release",
    "fonts",
    "gai.conf",
    "group",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "lsb-release",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "pip.conf",
    "pki",
    "protocols",
    "redhat-release",
    "resolv.conf",
    "services",
    "ssl",
    "system-release",
    "terminfo",
    "timezone",
    "java-17-openjdk",
    "python3",
    "gitconfig",
    "npmrc",
];

/// The parts of the kernel's own file systems that programs need.
pub(super) const KERNEL_READABLE: &[&str] =
    &["/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup", "/sys/kernel/mm"];
