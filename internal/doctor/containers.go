package doctor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"github.com/divvy-gpu/divvy/internal/rundir"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// runtimeTime bounds the question to one container runtime for its version.
const runtimeTime = 2 * time.Second

// A runtime of containers and the first version that takes CDI devices by their names. Where it has to be told to, usual is
// the first version that has not. Sources: the release notes of each.
type runtime struct {
	program      string
	least, usual release
}

var runtimes = []runtime{
	{"docker", release{25, 0}, release{28, 2}},
	{"podman", release{4, 1}, release{4, 1}},
	{"containerd", release{1, 7}, release{2, 0}},
	{"crio", release{1, 23}, release{1, 23}},
	{"nvidia-container-runtime", release{1, 12}, release{1, 12}},
}

type release struct{ major, minor int }

func (r release) before(other release) bool {
	return r.major < other.major || r.major == other.major && r.minor < other.minor
}

func (r release) String() string { return fmt.Sprintf("%d.%d", r.major, r.minor) }

// versionText finds a version in what programs say of theirs.
var versionText = regexp.MustCompile(`(\d{1,4})\.(\d{1,4})(\.\d{1,9})?`)

// runtimeChecks tell which container runtimes are there, and whether they take the devices of shares. With devices is true
// where shares for containers are: only then is it a fault that they do not.
func (h Host) runtimeChecks(ctx context.Context, devices bool) []Check {
	found := make([]string, len(runtimes))
	faults := make([]string, len(runtimes))
	var asked sync.WaitGroup
	for i, r := range runtimes {
		asked.Go(func() { found[i], faults[i] = h.look(ctx, r) })
	}
	asked.Wait()
	empty := func(text string) bool { return text == "" }
	found, faults = slices.DeleteFunc(found, empty), slices.DeleteFunc(faults, empty)
	if len(found) == 0 {
		return nil
	}
	c := Check{ID: "containers.runtimes", Name: "container runtimes", Status: OK, Found: strings.Join(found, ", ")}
	if len(faults) > 0 {
		c.Found += "; " + strings.Join(faults, "; ")
		if devices {
			c.Status, c.Next = Warn, "mend that, or start containers of shares with another runtime (docs/containers.md)"
		}
	}
	return []Check{c}
}

// look asks a runtime for its version. Where the program is not there both texts are empty.
func (h Host) look(ctx context.Context, r runtime) (found, fault string) {
	path := h.program(r.program)
	if path == "" {
		return "", ""
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = runtimeTime
	text, err := cmd.Output()
	parts := versionText.FindSubmatch(text)
	if err != nil || parts == nil {
		return r.program, "the version of " + r.program + " is not known"
	}
	major, _ := strconv.Atoi(string(parts[1])) // digits alone
	minor, _ := strconv.Atoi(string(parts[2]))
	is := release{major, minor}
	found = r.program + " " + string(parts[0])
	switch {
	case is.before(r.least):
		return found, fmt.Sprintf("%s takes devices of shares from version %s", r.program, r.least)
	case is.before(r.usual) && !h.switchedOn(r.program):
		return found, fmt.Sprintf("%s takes devices of shares when %s", r.program, switches[r.program].how)
	}
	return found, ""
}

// program is where a program is, "" if it is not there.
func (h Host) program(name string) string {
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		path := filepath.Join(h.Root, dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// switches are where older versions of runtimes are told to take CDI devices.
var switches = map[string]struct {
	file, how string
	on        func(text []byte) bool
}{
	"docker": {"/etc/docker/daemon.json", `/etc/docker/daemon.json has "features": {"cdi": true}`, func(text []byte) bool {
		var config struct {
			Features map[string]bool `json:"features"`
		}
		return json.Unmarshal(text, &config) == nil && config.Features["cdi"]
	}},
	"containerd": {"/etc/containerd/config.toml", "/etc/containerd/config.toml has enable_cdi = true", func(text []byte) bool {
		return regexp.MustCompile(`(?m)^\s*enable_cdi\s*=\s*true\b`).Match(text)
	}},
}

func (h Host) switchedOn(program string) bool {
	s, known := switches[program]
	if !known {
		return true
	}
	text, err := readBounded(filepath.Join(h.Root, s.file))
	return err == nil && s.on(text)
}

// mostRead bounds what is read of one file.
const mostRead = 1 << 20

// readBounded reads the beginning of a plain file. What else lies there, such as a pipe, is not opened.
func readBounded(path string) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a plain file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, mostRead))
}

// cdiFolders are where runtimes look for CDI files if they are not told otherwise.
var cdiFolders = []string{"/etc/cdi", "/var/run/cdi"}

// hostPath finds the host's files that a CDI file mounts, in JSON and in YAML as nvidia-ctk writes it.
var hostPath = regexp.MustCompile(`"?hostPath"?\s*:\s*"?(/[^"\s,}]+)`)

// shareFile is how the CDI files of shares for containers begin.
const shareFile = "divvy-share-"

// cdiChecks look at the CDI files of the machine: those of shares that have gone, and those of a driver that has.
func (h Host) cdiChecks() (checks []Check, shares bool) {
	var gone, old []string
	for _, folder := range cdiFolders {
		files, err := filepath.Glob(filepath.Join(h.Root, folder, "*"))
		if err != nil {
			continue
		}
		for _, file := range files {
			base := filepath.Base(file)
			ours, theirs := strings.HasPrefix(base, shareFile), strings.Contains(strings.ToLower(base), "nvidia")
			shares = shares || ours
			if ours || theirs {
				if missing := h.firstMissing(file); missing != "" && ours {
					gone = append(gone, file)
				} else if missing != "" {
					old = append(old, fmt.Sprintf("%s names %s, which is not there", file, missing))
				}
			}
		}
	}
	if len(gone) > 0 {
		checks = append(checks, Check{
			ID: "containers.devices", Name: "devices of shares", Status: Warn,
			Found: "these lead to shares that have gone: " + strings.Join(gone, ", "),
			Next:  "as root, start the agent (" + rundir.Start("") + "), which removes them, or: rm " + strings.Join(gone, " "),
		})
	}
	if len(old) > 0 {
		checks = append(checks, Check{
			ID: "containers.driver", Name: "the driver's CDI file", Status: Warn, Found: strings.Join(old, "; ") + ": containers with its devices do not start",
			Next: "as root: `nvidia-ctk cdi generate --output=` and the file's name",
		})
	}
	return checks, shares
}

// firstMissing is the first of the host's files that a CDI file names and that is not there, "" for none.
func (h Host) firstMissing(file string) string {
	text, err := readBounded(file)
	if err != nil {
		return "" // who may not read it cannot judge it
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		for _, m := range hostPath.FindAllStringSubmatch(lines.Text(), -1) {
			if _, err := os.Lstat(filepath.Join(h.Root, m[1])); errors.Is(err, fs.ErrNotExist) {
				return m[1]
			}
		}
	}
	return ""
}
