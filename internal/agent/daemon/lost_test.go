package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend/passthrough"
	"github.com/divvy-gpu/divvy/internal/backend/vgpu"
	"github.com/divvy-gpu/divvy/internal/checkpoint"
	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/claims"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// bookWith is a book that an agent left with an entry in a directory.
func bookWith(t *testing.T, dir string, e vfio.Entry) *vfio.Book {
	t.Helper()
	path := filepath.Join(dir, vfio.FileName)
	if err := checkpoint.NewFile[[]vfio.Entry](path, "vfio", 1).Save([]vfio.Entry{e}); err != nil {
		t.Fatal(err)
	}
	book, err := vfio.Open(vfio.Config{Path: path, Machine: vfio.Host{Root: dir}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(book.Close)
	return book
}

// What the book has and the ledger does not is shown, and a claim of its name is refused, in every form, with what has it.
func TestClaimOfALostLedger(t *testing.T) {
	dir, card := t.TempDir(), pci.Address{Bus: 0x41}
	m := &machines{book: bookWith(t, dir, vfio.Entry{Owner: "desk", Plan: binding.Plan{Form: binding.FormPassthrough, Device: card}, Phase: vfio.Bound})}
	var err error
	host := func() (*facts.Host, error) { return nil, errors.New("the machine was read") }
	m.Ledger, err = claims.Open(claims.Config{
		Path: filepath.Join(dir, claims.FileName), Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Makers: map[v1alpha1.Backend]claims.Maker{
			v1alpha1.BackendPassthrough: passthrough.Whole(m.book, nil, host), v1alpha1.BackendVF: passthrough.Function(m.book, nil, host),
			v1alpha1.BackendVGPU: vgpu.Maker{Backend: vgpu.New(vgpu.Options{Root: os.DirFS(dir), Book: m.book})},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []v1alpha1.Backend{v1alpha1.BackendPassthrough, v1alpha1.BackendVF, v1alpha1.BackendVGPU} {
		_, err := m.Take(t.Context(), claims.Want{Name: "desk", Form: form, Device: card}, func([]pci.Address) error { return nil })
		if !errors.Is(err, claims.ErrTaken) || !strings.Contains(err.Error(), "0000:41:00.0 (passthrough) has that name") {
			t.Errorf("%s: %v", form, err)
		}
	}
	if all, _ := m.List(); len(all) != 1 || all[0].Name != "desk" || all[0].Phase != claims.Held || !all[0].Foreign {
		t.Errorf("there are %+v", all)
	}
}

// nodes are whose each device node is.
type nodes map[string]claims.Ownership

func (n nodes) Owner(node string) (claims.Ownership, error)     { return n[node], nil }
func (n nodes) SetOwner(node string, to claims.Ownership) error { n[node] = to; return nil }

// What the book alone has is put back with its node root's: whose user's it was is lost, and its next tenant's must not stay theirs.
func TestReleaseOfALostLedger(t *testing.T) {
	dir, node, of := t.TempDir(), "/dev/vfio/7", nodes{"/dev/vfio/7": {UID: 1000, GID: 36, Mode: 0o666}}
	m := &machines{book: bookWith(t, dir, vfio.Entry{Owner: "desk", Plan: binding.Plan{Form: binding.FormPassthrough, Device: pci.Address{Bus: 0x41}, Nodes: []string{node}}, Phase: vfio.Bound})}
	var err error
	m.Ledger, err = claims.Open(claims.Config{Path: filepath.Join(dir, claims.FileName), Nodes: of, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Release(t.Context(), "another"); !errors.Is(err, claims.ErrUnknown) || of[node].UID != 1000 {
		t.Errorf("another name: %v, %+v", err, of)
	}
	if _, err := m.Release(t.Context(), "desk"); err != nil {
		t.Fatal(err)
	}
	if want := (claims.Ownership{Mode: 0o600}); of[node] != want || len(m.book.Entries()) > 0 {
		t.Errorf("the node is %+v, want %+v; the book has %d", of[node], want, len(m.book.Entries()))
	}
}

// made gives what it is asked for, and has it when it is asked.
type made struct{}

func (made) Take(_ context.Context, w claims.Want, admit func([]pci.Address) error) (claims.Given, error) {
	return claims.Given{}, admit([]pci.Address{w.Device})
}
func (made) Release(context.Context, string) ([]string, error) { return nil, nil }
func (made) Standing(string) claims.Standing                   { return claims.Standing{} }

// A book that is gone while a claim has a device by it is no empty one. One that is empty, as after the doctor's commands, is known.
func TestBookThatIsGone(t *testing.T) {
	dir := t.TempDir()
	config := vfio.Config{Path: filepath.Join(dir, vfio.FileName), Machine: vfio.Host{Root: dir}}
	broken := func() error {
		t.Helper()
		book, broken, err := openBook(config)
		if err != nil {
			t.Fatal(err)
		}
		book.Close()
		return broken
	}
	if err := broken(); err != nil {
		t.Errorf("before the first claim: %v", err)
	}
	ledger, err := claims.Open(claims.Config{
		Path: filepath.Join(dir, claims.FileName), Now: time.Now, Makers: map[v1alpha1.Backend]claims.Maker{v1alpha1.BackendPassthrough: made{}},
	})
	if err == nil {
		_, err = ledger.Take(t.Context(), claims.Want{Name: "desk", Form: v1alpha1.BackendPassthrough}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := broken(); err == nil || !strings.Contains(err.Error(), config.Path+" is gone, by which claims have devices: desk; `divvy doctor`") {
		t.Errorf("while a claim is held: %v", err)
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", vfio.Emptied(dir)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := broken(); err != nil {
		t.Errorf("once the book is empty: %v", err)
	}
}
