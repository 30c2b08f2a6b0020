// Package tenantdir owns the directory of a tenant: the names of the files in
// it, how they are made, how a share is written to its page and read back, and what
// the pages tell of tenants. A backend whose tenants have pages embeds [Tenants].
package tenantdir

import (
	"fmt"
	"path/filepath"
)

// Dir is the directory of one tenant. It holds the tenant's pages, which the library
// in the tenant's processes finds by the same names (lib/share/open.c and pulse.c).
// Whatever else a backend puts there, the backend names itself.
type Dir string

// Of is the directory of the tenant with that id below a directory of tenants.
func Of(tenants, id string) Dir {
	return Dir(filepath.Join(tenants, id))
}

// Containers is where the directories of containers' tenants lie. Only root can
// enter it: a container's processes run as any user, so any user may write what
// the container shares.
func Containers(tenants string) string {
	return filepath.Join(tenants, containersName)
}

// Names that are in tenants' places and directories.
const (
	containersName = "containers"
	configName     = "config"
	stateName      = "state"
	recordName     = "record"
	theirsName     = "theirs"
	originName     = "origin"
	cgroupsName    = "cgroups"
	askerName      = "asker"
)

// Config is the page in which the agent tells the tenant's processes what they
// may use. The tenant reads it and never writes it.
func (d Dir) Config() string { return filepath.Join(string(d), configName) }

// State is the page in which the tenant's processes tell what they use.
func (d Dir) State() string { return filepath.Join(string(d), stateName) }

// Record is where the agent keeps its own record of the tenant, beside the pages, for
// an agent that lost its checkpoint. Only the agent's user reads it.
func (d Dir) Record() string { return filepath.Join(string(d), recordName) }

// Theirs is a link to the config page of a tenant that was adopted: the one that its
// processes read. Its user can write to it, so the agent believes [Dir.Config] alone.
func (d Dir) Theirs() string { return filepath.Join(string(d), theirsName) }

// Origin is a symbolic link to the directory in which an adopted tenant was made. It
// is read and not followed.
func (d Dir) Origin() string { return filepath.Join(string(d), originName) }

// Asker is a symbolic link to the number of the tenant's user, where the pages are another's. It is read and not followed.
func (d Dir) Asker() string { return filepath.Join(string(d), askerName) }

// Cgroups is where divvy-cover writes a line for each container of the tenant: which
// cgroup is that container's alone. Only root writes it.
func (d Dir) Cgroups() string { return filepath.Join(string(d), cgroupsName) }

// Pulse is the page in which the tenant tells when it has work on its GPU of
// that number.
func (d Dir) Pulse(device int) string {
	return filepath.Join(string(d), fmt.Sprintf("pulse.%d", device))
}

// Beat is where the tenant finds the pulse page number k, 0 to page.Pulses - 1,
// to which it gives way on its GPU of that number.
func (d Dir) Beat(device, k int) string {
	return filepath.Join(string(d), fmt.Sprintf("beat.%d.%d", device, k))
}
