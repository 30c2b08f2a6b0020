package cluster

import (
	"reflect"
	"testing"
)

func TestHierarchiesAreJoinedByTheirControllers(t *testing.T) {
	const mounts = `23 1 0:21 / /sys rw,relatime - sysfs sysfs rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:32 / /mnt/again rw,relatime - cgroup cgroup rw,memory
37 31 0:33 /docker/x /mnt/part rw,relatime - cgroup cgroup rw,devices
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,release_agent=/a,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
`
	const own = "9:name=systemd:/user\n4:memory:/a:b\n3:devices:/\n1:cpu,cpuacct:/\n0::/\n"
	got, err := parseHierarchies(mounts, own)
	if err != nil {
		t.Fatal(err)
	}
	want := []hierarchy{
		{"/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct", "/"},
		{"/sys/fs/cgroup/memory", "memory", "/a:b"},
		{"/sys/fs/cgroup/systemd", "name=systemd", "/user"},
		{"/sys/fs/cgroup/unified", "", "/"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if dir := got[1].dir("x/n1"); dir != "/sys/fs/cgroup/memory/a:b/x/n1" {
		t.Errorf("dir = %s", dir)
	}
}

func TestGroupsOfVersion2AreBelowItsRoot(t *testing.T) {
	const mounts = "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
	got, err := parseHierarchies(mounts, "0::/user.slice/session-1.scope\n")
	if err != nil || len(got) != 1 || got[0].dir("x") != "/sys/fs/cgroup/x" {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := parseHierarchies("", "0::/\n"); err == nil {
		t.Errorf("got %v without a cgroup file system", got)
	}
}
