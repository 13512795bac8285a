//! The parts of macOS that programs need whatever they do. Each list is short on purpose: what is not here
//! is denied by default.

/// What can be asked about the machine and its kernel. Nothing here tells of other processes.
pub(super) const SYSCTL_NAMES: &[&str] = &[
    "hw.activecpu",
    "hw.busfrequency_compat",
    "hw.byteorder",
    "hw.cacheconfig",
    "hw.cachelinesize",
    "hw.cachelinesize_compat",
    "hw.cpufamily",
    "hw.cpufrequency",
    "hw.cpufrequency_compat",
    "hw.cpusubtype",
    "hw.cputype",
    "hw.l1dcachesize",
    "hw.l1dcachesize_compat",
    "hw.l1icachesize",
    "hw.l1icachesize_compat",
    "hw.l2cachesize",
    "hw.l2cachesize_compat",
    "hw.l3cachesize_compat",
    "hw.logicalcpu",
    "hw.logicalcpu_max",
    "hw.machine",
    "hw.memsize",
    "hw.model",
    "hw.ncpu",
    "hw.nperflevels",
    "hw.packages",
    "hw.pagesize",
    "hw.pagesize_compat",
    "hw.physicalcpu",
    "hw.physicalcpu_max",
    "hw.tbfrequency",
    "hw.tbfrequency_compat",
    "hw.vectorunit",
    "kern.argmax",
    "kern.hostname",
    "kern.maxfiles",
    "kern.maxfilesperproc",
    "kern.maxproc",
    "kern.ngroups",
    "kern.osproductversion",
    "kern.osrelease",
    "kern.ostype",
    "kern.osvariant_status",
    "kern.osversion",
    "kern.secure_kernel",
    "kern.usrstack64",
    "kern.version",
    "machdep.cpu.brand_string",
    "machdep.ptrauth_enabled",
    "sysctl.proc_cputype",
    "vm.loadavg",
];

/// Families of names: processor features, and the interfaces that `getifaddrs` lists.
pub(super) const SYSCTL_PREFIXES: &[&str] =
    &["hw.optional.", "hw.perflevel", "machdep.cpu.", "net.routetable."];

/// Services that programs ask before they do anything: user names, and keeping the machine awake.
pub(super) const MACH_ALWAYS: &[&str] =
    &["com.apple.PowerManagement.control", "com.apple.system.opendirectoryd.libinfo"];

/// Services for certificates and the network's configuration. `trustd` fetches what a certificate names,
/// which is a way out of its own, so that none of them is there without a network.
pub(super) const MACH_NETWORK: &[&str] = &[
    "com.apple.SecurityServer",
    "com.apple.SystemConfiguration.DNSConfiguration",
    "com.apple.SystemConfiguration.configd",
    "com.apple.networkd",
    "com.apple.ocspd",
    "com.apple.trustd.agent",
];

/// Services that read preference files for every process.
pub(super) const MACH_PREFERENCES: &[&str] = &["com.apple.cfprefsd.agent", "com.apple.cfprefsd.daemon"];

/// Where the system's resolver listens.
pub(super) const RESOLVER_SOCKETS: &[&str] = &["/private/var/run/mDNSResponder", "/var/run/mDNSResponder"];

/// Strict reads: directories of programs, libraries and their data. `/System` is not one of them, because
/// `/System/Volumes/Data` holds everybody's files.
pub(super) const READABLE_TREES: &[&str] = &[
    "/Applications/Xcode.app/Contents/Developer",
    "/Library/Apple",
    "/Library/Developer/CommandLineTools",
    "/Library/Frameworks",
    "/Library/Java/JavaVirtualMachines",
    "/System/Cryptexes",
    "/System/Library",
    "/System/Volumes/Preboot/Cryptexes",
    "/System/iOSSupport",
    "/bin",
    "/nix/store",
    "/opt",
    "/private/etc/pki",
    "/private/etc/ssl",
    "/private/preboot/Cryptexes",
    "/private/var/db/dyld",
    "/private/var/db/timezone",
    "/private/var/select",
    "/sbin",
    "/usr",
];

/// Strict reads: single files. Without the root, programs do not even load.
pub(super) const READABLE_FILES: &[&str] = &[
    "/",
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
    "/private/etc/group",
    "/private/etc/hosts",
    "/private/etc/localtime",
    "/private/etc/passwd",
    "/private/etc/protocols",
    "/private/etc/resolv.conf",
    "/private/etc/services",
    "/private/etc/shells",
    "/private/var/db/xcode_select_link",
    "/private/var/run/resolv.conf",
];

/// Strict reads: what can be looked at but not listed, so that the paths above can be resolved.
pub(super) const VISIBLE: &[&str] = &[
    "/Applications",
    "/Applications/Xcode.app",
    "/Applications/Xcode.app/Contents",
    "/Library",
    "/Library/Developer",
    "/Library/Java",
    "/System",
    "/System/Volumes",
    "/System/Volumes/Data",
    "/System/Volumes/Preboot",
    "/dev",
    "/etc",
    "/nix",
    "/private",
    "/private/etc",
    "/private/preboot",
    "/private/var",
    "/private/var/db",
    "/private/var/run",
    "/tmp",
    "/var",
];

/// `F_MAKECOMPRESSED` and `F_TRANSFEREXTENTS`: calls of `fcntl` that change a file through a descriptor
/// that was opened for reading, where no write rule looks.
pub(super) const WRITING_FCNTLS: &[&str] = &["80", "110"];
