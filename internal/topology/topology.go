// Package topology is the model of one host: its GPUs, its network adapters, and how near they are to each
// other. It is pure: it computes the model from a sysfs, read through fs.FS, and from the driver's list of NVLinks.
// Printers write the model as the matrix that nvidia-smi prints, as JSON, and as NCCL's topology file.
package topology

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// ErrUnplaced marks a GPU that the driver lists and sysfs does not.
var ErrUnplaced = errors.New("the GPU is not in the PCI tree")

// GPUInfo is what the driver reports of a GPU.
type GPUInfo struct {
	Index int
	UUID  string
	Name  string
	PCI   pci.Address
	// Links are the active NVLinks.
	Links []Link
	// Clique names the NVLink domain of GPUs on switches; GPUs of different cliques are not connected.
	Clique string
}

// Link is one active NVLink.
type Link struct {
	Number int
	// Remote is the device at the other end: a GPU, or a switch.
	Remote pci.Address
	Switch bool
}

// GPU is a GPU with its PCI device. Order and Index are NVML's.
type GPU struct {
	Index  int        `json:"index"`
	UUID   string     `json:"uuid"`
	Name   string     `json:"name"`
	Device pci.Device `json:"device"`
	Links  []Link     `json:"-"`
	Clique string     `json:"clique,omitempty"`
}

// NIC is an RDMA adapter with its PCI device. Virtual functions are left out, because their adapter is listed, and so
// are adapters without a PCI device, which are software.
type NIC struct {
	Name   string     `json:"name"`
	Device pci.Device `json:"device"`
	// GUID is the node's, in the form 0x506b4b0300c0a1b2, "" where unknown.
	GUID string `json:"guid,omitempty"`
	// SpeedMbps is that of port 1, 0 where unknown.
	SpeedMbps int `json:"speedMbps,omitempty"`
}

// Node is a NUMA node with the list of its processors in the kernel's notation.
type Node struct {
	Number int    `json:"number"`
	CPUs   string `json:"cpus"`
}

// Host is one machine.
type Host struct {
	GPUs  []GPU  `json:"gpus"`
	NICs  []NIC  `json:"nics"`
	Nodes []Node `json:"numaNodes"`
}

// Build finds the GPUs' PCI devices and the adapters.
func Build(sys fs.FS, gpus []GPUInfo) (*Host, error) {
	devices, err := pci.Scan(sys)
	if err != nil {
		return nil, err
	}
	at := make(map[pci.Address]pci.Device, len(devices))
	for _, device := range devices {
		at[device.Address] = device
	}
	host := &Host{GPUs: []GPU{}, NICs: []NIC{}}
	for _, info := range gpus {
		device, found := at[info.PCI]
		if !found {
			return nil, fmt.Errorf("find GPU %d at %s: %w", info.Index, info.PCI, ErrUnplaced)
		}
		host.GPUs = append(host.GPUs, GPU{info.Index, info.UUID, info.Name, device, info.Links, info.Clique})
	}
	slices.SortFunc(host.GPUs, func(a, b GPU) int { return cmp.Compare(a.Index, b.Index) })
	if host.NICs, err = adapters(sys, at); err != nil {
		return nil, err
	}
	host.Nodes, err = nodes(sys)
	return host, err
}

const adapterFolder = "class/infiniband"

func adapters(sys fs.FS, at map[pci.Address]pci.Device) ([]NIC, error) {
	entries, err := fs.ReadDir(sys, adapterFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return []NIC{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list RDMA adapters: %w", err)
	}
	found := []NIC{}
	for _, entry := range entries {
		folder, err := pci.Folder(sys, path.Join(adapterFolder, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("find adapter %s: %w", entry.Name(), err)
		}
		// The folder is …/ADDRESS/infiniband/NAME; software adapters are below devices/virtual.
		address, err := pci.ParseAddress(path.Base(path.Dir(path.Dir(folder))))
		device, known := at[address]
		if err != nil || !known || device.Virtual {
			continue
		}
		nic := NIC{Name: entry.Name(), Device: device}
		if nic.GUID, err = guid(sys, folder); err != nil {
			return nil, err
		}
		if nic.SpeedMbps, err = speed(sys, folder); err != nil {
			return nil, err
		}
		found = append(found, nic)
	}
	slices.SortFunc(found, func(a, b NIC) int { return compareNames(a.Name, b.Name) })
	return found, nil
}

// compareNames puts mlx5_2 before mlx5_10.
func compareNames(a, b string) int {
	stem := func(name string) string { return strings.TrimRight(name, "0123456789") }
	number := func(name string) int {
		value, err := strconv.Atoi(strings.TrimPrefix(name, stem(name)))
		if err != nil {
			return -1
		}
		return value
	}
	return cmp.Or(cmp.Compare(stem(a), stem(b)), cmp.Compare(number(a), number(b)), cmp.Compare(a, b))
}

func line(sys fs.FS, name string) (string, error) {
	text, err := fs.ReadFile(sys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// guid reads 506b:4b03:00c0:a1b2.
func guid(sys fs.FS, folder string) (string, error) {
	text, err := line(sys, path.Join(folder, "node_guid"))
	if err != nil || text == "" {
		return "", err
	}
	digits := strings.ReplaceAll(text, ":", "")
	if _, err := strconv.ParseUint(digits, 16, 64); err != nil {
		return "", &pci.FileError{Name: path.Join(folder, "node_guid"), Err: fmt.Errorf("%q is not a GUID", text)}
	}
	return "0x" + digits, nil
}

// speed reads "400 Gb/sec (4X NDR)".
func speed(sys fs.FS, folder string) (int, error) {
	name := path.Join(folder, "ports/1/rate")
	text, err := line(sys, name)
	if err != nil || text == "" {
		return 0, err
	}
	number, _, found := strings.Cut(text, " Gb/sec")
	value, err := strconv.ParseFloat(number, 64)
	if !found || err != nil || value < 0 || value > 1e6 {
		return 0, &pci.FileError{Name: name, Err: fmt.Errorf("%q is not a rate in Gb/sec", text)}
	}
	return int(value * 1000), nil
}

const nodeFolder = "devices/system/node"

func nodes(sys fs.FS) ([]Node, error) {
	entries, err := fs.ReadDir(sys, nodeFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list NUMA nodes: %w", err)
	}
	var found []Node
	for _, entry := range entries {
		digits, isNode := strings.CutPrefix(entry.Name(), "node")
		number, err := strconv.Atoi(digits)
		if !isNode || err != nil {
			continue // the folder also holds files such as "online"
		}
		cpus, err := line(sys, path.Join(nodeFolder, entry.Name(), "cpulist"))
		if err != nil {
			return nil, err
		}
		found = append(found, Node{number, cpus})
	}
	slices.SortFunc(found, func(a, b Node) int { return cmp.Compare(a.Number, b.Number) })
	return found, nil
}
