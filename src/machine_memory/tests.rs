//! Tests the limits of control groups with imitations of the kernel's files.

use std::path::Path;

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
    let mounts = "35 31 0:32 /docker/1\\040a /sys/fs/cgroup/memory ro,relatime master:11 - cgroup cgroup rw,memory\n";
    for (group, expected) in [("/docker/1 a", vec![400]), ("/docker/1 a/inner", vec![300, 400]), ("/../x", vec![400])] {
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
