package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/edits"
)

// A folder that is bound as a tree brings along what is mounted in it, and nobody writes there.
func TestTreeBringsItsMounts(t *testing.T) {
	stages(t, func(t *testing.T, s stage) {
		top := filepath.Join(filepath.Dir(s.source), "top")
		inner, over := filepath.Join(top, "inner"), filepath.Join(filepath.Dir(s.source), "over")
		for _, folder := range []string{top, over} {
			if err := os.Mkdir(folder, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.WriteFile(inner, nil, 0o644), os.Chmod(over, 0o777), os.Chmod(top, 0o777)); err != nil {
			t.Fatal(err)
		}
		into := edits.Bind{Source: s.source, Target: inner}
		for name, want := range map[string]string{"plain": "", "tree": "ours"} {
			bind := edits.Bind{Source: top, Target: over, Tree: name == "tree"}
			if got := s.run(t, edits.Edits{Binds: []edits.Bind{into, bind}}, "cat", filepath.Join(over, "inner")); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		status, out := s.status(t, edits.Edits{Binds: []edits.Bind{into, {Source: top, Target: over, Tree: true}}}, "touch", filepath.Join(over, "new"))
		if status.ExitStatus() == 0 || !strings.Contains(out, "ead-only") {
			t.Errorf("writing: exit status %d: %s", status.ExitStatus(), out)
		}
	})
}

// A command in a user namespace of its own cannot look by another process of its user at what is covered for itself.
func TestCoversHoldForOtherProcesses(t *testing.T) {
	stages(t, func(t *testing.T, s stage) {
		if s.credential == nil && os.Getuid() == 0 {
			t.Skip("root has no user namespace of its own")
		}
		outsider := s.cmd(Plan{Program: "/bin/cat", Args: []string{""}})
		input, err := outsider.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := outsider.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = input.Close(); _ = outsider.Wait() }()
		at := fmt.Sprintf("/proc/%d/root%s", outsider.Process.Pid, s.target)
		if out, err := s.cmd(Plan{Program: "/bin/cat", Args: []string{"", at}}).CombinedOutput(); string(out) != "theirs\n" {
			t.Fatalf("outside of the namespace: %q, %v", out, err)
		}
		status, out := s.status(t, s.cover(true), "cat", at)
		if status.ExitStatus() == 0 || !strings.Contains(out, "Permission denied") {
			t.Errorf("exit status %d: %s", status.ExitStatus(), out)
		}
		if got := s.run(t, s.cover(true), "sh", "-c", "sh -c 'cat /proc/$PPID/root"+s.target+"'; echo"); got != "ours" {
			t.Errorf("by a process of its own: %q", got)
		}
	})
}

// fakeWorker is a worker in shell. It writes what it was given to a file beside its socket, and ends with its life.
const fakeWorker = `#!/bin/sh
echo "$@" >"$2.said"
test -z "$FAIL" || { echo no driver >&2; exit 1; }
echo listening >&4
exec 4>&-
cat <&3
echo ended >"$2"
`

func TestWorkerLivesAsLongAsItsCommand(t *testing.T) {
	stages(t, func(t *testing.T, s stage) {
		if s.credential != nil {
			t.Skip("a worker is started as the calling process's user")
		}
		dir := t.TempDir()
		w := &edits.Worker{Program: filepath.Join(dir, "worker"), Socket: filepath.Join(dir, "socket"), Edits: s.cover(true)}
		if err := os.WriteFile(w.Program, []byte(fakeWorker), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(w.Socket, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.enter.Work(w, append(os.Environ(), "FAIL=1")); !errors.Is(err, ErrWorker) {
			t.Errorf("a worker that ends before it listens: %v", err)
		}
		life, err := s.enter.Work(w, os.Environ())
		if err != nil {
			t.Fatal(err)
		}
		said, err := os.ReadFile(w.Socket + ".said")
		if want := "--listen " + w.Socket + " --life 3 --ready 4\n"; err != nil || string(said) != want {
			t.Errorf("it was given %q, %v; want %q", said, err, want)
		}
		fds := inherited(t)
		if err := life.Bequeath(); err != nil {
			t.Fatal(err)
		}
		left := slices.DeleteFunc(inherited(t), func(fd int) bool { return slices.Contains(fds, fd) })
		if len(left) != 1 || left[0] < lifeFD {
			t.Fatalf("descriptors %v are left to the command, want one from %d on", left, lifeFD)
		}
		if err := life.End(); err != nil {
			t.Fatal(err)
		}
		ended, err := os.OpenFile(w.Socket, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer ended.Close()
		if ready(t, ended) {
			t.Error("it ended before the command")
		}
		if err := unix.Close(left[0]); err != nil { // as the command's end does
			t.Fatal(err)
		}
		text := make([]byte, len("ended\n"))
		if _, err := io.ReadFull(ended, text); string(text) != "ended\n" {
			t.Errorf("after the command's end: %q, %v", text, err)
		}
	})
}

// ready reports whether something can be read.
func ready(t *testing.T, file *os.File) bool {
	t.Helper()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(file.Fd()), Events: unix.POLLIN}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n > 0
}

// inherited are the descriptors of this process that a command would inherit.
func inherited(t *testing.T) (fds []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			fds = append(fds, fd)
		}
	}
	return fds
}

// What the caller has libraries looked for in, or loaded beside others, is not the worker's: the command may write there.
func TestWorkerTakesNoLibrariesOfTheCaller(t *testing.T) {
	ours := edits.Edits{Env: []edits.Env{{Name: "LD_LIBRARY_PATH", Value: "/tenants/t7", Prepend: true}}}
	env := []string{"HOME=/home/u", "LD_LIBRARY_PATH=/home/u/lib", "LD_PRELOAD=/home/u/p.so", "LD_AUDIT=/home/u/a.so", "CUDA_INJECTION64_PATH=/home/u/c.so", "NVTX_INJECTION64_PATH=/home/u/n.so", "GCONV_PATH=/home/u", "CUDA_CACHE_PATH=/home/u/cache"}
	before := slices.Clone(env)
	p := Enter("/enter").workerPlan(&edits.Worker{Program: "/worker", Socket: "/socket", Edits: ours}, env)
	slices.Sort(p.Env)
	if want := []string{"CUDA_CACHE_PATH=/home/u/cache", "HOME=/home/u", "LD_LIBRARY_PATH=/tenants/t7"}; !slices.Equal(p.Env, want) {
		t.Errorf("it has %q, want %q", p.Env, want)
	}
	if !slices.Equal(env, before) {
		t.Errorf("the command's became %q", env)
	}
}
