package topology

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/pci"
)

// PrintTable writes the matrix with affinities and legend, columns separated by tabs as scripts expect them.
func (h *Host) PrintTable(w io.Writer) error {
	var page strings.Builder
	names := h.names()
	for _, name := range names {
		page.WriteString("\t" + name)
	}
	page.WriteString("\tCPU Affinity\tNUMA Affinity\n")
	for i, row := range h.Matrix() {
		page.WriteString(names[i])
		for _, relation := range row {
			page.WriteString("\t" + relation.String())
		}
		cpus, node := h.affinity(h.device(i))
		page.WriteString("\t" + cpus + "\t" + node + "\n")
	}
	page.WriteString(legend)
	if len(h.NICs) > 0 {
		page.WriteString("\nNIC Legend:\n\n")
		for i, nic := range h.NICs {
			fmt.Fprintf(&page, "  NIC%d: %s\n", i, nic.Name)
		}
	}
	if _, err := io.WriteString(w, page.String()); err != nil {
		return fmt.Errorf("print topology: %w", err)
	}
	return nil
}

const legend = `
Legend:

  X    = the device itself
  SYS  = across the link between NUMA nodes, or from a place that the firmware does not tell
  NODE = across PCIe host bridges of one NUMA node
  PHB  = across one PCIe host bridge
  PXB  = across several PCIe bridges and no host bridge
  PIX  = across at most one PCIe bridge
  NV#  = across # NVLinks
`

func (h *Host) names() []string {
	var names []string
	for _, gpu := range h.GPUs {
		names = append(names, "GPU"+strconv.Itoa(gpu.Index))
	}
	for i := range h.NICs {
		names = append(names, "NIC"+strconv.Itoa(i))
	}
	return names
}

// affinity returns N/A where it is unknown.
func (h *Host) affinity(device pci.Device) (cpus, node string) {
	cpus, node = device.CPUs, "N/A"
	if device.NUMANode != pci.Unknown {
		node = strconv.Itoa(device.NUMANode)
		for _, known := range h.Nodes {
			if known.Number == device.NUMANode && cpus == "" {
				cpus = known.CPUs
			}
		}
	}
	if cpus == "" {
		cpus = "N/A"
	}
	return cpus, node
}

// PrintJSON writes the host and its matrix, whose rows and columns are named.
func (h *Host) PrintJSON(w io.Writer) error {
	document := struct {
		*Host
		Names  []string     `json:"names"`
		Matrix [][]Relation `json:"matrix"`
	}{h, h.names(), h.Matrix()}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(document); err != nil {
		return fmt.Errorf("print topology: %w", err)
	}
	return nil
}
