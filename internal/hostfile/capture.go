package hostfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/topology"
)

// Capture records a machine: what topology reads of its sysfs, and the given GPUs. The only recorded data that
// identify the machine are the UUIDs of GPUs and the GUIDs of adapters.
func Capture(sys fs.FS, gpus []topology.GPUInfo) (*Host, error) {
	host := &Host{Sysfs: newSysfs(), Outside: newSysfs(), GPUs: gpus}
	c := capture{sys, host.Sysfs}
	if err := c.each("bus/pci/devices", "class", "vendor", "device", "subsystem_vendor", "subsystem_device",
		"numa_node", "local_cpulist", "max_link_speed", "max_link_width", "physfn"); err != nil {
		return nil, err
	}
	if err := c.each("class/infiniband", "node_guid", "ports/1/rate"); err != nil {
		return nil, err
	}
	nodes, err := c.list("devices/system/node")
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		if strings.HasPrefix(node, "node") {
			if err := c.keep(path.Join("devices/system/node", node, "cpulist")); err != nil {
				return nil, err
			}
		}
	}
	return host, nil
}

type capture struct {
	from fs.FS
	into *Sysfs
}

func (c capture) list(folder string) ([]string, error) {
	entries, err := fs.ReadDir(c.from, folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", folder, err)
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names, nil
}

// each records the links of a folder, and the named files in the folders to which they lead.
func (c capture) each(folder string, files ...string) error {
	names, err := c.list(folder)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !isWord(name) {
			continue // of RDMA adapters root can choose any name
		}
		link := path.Join(folder, name)
		target, err := fs.ReadLink(c.from, link)
		if err != nil {
			return fmt.Errorf("follow %s: %w", link, err)
		}
		if err := c.into.addLink(link, target); err != nil {
			return fmt.Errorf("record %s: %w", link, err)
		}
		device, err := pci.Folder(c.from, link)
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := c.keep(path.Join(device, file)); err != nil {
				return err
			}
		}
	}
	return nil
}

// keep records a link or a file if it exists and can be read; some files of sysfs cannot.
func (c capture) keep(name string) error {
	if target, err := fs.ReadLink(c.from, name); err == nil {
		return c.into.addLink(name, target)
	}
	content, err := fs.ReadFile(c.from, name)
	if err != nil {
		return nil //nolint:nilerr // topology cannot read it either
	}
	return c.into.addFile(name, string(content))
}
