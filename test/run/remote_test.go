package run

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A share of backend remote has the limit of any share, for all its processes together, as the oracle sees it.
func TestRemoteKeepsTheLimit(t *testing.T) {
	h := newHost(t).namespaces()
	one := []string{"alloc", "--bytes", "1Gi", "--count", "20"}
	remote := h.run(append([]string{"--backend", "remote", "--memory", "8Gi", "--", h.bench()}, one...)...)
	local := h.run(append([]string{"--memory", "8Gi", "--", h.bench()}, one...)...)
	if remote.status != local.status || !strings.Contains(remote.out, "CUDA_ERROR_OUT_OF_MEMORY") || !strings.Contains(remote.out, `"allocations":7,`) {
		t.Errorf("%+v, and in a local share %+v", remote, local)
	}
	s := h.steps("two")
	s.want("5 GiB", s.do("5368709120"), "0")
	if used := h.bytesUsed(); used < 5*gib || used > 8*gib {
		t.Errorf("the oracle sees %d bytes", used)
	}
	s.want("4 GiB more", s.do("4294967296"), outOfMemory)
	s.end()
	h.gone()
}

// The processes of a share have a worker each, and one limit.
func TestRemoteProcessesShareTheLimit(t *testing.T) {
	h := newHost(t).namespaces()
	const both = `mkfifo "$1/line" "$1/end" || exit 9
"$0" hold --bytes 5Gi <"$1/end" >"$1/line" & exec 3>"$1/end"
read -r said <"$1/line"; "$0" alloc --bytes 1Gi --count 9; exec 3>&-; wait`
	o := h.run("--backend", "remote", "--memory", "8Gi", "--", "sh", "-c", both, h.bench(), t.TempDir())
	if !strings.Contains(o.out, `"allocations":2,`) || !strings.Contains(o.out, "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("beside 5 GiB of another process: %+v", o)
	}
	h.gone()
}

// Who has waited for the end of a program may start the next one: that finds the memory of the first, however it ended.
func TestRemoteNextProgramHasTheMemory(t *testing.T) {
	h := newHost(t).namespaces()
	const rounds = 40
	const kill = `mkfifo "$1/line" "$1/end" || exit 9
i=0; while [ $((i += 1)) -le $2 ]; do
"$0" hold --bytes 5Gi <"$1/end" >"$1/line" & exec 3>"$1/end"
read -r said <"$1/line"; echo "$said"; kill -9 $!; wait $!; exec 3>&-
done`
	o := h.run("--backend", "remote", "--memory", "8Gi", "--", "sh", "-c", kill, h.bench(), t.TempDir(), strconv.Itoa(rounds))
	if n := strings.Count(o.out, "CUDA_SUCCESS"); n != rounds {
		t.Errorf("%d of %d programs had the memory: %+v", n, rounds, o)
	}
	h.gone()
}

// A fork child has no GPU, as with the driver, and a program that it becomes has.
func TestRemoteForkAndExec(t *testing.T) {
	h := newHost(t).namespaces()
	s := h.steps("forks")
	s.want("alloc", s.do("1048576"), "0")
	s.want("in a child", s.do("fork"), notInitialized)
	s.want("alloc after it", s.do("1048576"), "0")
	s.want("as another program", s.do("exec"), "0")
	s.want("alloc there", s.do("1048576"), "0")
	h.eventually("one worker is left", func() bool {
		_, serving := h.workers()
		return len(serving) == 1
	})
	s.end()
	h.gone()
}

// Exit status and signals are the command's own, and so are errors before it.
func TestRemoteCommandIsTheProcess(t *testing.T) {
	h := newHost(t).namespaces()
	remote := []string{"--backend", "remote", "--memory", "1Gi", "--"}
	for name, c := range map[string]struct {
		command []string
		status  int
	}{
		"its status": {[]string{"sh", "-c", "exit 7"}, 7},
		"a signal":   {[]string{"sh", "-c", "kill -TERM $$"}, 128 + int(syscall.SIGTERM)},
		"not found":  {[]string{"/nowhere/program"}, 127},
	} {
		if o := h.run(append(slices.Clone(remote), c.command...)...); o.status != c.status {
			t.Errorf("%s: %+v, want status %d", name, o, c.status)
		}
	}
	h.gone()
}

// Inside such a share `divvy doctor` finds nothing wrong, and `divvy ls` says why it sees nothing.
func TestRemoteDoctor(t *testing.T) {
	h := newHost(t).namespaces()
	divvy := filepath.Join(string(h.tree), "bin", "divvy")
	if o := h.run("--backend", "remote", "--memory", "1Gi", "--name", "well", "--", divvy, "ls"); o.status != 0 || !strings.Contains(o.out, "No agent is seen from here: share well keeps its command away") {
		t.Errorf("divvy ls: %+v", o)
	}
	doctor := divvy + " doctor"
	o := h.run("--backend", "remote", "--memory", "1Gi", "--name", "well", "--", "sh", "-c", doctor)
	for _, want := range []string{"ok    share: well: backend remote", "ok    library:", "sends each call to a worker", "ok    GPUs: the worker shows 1", "ok    agent:"} {
		if o.status != 0 || !strings.Contains(o.out, want) {
			t.Errorf("%+v does not say %q", o, want)
		}
	}
	h.gone()
}

// A worker that ends before it listens is an error before the command runs, and the share is gone.
func TestRemoteWorkerDoesNotStart(t *testing.T) {
	h := newHost(t)
	broken := *h
	broken.tree = h.withWorker("#!/bin/sh\necho no such library >&2\nexit 1\n")
	o := broken.run("--backend", "remote", "--memory", "1Gi", "--", "true")
	if o.status != 125 || !strings.Contains(o.err, "no such library") || !strings.Contains(o.err, "did not start") {
		t.Errorf("%+v", o)
	}
	h.gone()
}

// The command sees neither a file of the driver's nor the pages of any share.
func TestRemoteCommandSeesNoDriver(t *testing.T) {
	h := newHost(t).namespaces()
	s := h.steps("apart")
	s.want("alloc", s.do("1048576"), "0")
	proc := filepath.Join("/proc", strconv.Itoa(s.cmd.Process.Pid))
	inside := func(path string) []string {
		t.Helper()
		entries, err := os.ReadDir(proc + "/root" + path)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		return names
	}
	share, _ := h.tenant("apart")
	client := []string{
		"libcuda.so", "libcuda.so.1", "libdivvy-remote.so.1", "libnvidia-ml.so", "libnvidia-ml.so.1", "worker.sock",
	}
	for path, want := range map[string][]string{
		h.instance: client,
		filepath.Join(string(h.tree), "lib", "simgpu"): client,
		filepath.Dir(share.Dir):                        {share.ID},
		share.Dir:                                      {"client"},
		filepath.Join(share.Dir, "client"):             client,
	} {
		if got := inside(path); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
	maps, err := os.ReadFile(proc + "/maps")
	if err != nil || !bytes.Contains(maps, []byte("/client/libdivvy-remote.so.1")) || bytes.Contains(maps, []byte(h.instance)) || bytes.Contains(maps, []byte("/state")) {
		t.Errorf("it has mapped, %v:\n%s", err, maps)
	}
	descriptors, err := os.ReadDir(proc + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range descriptors {
		if target, _ := os.Readlink(filepath.Join(proc, "fd", fd.Name())); strings.HasPrefix(target, h.rundir) || strings.HasPrefix(target, "/dev/nvidia") {
			t.Errorf("it has %s open", target)
		}
	}
	drivers := filepath.Join(string(h.tree), "lib", "simgpu", "libcuda.so.1")
	ways := [][]string{{h.build("plain")}, {"env", "-i", h.build("plain")}, {h.build("plain"), "libcuda.so"}, {h.build("plain"), drivers}}
	for _, way := range ways {
		if o := h.run(append([]string{"--backend", "remote", "--memory", "1Gi", "--"}, way...)...); o.status != 0 || o.out != refusedWithin {
			t.Errorf("%q: %+v, want %q", way, o, refusedWithin)
		}
	}
}

// Without namespaces the command has the client too, and is told that nothing hides the driver.
func TestRemoteByEnvironment(t *testing.T) {
	h := newHost(t)
	o := h.run("--backend", "remote", "--layer", "env", "--memory", "1Gi", "--", h.build("plain"))
	if o.status != 0 || o.out != refusedWithin || strings.Count(o.err, "nothing hides the driver") != 1 {
		t.Errorf("%+v, want %q", o, refusedWithin)
	}
	h.gone()
}

// What the shell left open for the command is not held by the worker.
func TestRemoteWorkerHoldsNothingOfTheCommand(t *testing.T) {
	h := newHost(t).namespaces()
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	var files []*os.File
	for range 3 { // the worker has descriptors of its own in their place
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	s := h.stepsWith("holds", append(files, theirs)...)
	held := func(pid int) bool {
		pipe, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", ours.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		descriptors, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		return slices.ContainsFunc(descriptors, func(fd string) bool {
			target, _ := os.Readlink(fd)
			return target == pipe
		})
	}
	listeners, serving := h.workers()
	if !held(s.cmd.Process.Pid) || len(listeners) != 1 || len(serving) != 1 || held(listeners[0]) || held(serving[0]) {
		t.Errorf("of command %d, %v and %v the wrong ones have it open", s.cmd.Process.Pid, listeners, serving)
	}
	s.end()
	h.gone()
}

// Lists show the backend, and the command's process beside the worker's. Shares of both kinds are on one GPU.
func TestRemoteIsListed(t *testing.T) {
	h := newHost(t).namespaces()
	s := h.steps("listed")
	s.want("alloc", s.do("1048576"), "0")
	share, _ := h.tenant("listed")
	_, serving := h.workers()
	if p := share.Shares[0].Process; share.Shares[0].Backend != "remote" || len(p) != 1 || p[0].Client != s.cmd.Process.Pid || !slices.Equal(serving, []int{p[0].PID}) {
		t.Errorf("listed %+v, with workers %v", share.Shares[0], serving)
	}
	if table := h.ok("ls", "--simgpu", "m"); !strings.Contains(table, "remote") || !strings.Contains(table, strconv.Itoa(s.cmd.Process.Pid)) {
		t.Errorf("the table does not show it:\n%s", table)
	}
	if o := h.run("--memory", "1Gi", "--", h.build("plain")); o.status != 0 || o.out != refusedWithin {
		t.Errorf("a share of backend slice beside it: %+v", o)
	}
	if len(h.list().Outside) > 0 {
		t.Errorf("processes without a share: %+v", h.list().Outside)
	}
	if o := h.divvy("stop", "listed", "--simgpu", "m"); o.status != 0 {
		t.Errorf("stop: %+v", o)
	}
	h.gone()
}

// The agent's death is nothing to a command, also where the agent's own records are lost, and the next agent knows what the
// share is.
func TestRemoteOutlivesTheAgent(t *testing.T) {
	for name, lost := range map[string]bool{"with its records": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t).namespaces()
			s := h.steps("stays")
			s.want("alloc", s.do("1073741824"), "0")
			before := h.list().Info.PID
			if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			h.eventually("the agent is gone", func() bool { return syscall.Kill(before, 0) != nil })
			if share := filepath.Join(h.rundir, "tenants"); lost {
				records, err := filepath.Glob(filepath.Join(share, "*", "record"))
				if err != nil || len(records) != 1 {
					t.Fatalf("records %v, %v", records, err)
				}
				if err := errors.Join(os.Remove(records[0]), os.Remove(filepath.Join(h.instance, "tenants.json"))); err != nil {
					t.Fatal(err)
				}
			}
			s.want("alloc without an agent", s.do("1073741824"), "0")
			if o := h.run("--memory", "1Gi", "--", h.build("plain")); o.status != 0 || o.out != refusedWithin {
				t.Errorf("a share of the next agent: %+v", o)
			}
			share, ok := h.tenant("stays")
			if !ok || share.Shares[0].Backend != "remote" || share.Shares[0].Used < 2*gib || share.Rebuilt != lost {
				t.Errorf("the next agent has %+v", share)
			}
			s.want("alloc with the next one", s.do("1073741824"), "0")
			s.want("past the limit", s.do("7516192768"), outOfMemory)
			s.end()
			h.gone()
		})
	}
}

// A program cannot launch much farther ahead of its GPU than the driver would let it: what it does in a second is not the work
// of many.
func TestRemoteHoldsLaunchesBack(t *testing.T) {
	h := newHost(t).namespaces()
	o := h.run("--backend", "remote", "--memory", "1Gi", "--", h.bench(), "load", "--seconds", "1", "--ns", "1000000")
	lines := strings.Split(o.out, "\n")
	var last struct {
		Result   string `json:"result"`
		Launches int    `json:"launches"`
	}
	// A thousand in the time, a thousand in the driver and one on the way.
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Result != "CUDA_SUCCESS" || last.Launches > 8000 {
		t.Errorf("%+v, %v: %+v", last, err, o)
	}
	h.gone()
}

// A program that needs what only a local share gives hears so, as do those who list the share, also when it has ended.
func TestRemoteNeedsALocalShare(t *testing.T) {
	h := newHost(t).namespaces()
	const ask = `import ctypes, sys; r = ctypes.CDLL("libcuda.so.1").cuGetExportTable(ctypes.byref(ctypes.c_void_p()), ctypes.create_string_buffer(16)); print(r, flush=True); sys.stdin.read()`
	s := h.hold([]string{"--backend", "remote", "--memory", "1Gi", "--name", "asks"}, "python3", "-c", ask)
	if strings.TrimSpace(s.first) != notSupported {
		t.Errorf("it is answered %s", s.first)
	}
	h.eventually("the list tells it", func() bool {
		share, _ := h.tenant("asks")
		return strings.Contains(share.Fault, "needs a local share")
	})
	if table := h.ok("ls", "--simgpu", "m"); !strings.Contains(table, "needs a local share") {
		t.Errorf("the table does not:\n%s", table)
	}
	keeper := h.hold([]string{"--memory", "1Gi"}, h.bench(), "hold", "--bytes", "1Mi") // and the agent
	s.end()
	if text := waits.ReplaceAllString(s.said.String(), ""); strings.Count(text, "\n") != 1 || !strings.Contains(text, "local share") {
		t.Errorf("the program hears %q", text)
	}
	h.eventually("the share is gone", func() bool { _, there := h.tenant("asks"); return !there })
	told := 0
	for _, e := range h.list().Events {
		if e.Tenant == "asks" && strings.Contains(e.Text, "needs a local share") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d events tell it: %+v", told, h.list().Events)
	}
	keeper.end()
	h.gone()
}

// Whoever of command and worker dies, nothing is left, and a command that lives on hears of it.
func TestRemoteDeaths(t *testing.T) {
	h := newHost(t).namespaces()
	s := h.steps("killed")
	s.want("alloc", s.do("1073741824"), "0")
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.end()
	h.gone()

	s = h.steps("orphaned")
	s.want("alloc", s.do("1073741824"), "0")
	listeners, _ := h.workers()
	if len(listeners) != 1 {
		t.Fatalf("listeners %v", listeners)
	}
	if err := syscall.Kill(listeners[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.eventually("the memory is free", func() bool { return h.bytesUsed() == 0 })
	s.want("after the worker's death", s.do("1048576"), deviceUnavailable)
	s.want("and once more", s.do("1048576"), deviceUnavailable)
	if _, held := h.tenant("orphaned"); !held {
		t.Error("the share ended before its command")
	}
	s.end()
	if said := strings.TrimSpace(waits.ReplaceAllString(s.said.String(), "")); said == "" || strings.Contains(said, "\n") {
		t.Errorf("it said why in this way: %s", said)
	}
	h.gone()
}

// The command cannot move the run directory, though it is its user's: the next worker would find what the command put in its
// place, and the command the pages of later shares.
func TestRemoteKeepsTheRunDirectory(t *testing.T) {
	h := newHost(t).namespaces()
	const try = `mv "$1" "$1.moved" && echo moved; touch "$1/new" && echo written; unshare -Urm sh -c 'umount -l "$1"; mv "$1" "$1.moved" && echo moved' "$0" "$1"; "$2" alloc --bytes 1Mi --count 1`
	o := h.run("--backend", "remote", "--memory", "1Gi", "--", "sh", "-c", try, "sh", h.rundir, h.bench())
	if strings.Contains(o.out, "moved") || strings.Contains(o.out, "written") || !strings.Contains(o.out, `"allocations":1,`) {
		t.Errorf("%+v", o)
	}
	h.gone()
}
