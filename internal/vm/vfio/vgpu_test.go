package vfio_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/vm/binding"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
	"github.com/divvy-gpu/divvy/internal/vm/vgpu"
)

// typed is a machine of files with one virtual function, and a plan to give it type 7.
func typed(t *testing.T) (root, file string, plan binding.Plan) {
	t.Helper()
	root = t.TempDir()
	function := vgpu.Function{Address: pci.Address{Bus: 1, Function: 1}, Interface: vgpu.Vendor, Group: 5, Types: []vgpu.Type{{ID: "7", Free: 1}}}
	file = filepath.Join(root, "sys", binding.DeviceFolder(function.Address), "nvidia/current_vgpu_type")
	must(t, os.MkdirAll(filepath.Dir(file), 0o700))
	must(t, os.WriteFile(file, []byte("0\n"), 0o600))
	plan, err := binding.MakeVGPU(&vgpu.GPU{Functions: []vgpu.Function{function}}, binding.Wanted{Type: vgpu.Choice{ID: "7", Interface: vgpu.Vendor}})
	must(t, err)
	return root, file, plan
}

func has(t *testing.T, file, want string) {
	t.Helper()
	if got, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(got)) != want {
		t.Errorf("%s has %q, %v; want %s", filepath.Base(file), got, err, want)
	}
}

func openTyped(t *testing.T, root string, step func(string)) *vfio.Book {
	t.Helper()
	b, err := vfio.Open(vfio.Config{Path: filepath.Join(root, "vfio.json"), Machine: self(t, root), Limits: unreached, Step: step})
	must(t, err)
	t.Cleanup(b.Close)
	return b
}

// An agent that ended after a step was written down leaves it open whether the step was made. What the function has then is
// cleared only where the process that writes has left its receipt: without one it is somebody else's, though it looks the same.
func TestReceipts(t *testing.T) {
	ctx := t.Context()
	for name, made := range map[string]bool{"made": true, "not made": false} {
		t.Run(name, func(t *testing.T) {
			root, file, plan := typed(t)
			path := filepath.Join(root, "vfio.json")
			var begun []byte
			b := openTyped(t, root, func(step string) {
				if step == "vfio-begun" {
					begun, _ = os.ReadFile(path)
				}
			})
			must(t, b.Bind(ctx, "one", plan))
			has(t, file, "7")
			receipts, _ := filepath.Glob(filepath.Join(root, "vfio-receipts/*"))
			if len(receipts) != 1 {
				t.Fatalf("there are the receipts %v", receipts)
			}
			receipt, err := os.ReadFile(receipts[0])
			must(t, err)
			left, err := b.Release(ctx, "one")
			if err != nil || len(left) > 0 {
				t.Fatalf("%v, %v", left, err)
			}
			has(t, file, "0")
			if _, err := os.Stat(receipts[0]); err == nil {
				t.Error("the receipt is there after the step was undone")
			}
			b.Close()

			must(t, os.WriteFile(path, begun, 0o600))
			must(t, os.WriteFile(file, []byte("7\n"), 0o600))
			want, told := "7", 1
			if made {
				must(t, os.WriteFile(receipts[0], receipt, 0o600))
				want, told = "0", 0
			}
			again := openTyped(t, root, nil)
			if left, err = again.Recover(ctx); err != nil || len(left) != told || len(again.Entries()) != 0 {
				t.Errorf("recovered: %v, %v, %+v", left, err, again.Entries())
			}
			has(t, file, want)
		})
	}
}

// A write that the file refuses has changed nothing: what is there then was made by somebody who was faster, and is not undone.
func TestRefusedWrite(t *testing.T) {
	root, file, plan := typed(t)
	plan.Steps[0].Kind, plan.Steps[0].Alike = binding.Mediate, false
	plan.Steps[0].Do.Path += "/x" // the file is no folder
	b := openTyped(t, root, func(step string) {
		if step == "vfio-begun" {
			_ = os.WriteFile(file, []byte("7\n"), 0o600)
		}
	})
	if err := b.Bind(t.Context(), "one", plan); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("%v, want ENOTDIR", err)
	}
	has(t, file, "7")
	if e := b.Entries(); len(e) != 0 {
		t.Errorf("the book has %+v", e)
	}
}

// Two mediated devices may be on one function; a function with a type, a passed one and a device on it exclude each other.
func TestClaimsOfOneFunction(t *testing.T) {
	root, _, plan := typed(t)
	b := openTyped(t, root, nil)
	must(t, b.Bind(t.Context(), "one", plan))
	passed := binding.Plan{Form: binding.FormFunction, Device: plan.Device, Group: 9, Members: plan.Members}
	on := binding.Plan{Form: binding.FormVGPU, Device: plan.Device, Group: -1, VGPU: &binding.VGPU{UUID: "a"}}
	for _, other := range []binding.Plan{plan, passed, on} {
		if err := b.Bind(t.Context(), "two", other); !errors.Is(err, vfio.ErrTaken) || !strings.Contains(err.Error(), "one has 0000:01:00.1") {
			t.Errorf("%+v: %v, want ErrTaken", other, err)
		}
	}
	other := on
	other.Device.Function, on.Device.Function = 2, 2
	must(t, b.Bind(t.Context(), "two", on))
	if err := b.Bind(t.Context(), "three", other); !errors.Is(err, vfio.ErrTaken) {
		t.Errorf("a UUID of another owner: %v, want ErrTaken", err)
	}
	passed.Device, passed.Members = on.Device, []pci.Address{on.Device}
	if err := b.Bind(t.Context(), "three", passed); !errors.Is(err, vfio.ErrTaken) {
		t.Errorf("a function with a mediated device: %v, want ErrTaken", err)
	}
	other.VGPU = &binding.VGPU{UUID: "b"}
	must(t, b.Bind(t.Context(), "three", other))
}
