package agent

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/page"
)

// mapFile is the variable that makes this program map a file and wait, and lockFile the
// one that makes it lock a slot there.
const (
	mapFile  = "DIVVY_TEST_MAP_FILE"
	lockFile = "DIVVY_TEST_LOCK_FILE"
)

func TestMain(m *testing.M) {
	path := os.Getenv(mapFile) + os.Getenv(lockFile)
	if path == "" {
		os.Exit(m.Run())
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil && os.Getenv(lockFile) != "" {
		err = unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: page.LockBase + 7, Len: 1})
	} else if err == nil {
		_, err = unix.Mmap(int(file.Fd()), 0, page.SizeOfState, unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("mapped")
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // until the test ends
	runtime.KeepAlive(file)
}

// mapper starts a process that has a file mapped, as the library has a share's state, and
// returns its pid. It ends with the test.
func (n *node) mapper(path string) int {
	n.t.Helper()
	return n.user(mapFile, path)
}

// user is mapper for one of the ways to use a file.
func (n *node) user(way, path string) int {
	n.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), way+"="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	input, err := cmd.StdinPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if said, err := bufio.NewReader(output).ReadString('\n'); err != nil || strings.TrimSpace(said) != "mapped" {
		n.t.Fatalf("it said %q, %v", said, err)
	}
	return cmd.Process.Pid
}
