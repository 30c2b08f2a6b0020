package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// rootSpec describes a node's root directory: the host's programs read-only,
// everything that a node writes its own.
type rootSpec struct {
	Dir      string   `json:"dir"`      // becomes /
	ReadOnly []string `json:"readOnly"` // shown at the same path, not writable
	Shared   []string `json:"shared"`   // shown at the same path
	Prefix   string   `json:"prefix"`   // where Divvy was built: shown as installed in /usr/local
	Hostname string   `json:"hostname"`
	Devices  []string `json:"devices,omitempty"` // nodes below /dev beside the host's, like /dev/null
}

// ownDirs are a node's directories on disk. Directories on tmpfs follow.
var ownDirs = []string{
	"root", "home", "tmp", "proc", "sys", "dev", "run", "etc", "opt/cni", "srv", "mnt", "media",
	"var/lib/kubelet", "var/lib/containerd", "var/lib/cni", "var/log/pods", "var/log/containers", "var/tmp", "var/cache",
}

// runDirs are a node's directories below /run, where programs of the node and
// hostPath volumes expect them.
var runDirs = []string{"cdi", "nri", "divvy", "containerd", "netns", "lock"}

// enter makes the root and moves the calling process, alone in a new mount
// namespace, into it.
func (r *rootSpec) enter(groups []hierarchy) error {
	steps := []struct {
		what string
		do   func() error
	}{
		{"keep mounts private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"make root", r.populate},
		{"mount /tmp", r.mountTemporary},
		{"mount /usr and what is shared", r.bind},
		{"install Divvy", r.install},
		{"mount /etc", r.mountEtc},
		{"mount kernel file systems", r.mountKernel},
		{"mount cgroups", func() error { return r.mountGroups(groups) }},
		{"mount /run", r.mountRun},
		{"change root", r.pivot},
		{"set host name", func() error { return unix.Sethostname([]byte(r.Hostname)) }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

func (r *rootSpec) at(path string) string {
	return filepath.Join(r.Dir, path)
}

func (r *rootSpec) populate() error {
	for _, dir := range ownDirs {
		if err := os.MkdirAll(r.at(dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("/run", r.at("var/run")); err != nil {
		return err
	}
	// Merged /usr: /bin, /lib and the like are links there.
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join("/", entry.Name()))
		if err != nil {
			continue
		}
		if err := os.Symlink(target, r.at(entry.Name())); err != nil {
			return err
		}
	}
	return unix.Mount(r.Dir, r.Dir, "", unix.MS_BIND, "")
}

// mountTemporary comes before what is shared, because a checkout may lie in /tmp.
func (r *rootSpec) mountTemporary() error {
	return unix.Mount("tmpfs", r.at("tmp"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
}

func (r *rootSpec) bind() error {
	for _, path := range append([]string{"/usr"}, r.ReadOnly...) {
		if err := r.bindOne(path); err != nil {
			return err
		}
		if err := unix.Mount("", r.at(path), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", path, err)
		}
	}
	for _, path := range r.Shared {
		if err := r.bindOne(path); err != nil {
			return err
		}
	}
	return nil
}

func (r *rootSpec) bindOne(path string) error {
	if err := os.MkdirAll(r.at(path), 0o755); err != nil {
		return err
	}
	if err := unix.Mount(path, r.at(path), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", path, err)
	}
	return nil
}

// install shows the built programs and libraries where an image of Divvy has
// them, too: links between them hold on the node as in a container.
func (r *rootSpec) install() error {
	local := r.at("usr/local")
	if err := unix.Mount("tmpfs", local, "tmpfs", unix.MS_NODEV, "mode=755"); err != nil {
		return err
	}
	for _, dir := range []string{"bin", "lib", "libexec"} {
		to := filepath.Join(local, dir)
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(filepath.Join(r.Prefix, dir), to, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return err
		}
	}
	return nil
}

// mountEtc lays a layer of the node's own over the host's.
func (r *rootSpec) mountEtc() error {
	upper, work := r.Dir+".etc", r.Dir+".etc-work"
	for _, dir := range []string{upper, work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	data := "lowerdir=/etc,upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", r.at("etc"), "overlay", 0, data); err != nil {
		return err
	}
	return os.MkdirAll(r.at("etc/cdi"), 0o755)
}

func (r *rootSpec) mountKernel() error {
	const plain = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	mounts := []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{"proc", "proc", "proc", plain, ""},
		{"sysfs", "sys", "sysfs", plain, ""},
		// Tenants' libraries are run from there.
		{"tmpfs", "dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	}
	if err := r.mountDevices(); err != nil {
		return err
	}
	for _, m := range mounts {
		if err := unix.Mount(m.source, r.at(m.target), m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount /%s: %w", m.target, err)
		}
	}
	return nil
}

// mountDevices shows what the host's /dev has in a folder of its own: what a kubelet makes in the host's would be made on the host.
// Folders in which the node has devices of its own have those alone.
func (r *rootSpec) mountDevices() error {
	if err := unix.Mount("tmpfs", r.at("dev"), "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		from, to := filepath.Join("/dev", entry.Name()), r.at(filepath.Join("dev", entry.Name()))
		switch {
		case entry.Type()&os.ModeSymlink != 0:
			var target string
			if target, err = os.Readlink(from); err == nil {
				err = os.Symlink(target, to)
			}
		case slices.ContainsFunc(r.Devices, func(name string) bool { return strings.HasPrefix(name, entry.Name()+"/") }):
		case entry.IsDir():
			err = errors.Join(os.Mkdir(to, 0o755), bindDevice(from, to))
		default:
			err = errors.Join(os.WriteFile(to, nil, 0o600), bindDevice(from, to))
		}
		if err != nil {
			return err
		}
	}
	for _, name := range r.Devices {
		path := r.at(filepath.Join("dev", name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
			return fmt.Errorf("make /dev/%s: %w", name, err)
		}
	}
	return nil
}

func bindDevice(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", from, err)
	}
	return nil
}

// mountGroups shows the node its own cgroup as the root of every hierarchy.
func (r *rootSpec) mountGroups(groups []hierarchy) error {
	base := r.at("sys/fs/cgroup")
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if len(groups) == 1 && groups[0].version2() {
		return unix.Mount("cgroup", base, "cgroup2", flags, "")
	}
	if err := unix.Mount("tmpfs", base, "tmpfs", flags, "mode=755"); err != nil {
		return err
	}
	for _, h := range groups {
		dir := filepath.Join(base, filepath.Base(h.Mount))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		kind, data := "cgroup", h.Options
		switch {
		case h.version2():
			kind = "cgroup2"
		case strings.HasPrefix(data, "name="):
			data = "none," + data
		}
		if err := unix.Mount("cgroup", dir, kind, flags, data); err != nil {
			return fmt.Errorf("mount %s: %w", h.Mount, err)
		}
	}
	return nil
}

func (r *rootSpec) mountRun() error {
	if err := unix.Mount("tmpfs", r.at("run"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return err
	}
	for _, dir := range runDirs {
		if err := os.MkdirAll(r.at(filepath.Join("run", dir)), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// pivot makes the root the process's, and lets mounts in it reach containers
// that ask for that.
func (r *rootSpec) pivot() error {
	if err := os.Chdir(r.Dir); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	// The old root now lies over the new one at the same place.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}
