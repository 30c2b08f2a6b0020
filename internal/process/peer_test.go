package process

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process/processtest"
)

// kernel is one that tells of a peer what a test wants.
type kernel func() (int, error)

func (k kernel) descriptor() (int, error) { return k() }

func pidfd(t *testing.T, pid int) int {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestPeerOfAConnection(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "socket"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	made, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	taken, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	raw, err := taken.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		if id, err := PeerOf(int(fd), os.Getpid(), os.Geteuid()); err != nil || id.PID != os.Getpid() || !id.Alive() {
			t.Errorf("we connected, and it says %+v, %v", id, err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// A process that has the number of the one that connected is not that one.
func TestPeerOfAnEndedProcess(t *testing.T) {
	living, ended, zombie := start(t), start(t), start(t)
	gone, dead := pidfd(t, ended.Process.Pid), pidfd(t, zombie.Process.Pid)
	for _, cmd := range []*exec.Cmd{ended, zombie} {
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	_ = ended.Wait()
	id, err := Find(zombie.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	done, stop, err := id.Watch()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	<-done
	for name, c := range map[string]struct {
		from kernel
		pid  int
		want bool
	}{
		"it lives":                 {func() (int, error) { return pidfd(t, living.Process.Pid), nil }, living.Process.Pid, true},
		"another has its number":   {func() (int, error) { return gone, nil }, living.Process.Pid, false},
		"nobody waited for it yet": {func() (int, error) { return dead, nil }, zombie.Process.Pid, false},
		"the kernel knows no more": {func() (int, error) { return -1, unix.ESRCH }, living.Process.Pid, false},
		"the kernel refuses":       {func() (int, error) { return -1, unix.EINVAL }, living.Process.Pid, false},
		"nobody has the number":    {func() (int, error) { return pidfd(t, living.Process.Pid), nil }, 1 << 30, false},
	} {
		id, err := peerOf(c.from, c.pid, os.Geteuid())
		if c.want && (err != nil || id.PID != c.pid || !id.Alive()) || !c.want && !errors.Is(err, ErrGone) {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
	if _, err := peerOf(kernel(func() (int, error) { return -1, unix.EMFILE }), os.Getpid(), os.Geteuid()); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("without room for a descriptor: %v", err)
	}
}

// A kernel that does not tell who connected leaves processes of the same user that were
// there before.
func TestPeerOfAnOlderKernel(t *testing.T) {
	none := kernel(func() (int, error) { return -1, unix.ENOPROTOOPT })
	if id, err := peerOf(none, os.Getpid(), os.Geteuid()); err != nil || id.PID != os.Getpid() {
		t.Errorf("%+v, %v", id, err)
	}
	if id, err := peerOf(none, os.Getpid(), os.Geteuid()+1); !errors.Is(err, ErrGone) {
		t.Errorf("another user's: %+v, %v", id, err)
	}
	self, err := Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if id, err := likelyPeer(os.Getpid(), os.Geteuid(), self.Start-1); !errors.Is(err, ErrGone) {
		t.Errorf("one that started later: %+v, %v", id, err)
	}
	if id, err := likelyPeer(1<<30, os.Geteuid(), self.Start); !errors.Is(err, ErrGone) {
		t.Errorf("nobody: %+v, %v", id, err)
	}
}

// as starts a process with other users.
func as(t *testing.T, real, effective string) ID {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root starts processes of other users")
	}
	cmd := exec.Command("setpriv", "--ruid", real, "--euid", effective, "--clear-groups", "sh", "-c", "echo up; exec sleep 1000")
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := output.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	id, err := Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestBelongsTo(t *testing.T) {
	self, err := Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !self.BelongsTo(os.Getuid()) || self.BelongsTo(4711) {
		t.Error("we are our own")
	}
	if (ID{PID: self.PID, Start: self.Start + 1}).BelongsTo(os.Getuid()) || (ID{PID: 1 << 30}).BelongsTo(os.Getuid()) {
		t.Error("one that has ended is somebody's")
	}
	privileged := as(t, "4711", "0")
	if !privileged.BelongsTo(4711) || privileged.BelongsTo(0) {
		t.Error("a set-user-ID program is not its starter's")
	}
	if borrowed := as(t, "0", "4711"); !borrowed.BelongsTo(0) || borrowed.BelongsTo(4711) {
		t.Error("a program of root's that acts for a user is the user's")
	}
}

// Whatever user a process becomes in a user namespace, it is who made that.
func TestBelongsToTheMakerOfItsNamespace(t *testing.T) {
	cmd := processtest.Start(t, syscall.CLONE_NEWUSER, "")
	id, err := Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if madeNamespace(id.PID, 4711) || !madeNamespace(id.PID, 0) {
			t.Error("we made it")
		}
	} else if !id.BelongsTo(os.Getuid()) || id.BelongsTo(0) {
		t.Error("it is ours")
	}
	if maker, ok := Maker(id.PID); !ok || maker != os.Getuid() {
		t.Errorf("user %d made it, %v", maker, ok)
	}
	if _, ok := Maker(os.Getpid()); ok {
		t.Error("somebody made our own namespace")
	}
	if madeNamespace(os.Getpid(), 0) || madeNamespace(1<<30, 0) {
		t.Error("our own namespace says whose we are")
	}
}

func TestSignalIf(t *testing.T) {
	cmd := start(t)
	id, err := Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := id.SignalIf(syscall.SIGKILL, func(ID) bool { return false }); !errors.Is(err, ErrForeign) || !id.Alive() {
		t.Errorf("one that may not be signalled: %v", err)
	}
	if err := (ID{PID: id.PID, Start: id.Start + 1}).Signal(syscall.SIGKILL); !errors.Is(err, ErrGone) || !id.Alive() {
		t.Errorf("another one of the pid: %v", err)
	}
	if err := id.SignalIf(syscall.SIGKILL, func(asked ID) bool { return asked == id }); err != nil {
		t.Error(err)
	}
	if status := cmd.Wait(); status == nil || id.Alive() {
		t.Errorf("process %s goes on", strconv.Itoa(id.PID))
	}
}
