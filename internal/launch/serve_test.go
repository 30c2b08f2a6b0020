package launch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/process"
)

// telling is a worker in shell that tells what it is and has, and ends with its life.
const telling = `#!/bin/sh
{
	echo "$@"
	grep -E '^(Uid|Gid|Groups|CapEff|CapPrm|CapBnd|CapAmb|NoNewPrivs):' /proc/self/status
	echo "env $(env | sort | tr '\n' ' ')"
	echo "sees $(cat TARGET)"
	echo "umask $(umask), in $(pwd), oom $(cat /proc/self/oom_score_adj)"
	for fd in /proc/$$/fd/*; do readlink "$fd"; done
} >FOLDER/said
echo listening >&4
exec 4>&-
cat <&3
`

// A worker of a user of its own has that user, its groups, and nothing of the agent's: no right, variable or descriptor.
func TestServe(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root starts programs as another user")
	}
	s := newStage(t, nil)
	folder := filepath.Join(filepath.Dir(s.source), "apart")
	w := &edits.Worker{Program: filepath.Join(filepath.Dir(s.source), "worker"), Socket: filepath.Join(filepath.Dir(s.source), "socket"), Edits: s.cover(true)}
	const uid, gid = 60999, 60998
	text := strings.NewReplacer("FOLDER", folder, "TARGET", s.target).Replace(telling)
	if err := errors.Join(os.Mkdir(folder, 0o755), os.Chown(folder, uid, uid), os.WriteFile(w.Program, []byte(text), 0o755)); err != nil {
		t.Fatal(err)
	}
	inherited, err := os.Open("/proc/self") // which a child must not have
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close()
	said, err := os.Create(filepath.Join(filepath.Dir(s.source), "errors"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	t.Setenv("SECRET", "of the agent's")
	cgroups := []process.Group{{Folder: folder, Name: "missing/group"}} // which is told of alone
	life, err := s.enter.Serve(t.Context(), Service{
		Worker: w, UID: uid, Groups: []int{gid}, Client: unprivileged, Cgroups: cgroups, Environment: []string{"CUDA_LAUNCH_BLOCKING=1"}, Said: said,
	})
	if err != nil {
		told, _ := os.ReadFile(said.Name())
		t.Fatalf("%v: %s", err, told)
	}
	defer life.Close()
	out, err := os.ReadFile(filepath.Join(folder, "said"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(out), "\n")
	for _, want := range []string{
		"--listen " + w.Socket + " --life 3 --ready 4 --bound 5 --uid 54321",
		"Uid:\t60999\t60999\t60999\t60999", "Gid:\t60999\t60999\t60999\t60999", "Groups:\t60998 ", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000",
		"CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "sees ours", "umask 0077, in /, oom 0",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(string(out), "SECRET") || strings.Contains(string(out), "/proc/self") || !strings.Contains(string(out), "env CUDA_LAUNCH_BLOCKING=1 ") {
		t.Errorf("it has:\n%s", out)
	}
	if told, err := os.ReadFile(said.Name()); err != nil || !strings.Contains(string(told), "enter the cgroup") {
		t.Errorf("of a cgroup that is not there: %q, %v", told, err)
	}
	info, err := os.Lstat(w.Socket)
	if err != nil || info.Mode() != os.ModeSocket|0o600 || info.Sys().(*syscall.Stat_t).Uid != unprivileged {
		t.Errorf("the socket: %v, %v", info, err)
	}
	if err := life.Close(); err != nil {
		t.Error(err)
	}
	waitForNobody(t, uid)
}

// waitForNobody waits until no process is a user's.
func waitForNobody(t *testing.T, uid int) {
	t.Helper()
	for _, id := range process.Of(uid) {
		ended, stop, err := id.Watch()
		if err != nil {
			t.Fatal(err)
		}
		<-ended
		stop()
	}
}

// divvy-enter makes nobody root, and changes no user but for root.
func TestEnterAsUser(t *testing.T) {
	stages(t, func(t *testing.T, s stage) {
		run := func(words ...string) string {
			out, err := s.cmd(Plan{Program: string(s.enter), Args: append([]string{""}, append(words, "--", "id", "-u")...)}).CombinedOutput()
			return strings.TrimSpace(string(out)) + map[bool]string{true: "", false: " failed"}[err == nil]
		}
		for _, words := range [][]string{
			{"--user", "0", "60999"}, {"--user", "60999", "0"}, {"--user", "60999", ""}, {"--user", "60999x", "60999"}, {"--user", "-1", "60999"}, {"--user", "4294967295", "60999"},
			{"--user", "60999", "60999," + strings.Repeat("7,", 70) + "7"}, {"--user", "60999", "60999;7"}, {"--user", "60999"},
		} {
			if got := run(words...); !strings.HasSuffix(got, " failed") {
				t.Errorf("%v: %q", words, got)
			}
		}
		want := "60999"
		if s.credential != nil || os.Getuid() != 0 {
			want = " failed"
		}
		if got := run("--user", "60999", "60999"); !strings.HasSuffix(got, want) {
			t.Errorf("as %+v: %q", s.credential, got)
		}
	})
}

// The socket of a worker replaces one that an earlier agent left, and nothing is served there until somebody listens.
func TestBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 2 {
		socket, err := bound(path, os.Getuid())
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("before anybody listens: %v", err)
		}
		if err := errors.Join(unix.Close(fd), socket.Close()); err != nil {
			t.Error(err)
		}
	}
	if _, err := bound(filepath.Join(path, "s"), os.Getuid()); err == nil {
		t.Error("a socket in no folder")
	}
}
