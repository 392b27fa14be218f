//! Determines how much memory this process can use, within the limits of the machine and of control groups, and how
//! long its pages are.
//!
//! In: files of `/proc`, and files of the memory controller of control groups (version 1 or 2). Out: the total memory,
//! and the memory that is available now. A process is subject to the limits of its own control group and of all groups
//! that enclose it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::unistd::{SysconfVar, sysconf};

/// Memory that can be allocated now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Available {
    pub(crate) bytes: u64,
    /// The file that determines `bytes`: `/proc/meminfo`, or the file with a control group's limit.
    pub(crate) source: PathBuf,
}

/// Returns the machine's memory, or the smallest limit of this process's control groups if this limit is lower.
#[cfg(any(feature = "bake", feature = "server"))]
pub(crate) fn total_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    let machine_bytes = machine.totalram as u64 * u64::from(machine.mem_unit);
    let limits = control_groups(Path::new("/")).into_iter().filter_map(|group| group.limit_bytes());
    limits.fold(machine_bytes, u64::min)
}

/// Returns the memory that can be allocated before the system or a control group runs out of memory. Returns `None` if
/// `/proc/meminfo` does not state the available memory and no control group has a limit.
pub(crate) fn available() -> Option<Available> {
    available_under(Path::new("/"))
}

fn available_under(root: &Path) -> Option<Available> {
    let groups = control_groups(root).into_iter().filter_map(|group| group.available());
    available_of_machine(root).into_iter().chain(groups).min_by_key(|available| available.bytes)
}

fn available_of_machine(root: &Path) -> Option<Available> {
    let source = root.join("proc/meminfo");
    let text = fs::read_to_string(&source).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Available { bytes: kib << 10, source })
}

/// The names of the memory controller's files in a group's folder.
struct Files {
    /// The files with the group's memory limits. Above a limit, the kernel reclaims memory or kills processes.
    limits: &'static [&'static str],
    usage: &'static str,
    /// The prefixes of the two lines of `memory.stat` that state how much page cache the group uses. The kernel
    /// reclaims page cache when memory is short.
    page_cache: [&'static str; 2],
}

static VERSION_1: Files = Files {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    page_cache: ["total_active_file ", "total_inactive_file "],
};
static VERSION_2: Files = Files {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    page_cache: ["active_file ", "inactive_file "],
};

/// A control group that contains this process and has the memory controller.
struct ControlGroup {
    folder: PathBuf,
    files: &'static Files,
}

impl ControlGroup {
    /// Returns the group's smallest limit and the file that states it. Returns `None` if the group has no limit.
    fn limit(&self) -> Option<(u64, PathBuf)> {
        let limit = |name: &&str| {
            let file = self.folder.join(name);
            // "max" means no limit and is not a number.
            Some((number(&file)?, file))
        };
        self.files.limits.iter().filter_map(limit).min()
    }

    #[cfg(any(feature = "bake", feature = "server"))]
    fn limit_bytes(&self) -> Option<u64> {
        self.limit().map(|(bytes, _)| bytes)
    }

    /// Returns how much memory the group can still allocate below its limit. Page cache counts as free, because the
    /// kernel reclaims it. Returns `None` if the group has no limit.
    fn available(&self) -> Option<Available> {
        let (limit_bytes, source) = self.limit()?;
        let used_bytes = number(&self.folder.join(self.files.usage))?;
        let stat = fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let count = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let page_cache_bytes: u64 = self.files.page_cache.iter().filter_map(|name| count(name)).sum();
        let bytes = limit_bytes.saturating_sub(used_bytes.saturating_sub(page_cache_bytes));
        Some(Available { bytes, source })
    }
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns the control groups whose memory limits apply to this process. Each group precedes the groups that enclose
/// it.
fn control_groups(root: &Path) -> Vec<ControlGroup> {
    let read = |name: &str| fs::read_to_string(root.join("proc/self").join(name)).unwrap_or_default();
    let (memberships, mounts) = (read("cgroup"), read("mountinfo"));
    let folders = mounts.lines().filter_map(Mount::parse).flat_map(|mount| {
        let files = mount.files;
        let folders = membership(&memberships, files).map(|path| mount.folders(root, path)).unwrap_or_default();
        folders.into_iter().map(move |folder| ControlGroup { folder, files })
    });
    folders.collect()
}

/// Returns the path of this process's control group. `files` selects the version of control groups: in version 1, the
/// memory controller can have its own hierarchy of groups; in version 2, all controllers share one hierarchy.
/// `memberships` is the text of `/proc/self/cgroup`, whose lines have the form `number:controllers:path`.
fn membership<'a>(memberships: &'a str, files: &Files) -> Option<&'a str> {
    memberships.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (hierarchy, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_version_2 = hierarchy == "0" && controllers.is_empty();
        let is_match = match std::ptr::eq(files, &VERSION_2) {
            true => is_version_2,
            false => controllers.split(',').any(|controller| controller == "memory"),
        };
        is_match.then_some(path)
    })
}

/// A mounted hierarchy of control groups.
struct Mount {
    /// The path of the group that is mounted at the mount point.
    group: String,
    point: String,
    files: &'static Files,
}

impl Mount {
    /// Parses a line of `/proc/self/mountinfo`. Returns `None` if the mount is not a hierarchy with a memory
    /// controller.
    fn parse(line: &str) -> Option<Mount> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (group, point) = (unescaped(fields.next()?), unescaped(fields.next()?));
        let mut fields = file_system.split(' ');
        let files = match (fields.next()?, fields.nth(1)?) {
            ("cgroup2", _) => &VERSION_2,
            ("cgroup", options) if options.split(',').any(|option| option == "memory") => &VERSION_1,
            _ => return None,
        };
        Some(Mount { group, point, files })
    }

    /// Returns the folders of a group and of the groups that enclose it, up to the mount point. If the group is not in
    /// the mounted part of the hierarchy, returns only the mount point.
    fn folders(&self, root: &Path, group: &str) -> Vec<PathBuf> {
        let point = root.join(self.point.trim_start_matches('/'));
        // A group outside the mounted subtree or outside the namespace (`/..`) has no folder below the mount point. The
        // limits of the group at the mount point apply nevertheless.
        let below = Path::new(group).strip_prefix(&self.group).unwrap_or(Path::new(""));
        let is_inside = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        let below = if is_inside { below } else { Path::new("") };
        below.ancestors().map(|below| point.join(below)).collect()
    }
}

/// Replaces the octal escapes that the kernel writes for spaces, tabs, newlines, and backslashes.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// The length of the smallest page of any system.
pub(crate) const PAGE_LEN_BYTES: usize = 4096;

/// Returns the length of a page of this system.
pub(crate) fn page_len_bytes() -> usize {
    let len_bytes = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    len_bytes
        .and_then(|len_bytes| usize::try_from(len_bytes).ok())
        .map_or(PAGE_LEN_BYTES, |len| len.max(PAGE_LEN_BYTES))
}

/// Returns the length of a huge page of this system: 2 MiB on x86-64, and on AArch64 2, 32, or 512 MiB with pages of 4,
/// 16, or 64 KiB.
pub(crate) fn huge_page_len_bytes() -> usize {
    static LEN_BYTES: OnceLock<usize> = OnceLock::new();
    *LEN_BYTES.get_or_init(|| {
        let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").unwrap_or_default();
        // A kernel without huge pages has no such file. Memory is then padded as for the shortest huge pages.
        text.trim_end().parse().ok().filter(|len: &usize| len.is_power_of_two()).unwrap_or(SHORT_HUGE_PAGE_LEN_BYTES)
    })
}

/// The length of the shortest huge page of any system. Memory is padded to whole pages of this length, but not of
/// longer ones, which would waste up to 512 MiB.
pub(crate) const SHORT_HUGE_PAGE_LEN_BYTES: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes files into a temporary folder, which stands for the root of the file system.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn limits_bytes(root: &Path) -> Vec<u64> {
        control_groups(root).iter().filter_map(ControlGroup::limit).map(|(bytes, _)| bytes).collect()
    }

    const V2_MOUNT: &str = "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const MEMINFO: &str = "MemTotal:       16000000 kB\nMemFree:         1000 kB\nMemAvailable:    8000000 kB\n";

    #[test]
    fn limits_of_every_enclosing_group_of_version_2_apply() {
        let root = root(&[
            ("proc/self/cgroup", "0::/system.slice/zero-kv.service\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/system.slice/memory.max", "300000\n"),
            ("sys/fs/cgroup/system.slice/memory.high", "max\n"),
            ("sys/fs/cgroup/system.slice/zero-kv.service/memory.max", "max\n"),
            ("sys/fs/cgroup/system.slice/zero-kv.service/memory.high", "200000\n"),
            ("sys/fs/cgroup/elsewhere/memory.max", "1\n"),
        ]);
        assert_eq!(limits_bytes(root.path()), [200_000, 300_000]);
    }

    #[test]
    fn a_limit_of_version_1_is_found_where_the_memory_controller_is_mounted() {
        let cgroup = "9:name=systemd:/\n5:cpuacct,memory:/jobs/7\n3:cpuset:/other\n0::/\n";
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                      33 31 0:30 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,cpuacct,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let root = root(&[
            ("proc/self/cgroup", cgroup),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "500000\n"),
            ("sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/cpuset/memory.limit_in_bytes", "1\n"),
        ]);
        assert_eq!(limits_bytes(root.path()), [9_223_372_036_854_771_712, 500_000, 9_223_372_036_854_771_712]);
    }

    /// In a container without a namespace for control groups, the mount shows only the container's group.
    #[test]
    fn limits_apply_even_if_only_one_group_is_mounted() {
        let mounts =
            "35 31 0:32 /docker/1\\040a /sys/fs/cgroup/memory ro,relatime master:11 - cgroup cgroup rw,memory\n";
        for (group, expected) in
            [("/docker/1 a", vec![400]), ("/docker/1 a/inner", vec![300, 400]), ("/../x", vec![400])]
        {
            let root = root(&[
                ("proc/self/cgroup", &format!("4:memory:{group}\n")),
                ("proc/self/mountinfo", mounts),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "400\n"),
                ("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "300\n"),
            ]);
            assert_eq!(limits_bytes(root.path()), expected, "{group}");
        }
    }

    #[test]
    fn the_available_memory_of_a_group_includes_its_page_cache() {
        let group = "sys/fs/cgroup/a/";
        let files = [
            ("proc/meminfo".to_owned(), MEMINFO),
            ("proc/self/cgroup".to_owned(), "0::/a\n"),
            ("proc/self/mountinfo".to_owned(), V2_MOUNT),
            (format!("{group}memory.max"), "1000000\n"),
            (format!("{group}memory.current"), "900000\n"),
            (format!("{group}memory.stat"), "anon 500\ninactive_file 300000\nactive_file 100000\nfile 999999\n"),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        let root = root(&files);
        let source = root.path().join("sys/fs/cgroup/a/memory.max");
        assert_eq!(available_under(root.path()), Some(Available { bytes: 500_000, source }));
    }

    #[test]
    fn without_control_groups_all_available_memory_of_the_machine_counts() {
        let of_machine = root(&[("proc/meminfo", MEMINFO)]);
        let source = of_machine.path().join("proc/meminfo");
        assert_eq!(available_under(of_machine.path()), Some(Available { bytes: 8_000_000 << 10, source }));
        let nothing = root(&[]);
        assert_eq!(available_under(nothing.path()), None);
        assert!(control_groups(nothing.path()).is_empty());
    }

    #[test]
    fn this_system_reports_its_memory() {
        assert!(available().unwrap().bytes > 0);
        #[cfg(any(feature = "bake", feature = "server"))]
        assert!(total_bytes() > 0);
    }
}
