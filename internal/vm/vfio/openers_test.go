package vfio_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// A group that somebody has open of whom nothing is seen stays bound, whatever /proc tells, and the refusal says so.
func TestUnseenHolder(t *testing.T) {
	for unseen, says := range map[string]string{"": "not seen from here", "another namespace": "another namespace"} {
		m := newMachine()
		path := filepath.Join(t.TempDir(), vfio.FileName)
		b := open(t, vfio.Config{Path: path, Machine: m})
		must(t, b.Bind(t.Context(), "ada", planned(t, gpu)))
		bound := m.Snapshot()
		m.open, m.unseen = true, unseen
		if _, err := b.Release(t.Context(), "ada"); !errors.Is(err, vfio.ErrOpen) || !strings.Contains(err.Error(), says) {
			t.Errorf("released: %v, want %q", err, says)
		}
		if after := m.Snapshot(); after != bound || m.Resets(gpu) != 0 {
			t.Errorf("afterwards there is\n%s, want\n%s; %d resets", after, bound, m.Resets(gpu))
		}
		must(t, b.Bind(t.Context(), "ada", planned(t, gpu)))
		next := open(t, vfio.Config{Path: path, Machine: m})
		if left, err := next.Recover(t.Context()); err != nil || len(left) != 0 || len(next.Entries()) != 1 || next.Entries()[0].Phase != vfio.Bound {
			t.Errorf("recovered: %v, %v; the book has %+v", left, err, next.Entries())
		}
		m.open = false
		if left, err := next.Release(t.Context(), "ada"); err != nil || len(left) != 0 || len(next.Entries()) != 0 {
			t.Errorf("released: %v, %v; the book has %v", left, err, next.Entries())
		}
	}
}

// Where it cannot be seen whether somebody has a group open, nothing of it is touched.
func TestNodeIsNotSeen(t *testing.T) {
	m := newMachine()
	b := open(t, vfio.Config{Path: filepath.Join(t.TempDir(), vfio.FileName), Machine: m})
	must(t, b.Bind(t.Context(), "ada", planned(t, gpu)))
	bound := m.Snapshot()
	m.missing = true
	if _, err := b.Release(t.Context(), "ada"); !errors.Is(err, vfio.ErrUnseen) {
		t.Errorf("released: %v, want %v", err, vfio.ErrUnseen)
	}
	if entries := b.Entries(); m.Snapshot() != bound || len(entries) != 1 || entries[0].Phase != vfio.Bound {
		t.Errorf("afterwards there is\n%s, want\n%s; the book has %+v", m.Snapshot(), bound, entries)
	}
	m.missing = false
	if left, err := b.Release(t.Context(), "ada"); err != nil || len(left) != 0 {
		t.Errorf("released: %v, %v", left, err)
	}
}

// A node that is missing tells that nobody has the group open only where the kernel has none either.
func TestMissingNode(t *testing.T) {
	for name, c := range map[string]struct {
		has  string
		want error
	}{
		"no driver gives the group":      {"", nil},
		"the group's node is not here":   {"class/vfio/5", vfio.ErrUnseen},
		"a group without an IOMMU":       {"class/vfio/noiommu-5", vfio.ErrUnseen},
		"another group's is of no avail": {"class/vfio/55", nil},
	} {
		t.Run(name, func(t *testing.T) {
			root, file, plan := typed(t)
			link := filepath.Join(root, "sys", binding.DeviceFolder(plan.Device), "iommu_group")
			must(t, os.Symlink("../../../../kernel/iommu_groups/5", link))
			if c.has != "" {
				must(t, os.MkdirAll(filepath.Join(root, "sys", c.has), 0o700))
			}
			if held, err := self(t, root).Openers(binding.DeviceFolder(plan.Device) + "/iommu_group"); !errors.Is(err, c.want) || len(held.Holders) != 0 {
				t.Errorf("openers: %v, %v, want %v", held, err, c.want)
			}
			b := openTyped(t, root, nil)
			want := "7"
			if c.want != nil {
				want = "0"
			}
			if err := b.Bind(t.Context(), "one", plan); !errors.Is(err, c.want) {
				t.Errorf("bound: %v, want %v", err, c.want)
			}
			has(t, file, want)
		})
	}
}

// openGroup is a machine whose groups somebody has open.
type openGroup struct{ vfio.Host }

type openWriter struct{ vfio.Writer }

func (g openGroup) Start() (vfio.Writer, error) {
	w, err := g.Host.Start()
	return openWriter{w}, err
}

func (w openWriter) Write(write binding.Write) <-chan error {
	if write.Group == "" {
		return w.Writer.Write(write)
	}
	outcome := make(chan error, 1)
	outcome <- vfio.ErrOpen
	return outcome
}

// A function that somebody has open gets no type, and the book has nothing of it.
func TestTypeOfAnOpenFunction(t *testing.T) {
	root, file, plan := typed(t)
	b := open(t, vfio.Config{Path: filepath.Join(root, "vfio.json"), Machine: openGroup{self(t, root)}})
	if err := b.Bind(t.Context(), "one", plan); !errors.Is(err, vfio.ErrOpen) {
		t.Errorf("bound: %v, want %v", err, vfio.ErrOpen)
	}
	has(t, file, "0")
	if e := b.Entries(); len(e) != 0 {
		t.Errorf("the book has %+v", e)
	}
}

// A device that is stuck without a holder that is seen says why there may be one all the same.
func TestStuckByAnUnseenHolder(t *testing.T) {
	m := newMachine()
	m.unseen = "processes of the machine are not seen"
	late, told := listener()
	b := open(t, vfio.Config{Path: filepath.Join(t.TempDir(), vfio.FileName), Machine: m, Limits: hasty, Late: told})
	release := m.Hold(gpu)
	defer release()
	if err := b.Bind(t.Context(), "ada", planned(t, gpu)); err == nil || !strings.Contains(err.Error(), "nobody that can be seen holds it: "+m.unseen) {
		t.Errorf("bound: %v", err)
	}
	release()
	<-late
}

// The machine's files tell who has a node open by another name, and so do facts that are read by them.
func TestFilesTellOpeners(t *testing.T) {
	const null = "null"
	_, node := filepath.Split(t.TempDir())
	told, is := vfio.Files("/").(interface {
		Openers(nodes []string) ([]facts.Opener, []string, error)
	})
	if !is {
		t.Fatal("they do not")
	}
	file, err := os.Open("/dev/" + null)
	must(t, err)
	defer file.Close()
	found, _, err := told.Openers([]string{node, null})
	if err != nil || !slices.Contains(found, facts.Opener{PID: os.Getpid(), Node: null}) || slices.ContainsFunc(found, func(o facts.Opener) bool { return o.Node == node }) {
		t.Errorf("found %v, %v, want this process, %d", found, err, os.Getpid())
	}
}
