package users

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// The users of workers where agent.yaml does not say.
const (
	firstWorker = 60706
	lastWorker  = firstWorker + 478 - 1
)

// workers are the processes of users of workers, by pid as the server sees it, each with its user.
func (s *server) workers() map[int]int {
	s.t.Helper()
	proc := filepath.Join(s.Root, "proc")
	entries, err := os.ReadDir(proc)
	if err != nil {
		s.t.Fatal(err)
	}
	found := map[int]int{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		fields := strings.Fields(s.status(pid, "Uid"))
		if len(fields) < 4 {
			continue
		}
		if uid, err := strconv.Atoi(fields[0]); err == nil && uid >= firstWorker && uid <= lastWorker {
			found[pid] = uid
		}
	}
	return found
}

// status is a line of a process's status in /proc, "" for one that has ended.
func (s *server) status(pid int, line string) string {
	text, _ := os.ReadFile(filepath.Join(s.Root, "proc", strconv.Itoa(pid), "status"))
	for one := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(one, line+":"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// reach tries all that a user can try with another process, whose pid is the first argument, and with the files and folders that
// follow. It prints a line for each with "no", or "yes" where the kernel lets it.
const reach = `import ctypes, errno, os, signal, sys
pid, files = int(sys.argv[1]), sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
def attempt(what, how):
    try:
        how()
        print(what, "yes")
    except OSError as e:
        print(what, "no" if e.errno in (errno.EPERM, errno.EACCES) else os.strerror(e.errno))
def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
def reads():
    room = ctypes.create_string_buffer(8)
    at = [l for l in open("/proc/%d/maps" % pid)][0].split("-")[0]
    ours, theirs = (ctypes.c_void_p * 2)(ctypes.addressof(room), 8), (ctypes.c_void_p * 2)(int(at, 16), 8)
    checked(libc.process_vm_readv(pid, ours, 1, theirs, 1, 0))
def trace(): # without a stop of the other one, until this process ends
    checked(libc.ptrace(0x4206, pid, None, None))
for s in (0, signal.SIGCONT, signal.SIGURG):
    attempt("signal %d" % s, lambda: os.kill(pid, s))
attempt("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 0))
attempt("descriptor", lambda: checked(libc.syscall(438, os.pidfd_open(pid), 0, 0)))
attempt("trace", trace)
attempt("read memory", reads)
for name in ("mem", "maps", "environ", "auxv", "io"):
    attempt(name, lambda: open("/proc/%d/%s" % (pid, name), "rb").read(0 if name == "mem" else 1))
for name in ("root/", "cwd/", "fd", "map_files"):
    attempt(name, lambda: os.listdir("/proc/%d/%s" % (pid, name)))
attempt("oom", lambda: open("/proc/%d/oom_score_adj" % pid, "w").write("1000"))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
for file in files:
    name = os.path.basename(file.rstrip("/"))
    if os.path.isdir(file):
        attempt("make in " + name, lambda: os.close(os.open(file + "/made", os.O_CREAT | os.O_WRONLY)))
        attempt("link in " + name, lambda: os.symlink("/etc/passwd", file + "/needs-local.new"))
        for inner in sorted(os.listdir(file)):
            attempt("move " + inner, lambda: os.rename(file + "/" + inner, file + "/moved"))
    else:
        attempt("write " + name, lambda: os.close(os.open(file, os.O_WRONLY)))
        attempt("own " + name, lambda: os.chmod(file, 0o777))
        attempt("map " + name, lambda: os.close(os.open(file, os.O_RDWR)))
        attempt("remove " + name, lambda: os.rename(file, file + ".moved"))
`

// Under the system's agent the worker of a share is of a user of its own: whatever a command has its own user do outside reaches
// neither the worker nor the pages of the share.
func TestRemoteWorkerIsOutOfReach(t *testing.T) {
	s := newServer(t, "driver.cuda=12.4")
	s.agent()
	s.write("/opt/reach.py", reach)
	held := s.start("u1", true, "env", "CUDA_LAUNCH_BLOCKING=1", "CUDA_CACHE_PATH=/home/u1", "SECRET=1", "divvy", "run", "--backend", "remote", "--memory", "2Gi", "--name", "apart", "--", "gpubench", "hold", "--bytes", "1Gi")
	apart, _ := find(s.list(), "u1", "apart")
	found := s.workers()
	if len(found) != 2 || len(apart.Shares) != 1 || len(apart.Shares[0].Process) != 1 || found[apart.Shares[0].Process[0].PID] == 0 {
		t.Fatalf("workers %v, share %+v", found, apart.Shares)
	}
	if apart.UID != 2001 || apart.Shares[0].Process[0].Client == 0 {
		t.Errorf("the share is of user %d, and its worker works for %d", apart.UID, apart.Shares[0].Process[0].Client)
	}
	client := apart.Dir + "/client"
	files := []string{apart.Dir, client, apart.Dir + "/state", apart.Dir + "/config", client + "/libcuda.so.1", client + "/needs-local"}
	for pid := range found {
		s.isBare(pid)
		s.refused("u1", []string{"not permitted"}, "sh", "-c", fmt.Sprintf("kill -STOP %[1]d || kill -KILL %[1]d", pid))
		o := s.run("u1", append([]string{"python3", "/opt/reach.py", strconv.Itoa(pid)}, files...)...)
		for line := range strings.Lines(o.out) {
			if strings.TrimSpace(line) != "" && !strings.HasSuffix(line, " no\n") && !strings.HasSuffix(line, " no") {
				t.Errorf("process %d: %s", pid, line)
			}
		}
		if o.status != 0 || strings.Count(o.out, "\n") < 40 {
			t.Errorf("process %d: status %d, %s%s", pid, o.status, o.out, o.err)
		}
	}
	// The same attempts succeed with what is the user's own, so they are attempts.
	own := s.hold("u1", "1Gi", "--memory", "2Gi", "--name", "own")
	mine, _ := find(s.list(), "u1", "own")
	o := s.run("u1", "python3", "/opt/reach.py", strconv.Itoa(mine.Shares[0].Process[0].PID), mine.Dir+"/state")
	for _, want := range []string{"signal 0 yes", "descriptor yes", "trace yes", "read memory yes", "environ yes", "root/ yes", "fd yes", "map state yes"} {
		if !strings.Contains(o.out, want) {
			t.Errorf("with a process of the user's own it is not so that %s:\n%s%s", want, o.out, o.err)
		}
	}
	own.end()
	s.onlyConnects("u1", client+"/worker.sock")
	if status := held.end(); status != 0 {
		t.Errorf("the command ended with %d: %s", status, held.said)
	}
	s.eventually("nothing is left", func() bool { return len(s.list().Tenants) == 0 && len(s.workers()) == 0 })
}

// isBare checks that a worker has nothing of the agent's and nothing of the command's but what says how the driver works.
func (s *server) isBare(pid int) {
	s.t.Helper()
	for line, want := range map[string]string{
		"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapBnd": "0000000000000000", "CapAmb": "0000000000000000", "CapInh": "0000000000000000",
		"NoNewPrivs": "1", "Groups": "",
	} {
		if got := s.status(pid, line); got != want {
			s.t.Errorf("process %d: %s is %q", pid, line, got)
		}
	}
	if uids := strings.Fields(s.status(pid, "Uid")); len(slices.Compact(uids)) != 1 {
		s.t.Errorf("process %d: users %v", pid, uids)
	}
	proc := filepath.Join(s.Root, "proc", strconv.Itoa(pid))
	environ, err := os.ReadFile(filepath.Join(proc, "environ"))
	for _, entry := range strings.Split(strings.TrimSuffix(string(environ), "\x00"), "\x00") {
		name, _, _ := strings.Cut(entry, "=")
		if !slices.Contains([]string{"CUDA_LAUNCH_BLOCKING", "CUDA_CACHE_DISABLE", "CUDA_MPS_PIPE_DIRECTORY", "DIVVY_SIMGPU"}, name) {
			s.t.Errorf("process %d has the variable %s", pid, entry)
		}
	}
	adjusted, adjustErr := os.ReadFile(filepath.Join(proc, "oom_score_adj"))
	if err != nil || adjustErr != nil || strings.TrimSpace(string(adjusted)) != "0" {
		s.t.Errorf("process %d: %v, %v, %s", pid, err, adjustErr, adjusted)
	}
	entries, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		s.t.Error(err)
	}
	for _, entry := range entries {
		to, _ := os.Readlink(filepath.Join(proc, "fd", entry.Name()))
		if strings.Contains(to, "agent") || strings.HasSuffix(to, ".json") || strings.Contains(to, "inotify") {
			s.t.Errorf("process %d has %s open", pid, to)
		}
	}
}

// onlyConnects checks that a user's processes are served at a socket and nobody else's, root's neither.
func (s *server) onlyConnects(user, socket string) {
	s.t.Helper()
	const connects = `import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.settimeout(60)
    s.connect(sys.argv[1])
    s.sendall(b"x" * 32)
    print("said", len(s.recv(1)))`
	for one, want := range map[string]string{user: "said", "u2": "PermissionError", "root": ""} {
		o := s.run(one, "python3", "-c", connects, socket)
		if text := o.out + o.err; want != "" && !strings.Contains(text, want) || one == "root" && o.status == 0 && !strings.Contains(text, "said 0") {
			s.t.Errorf("%s connects: %+v", one, o)
		}
	}
}

// A worker's user is nobody else's: not another share's, and not the next share's as long as anything of the last one is there.
func TestRemoteWorkersAreDifferentUsers(t *testing.T) {
	s := newServer(t, "driver.cuda=12.4")
	s.write("/etc/divvy/agent.yaml", "apiVersion: divvy.dev/v1alpha1\nkind: AgentConfig\nworkers: {firstUID: 61000, count: 3}\n")
	s.asRoot("chmod", "644", "/etc/divvy/agent.yaml")
	s.asRoot("sh", "-c", "echo taken:x:61001:61001::/:/bin/false >>/etc/passwd")
	s.agent()
	begin := func(user, name string) *program {
		return s.start(user, true, "divvy", "run", "--backend", "remote", "--memory", "1Gi", "--name", name, "--", "sh", "-c", "echo up; read x")
	}
	full := func(says ...string) {
		t.Helper()
		s.refused("u3", append(says, "no user is left for a worker", "`workers` in agent.yaml"), "divvy", "run", "--backend", "remote", "--memory", "1Gi", "--", "true")
	}
	one, two := begin("u1", "one"), begin("u2", "two")
	users := map[int]bool{}
	for _, uid := range s.workers() {
		users[uid] = true
	}
	if len(users) != 2 || !users[61000] || !users[61002] {
		t.Errorf("the workers are users %v", users)
	}
	full("workers have 2, and 1 are others'")
	if l := s.list(); len(l.Tenants) != 2 {
		t.Errorf("a refused share is there: %+v", l.Tenants)
	}
	one.end()
	s.eventually("the first share is gone", func() bool { return len(s.list().Tenants) == 1 && len(s.workers()) == 1 })
	var free int
	for _, uid := range s.workers() {
		free = 61000 + 61002 - uid
	}
	// As if a process of the former worker went on.
	left := s.start("root", true, "setpriv", "--reuid", strconv.Itoa(free), "--regid", strconv.Itoa(free), "--clear-groups", "sh", "-c", "echo up; read x")
	full("workers have 1, and 2 are others'")
	left.end()
	s.asRoot("install", "-o", strconv.Itoa(free), "/dev/null", "/dev/shm/left")
	full("workers have 1, and 2 are others'")
	s.asRoot("rm", "/dev/shm/left")
	one = begin("u1", "again")
	if len(s.workers()) != 2 {
		t.Errorf("workers %v", s.workers())
	}
	one.end()
	two.end()
}

// A worker ends with its command and with what that started, and with nothing else; agents that are killed change nothing.
func TestRemoteWorkerLives(t *testing.T) {
	s := newServer(t, "driver.cuda=12.4")
	agent := s.agent()
	gone := func(what string) {
		t.Helper()
		s.eventually(what, func() bool { return len(s.list().Tenants) == 0 && len(s.workers()) == 0 })
	}
	held := s.hold("u1", "1Gi", "--backend", "remote", "--memory", "2Gi", "--name", "apart")
	before := s.workers()
	for range 2 {
		agent.kill(syscall.SIGKILL)
		agent = s.agent()
		s.eventually("the share is found again", func() bool {
			apart, ok := find(s.list(), "u1", "apart")
			return ok && len(apart.Shares) == 1 && apart.Shares[0].Used >= gib && !apart.Rebuilt
		})
	}
	if l := s.list(); len(l.Outside) > 0 || fmt.Sprint(s.workers()) != fmt.Sprint(before) {
		t.Errorf("workers %v, before %v; outside %+v", s.workers(), before, l.Outside)
	}
	held.kill(syscall.SIGKILL)
	gone("nothing is left of a command that was killed")
	// What the command started goes on, and so does its worker.
	const child = `exec 3<&0; setsid sh -c 'read x <&3; exec gpubench alloc --bytes 256Mi --count 1 >out' & echo up`
	parent := s.start("u1", true, "divvy", "run", "--backend", "remote", "--memory", "1Gi", "--name", "left", "--", "sh", "-c", child)
	s.eventually("the command has ended", func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", parent.cmd.Process.Pid))
		return strings.Contains(string(stat), ") Z ")
	})
	if _, ok := find(s.list(), "u1", "left"); !ok || len(s.workers()) != 1 {
		t.Errorf("the share ended with its command: workers %v", s.workers())
	}
	parent.end()
	s.eventually("the child has used the GPU", func() bool {
		text, _ := os.ReadFile(filepath.Join(s.Root, "home/u1/out"))
		return strings.Contains(string(text), `"allocations":1,`)
	})
	gone("nothing is left of a command whose child has ended")
	held = s.hold("u1", "1Gi", "--backend", "remote", "--memory", "2Gi", "--name", "apart")
	s.ok("u1", "divvy", "stop", "apart")
	held.wait()
	gone("nothing is left of a share that was stopped")
}

// Without the checkpoint, and without the record too, the next agent knows whose share it is and whose its worker.
func TestRemoteWorkerWithoutCheckpoint(t *testing.T) {
	s := newServer(t, "driver.cuda=12.4")
	for _, lost := range []string{"rm /run/divvy/tenants.json", "rm /run/divvy/tenants.json; find / -xdev -path '*/tenants/*/record' -delete; find /dev/shm /run -path '*/tenants/*/record' -delete"} {
		agent := s.agent()
		held := s.hold("u1", "1Gi", "--backend", "remote", "--memory", "2Gi", "--name", "apart")
		agent.kill(syscall.SIGKILL)
		s.asRoot("sh", "-c", lost)
		agent = s.agent()
		var apart control.Tenant
		s.eventually("the share is found again", func() (ok bool) {
			apart, ok = find(s.list(), "u1", "apart")
			return ok && len(apart.Shares) == 1 && apart.Shares[0].Used >= gib
		})
		if l := s.list(); apart.UID != 2001 || apart.Shares[0].Backend != "remote" || len(l.Outside) > 0 || apart.Fault != "" || apart.Rebuilt != strings.Contains(lost, "record") {
			t.Errorf("after %s: %+v, outside %+v", lost, apart, l.Outside)
		}
		s.ok("u1", "divvy", "stop", "apart")
		held.wait()
		s.eventually("nothing is left", func() bool { return len(s.list().Tenants) == 0 && len(s.workers()) == 0 })
		agent.kill(syscall.SIGTERM)
	}
}

// A hundred shares have a hundred users, and all of them end.
func TestRemoteHundredWorkers(t *testing.T) {
	s := newServer(t, "driver.cuda=12.4")
	s.agent()
	const many = 100
	var all []*program
	for i := range many {
		all = append(all, s.start(fmt.Sprintf("u%d", i%6+1), false, "divvy", "run", "--backend", "remote", "--memory", "1Gi", "--name", fmt.Sprint("s", i), "--", "sh", "-c", "echo up; read x"))
	}
	for _, p := range all {
		if line, err := readLine(p.output); line != "up" {
			t.Fatalf("%q, %v: %s", line, err, p.said)
		}
	}
	users := map[int]bool{}
	for _, uid := range s.workers() {
		users[uid] = true
	}
	if l := s.list(); len(users) != many || len(l.Tenants) != many {
		t.Errorf("%d users for %d shares", len(users), len(l.Tenants))
	}
	for _, p := range all {
		p.end()
	}
	s.eventually("nothing is left", func() bool { return len(s.list().Tenants) == 0 && len(s.workers()) == 0 })
}
