package process

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process/processtest"
)

func TestOuterFindsProcessesOfOtherNamespaces(t *testing.T) {
	// The shell is 1. Its child 2 reads the same input by another descriptor: a shell gives children in the background
	// an empty standard input.
	cmd := processtest.Start(t, syscall.CLONE_NEWPID|syscall.CLONE_NEWNS, "exec 3<&0; cat <&3 >/dev/null &")
	var stat unix.Stat_t
	if err := unix.Stat("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/ns/pid", &stat); err != nil {
		t.Fatal(err)
	}
	var own unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &own); err != nil {
		t.Fatal(err)
	}
	found := Outer(own.Ino)
	if id := found[Inner{Namespace: stat.Ino, PID: 1}]; id.PID != cmd.Process.Pid || !id.Alive() {
		t.Errorf("its first process is %+v, want %d", id, cmd.Process.Pid)
	}
	second := found[Inner{Namespace: stat.Ino, PID: 2}]
	if !slices.Contains(Ancestors(second.PID), cmd.Process.Pid) {
		t.Errorf("its second process is %+v of %v", second, found)
	}
	for inner := range found {
		if inner.Namespace == own.Ino {
			t.Errorf("%+v is in our own namespace", inner)
		}
	}
	if found := Outer(stat.Ino)[Inner{Namespace: own.Ino, PID: os.Getpid()}]; found.PID != os.Getpid() {
		t.Errorf("seen from there we are %+v", found)
	}
}

func TestMountsAt(t *testing.T) {
	source := filepath.Join(t.TempDir(), "a b")
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	target := t.TempDir()
	cmd := processtest.Start(t, syscall.CLONE_NEWPID|syscall.CLONE_NEWNS,
		`mount --make-rprivate /; mount --bind /tmp "$1"; mount --bind "$2" "$1"`, target, source)
	table := UsesOf(cmd.Process.Pid).Mounts()
	if !Mounts(table, "a b") || Mounts(table, "b") || Mounts(table, filepath.Base(target)) || Mounts(UsesOf(os.Getpid()).Mounts(), "a b") {
		t.Error("a folder counts that is mounted, in whole, and not where it is mounted")
	}
	directory, err := FileAt(source)
	if err != nil {
		t.Fatal(err)
	}
	mounts := MountsAt(cmd.Process.Pid, target)
	if len(mounts) != 2 {
		t.Fatalf("%+v, want the mount and the one that it hides", mounts)
	}
	if mount := mounts[1]; filepath.Base(mount.Root) != "a b" || mount.Major != directory.Major || mount.Minor != directory.Minor {
		t.Errorf("%+v; want %+v", mount, directory)
	}
	if own, err := MountOf(source); err != nil || own != mounts[1] || own == mounts[0] {
		t.Errorf("a mount of it is %+v, %v; it is mounted as %+v", own, err, mounts)
	}
	if own, err := MountOf(filepath.Join(source, "none")); err == nil {
		t.Errorf("a folder that does not exist is mounted as %+v", own)
	}
	if mounts := MountsAt(os.Getpid(), target); len(mounts) != 0 {
		t.Errorf("it is mounted in our namespace: %+v", mounts)
	}
	if mounts := MountsAt(1<<30, "/"); len(mounts) != 0 {
		t.Error("a process that does not exist has a root")
	}
}

func TestMapped(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "page")
	if err := os.WriteFile(path, make([]byte, 4096), 0o644); err != nil {
		t.Fatal(err)
	}
	page, err := FileAt(path)
	if err != nil {
		t.Fatal(err)
	}
	if UsesOf(os.Getpid()).Mapped()[page] {
		t.Error("it is not mapped yet")
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	mapping, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapping)
	if !UsesOf(os.Getpid()).Mapped()[page] {
		t.Error("it is mapped")
	}
	if UsesOf(os.Getpid()).Mapped()[File{Major: page.Major, Minor: page.Minor, Inode: page.Inode + 1}] || UsesOf(1 << 30).Mapped()[page] {
		t.Error("another file is mapped")
	}
	if _, err := FileAt(path + "x"); err == nil {
		t.Error("a file that does not exist is one")
	}
}

func TestInnermost(t *testing.T) {
	for status, want := range map[string]int{
		"Name:\tNSpid:\nNSpid:\t4711\t7\n": 7, "NSpid:\t4711\n": 4711, "NSpid:\n": 0, "NSpid:\tx\n": 0, "": 0,
	} {
		if got := innermost([]byte(status)); got != want {
			t.Errorf("%q: %d, want %d", status, got, want)
		}
	}
}

func TestParseUsers(t *testing.T) {
	for status, want := range map[string][2]int{
		"Name:\tUid:\nUid:\t1\t2\t3\t4\n": {1, 2}, "Uid:\t1\n": {-1, -1}, "Uid:\tx\t1\n": {-1, -1}, "Uid:\t1\ty\n": {-1, -1}, "": {-1, -1},
		"Uid:\t0\t4294967295\n": {0, 4294967295},
	} {
		if real, effective := parseUsers([]byte(status)); real != want[0] || effective != want[1] {
			t.Errorf("%q: %d and %d, want %v", status, real, effective, want)
		}
	}
	if got := Owner(os.Getpid()); got != os.Geteuid() {
		t.Errorf("we are %d, want %d", got, os.Geteuid())
	}
}

func FuzzParseMount(f *testing.F) {
	f.Add([]byte(`36 35 98:0 /mnt1\040x /mnt2 rw,noatime master:1 - ext3 /dev/root rw`))
	f.Add([]byte(`1 1 0:1 \9 \`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, at, ok := parseMount(line)
		if ok && (at == "" || m.Root == "") {
			t.Fatalf("%+v at %q", m, at)
		}
	})
}

func FuzzParseMap(f *testing.F) {
	f.Add([]byte("7f00-7f01 r--s 00000000 00:19 4711                       /dev/shm/a b"))
	f.Add([]byte("7f00-7f01 rw-p 00000000 00:00 0 "))
	f.Fuzz(func(t *testing.T, line []byte) {
		if file, ok := parseMap(line); ok && file.Inode == 0 {
			t.Fatalf("%+v", file)
		}
	})
}

func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page")
	holder, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	page, err := FileAt(path)
	if err != nil {
		t.Fatal(err)
	}
	if UsesOf(os.Getpid()).Locked()[page] {
		t.Error("it is not locked yet")
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 1 << 40, Len: 1}
	if err := unix.FcntlFlock(holder.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		t.Fatal(err)
	}
	other := page
	other.Inode++
	if !UsesOf(os.Getpid()).Locked()[page] || UsesOf(os.Getpid()).Locked()[other] || UsesOf(1 << 30).Locked()[page] {
		t.Error("it is locked by us alone, and no other file is")
	}
}

func TestOf(t *testing.T) {
	cmd := start(t)
	id, err := Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(Of(os.Geteuid()), id) || slices.Contains(Of(4711), id) {
		t.Errorf("process %d is one of ours and nobody else's", id.PID)
	}
}

func FuzzParseLock(f *testing.F) {
	f.Add([]byte("lock:\t1: OFDLCK ADVISORY  WRITE -1 00:1b:80981 100 100\n"))
	f.Add([]byte("lock: a b c d e : f"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if _, ok := parseLock(line); ok && !strings.HasPrefix(strings.TrimSpace(string(line)), "lock:") {
			t.Fatalf("%q", line)
		}
	})
}
