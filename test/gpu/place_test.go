package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

var everyCase = regexp.MustCompile("")

// machineFile is a simulated machine's file with changes, in the folder.
func machineFile(t *testing.T, folder, machine string, changes [][2]string) string {
	t.Helper()
	text, err := exec.Command(filepath.Join(folder, "bin", "divvy"), "simgpu", "machines", machine).Output()
	if err != nil {
		t.Fatal(err)
	}
	changed := string(text)
	for _, c := range changes {
		changed = regexp.MustCompile(c[0]).ReplaceAllString(changed, c[1])
	}
	if len(changes) > 0 && changed == string(text) {
		t.Fatalf("nothing to change in\n%s", text)
	}
	file, err := os.CreateTemp(folder, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = file.WriteString(changed); err == nil {
		err = file.Chmod(0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// within runs the bundle after a script, in user and mount namespaces of its own and under another host's name.
func within(t *testing.T, folder, script string, args ...string) (said string) {
	t.Helper()
	cmd := bundled(t, folder, args...)
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args = append([]string{"sh", "-c", "set -e\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\n" + script + "\nPATH=$PWD/nothing\n" + `exec "$0" "$@"`, cmd.Path}, args...)
	cmd.Path = shell
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS
	cmd.SysProcAttr.Credential = nil
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		installtest.Missing(t, "userns", err)
	}
	return string(text)
}

// tells is a tool that tells everything about the machine, and fails.
const tells = `#!/bin/sh
read -r host </proc/sys/kernel/hostname
echo "no licence on $host for $USER in /srv/acme/rocket, GPU-6e5f0d1c-3b5e-4a8e-9f7a-2d1c0b9a8f7e" >&2
exit 1
`

const told = "skipped: compute-sanitizer does not work natively: exit status 1: no licence on (host) for (user) in (path), (GPU's UUID)"

// Where namespaces are not allowed shares work through LD_LIBRARY_PATH; where the usual places are noexec or the folder is
// read-only they work too, and the report goes elsewhere. The host's name is in no report.
func TestBundleInOddPlaces(t *testing.T) {
	t.Parallel()
	const layer = "layer of the share: "
	for name, c := range map[string]struct{ script, report, says string }{
		"another host's name": {"hostname quark17.example.org", "r.md", layer + "namespace"},
		"no namespaces":       {"hostname quark17; echo 0 >/proc/sys/user/max_user_namespaces; echo 0 >/proc/sys/user/max_mnt_namespaces", "r.md", layer + "env"},
		"noexec":              {"hostname quark17; mount -t tmpfs -o noexec none /tmp; mount -t tmpfs -o noexec none /dev/shm", "r.md", layer + "namespace"},
		"a folder that is closed": {`hostname quark17; mount --bind "$PWD" "$PWD"; mount -o remount,bind,ro "$PWD"; cd "$PWD"
			HOME=$(mktemp -d /tmp/gpu-home-XXXX); export HOME`, "", layer + "namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := mine(t)
			tool := filepath.Join(folder, "nothing", "compute-sanitizer")
			if err := errors.Join(os.Mkdir(filepath.Dir(tool), 0o755), os.WriteFile(tool, []byte(tells), 0o755)); err != nil {
				t.Fatal(err)
			}
			args := []string{"-simgpu", "a100-80g", "-only", "^(limit|account|doctor|sanitizer|left)$"}
			if c.report != "" {
				args = append(args, "-out", c.report)
			}
			said := within(t, folder, c.script, args...)
			page, r := reported(t, reportOf(t, folder, c.report, said))
			for _, o := range r.Cases {
				if want := map[string]string{"sanitizer": told}[o.Name]; o.Outcome != passed && o.line() != want {
					t.Errorf("%s: %s", o.Name, o.line())
				}
			}
			if len(r.Cases) != 5 {
				t.Errorf("%d cases: %s", len(r.Cases), said)
			}
			if !strings.Contains(page, c.says) {
				t.Errorf("the report does not say %q:\n%s", c.says, page)
			}
			nothingTold(t, folder, page)
		})
	}
}

// reportOf is the report's file: in the folder by its name, or elsewhere, where the program says.
func reportOf(t *testing.T, folder, name, said string) string {
	t.Helper()
	if name != "" {
		return filepath.Join(folder, name)
	}
	match := regexp.MustCompile(`(?m)^The report is (.*)\. It has`).FindStringSubmatch(said)
	if match == nil || strings.HasPrefix(match[1], folder) {
		t.Fatalf("it says %s", said)
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(match[1])) })
	return match[1]
}
