package process

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/process/processtest"
)

// Nodes that hardly anybody has open or mapped: one that takes all kinds of opening, and one that can be mapped.
const (
	full, zero           = "/dev/full", "/dev/zero"
	fullMinor, zeroMinor = 7, 5
)

// hides is the variable by which a process of the tests has a node open in a way, and folder one that it may use.
const hides, folder = "DIVVY_TEST_HIDES", "DIVVY_TEST_FOLDER"

// ways are those in which a process has a node open that its descriptors do not show by name.
var ways = map[string]struct {
	node string
	do   func(dir string) error
}{
	"mounted elsewhere": {full, func(dir string) error {
		at, err := mounted(full, dir)
		if err != nil {
			return err
		}
		_, err = unix.Open(at, unix.O_RDWR, 0)
		return err
	}},
	"mapped and closed": {zero, func(string) error { return mapped(zero) }},
	"mounted, mapped and closed": {zero, func(dir string) error {
		at, err := mounted(zero, dir)
		if err != nil {
			return err
		}
		return mapped(at)
	}},
	"behind many others": {full, func(string) error {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return err
		}
		limit.Cur = limit.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return err
		}
		for range min(many, limit.Max-100) {
			if _, err := unix.Dup(0); err != nil {
				return err
			}
		}
		_, err := unix.Open(full, unix.O_RDWR, 0)
		return err
	}},
	"in a thread with descriptors of its own": {full, func(string) error {
		done := make(chan error)
		go func() { // on another thread than the test's, which is locked and may be the first
			runtime.LockOSThread()
			err := unix.Unshare(unix.CLONE_FILES)
			if err == nil {
				_, err = unix.Open(full, unix.O_RDWR, 0)
			}
			done <- err
			select {}
		}()
		return <-done
	}},
	leaderless: {full, nil},
}

// leaderless is the way of a process whose first thread has ended.
const leaderless = "after its first thread"

// many is how many descriptors a process has, where it may.
const many = 66000

// mounted mounts a node at another path, in a namespace of mounts of this thread's own.
func mounted(node, dir string) (string, error) {
	at := filepath.Join(dir, "other")
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		return "", err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return "", err
	}
	return at, unix.Mount(node, at, "", unix.MS_BIND, "")
}

// mapped maps a node, and closes it.
func mapped(node string) error {
	fd, err := unix.Open(node, unix.O_RDWR, 0)
	if err != nil {
		return err
	}
	if _, err := unix.Mmap(fd, 0, 1<<16, unix.PROT_READ, unix.MAP_PRIVATE); err != nil {
		return err
	}
	return unix.Close(fd)
}

// init makes the process one whose first thread has ended, if it is to be one: only now this is that thread.
func init() {
	if os.Getenv(hides) != leaderless {
		return
	}
	if _, err := unix.Open(full, unix.O_RDWR, 0); err != nil {
		panic(err)
	}
	go func() {
		for ended := false; !ended; runtime.Gosched() {
			text, err := os.ReadFile("/proc/self/stat")
			_, rest, _ := cutLast(text, ')')
			ended = err == nil && len(rest) > 1 && rest[1] == 'Z'
		}
		waitForEnd()
	}()
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
}

// waitForEnd tells that all is as it shall be, and ends the process with the test.
func waitForEnd() {
	fmt.Print(processtest.Ready)
	_, _ = unix.Read(0, make([]byte, 1))
	os.Exit(0)
}

// Whoever has a node open is found, by whatever name and however.
func TestLookFindsHidden(t *testing.T) {
	if way, is := ways[os.Getenv(hides)]; is {
		runtime.LockOSThread()
		if err := way.do(os.Getenv(folder)); err != nil {
			t.Fatal(err)
		}
		waitForEnd()
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			cmd, _ := processtest.Again(t, "TestLookFindsHidden", hides+"="+name, folder+"="+t.TempDir())
			told := Look(way.node)
			if !slices.ContainsFunc(told.By[0], func(id ID) bool { return id.PID == cmd.Process.Pid }) {
				t.Errorf("process %d has %s, and %+v was found", cmd.Process.Pid, way.node, told)
			}
			if slices.ContainsFunc(told.Cut, func(id ID) bool { return id.PID == cmd.Process.Pid }) {
				t.Errorf("it was cut off: %v", told.Cut)
			}
		})
	}
}

// A node that was made elsewhere is found by its number, open and mapped, also where there is none of that name.
func TestLookComparesNumbers(t *testing.T) {
	dir := t.TempDir()
	for node, minor := range map[string]uint32{full: fullMinor, zero: zeroMinor} {
		other := filepath.Join(dir, filepath.Base(node))
		if err := unix.Mknod(other, unix.S_IFCHR|0o600, int(unix.Mkdev(1, minor))); err != nil {
			installtest.Missing(t, "root", err)
		}
	}
	held, err := os.OpenFile(filepath.Join(dir, "full"), os.O_RDWR, 0)
	if err != nil {
		installtest.Missing(t, "root", err)
	}
	defer held.Close()
	source, err := os.Open(filepath.Join(dir, "zero"))
	if err != nil {
		t.Fatal(err)
	}
	memory, err := unix.Mmap(int(source.Fd()), 0, 1<<16, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	source.Close()
	told := Look(full, zero, filepath.Join(dir, "none"))
	for i, want := range []bool{true, true, false} {
		if slices.ContainsFunc(told.By[i], func(id ID) bool { return id.PID == os.Getpid() }) != want {
			t.Errorf("%d: this process, %d, is held %t: %v", i, os.Getpid(), !want, told.By[i])
		}
	}
}

// endless are limits that no test reaches.
var endless = limits{cost: 1 << 40, enough: time.Hour, quiet: 1 << 40, atLast: time.Hour}

// stepped is a look at processes that stand for others, of which each has some descriptors, by one worker.
func stepped(users map[int][]int, step func(*part) (int, bool)) *look {
	l := newLook(nil)
	l.workers, l.step = 1, step
	pid := 0
	for user := range len(users) {
		for _, open := range users[user] {
			pid++
			l.wait(part{id: ID{PID: pid, Start: 1 << 60}, whose: l.waiting.of("user " + strconv.Itoa(user)), from: open})
		}
	}
	return l
}

// A user with very much open does not put off who has little, nor a process another one of its user.
func TestLookTakesTurns(t *testing.T) {
	var order []int
	l := stepped(map[int][]int{0: {1000 * chunk, 1}, 1: {chunk, 2 * chunk}}, func(p *part) (int, bool) {
		order = append(order, p.id.PID)
		p.from -= chunk
		return chunk, p.from > 0
	})
	if told := l.run(endless); len(told.Cut) > 0 {
		t.Errorf("cut off: %v", told.Cut)
	}
	if want := []int{1, 3, 2, 4, 1, 4, 1}; !slices.Equal(order[:len(want)], want) || len(order) != 1000+1+1+2 {
		t.Errorf("looked at %v…, %d times, want %v…", order[:len(want)], len(order), want)
	}
}

// A process at which somebody cannot end to look is cut off, and all others are looked at.
func TestLookLeavesWhoSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wake := make(chan struct{})
		var looked []int
		l := stepped(map[int][]int{0: {1, 1, 1}}, func(p *part) (int, bool) {
			if p.id.PID == 1 {
				<-wake
				return 1, true
			}
			looked = append(looked, p.id.PID)
			return 1, false
		})
		told := l.run(limits{cost: endless.cost, enough: 2 * late, quiet: 2, atLast: time.Hour})
		if want := []ID{{1, 1 << 60}}; !slices.Equal(told.Cut, want) || !slices.Equal(looked, []int{2, 3}) {
			t.Errorf("cut off %v, looked at %v", told.Cut, looked)
		}
		sleeps := func() bool {
			asleep.Lock()
			defer asleep.Unlock()
			return asleep.ids[ID{1, 1 << 60}]
		}
		if !sleeps() {
			t.Error("nobody knows that it is asleep")
		}
		close(wake)
		synctest.Wait()
		if sleeps() {
			t.Error("it is taken to be asleep for ever")
		}
	})
}

// A look goes on after the whole process has stood still, in which nobody could end a part of it.
func TestLookAfterAStandstill(t *testing.T) {
	var l *look
	stand := sync.OnceFunc(func() { // with all that wait for the lock, for longer than a look may be quiet
		l.mu.Lock()
		defer l.mu.Unlock()
		<-time.After(6 * late)
	})
	l = stepped(map[int][]int{0: make([]int, 50)}, func(*part) (int, bool) {
		stand()
		<-time.After(time.Millisecond) // which is no standstill
		return 1, false
	})
	if told := l.run(limits{cost: endless.cost, quiet: 3, atLast: time.Hour}); len(told.Cut) > 0 {
		t.Errorf("cut off %v", told.Cut)
	}
}

// A process at which an earlier look sleeps is not looked at again, and one that there is no time for is told.
func TestLookCutsOff(t *testing.T) {
	own, err := Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	asleep.Lock()
	asleep.ids[own] = true
	asleep.Unlock()
	told := Look(full)
	asleep.Lock()
	delete(asleep.ids, own)
	asleep.Unlock()
	if !slices.Contains(told.Cut, own) {
		t.Errorf("cut off: %v, want process %d", told.Cut, os.Getpid())
	}
	l := newLook([]string{full})
	l.list(time.Now())
	if told := l.run(endless); !slices.Contains(told.Cut, own) {
		t.Errorf("without time cut off: %v, want process %d", told.Cut, os.Getpid())
	}
	for name, most := range map[string]limits{"cost": {cost: 100, enough: time.Hour, atLast: time.Hour}, "time": {cost: endless.cost, enough: time.Hour, atLast: 1}} {
		l = stepped(map[int][]int{0: {1, 1}}, func(*part) (int, bool) { return 1, true })
		if told := l.run(most); len(told.Cut) != 2 {
			t.Errorf("%s: of two that never end were cut off: %v", name, told.Cut)
		}
	}
}

func TestMapping(t *testing.T) {
	for line, want := range map[string]string{
		"00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/a b":      "400000-452000 08:02 173521 /usr/bin/a b /usr/bin/a b true",
		"7ffe0000-7fff0000 rw-s 00000000 00:0e 12   anon_inode:[vfio-device]": "7ffe0000-7fff0000 00:0e 12 anon_inode:[vfio-device] anon_inode:[vfio-device] false",
		"7fc9cfe3f000-7fc9cfe4c000 rw-p 00000000 00:00 0 ":                    "7fc9cfe3f000-7fc9cfe4c000 00:00 0   false",
		"none": "   false",
	} {
		span, what, target, found := mapping([]byte(line))
		if got := span + " " + what + " " + target + " " + strconv.FormatBool(found); got != want {
			t.Errorf("%q is %q, want %q", line, got, want)
		}
	}
}

// BenchmarkLook looks at all processes while one has very many descriptors.
func BenchmarkLook(b *testing.B) {
	for b.Loop() {
		Look(full)
	}
}
