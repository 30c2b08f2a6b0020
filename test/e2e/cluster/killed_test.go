package cluster

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// victimVariable makes this program a test that is killed while its cluster runs.
const victimVariable = "DIVVY_CLUSTER_VICTIM"

// TestMain plays the victim: it says where its cluster is and what it does.
func TestMain(m *testing.M) {
	if os.Getenv(victimVariable) == "" {
		os.Exit(m.Run())
	}
	c, err := Start(context.Background(), Options{Nodes: []Node{{Name: "n1"}, {Name: "n2"}}})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("dir", c.Dir())
	select {}
}

// host is what a cluster must not change.
type host struct {
	mounts, links string
	files         []string
}

func look(t *testing.T) host {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	h := host{mounts: string(mounts), links: fmt.Sprint(interfaces)}
	for _, path := range []string{
		"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/run/containerd", "/run/divvy", "/run/netns", "/etc/cni",
		"/etc/cdi", "/var/run/cdi", "/var/run/nri", "/var/log/pods", "/var/log/containers", "/run/xtables.lock",
	} {
		if _, err := os.Lstat(path); err == nil {
			h.files = append(h.files, path)
		}
	}
	return h
}

// compare reports what is different from before.
func (h host) compare(t *testing.T) {
	t.Helper()
	now := look(t)
	if now.mounts != h.mounts {
		t.Errorf("mounts of the host were\n%s\nand are\n%s", h.mounts, now.mounts)
	}
	if now.links != h.links {
		t.Errorf("network interfaces of the host were %s and are %s", h.links, now.links)
	}
	if !slices.Equal(now.files, h.files) {
		t.Errorf("of the nodes' directories the host had %v and has %v", h.files, now.files)
	}
}

// remains lists what is left of a cluster.
func remains(dir string) []string {
	var left []string
	if _, err := os.Lstat(dir); err == nil {
		left = append(left, dir)
	}
	groups, err := hierarchies()
	if err != nil {
		return []string{err.Error()}
	}
	for _, h := range groups {
		if _, err := os.Lstat(h.dir(groupName(dir))); err == nil {
			left = append(left, h.dir(groupName(dir)))
		}
	}
	// Whoever the cluster started has its directory among its arguments or its cgroups.
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		for _, file := range []string{"cmdline", "cgroup"} {
			text, _ := os.ReadFile(filepath.Join(process, file))
			if strings.Contains(string(text), filepath.Base(dir)) {
				left = append(left, process+": "+strings.ReplaceAll(string(text), "\x00", " "))
			}
		}
	}
	return left
}

func TestNothingIsLeftOfAKilledTestsCluster(t *testing.T) {
	ctx := gate(t)
	before := look(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	victim := exec.CommandContext(ctx, self)
	victim.Env = append(os.Environ(), victimVariable+"=1")
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = victim.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	dir, ok := strings.CutPrefix(strings.TrimSpace(line), "dir ")
	if err != nil || !ok {
		t.Fatalf("the victim says %q, %v", line, err)
	}
	if left := remains(dir); len(left) < 10 {
		t.Errorf("of a running cluster only this was found: %v", left)
	}
	if err := victim.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = victim.Wait()
	err = until(ctx, "nothing is left", func(context.Context) error {
		if left := remains(dir); len(left) > 0 {
			return fmt.Errorf("%s", strings.Join(left, "\n"))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	before.compare(t)
}
