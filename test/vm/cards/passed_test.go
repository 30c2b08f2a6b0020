package cards

import (
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
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/divvy-gpu/divvy/internal/rdma"
	"github.com/divvy-gpu/divvy/test/bench/figure"
	"github.com/divvy-gpu/divvy/test/vm/guest"
)

// taken is what a container holds that got open adapters from another one; listening is where it waits for them.
const (
	taken     = "taken"
	listening = "listening"
)

// passed is what containers do that pass open adapters to each other.
func passed(words []string, held map[string][]int) (string, error) {
	switch words[0] {
	case "listen": // PATH
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: words[1]}), unix.Listen(fd, 1))
		}
		held[listening] = append(held[listening], fd)
		return "yes", err
	case "pass": // NAME TIMES PATH: nobody made a context there yet
		return "yes", pass(words[1], words[2], words[3])
	case "take":
		all, err := take(held[listening][0])
		held[taken] = append(held[taken], all...)
		return strconv.Itoa(len(all)), err
	case "contexts":
		done := 0
		return count(strconv.Itoa(len(held[taken])), func() error {
			done++
			return invoke(held[taken][done-1], deviceContext)
		})
	case "domains": // TIMES of each, of all that have a context
		sum := 0
		for _, fd := range held[taken] {
			text, err := count(words[1], func() error {
				var answer uint32
				err := invoke(fd, invokeWrite,
					attribute{id: writeCommand, length: 8, data: allocateDomain},
					attribute{id: coreIn, length: 8},
					attribute{id: coreOut, length: 4, data: uint64(uintptr(unsafe.Pointer(&answer)))})
				runtime.KeepAlive(&answer)
				return err
			})
			if errors.Is(err, unix.EINVAL) { // has none
				continue
			}
			if err != nil {
				return "", err
			}
			got, _ := strconv.Atoi(text)
			sum += got
		}
		return strconv.Itoa(sum), nil
	}
	return "", fmt.Errorf("unknown: %s", words)
}

// pass opens an adapter some times and sends that to a socket.
func pass(name, times, to string) error {
	most, err := strconv.Atoi(times)
	if err != nil {
		return err
	}
	var all []int
	defer func() {
		for _, fd := range all {
			_ = unix.Close(fd)
		}
	}()
	for range most {
		fd, err := unix.Open(filepath.Join(rdma.DeviceFolder, name), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		all = append(all, fd)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: to}); err != nil {
		return err
	}
	return unix.Sendmsg(fd, []byte{0}, unix.UnixRights(all...), nil, 0)
}

// take accepts one connection and returns the files that come by it.
func take(listener int) ([]int, error) {
	fd, _, err := unix.Accept(listener)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	rights := make([]byte, 4096)
	_, n, _, _, err := unix.Recvmsg(fd, make([]byte, 1), rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("%d messages: %w", len(messages), err)
	}
	return unix.ParseUnixRights(&messages[0])
}

// Verbs by ioctl(2) (include/uapi/rdma/rdma_user_ioctl_cmds.h, ib_user_ioctl_cmds.h): what write(2) is refused to whoever did not open
// the adapter, ioctl(2) is not.
const (
	verbs         = 3<<30 | 24<<16 | 0x1b<<8 | 1
	invokeWrite   = 0
	deviceContext = 3
	coreIn        = 0
	coreOut       = 1
	writeCommand  = 2
	mandatory     = 1
	softRoCE      = 14 // the driver
)

// attribute is one of a call. Up to 8 bytes are the data itself, where they go to the kernel.
type attribute struct {
	id, length uint16
	data       uint64
}

// invoke calls a method of the object that stands for the adapter.
func invoke(fd int, method uint16, attributes ...attribute) error {
	request := make([]byte, 24+16*len(attributes))
	binary.NativeEndian.PutUint16(request, uint16(len(request)))
	binary.NativeEndian.PutUint16(request[4:], method)
	binary.NativeEndian.PutUint16(request[6:], uint16(len(attributes)))
	binary.NativeEndian.PutUint32(request[16:], softRoCE)
	for i, a := range attributes {
		at := request[24+16*i:]
		binary.NativeEndian.PutUint16(at, a.id)
		binary.NativeEndian.PutUint16(at[2:], a.length)
		binary.NativeEndian.PutUint16(at[4:], mandatory)
		binary.NativeEndian.PutUint64(at[8:], a.data)
	}
	_, _, fault := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), verbs, uintptr(unsafe.Pointer(&request[0])))
	runtime.KeepAlive(request)
	if fault != 0 {
		return fault
	}
	return nil
}

// mostOf is what a cgroup may take of an adapter.
func mostOf(t *testing.T, cgroup, adapter string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cgroup, "rdma.max")) //nolint:gosec // of the guest
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if most, is := strings.CutPrefix(line, adapter+" "); is {
			return strings.TrimSpace(most)
		}
	}
	t.Fatalf("%s has no %s: %s", cgroup, adapter, text)
	return ""
}

// In the first version of cgroups the limits hold as in the second. This test comes first and has no context refused by ioctl(2): the
// kernel then keeps the process, and by it the cgroup, for ever (UVERBS_METHOD_GET_CONTEXT of uverbs_std_types_device.c).
func TestPassedAdapterInTheFirstVersion(t *testing.T) {
	guest.Require(t)
	host, cards := fourAdapters(t)
	hierarchy := firstVersion(t)
	passOn(t, host, cards, filepath.Join(hierarchy, "kubepods"), 3)
	if err := os.Remove(filepath.Join(hierarchy, "kubepods")); err != nil {
		t.Error(err)
	}
}

// A container that passes its open adapter to another one of its pod, which has no card, gets no more by that than the pod's containers
// with cards may take together. What the kernel charges is who calls it. Another pod with the card is not hurt.
func TestPassedAdapterIsLimitedByThePod(t *testing.T) {
	guest.Require(t)
	host, cards := fourAdapters(t)
	beyond := passOn(t, host, cards, pods, 20)
	figure.Tell(t, figure.Figure{ID: "nic.quota", Case: "passed on", Values: []float64{float64(beyond)}, Note: "handles and objects beyond its pod's limits that a pod got by 20 open adapters that one of its containers passed to another one without a card"})
}

// firstVersion takes the controller away from the second version of cgroups and mounts it as the first has it, until the test ends.
func firstVersion(t *testing.T) (hierarchy string) {
	t.Helper()
	for folder := pods; strings.HasPrefix(folder, groups); folder = filepath.Dir(folder) {
		err := os.WriteFile(filepath.Join(folder, "cgroup.subtree_control"), []byte("-rdma"), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	hierarchy = t.TempDir()
	waitFor(t, "the controller is free", func() bool { // cgroups that have gone let it go a moment later
		err := unix.Mount("cgroup", hierarchy, "cgroup", 0, "rdma")
		if err != nil && !errors.Is(err, unix.EBUSY) {
			t.Fatal(err)
		}
		return err == nil
	})
	t.Cleanup(func() {
		// The hierarchy ends when it is taken away without a cgroup in it, which the kernel keeps for a moment after they have gone.
		waitFor(t, "the hierarchy has its outermost cgroup alone", func() bool {
			text, err := os.ReadFile("/proc/cgroups")
			fields := strings.Fields(string(text[max(0, strings.Index(string(text), "\nrdma")):]))
			return err == nil && len(fields) > 2 && fields[2] == "1"
		})
		if err := unix.Unmount(hierarchy, 0); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the second version has the controller again", func() bool {
			text, err := os.ReadFile(filepath.Join(groups, "cgroup.controllers"))
			return err == nil && strings.Contains(string(text), "rdma")
		})
	})
	return hierarchy
}

// passOn has a container of a pod pass open adapters, times of them, to one without a card, and returns how much the pod got beyond its limits.
func passOn(t *testing.T, host *rdma.Host, cards []rdma.Card, pods string, times int) (beyond int) {
	t.Helper()
	card, each := cards[1], rdma.Limits{Handles: 3, Objects: 5}
	pod, socket := filepath.Join(pods, podUID("evil")), filepath.Join(t.TempDir(), "socket")
	side := startIn(t, pod, "side", specs.ContainerEdits{})
	main := startIn(t, pod, "main", given(t, host, []rdma.Part{{Card: card, Slots: 1}}, each))
	neighbour := startIn(t, filepath.Join(pods, podUID("neighbour")), "neighbour", given(t, host, []rdma.Part{{Card: card, Slots: 1}}, each))
	if got := side.ask("listen", socket); got != "yes" {
		t.Fatal(got)
	}
	if got := main.ask("pass", card.Verbs.Name, strconv.Itoa(times), socket); got != "yes" {
		t.Fatal(got)
	}
	if got := side.number("take"); got != times {
		t.Fatalf("%d open adapters were passed", got)
	}
	handles, objects := side.number("contexts"), side.number("domains", "20")
	if handles != 3 || objects != 5 {
		t.Errorf("the other container has %d handles and %d objects, want the pod's 3 and 5", handles, objects)
	}
	beyond = max(0, handles-3) + max(0, objects-5)
	if got := main.number("handles", card.Verbs.Name, "20"); got != 0 {
		t.Errorf("the container itself has %d handles beside them", got)
		beyond += got
	}
	if got := neighbour.number("handles", card.Verbs.Name, "20"); got != 3 {
		t.Errorf("the neighbour has %d handles, want 3", got)
	}
	// Another container with a card makes the pod's limit larger, and one that has ended does not count when the next comes.
	more := startIn(t, pod, "more", given(t, host, []rdma.Part{{Card: card, Slots: 2}}, each))
	if got := mostOf(t, pod, card.Name); got != "hca_handle=9 hca_object=15" {
		t.Errorf("with another container the pod may have %s", got)
	}
	if got := more.number("handles", card.Verbs.Name, "20"); got != 6 {
		t.Errorf("another container of the pod has %d handles, want 6", got)
	}
	more.end()
	again := startIn(t, pod, "again", given(t, host, []rdma.Part{{Card: card, Slots: 1}, {Card: cards[0], Slots: 1}}, each))
	if got := mostOf(t, pod, card.Name) + " and " + mostOf(t, pod, cards[0].Name); got != "hca_handle=6 hca_object=10 and hca_handle=3 hca_object=5" {
		t.Errorf("after it had ended the pod may have %s", got)
	}
	if got := mostOf(t, filepath.Join(pod, "side"), card.Name); got != "hca_handle=max hca_object=max" {
		t.Errorf("the container without a card has a limit of its own: %s", got)
	}
	for _, c := range []*container{again, side, main, neighbour} {
		c.end()
	}
	return beyond
}
