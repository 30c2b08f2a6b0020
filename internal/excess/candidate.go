// Package excess decides, from values alone, when what a share holds by the driver's
// figures is more than it was granted or than its pages tell, and which processes may
// be signalled for it.
package excess

// Candidate is a process on a GPU, as the kernel tells of it.
type Candidate struct {
	PID int
	// UID is the user whose it is, -1 for a process that has ended.
	UID int
	// Agent marks the agent and the processes from which it descends.
	Agent bool
	// Tenant is the id of the tenant whose process it is, empty for a process without
	// a share.
	Tenant string
	// Own marks a process of the tenant's user.
	Own bool
	// Contained marks a tenant of a container, whose processes may be of any user.
	Contained bool
	// Listed marks a process whose user the configuration lists.
	Listed bool
}

// The users of the system: those below firstUser, those that systemd gives to services
// (https://systemd.io/UIDS-GIDS), and those that stand for nobody.
const (
	firstUser    = 1000
	firstDynamic = 61184
	lastNobody   = 65535
)

// IsSystemUser reports whether a user is the system's own and no person's.
func IsSystemUser(uid int) bool {
	return uid < firstUser || uid >= firstDynamic && uid <= lastNobody
}

// MayBeSignalled reports whether the process may be signalled for what a tenant did
// or, if tenant is empty, for being on the GPU without a share.
func (c Candidate) MayBeSignalled(tenant string) bool {
	switch {
	case c.PID <= 1 || c.UID < 0 || c.Agent || c.Tenant != tenant:
		return false
	case tenant == "":
		return c.Listed && !IsSystemUser(c.UID)
	}
	// What a command in a share started as another user is no tenant's: the agent may
	// signal whom that user could not.
	return c.Contained || c.Own
}
