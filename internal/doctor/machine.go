package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupChecks say which cgroups the machine has.
func (h Host) cgroupChecks() Check {
	c := Check{ID: "cgroups", Name: "cgroups", Status: OK}
	dir := filepath.Join(h.Root, "/sys/fs/cgroup")
	var stat unix.Statfs_t
	err := unix.Statfs(dir, &stat)
	_, unified := os.Stat(filepath.Join(dir, "cgroup.controllers"))
	hierarchies, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs")) // the pattern is right
	switch {
	case err == nil && (stat.Type == unix.CGROUP2_SUPER_MAGIC || unified == nil):
		c.Found = "version 2"
	case len(hierarchies) > 0:
		c.Found = fmt.Sprintf("version 1, %d hierarchies", len(hierarchies))
	default:
		c.Status, c.Found = Warn, "none are mounted at "+dir+": processes that leave a container's mounts are not known as its share's"
		c.Next = "as root: mount -t cgroup2 cgroup2 " + dir
	}
	return c
}

// leastYear is one before the first Divvy: a clock that shows it was never set.
const leastYear = 2025

// clockCheck says whether the clock can be trusted. Created is when the youngest share began, which the clock cannot be
// before; limited is true where shares end by the clock.
func clockCheck(now, created time.Time, limited bool, adjusted func() (synchronised bool, known bool)) Check {
	c := Check{ID: "clock", Name: "clock", Status: OK, Found: "set"}
	const next = "as root, set it and keep it: `timedatectl set-ntp true`; `divvy ls` then shows right ages, and limits of time end shares when they should"
	synchronised, known := adjusted()
	switch {
	case now.Year() < leastYear:
		c.Status, c.Found, c.Next = Warn, "it is not set: it shows "+now.Format(time.DateOnly), next
	case created.After(now.Add(time.Minute)):
		c.Status, c.Next = Warn, next
		c.Found = fmt.Sprintf("it was set back: a share began at %s, and it is %s", created.Format(time.DateTime), now.Format(time.DateTime))
	case known && !synchronised && limited:
		c.Status, c.Found, c.Next = Warn, "set, but no service corrects it, and shares here end by it", next
	case known && !synchronised:
		c.Found = "set; no service corrects it, which matters to limits of time and to a cluster's tokens alone"
	}
	return c
}

// Clock checks this machine's clock, see [clockCheck].
func Clock(created time.Time, limited bool) Check {
	return clockCheck(time.Now(), created, limited, func() (synchronised, known bool) {
		var t unix.Timex
		state, err := unix.Adjtimex(&t) // it asks alone: no mode is set
		return state != unix.TIME_ERROR, err == nil
	})
}

// preloaded are the driver's libraries that variables of the dynamic linker bring into every program.
func (h Host) preloaded(preload string) []Check {
	for _, name := range strings.FieldsFunc(preload, func(r rune) bool { return r == ':' || r == ' ' }) {
		base := filepath.Base(name)
		if strings.HasPrefix(base, "libcuda.so") || strings.HasPrefix(base, "libnvidia-ml.so") {
			return []Check{{
				ID: "variables.preload", Name: "LD_PRELOAD", Status: Warn,
				Found: "it brings " + name + " into every program, also in shares, where Divvy's library belongs in its place",
				Next:  "unset LD_PRELOAD, or take that library out of it",
			}}
		}
	}
	return nil
}

// leftMounts tell of libraries of shares that lie over the driver's in this mount namespace, where no share is.
func (h Host) leftMounts() []Check {
	table, err := os.ReadFile(filepath.Join(h.Root, "/proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	var left []string
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		const root, target = 3, 4
		if len(fields) <= target {
			continue
		}
		name := filepath.Base(fields[root])
		ofShare := strings.HasPrefix(name, "libcuda") || strings.HasPrefix(name, "libnvidia-ml") || name == "ld.so.cache"
		if ofShare && filepath.Base(filepath.Dir(filepath.Dir(fields[root]))) == "tenants" {
			left = append(left, fields[target])
		}
	}
	if len(left) == 0 {
		return nil
	}
	return []Check{{
		ID: "left.mounts", Name: "mounts left", Status: Warn,
		Found: "files of a share lie here over those of the machine, though this is no share: " + strings.Join(left, ", "),
		Next:  "as root: umount " + strings.Join(left, " "),
	}}
}
