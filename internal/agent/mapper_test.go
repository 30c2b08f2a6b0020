package agent

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/page"
)

// mapFile is the variable that makes this program map a file and wait.
const mapFile = "DIVVY_TEST_MAP_FILE"

func TestMain(m *testing.M) {
	path := os.Getenv(mapFile)
	if path == "" {
		os.Exit(m.Run())
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		_, err = unix.Mmap(int(file.Fd()), 0, page.SizeOfState, unix.PROT_READ, unix.MAP_SHARED)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("mapped")
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // until the test ends
}

// mapper starts a process that has a file mapped, as the library has a share's state, and
// returns its pid. It ends with the test.
func (n *node) mapper(path string) int {
	n.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), mapFile+"="+path)
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
