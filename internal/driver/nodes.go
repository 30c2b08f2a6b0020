package driver

import (
	"os"
	"path/filepath"
	"strings"
)

// Node is a place that leads to GPUs: a device node, or a folder of such.
type Node struct {
	Path   string `json:"path"`
	Folder bool   `json:"folder,omitempty"`
}

// nodePatterns are where drivers of NVIDIA's have device nodes: on a server, on Jetson, in WSL.
var nodePatterns = []string{"/dev/nvidia*", "/dev/nvhost*", "/dev/nvmap*", "/dev/nvgpu*", "/dev/dxg"}

// vendor is NVIDIA's number among makers of PCI devices, as sysfs writes it.
const vendor = "0x10de"

// Nodes finds all places in /dev that lead to NVIDIA's GPUs, those for rendering and displays too. Links are left out:
// what they lead to is one of the others. With a simulated machine its own folders come first.
func (f Finder) Nodes() []Node {
	var nodes []Node
	add := func(path string) {
		info, err := os.Lstat(path)
		if err == nil && (info.IsDir() || info.Mode()&os.ModeCharDevice != 0) {
			nodes = append(nodes, Node{Path: f.Host(path), Folder: info.IsDir()})
		}
	}
	if f.Instance != "" {
		add(f.Instance)
		if tree, err := filepath.EvalSymlinks(filepath.Join(f.Instance, simgpuTree)); err == nil {
			add(tree)
		}
	}
	for _, pattern := range nodePatterns {
		paths, _ := filepath.Glob(filepath.Join("/", f.Root, pattern)) // the error is of an invalid pattern, which none is
		for _, path := range paths {
			add(path)
		}
	}
	cards, _ := filepath.Glob(filepath.Join("/", f.Root, "/dev/dri/*"))
	for _, path := range cards {
		text, err := os.ReadFile(filepath.Join("/", f.Root, "/sys/class/drm", filepath.Base(path), "device/vendor"))
		if err == nil && strings.TrimSpace(string(text)) == vendor {
			add(path)
		}
	}
	return nodes
}
