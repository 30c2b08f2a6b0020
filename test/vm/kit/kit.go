// Package kit is what hack/vm-kit.sh unpacked, on the machine that starts guests: QEMU, a kernel, and the guest's root.
package kit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/test/vm/machine"
)

// ErrMissing tells that there is no whole kit.
var ErrMissing = errors.New("no kit of the guest: run make vm-kit")

// Kit is an unpacked kit.
type Kit struct {
	tree string
	// Digests tells one kit from another.
	Digests string
	release string
}

// Open finds the kit in a folder. It returns ErrMissing where there is none, or one half unpacked.
func Open(folder string) (Kit, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return Kit{}, fmt.Errorf("find the kit: %w", err)
	}
	if _, err := os.Stat(filepath.Join(folder, ".complete")); err != nil {
		return Kit{}, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	digests, err := os.ReadFile(filepath.Join(folder, "digests"))
	if err != nil {
		return Kit{}, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	k := Kit{tree: filepath.Join(folder, "tree"), Digests: string(digests)}
	kernels, err := filepath.Glob(filepath.Join(k.tree, "boot/vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		return Kit{}, fmt.Errorf("%w: it has %d kernels", ErrMissing, len(kernels))
	}
	k.release = strings.TrimPrefix(filepath.Base(kernels[0]), "vmlinuz-")
	return k, nil
}

// Files are those of the host that a guest has to do with.
type Files struct {
	// Memory is its memory disk, Disk what is on its one disk; it writes neither.
	Memory, Disk string
	// Console and Wire get what the kernel says, and what the guest writes on the wire.
	Console, Wire string
}

// Emulator returns a command that boots a guest of a shape.
func (k Kit) Emulator(shape machine.Shape, files Files) *exec.Cmd {
	arguments := append(shape.Arguments(), k.Firmware()...)
	arguments = append(arguments,
		"-blockdev", "driver=raw,read-only=on,node-name="+machine.Disk+",file.driver=file,file.filename="+files.Disk,
		"-chardev", "file,id=console,path="+files.Console, "-serial", "chardev:console",
		"-chardev", "file,id=line,path="+files.Wire, "-serial", "chardev:line",
		"-kernel", filepath.Join(k.tree, "boot/vmlinuz-"+k.release), "-initrd", files.Memory, "-append", shape.CommandLine())
	return k.QEMU(arguments...)
}

// QEMU returns a command that runs the kit's QEMU.
func (k Kit) QEMU(arguments ...string) *exec.Cmd {
	//nolint:gosec,noctx // the kit's own program; its caller bounds it
	cmd := exec.Command(filepath.Join(k.tree, "usr/bin/qemu-system-x86_64"), arguments...)
	cmd.Env = []string{"LD_LIBRARY_PATH=" + strings.Join(k.libraries(), ":"), "PATH=/usr/bin:/bin"}
	return cmd
}

// Firmware returns the arguments that tell QEMU where the kit's firmware is.
func (k Kit) Firmware() []string {
	return []string{"-L", filepath.Join(k.tree, "usr/share/qemu"), "-L", filepath.Join(k.tree, "usr/share/seabios")}
}

// libraries returns the kit's own folders of libraries.
func (k Kit) libraries() []string {
	return []string{filepath.Join(k.tree, "usr/lib/x86_64-linux-gnu"), filepath.Join(k.tree, "lib/x86_64-linux-gnu")}
}
