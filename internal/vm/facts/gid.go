package facts

import "strings"

// GID is what an address of an RDMA port tells without whose it is. Each is the address that stands for its kind in a recording:
// it has the form that the kernel prints, and tells of no machine.
type GID string

// The kinds of addresses.
const (
	GIDNone     GID = "0000:0000:0000:0000:0000:0000:0000:0000"
	GIDLocal    GID = "fe80:0000:0000:0000:0000:0000:0000:0001"
	GIDRoutable GID = "0000:0000:0000:0000:0000:ffff:0000:0001"
)

// GIDOf is the kind of an address as the kernel prints it. On InfiniBand every address with the default prefix is [GIDLocal].
func GIDOf(text string) GID {
	digits := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(text), ":", ""))
	switch {
	case len(digits) != 32 || strings.Trim(digits, "0123456789abcdef") != "" || strings.Trim(digits, "0") == "":
		return GIDNone
	case strings.HasPrefix(digits, "fe80"):
		return GIDLocal
	}
	return GIDRoutable
}

// keptGID is what a recording has of one.
func keptGID(content string) string {
	if strings.TrimSpace(content) == "" {
		return ""
	}
	return string(GIDOf(content)) + "\n"
}

// keptControllers is whether the kernel can limit RDMA by the first version of cgroups: a heading, and the controller's line.
func keptControllers(content string) string {
	kept := "#subsys_name\thierarchy\tnum_cgroups\tenabled\n"
	for line := range strings.Lines(content) {
		if f := strings.Fields(line); len(f) == 4 && f[0] == "rdma" {
			kept += f[0] + "\t" + f[1] + "\t1\t" + f[3] + "\n"
		}
	}
	return kept
}
