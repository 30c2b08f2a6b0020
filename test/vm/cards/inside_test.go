package cards

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/rdma"
)

// inContainer tells a process that it is the container of these tests.
const inContainer = "VM_CONTAINER"

func TestMain(m *testing.M) {
	if os.Getenv(inContainer) == "" {
		os.Exit(m.Run())
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve does what it is asked until its input ends.
func serve() error {
	runtime.LockOSThread() // rights are a thread's
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("leave the machine's mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", rdma.DeviceFolder, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("make an empty folder of adapters: %w", err)
	}
	held := map[string][]int{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		answer, err := answer(strings.Fields(lines.Text()), held)
		if err != nil {
			answer = err.Error()
		}
		fmt.Println(answer)
	}
	return nil
}

func answer(words []string, held map[string][]int) (string, error) {
	switch words[0] {
	case "give":
		return "yes", makeNode(words[1], words[2], words[3])
	case "drop":
		return "yes", dropRights()
	case "make":
		return "yes", makeNode(filepath.Join(os.TempDir(), "node"), words[1], words[2])
	case "nodes":
		entries, err := os.ReadDir(rdma.DeviceFolder)
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		return strings.Join(names, " "), err
	case "open":
		fd, err := context(words[1])
		if err != nil {
			return "", err
		}
		return "yes", unix.Close(fd)
	case "handles":
		return count(words[2], func() error {
			fd, err := context(words[1])
			if err == nil {
				held[words[1]] = append(held[words[1]], fd)
			}
			return err
		})
	case "objects":
		return count(words[2], func() error { return domain(held[words[1]][0]) })
	case "listen", "pass", "take", "contexts", "domains":
		return passed(words, held)
	case "close":
		for name, all := range held {
			for _, fd := range all {
				_ = unix.Close(fd)
			}
			delete(held, name)
		}
		return "yes", nil
	}
	return "", fmt.Errorf("unknown: %s", words)
}

// makeNode makes a node of a character device.
func makeNode(path, major, minor string) error {
	first, err := strconv.ParseUint(major, 10, 32)
	second, other := strconv.ParseUint(minor, 10, 32)
	if err := errors.Join(err, other); err != nil {
		return err
	}
	return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(uint32(first), uint32(second))))
}

// dropRights takes away the right to make nodes and to change mounts, of what follows too.
func dropRights() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	for _, right := range []uint{unix.CAP_MKNOD, unix.CAP_SYS_ADMIN} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(right), 0, 0, 0); err != nil {
			return err
		}
		set := &sets[right/32]
		for _, bits := range []*uint32{&set.Effective, &set.Permitted, &set.Inheritable} {
			*bits &^= 1 << (right % 32)
		}
	}
	return unix.Capset(&header, &sets[0])
}

// count tries some times and returns how often it went well. Only the limit may be why one does not: the kernel says EAGAIN.
func count(times string, try func() error) (string, error) {
	most, err := strconv.Atoi(times)
	if err != nil {
		return "", err
	}
	done := 0
	for range most {
		err := try()
		switch {
		case err == nil:
			done++
		case !errors.Is(err, unix.EAGAIN):
			return "", err
		}
	}
	return strconv.Itoa(done), nil
}

// The commands of the kernel's verbs that these tests use (include/uapi/rdma/ib_user_verbs.h), each a number, the lengths of what
// follows and of the answer in words of 4 bytes, and where the answer goes.
const (
	getContext     = 0
	allocateDomain = 3
)

// command sends one, whose answer has at most 8 bytes.
func command(fd, number, answerWords int) error {
	var answer [8]byte
	request := make([]byte, 16)
	binary.NativeEndian.PutUint32(request, uint32(number))
	binary.NativeEndian.PutUint16(request[4:], uint16(len(request)/4))
	binary.NativeEndian.PutUint16(request[6:], uint16(answerWords))
	binary.NativeEndian.PutUint64(request[8:], uint64(uintptr(unsafe.Pointer(&answer[0]))))
	_, err := unix.Write(fd, request)
	runtime.KeepAlive(&answer)
	return err
}

// context opens an adapter as libibverbs does: its node, and a context there, which is one handle.
func context(name string) (int, error) {
	fd, err := unix.Open(filepath.Join(rdma.DeviceFolder, name), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	if err := command(fd, getContext, 2); err != nil {
		_ = unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

// domain makes a protection domain, which is one object. It ends with the handle.
func domain(fd int) error { return command(fd, allocateDomain, 1) }
