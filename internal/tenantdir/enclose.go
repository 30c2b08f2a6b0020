package tenantdir

import (
	"os"
	"slices"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

// encloses reports whether a process of any user is in a tenant of root's, by what is
// mounted for it: the tenant's directory, in a mount namespace that only root makes, or in
// one that its user made out of such a one. Any user can mount what they can read in a
// namespace of their own, so that alone says nothing. Neither does what the whole machine
// has mounted.
func encloses(t backend.Tenant, pid int) bool {
	if process.SharesMounts(pid) {
		return false
	}
	directory, err := process.MountOf(origin(t))
	if err != nil {
		return false
	}
	sees := func(pid int) bool { return directory.In(process.UsesOf(pid).Mounts()) }
	if !sees(pid) || sees(os.Getpid()) || sees(1) {
		return false
	}
	made := func(pid int) bool { return process.MountsAreOurs(pid) && sees(pid) }
	return made(pid) || slices.ContainsFunc(process.Ancestors(pid), made)
}
