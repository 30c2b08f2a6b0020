package terminal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
)

// The test's own program is the process that writes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Command {
		if err := Main(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func own(t *testing.T) *Writer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(self)
	w.writeTime = time.Hour
	return w
}

// programWith is a program of this user that writes its errors to a file.
func programWith(t *testing.T, file *os.File) process.ID {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Stderr = file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	id, err := process.Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func pipes(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

// pty is a new pseudoterminal.
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("this machine has no pseudoterminals:", err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { _ = master.Close() })
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

// A program's pipe and terminal get the line, without what a terminal would obey.
func TestLinesAreWritten(t *testing.T) {
	w := own(t)
	r, end := pipes(t)
	master, slave := pty(t)
	for _, c := range []struct {
		to, from *os.File
		want     string
	}{{end, r, `ended: [31m\x1b` + "\n"}, {slave, master, "\r\n" + `ended: [31m\x1b` + "\r\n"}} {
		if err := w.Tell(programWith(t, c.to), os.Getuid(), "ended: [31m\x1b"); err != nil {
			t.Fatal(err)
		}
		// The kernel may pass on what is written to a terminal in parts.
		err, said := c.from.SetReadDeadline(time.Now().Add(time.Minute)), ""
		for part := make([]byte, 100); err == nil && len(said) < len(c.want); {
			var n int
			n, err = c.from.Read(part)
			said = strings.ReplaceAll(said+string(part[:n]), "\r\r", "\r")
		}
		if err != nil || said != c.want {
			t.Errorf("%q, %v", said, err)
		}
	}
}

// A file gets the line after what the program wrote, with the rights of its user; a file or pipe that the program only reads
// gets nothing.
func TestFiles(t *testing.T) {
	w := own(t)
	path := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("epoch 1\n"); err != nil {
		t.Fatal(err)
	}
	read, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	for _, to := range []*os.File{file, read} {
		if err := w.Tell(programWith(t, to), os.Getuid(), "ended"); err != nil {
			t.Error(err)
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "epoch 1\nended\n" {
		t.Errorf("the file has %q, %v", text, err)
	}
	r, end := pipes(t)
	if err := w.Tell(programWith(t, r), os.Getuid(), "ended"); err != nil {
		t.Error(err)
	}
	_ = end.Close()
	if got, err := io.ReadAll(r); err != nil || len(got) != 0 {
		t.Errorf("the pipe that is read has %q, %v", got, err)
	}
}

// Root's writer has no more rights to a file than the user. The kernel refuses the line here in any case, and says why.
func TestFilesThatAskWhoWrites(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's writer gives up rights")
	}
	file, err := os.OpenFile("/proc/sys/net/ipv4/ip_default_ttl", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no such file may be opened here: ", err)
	}
	defer file.Close()
	target := programWith(t, file)
	for uid, want := range map[int]error{0: unix.EINVAL, nobody: unix.EPERM} {
		said, err := exec.Command(own(t).program, Command, fmt.Sprint(target.PID), fmt.Sprint(target.Start), fmt.Sprint(uid), "no number").CombinedOutput()
		if err == nil || !strings.Contains(string(said), want.Error()) {
			t.Errorf("user %d: %q, want %v", uid, said, want)
		}
	}
}

// A full pipe and a terminal whose output is held get nothing and stay as they are.
func TestNoRoom(t *testing.T) {
	w := own(t)
	_, end := pipes(t)
	_, slave := pty(t)
	if err := unix.IoctlSetInt(int(slave.Fd()), unix.TCXONC, unix.TCOOFF); err != nil {
		t.Fatal(err)
	}
	fd := int(end.Fd()) // it blocks from here on
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := unix.Write(fd, make([]byte, 4096)); errors.Is(err, unix.EAGAIN) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	for _, to := range []*os.File{end, slave} {
		before, _ := unix.FcntlInt(to.Fd(), unix.F_GETFL, 0)
		if err := w.Tell(programWith(t, to), os.Getuid(), "ended"); err != nil {
			t.Error(err)
		}
		if after, err := unix.FcntlInt(to.Fd(), unix.F_GETFL, 0); err != nil || after != before {
			t.Errorf("its flags were %x and are %x, %v", before, after, err)
		}
	}
}

// Who holds up a line holds up nobody else, and gets no second process before the first has ended.
func TestAWriterThatHangs(t *testing.T) {
	script := filepath.Join(t.TempDir(), "hangs")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	w := NewWriter(script)
	w.writeTime = time.Millisecond
	self, err := process.Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Tell(self, 1, "ended"); err == nil || !strings.Contains(err.Error(), "takes nothing") {
		t.Error(err)
	}
	<-ended(w, 1) // it is killed
	if !w.take(1) {
		t.Error("an ended process still counts")
	}
	if err := w.Tell(self, 1, "ended"); err == nil || !strings.Contains(err.Error(), "earlier lines") {
		t.Error(err)
	}
	for uid := 2; uid <= mostWriters; uid++ {
		if !w.take(uid) {
			t.Errorf("user %d is held up", uid)
		}
	}
	if w.take(mostWriters + 1) {
		t.Error("there are more processes than allowed")
	}
	w.give(1)
	if !w.take(mostWriters + 1) {
		t.Error("an ended process still counts")
	}
}

// ended is closed when no process writes for a user.
func ended(w *Writer, uid int) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[uid] != nil {
		return w.busy[uid]
	}
	none := make(chan struct{})
	close(none)
	return none
}

// Lines of one user that come together are written one after another.
func TestLinesOfOneUser(t *testing.T) {
	w := own(t)
	r, end := pipes(t)
	id := programWith(t, end)
	const lines = 5
	said := make(chan error)
	for range lines {
		go func() { said <- w.Tell(id, 1, "ended") }()
	}
	for range lines {
		if err := <-said; err != nil {
			t.Error(err)
		}
	}
	got := make([]byte, 1000)
	if n, err := r.Read(got); err != nil || string(got[:n]) != strings.Repeat("ended\n", lines) {
		t.Errorf("%q, %v", got[:n], err)
	}
}

// Another process of the same pid, one that is gone and strange arguments are refused.
func TestWhoIsGone(t *testing.T) {
	self, err := process.Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	self.Start++
	if err := tell(self, os.Getuid(), "ended"); !errors.Is(err, process.ErrGone) {
		t.Error(err)
	}
	for _, args := range [][]string{nil, {"1"}, {"x", "1", "1", "ended"}, {"1", "-1", "1", "ended"}, {"1", "1", "x", "ended"}} {
		if Main(args) == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	if err := NewWriter("/nowhere").Tell(self, 1, "ended"); err == nil {
		t.Error("no process, and no error")
	}
}
