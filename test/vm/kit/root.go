package kit

import (
	"fmt"
	"io"
	"path/filepath"
)

// Files of the guest that its first program reads.
const (
	// Order lists the modules of the kernel in the order in which they are loaded, one file a line.
	Order = "/modules/order"
	// Task says in JSON what is to be run.
	Task = "/task.json"
)

// programs of the kit that tests run in the guest, by their places in the kit. All lie in /bin there.
var programs = []string{
	"usr/bin/qemu-system-x86_64", "bin/ip", "usr/bin/rdma", "usr/bin/ibv_rc_pingpong", "usr/bin/ibv_devinfo",
}

// firmware is what a QEMU inside the guest reads.
var firmware = []string{"qemu/kvmvapic.bin", "qemu/linuxboot_dma.bin", "seabios/bios-256k.bin"}

// accounts are the two users of the guest: root, and one without any right of its own.
const accounts = "root:x:0:0::/:/bin/sh\nada:x:1000:1000::/:/bin/sh\n"

// WriteRoot writes the guest's root as a memory disk: its first program, the modules of the kernel and, as the last of
// them, our own, and the kit's programs.
func (k Kit) WriteRoot(to io.Writer, first string, own ...string) error {
	disk := NewArchive(to)
	for _, folder := range []string{"dev", "proc", "sys", "tmp", "run", "root", "lib"} {
		disk.Folder(folder)
	}
	disk.Copy("init", first)
	disk.File("etc/passwd", 0o644, []byte(accounts))
	disk.File("etc/group", 0o644, []byte("root:x:0:\nada:x:1000:\n"))
	disk.Link("lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu")
	modules, err := k.modules()
	if err != nil {
		return err
	}
	var order []byte
	for _, module := range modules {
		disk.File("modules/"+module.name+".ko", 0o644, module.content)
		order = fmt.Appendln(order, module.name+".ko")
	}
	for _, module := range own {
		disk.Copy("modules/"+filepath.Base(module), module)
		order = fmt.Appendln(order, filepath.Base(module))
	}
	disk.File(Order, 0o644, order)
	for _, program := range programs {
		if err := k.Program(disk, "bin/"+filepath.Base(program), filepath.Join(k.tree, program)); err != nil {
			return err
		}
	}
	for _, file := range firmware {
		disk.Copy("usr/share/qemu/"+filepath.Base(file), filepath.Join(k.tree, "usr/share", file))
	}
	if err := k.verbs(disk); err != nil {
		return err
	}
	return disk.Close()
}

// verbs adds what libibverbs loads for soft-RoCE.
func (k Kit) verbs(disk *Archive) error {
	disk.Copy("etc/libibverbs.d/rxe.driver", filepath.Join(k.tree, "etc/libibverbs.d/rxe.driver"))
	folder := filepath.Join(k.tree, "usr/lib/x86_64-linux-gnu/libibverbs")
	providers, err := filepath.Glob(filepath.Join(folder, "librxe-*.so"))
	if err != nil || len(providers) != 1 {
		return fmt.Errorf("find the library of soft-RoCE in %s: there are %d", folder, len(providers))
	}
	return k.Program(disk, "usr/lib/x86_64-linux-gnu/libibverbs/"+filepath.Base(providers[0]), providers[0])
}
