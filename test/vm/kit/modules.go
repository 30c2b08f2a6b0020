package kit

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
)

// wanted are the modules that the guest has loaded. What they depend on comes with them. Soft-RoCE asks the kernel's
// cryptography for a checksum by name, which is no dependency that a module tells.
var wanted = []string{
	"vfio_pci", "vfio_iommu_type1", "mdev", "igb", "igbvf", "nvme", "crc32_generic", "crc32c_generic", "rdma_rxe",
	"ib_uverbs", "rdma_ucm", "ib_umad", "macvlan", "ipvlan", "veth", "dummy", "romfs",
}

// module is one of the kernel's modules, as the kernel loads it.
type module struct {
	name    string
	content []byte
}

// modules returns those that the guest loads, in an order in which each comes after what it needs.
func (k Kit) modules() ([]module, error) {
	if _, err := exec.LookPath("xz"); err != nil {
		return nil, fmt.Errorf("unpack the kernel's modules: %w", err)
	}
	files := map[string]string{}
	err := filepath.WalkDir(filepath.Join(k.tree, "lib/modules", k.release), func(at string, _ fs.DirEntry, err error) error {
		if name, packed := strings.CutSuffix(filepath.Base(at), ".ko.xz"); packed {
			files[underscored(name)] = at
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the kernel's modules: %w", err)
	}
	var order []module
	seen := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		if seen[name] {
			return nil
		}
		seen[name] = true
		content, err := unpacked(files[name])
		if err != nil {
			return fmt.Errorf("unpack the module %s: %w", name, err)
		}
		needed, err := dependencies(content)
		if err != nil {
			return fmt.Errorf("read what the module %s needs: %w", name, err)
		}
		for _, other := range needed {
			if err := add(other); err != nil {
				return err
			}
		}
		order = append(order, module{name: name, content: content})
		return nil
	}
	for _, name := range wanted {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

func unpacked(file string) ([]byte, error) {
	if file == "" {
		return nil, errors.New("the kernel has no such module")
	}
	return exec.Command("xz", "-dc", file).Output() //nolint:gosec,noctx // a file of the kit's own, in a moment
}

// dependencies reads the names of the modules that must be loaded before, from the module's own description.
func dependencies(content []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	section := file.Section(".modinfo")
	if section == nil {
		return nil, errors.New("it describes itself nowhere")
	}
	text, err := section.Data()
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.SplitSeq(string(text), "\x00") {
		list, is := strings.CutPrefix(line, "depends=")
		for name := range strings.SplitSeq(list, ",") {
			if is && name != "" {
				names = append(names, underscored(name))
			}
		}
	}
	return names, nil
}

// underscored returns the one spelling of a module's name: its file may have dashes.
func underscored(name string) string {
	return strings.ReplaceAll(name, "-", "_")
}
