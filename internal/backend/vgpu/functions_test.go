package vgpu_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/divvy-gpu/divvy/internal/backend/vgpu"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
	types "github.com/divvy-gpu/divvy/internal/vm/vgpu"
)

// card is a function that can have four virtual ones, below a folder that stands for a machine. A process of its own writes there, as
// below /sys.
type card struct {
	t          *testing.T
	root, book string
}

var cardAt = pci.Address{Bus: 0x41}

func newCard(t *testing.T, driver string) card {
	t.Helper()
	c := card{t, t.TempDir(), filepath.Join(t.TempDir(), vfio.FileName)}
	c.link("sys/bus/pci/devices/"+cardAt.String(), "../../../devices/pci0000:40/"+cardAt.String())
	for file, content := range map[string]string{"class": "0x120000", "vendor": "0x1002", "device": "0x74a1", "sriov_totalvfs": "4", "sriov_numvfs": "0", "sriov_drivers_autoprobe": "1"} {
		c.write(file, content)
	}
	if driver != "" {
		c.link(c.folder(cardAt)+"/driver", "../../../bus/pci/drivers/"+driver)
	}
	return c
}

func (c card) folder(at pci.Address) string { return "sys/devices/pci0000:40/" + at.String() }

func (c card) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c card) link(at, to string) {
	c.t.Helper()
	at = filepath.Join(c.root, at)
	c.must(os.MkdirAll(filepath.Dir(at), 0o700))
	c.must(os.Symlink(to, at))
}

func (c card) write(file, content string) {
	c.t.Helper()
	at := filepath.Join(c.root, c.folder(cardAt), file)
	c.must(os.MkdirAll(filepath.Dir(at), 0o700))
	c.must(os.WriteFile(at, []byte(content), 0o600))
}

// state is how many virtual functions there are, and whether drivers take them.
func (c card) state() string {
	c.t.Helper()
	now, err := os.ReadFile(filepath.Join(c.root, c.folder(cardAt), "sriov_numvfs"))
	c.must(err)
	probed, err := os.ReadFile(filepath.Join(c.root, c.folder(cardAt), "sriov_drivers_autoprobe"))
	c.must(err)
	return fmt.Sprintf("%s of drivers %s", now, probed)
}

// agent is what an agent that starts has.
func (c card) agent() (*vgpu.Backend, *vfio.Book) {
	c.t.Helper()
	program, err := os.Executable()
	c.must(err)
	book, err := vfio.Open(vfio.Config{
		Path: c.book, Machine: vfio.Host{Root: c.root, Program: program, Args: []string{vfio.Command}}, Limits: vfio.Limits{Look: time.Minute, Write: time.Minute},
	})
	c.must(err)
	c.t.Cleanup(book.Close)
	_, err = book.Recover(c.t.Context())
	c.must(err)
	return vgpu.New(vgpu.Options{Root: os.DirFS(c.root), Book: book}), book
}

func (c card) is(want string) {
	c.t.Helper()
	if got := c.state(); got != want {
		c.t.Errorf("there are functions %s, want %s", got, want)
	}
}

func (c card) refused(err error, why error, words ...string) {
	c.t.Helper()
	if !errors.Is(err, why) {
		c.t.Errorf("%v, want %v", err, why)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			c.t.Errorf("%v does not say %q", err, word)
		}
	}
}

// hold has a process hold the VFIO node of a function's group while something is refused that says so.
func (c card) hold(at pci.Address, words string, do func() error) {
	c.t.Helper()
	for file, content := range map[string]string{"class": "0x020000", "vendor": "0x1002", "device": "0x74b5"} {
		c.must(os.WriteFile(filepath.Join(c.root, c.folder(at), file), []byte(content), 0o600))
	}
	c.link(c.folder(at)+"/iommu_group", "../../../kernel/iommu_groups/7")
	c.must(os.MkdirAll(filepath.Join(c.root, "proc/4711/fd"), 0o700))
	c.must(os.WriteFile(filepath.Join(c.root, "proc/4711/comm"), []byte("qemu\n"), 0o600))
	c.link("proc/4711/fd/3", "/dev/vfio/7")
	c.refused(do(), vgpu.ErrUsed, words)
	c.must(os.RemoveAll(filepath.Join(c.root, "proc/4711")))
}

// Functions are enabled from none, stay over the end of the agent, and go only as Divvy enabled them, while nobody uses one.
func TestFunctions(t *testing.T) {
	ctx, c := t.Context(), newCard(t, "gim")
	b, _ := c.agent()
	if _, err := b.DisableFunctions(ctx, cardAt); err != nil {
		t.Errorf("none are disabled: %v", err)
	}
	for range 2 { // the second time they are there
		c.must(b.EnableFunctions(ctx, cardAt, 2))
	}
	c.is("2 of drivers 0")
	c.refused(b.EnableFunctions(ctx, cardAt, 4), binding.ErrFunctions, "it has 2", "`divvy vm functions 0000:41:00.0 --count 0` takes them away first")

	b, book := c.agent()
	again, err := binding.EnableFunctions(&types.GPU{Address: cardAt, FunctionsTotal: 4}, 2)
	c.must(err)
	c.must(book.Bind(ctx, vgpu.FunctionsOwner(cardAt), again)) // as who asked before they were there
	if all := b.Enabled(); len(all) != 1 || all[0] != (vgpu.Enabled{Device: cardAt, Count: 2, Now: 2, Phase: vfio.Bound}) {
		t.Errorf("after a restart there are %+v", all)
	}
	one := pci.Address{Bus: 0x41, Function: 1}
	c.link("sys/bus/pci/devices/"+one.String(), "../../../devices/pci0000:40/"+one.String())
	c.link(c.folder(cardAt)+"/virtfn0", "../"+one.String())
	c.link(c.folder(one)+"/driver", "../../../bus/pci/drivers/vfio-pci")
	if all, err := b.Virtual(cardAt); err != nil || len(all) != 1 || all[0] != one {
		t.Errorf("the functions are %v, %v", all, err)
	}
	_, err = b.DisableFunctions(ctx, cardAt)
	c.refused(err, vgpu.ErrUsed, "0000:41:00.1 is with vfio-pci, a driver that it has by somebody else; nobody is seen to have it open; then, as root, "+
		"`echo 0000:41:00.1 > /sys/bus/pci/drivers/vfio-pci/unbind`")
	c.hold(one, "process 4711 (qemu) has /dev/vfio/7: end that first; then, as root", func() error { _, err := b.DisableFunctions(ctx, cardAt); return err })
	c.must(os.Remove(filepath.Join(c.root, c.folder(one), "driver")))
	c.must(book.Bind(ctx, "desk", binding.Plan{Form: binding.FormFunction, Device: one, Group: -1, Members: []pci.Address{one}}))
	_, err = b.DisableFunctions(ctx, cardAt)
	c.refused(err, vgpu.ErrUsed, "claim desk has 0000:41:00.1: `divvy vm release desk` takes it back")
	_, err = book.Release(ctx, "desk")
	c.must(err)
	c.is("2 of drivers 0")
	left, err := b.DisableFunctions(ctx, cardAt)
	if err != nil || len(left) > 0 || len(b.Enabled()) > 0 {
		t.Errorf("disabled: %v, %v; there are %+v", left, err, b.Enabled())
	}
	c.is("0 of drivers 1")
}

// What others enabled stays, and what they took away can be enabled again.
func TestFunctionsOfOthers(t *testing.T) {
	ctx, c := t.Context(), newCard(t, "nvidia")
	b, _ := c.agent()
	c.write("sriov_numvfs", "1")
	c.refused(b.EnableFunctions(ctx, cardAt, 1), binding.ErrFunctions, "it has 1", "it was not Divvy that enabled them")
	_, err := b.DisableFunctions(ctx, cardAt)
	c.refused(err, vgpu.ErrOthers, "echo 0 > /sys/bus/pci/devices/0000:41:00.0/sriov_numvfs")
	c.is("1 of drivers 1")

	c.write("sriov_numvfs", "0")
	c.must(b.EnableFunctions(ctx, cardAt, pci.AllFunctions))
	c.is("4 of drivers 1")
	c.must(b.EnableFunctions(ctx, cardAt, 4))
	c.write("sriov_numvfs", "0")
	c.must(b.EnableFunctions(ctx, cardAt, 3))
	c.is("3 of drivers 1")
	c.write("sriov_numvfs", "2")
	if all := b.Enabled(); len(all) != 1 || !all[0].Changed || all[0].Now != 2 || all[0].Count != 3 {
		t.Errorf("of what somebody changed there are %+v", all)
	}
	left, err := b.DisableFunctions(ctx, cardAt)
	if err != nil || len(left) != 1 || len(b.Enabled()) > 0 {
		t.Errorf("disabled what somebody changed: %v, %v; there are %+v", left, err, b.Enabled())
	}
	c.is("2 of drivers 1")
}

// Who asks for as many as are being enabled waits for them, and another number is refused meanwhile.
func TestFunctionsThatAreBeingEnabled(t *testing.T) {
	m, waited := newModelled(), 0
	plan, err := binding.EnableFunctions(&types.GPU{Address: modelledGPU, FunctionsTotal: 2}, 2)
	if err != nil {
		t.Fatal(err)
	}
	m.entries = []vfio.Entry{{Owner: vgpu.FunctionsOwner(modelledGPU), Plan: plan, Phase: vfio.Binding, Stuck: &vfio.StuckError{Device: modelledGPU}}}
	m.others = func(p binding.Plan) error {
		waited++
		return errors.New("still " + string(p.Form))
	}
	b := vgpu.New(vgpu.Options{Root: m.files, Book: m})
	if err := b.EnableFunctions(t.Context(), modelledGPU, 2); err == nil || err.Error() != "still functions" || waited != 1 {
		t.Errorf("as many: %v, waited %d times", err, waited)
	}
	if err := b.EnableFunctions(t.Context(), modelledGPU, 1); !errors.Is(err, vgpu.ErrChanging) || !strings.Contains(err.Error(), "is stuck") || waited != 1 {
		t.Errorf("another number: %v, waited %d times", err, waited)
	}
}

// A card whose disk is mounted gets no functions: its driver may take the disk away for that.
func TestFunctionsOfWhatTheHostUses(t *testing.T) {
	c := newCard(t, "nvme")
	c.link("sys/class/block/nvme0n1", "../../devices/pci0000:40/"+cardAt.String()+"/nvme/nvme0/nvme0n1")
	c.must(os.MkdirAll(filepath.Join(c.root, c.folder(cardAt), "nvme/nvme0/nvme0n1"), 0o700))
	c.must(os.MkdirAll(filepath.Join(c.root, "proc/1"), 0o700))
	c.must(os.WriteFile(filepath.Join(c.root, "proc/1/mountinfo"), []byte("22 1 259:0 / / rw - ext4 /dev/nvme0n1 rw\n"), 0o600))
	b, _ := c.agent()
	c.refused(b.EnableFunctions(t.Context(), cardAt, 2), binding.ErrUsed, "nvme0n1 is mounted at /")
	c.is("0 of drivers 1")
}

// What the kernel refuses is told with the device, how many it can have, and what helps.
func TestFunctionsThatTheKernelRefuses(t *testing.T) {
	for _, c := range []struct {
		driver string
		number syscall.Errno
		want   string
	}{
		{"", syscall.ENOENT, "it has no driver"},
		{"nvidia", syscall.ENOENT, "sriov-manage -e 0000:01:00.0"},
		{"amdgpu", syscall.ENOENT, "driver amdgpu makes none"},
		{"nvidia", syscall.EINVAL, "driver nvidia does not make so many now"},
		{"nvidia", syscall.ENOSPC, "Above 4G Decoding"},
		{"nvidia", syscall.ERANGE, "allows fewer now"},
		{"nvidia", syscall.EBUSY, "somebody else"},
	} {
		m := newModelled()
		for file, content := range map[string]string{"class": "0x030200", "vendor": "0x10de", "device": "0x20b0"} {
			m.files[folderOfGPU+"/"+file] = &fstest.MapFile{Data: []byte(content + "\n")}
		}
		if c.driver != "" {
			m.files[folderOfGPU+"/driver"] = &fstest.MapFile{Data: []byte("../../../bus/pci/drivers/" + c.driver), Mode: fs.ModeSymlink | 0o777}
		}
		m.others = func(p binding.Plan) error { return fmt.Errorf("%s: %w", p.Steps[0], c.number) }
		err := vgpu.New(vgpu.Options{Root: m.files, Book: m}).EnableFunctions(t.Context(), modelledGPU, 2)
		for _, want := range []string{"enable 2 virtual functions of 0000:01:00.0: " + c.number.Error(), "10de:20b0", "can have 2", c.want} {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s, %s: %v does not say %q", c.driver, c.number, err, want)
			}
		}
		if len(m.entries) > 0 {
			t.Errorf("the book has %+v", m.entries)
		}
	}
}
