package process

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process/processtest"
)

// Where too many looks sleep, whoever has a node open by its own name is found, and that others may not be is told.
func TestLookComparesNamesOnly(t *testing.T) {
	file, err := os.OpenFile(full, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if told := Look(full); told.NamesOnly {
		t.Error("names alone are compared while nobody sleeps")
	}
	asleep.Lock()
	for i := range mostAsleep {
		asleep.ids[ID{PID: 1<<29 + i, Start: 1}] = true
	}
	asleep.Unlock()
	defer func() {
		asleep.Lock()
		clear(asleep.ids)
		asleep.Unlock()
	}()
	told := Look(full, zero)
	own := func(id ID) bool { return id.PID == os.Getpid() }
	if !slices.ContainsFunc(told.By[0], own) || slices.ContainsFunc(told.By[1], own) || !told.NamesOnly {
		t.Errorf("process %d has %s open, and not %s: %+v", os.Getpid(), full, zero, told)
	}
}

// crowd is how many processes share a table of descriptors, and crowded how many these are.
const crowd, crowded = 300, 1100

// A crowd with much open hides nobody who has little, not even of the same user and cgroup.
func TestLookPassesACrowd(t *testing.T) {
	switch os.Getenv(hides) {
	case "crowd":
		beACrowd(t)
		waitForEnd()
	case "holder":
		if _, err := unix.Open(full, unix.O_RDWR, 0); err != nil {
			t.Fatal(err)
		}
		waitForEnd()
	}
	processtest.Again(t, "TestLookPassesACrowd", hides+"=crowd")
	holder, _ := processtest.Again(t, "TestLookPassesACrowd", hides+"=holder")
	told := Look(full)
	is := func(id ID) bool { return id.PID == holder.Process.Pid }
	if !slices.ContainsFunc(told.By[0], is) || slices.ContainsFunc(told.Cut, is) {
		t.Errorf("process %d has %s open, held by %v, cut off %d: %v", holder.Process.Pid, full, told.By[0], len(told.Cut), told.Cut)
	}
}

// beACrowd makes processes that share their descriptors, and end with this one.
func beACrowd(t *testing.T) {
	runtime.LockOSThread()
	for range crowded {
		if _, err := unix.Dup(0); err != nil {
			t.Fatal(err)
		}
	}
	for range crowd {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_FILES|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			t.Fatal(errno)
		}
		if pid == 0 {
			_, _, _ = unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0)
			for {
				_, _, _ = unix.RawSyscall(unix.SYS_PAUSE, 0, 0, 0)
			}
		}
	}
}

// A container takes turns from no other one and not from the machine's own services, whatever users and cgroups it makes.
func TestTurnsByCgroup(t *testing.T) {
	var order []string
	l := newLook(nil)
	l.workers, l.step = 1, func(p *part) (int, bool) {
		order = append(order, p.dir)
		p.from--
		return 1, p.from > 0
	}
	pid := 0
	add := func(name string, parts int, path ...string) {
		pid++
		l.wait(part{id: ID{PID: pid, Start: 1 << 60}, whose: l.waiting.of(path...), dir: name, from: parts})
	}
	for user := range 50 {
		add("crowd", 50, "pods", "a", "own "+strconv.Itoa(user%7), "user "+strconv.Itoa(user))
	}
	add("container", 3, "pods", "b", "user 0")
	add("daemon", 2, "services", "user 0")
	if told := l.run(endless); len(told.Cut) > 0 {
		t.Errorf("cut off: %v", told.Cut)
	}
	want := []string{"crowd", "daemon", "container", "daemon", "crowd", "container", "crowd", "container"}
	if !slices.Equal(order[:len(want)], want) || len(order) != 50*50+3+2 {
		t.Errorf("looked at %v…, %d times, want %v…", order[:len(want)], len(order), want)
	}
}

// Users for whom nothing waits any more are not gone through.
func TestTurnsForgetWhoIsThrough(t *testing.T) {
	const users = 1000
	left := 0
	l := newLook(nil)
	l.workers, l.step = 1, func(*part) (int, bool) {
		left++
		if n := len(l.waiting.waiting); n != users-left {
			t.Errorf("%d users wait after %d of %d were looked at", n, left, users)
		}
		return 1, false
	}
	for i := range users {
		l.wait(part{id: ID{PID: i + 1, Start: 1 << 60}, whose: l.waiting.of(strconv.Itoa(i))})
	}
	if told := l.run(endless); len(told.Cut) > 0 || left != users || l.left != 0 {
		t.Errorf("%d were looked at, %d are left, cut off: %v", left, l.left, told.Cut)
	}
}

func TestGroupsOf(t *testing.T) {
	for text, want := range map[string][]string{
		"":                             nil,
		"0::/\n":                       nil,
		"0::/system.slice/a.service\n": {"system.slice", "a.service"},
		"12:pids:/kubepods/podA/b\n1:name=systemd:/kubepods\n0::/\n": {"kubepods", "podA", "b"},
		"0::/../a:b/c\n":                                                {"..", "a:b", "c"},
		"0::/1/2/3/4/5/6/7/8/9/10/11/12/13/14\n":                        {"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"},
		"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope": {"kubepods.slice", "kubepods-pod1.slice", "cri-containerd-2.scope"},
	} {
		if got := groupsOf(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if room := roomIn([]byte("Uid:\t0\t0\t0\t0\nFDSize:\t2048\nGroups:\t\n")); room != 2048 {
		t.Errorf("room for %d descriptors", room)
	}
}
