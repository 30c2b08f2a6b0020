package agentconfig

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Kind is the kind that a file must name; its apiVersion is [v1alpha1.APIVersion].
const Kind = "AgentConfig"

// Outside is what is done about processes that use a GPU otherwise than a share
// allows: those of a share that takes more than it was granted, and those of a listed
// user who has no share. Every answer also reports.
type Outside string

// The answers.
const (
	OutsideReport Outside = "report"
	OutsideStop   Outside = "stop" // SIGSTOP to the processes on the GPU
	OutsideKill   Outside = "kill" // SIGKILL to them
)

// IdleAction is what is done about a share that uses no GPU for long.
type IdleAction string

// The actions.
const (
	IdleReport IdleAction = "report"
	IdleEnd    IdleAction = "end" // as `divvy stop` ends a share
)

// Idle says when a share is idle. After is 0 where nothing is done about that.
type Idle struct {
	After  time.Duration
	Action IdleAction
}

// Limits are the most that a user may have at once. 0 is no limit.
type Limits struct {
	// Memory is the sum of the user's shares, in bytes.
	Memory uint64
	// GPUs is on how many GPUs the user may have shares.
	GPUs int
	// Cores is the sum of guaranteed cores, in percent of one GPU's time.
	Cores int
	// Time is how long a share may run.
	Time time.Duration
	// Weight is the most of one share.
	Weight int
	// SwapMemory is the sum of the user's swapped and suspended shares, in bytes.
	SwapMemory uint64
}

// String says for people what the limits allow.
func (l Limits) String() string {
	var most []string
	add := func(limited bool, format string, args ...any) {
		if limited {
			most = append(most, fmt.Sprintf(format, args...))
		}
	}
	add(l.Memory > 0, "%s of memory", v1alpha1.FormatBytes(l.Memory))
	add(l.GPUs == 1, "1 GPU")
	add(l.GPUs > 1, "%d GPUs", l.GPUs)
	add(l.Cores == 1, "1 core")
	add(l.Cores > 1, "%d cores", l.Cores)
	add(l.Time > 0, "%s for a share", Duration(l.Time))
	add(l.Weight > 0, "weight %d", l.Weight)
	add(l.SwapMemory > 0, "%s in swapped and suspended shares", v1alpha1.FormatBytes(l.SwapMemory))
	if len(most) == 0 {
		return "no limits"
	}
	return "at most " + strings.Join(most, ", ")
}

// Duration writes a time as an administrator does: 2h, not 2h0m0s.
func Duration(d time.Duration) string {
	text := d.String()
	for _, unit := range []struct{ after, zero string }{{"m", "0s"}, {"h", "0m"}} {
		if strings.HasSuffix(text, unit.after+unit.zero) {
			text = strings.TrimSuffix(text, unit.zero)
		}
	}
	return text
}

// Accounts is what the configuration asks about the users of the machine.
type Accounts interface {
	// User returns the id of a user, given by name or number, and an error if there is
	// no such user.
	User(name string) (uid int, err error)
	// Group does the same for a group.
	Group(name string) (gid int, err error)
	// Groups are the groups of a user. Of a user who is not known they are none; the
	// error says that they could not be asked for.
	Groups(uid int) ([]int, error)
}

// Config is a configuration that was read. The zero value and nil are those of a
// machine without a file: no limits, and only root may overcommit.
type Config struct {
	file string
	sum  string
	// outside is empty for report.
	outside       Outside
	defaultMemory v1alpha1.Memory
	swapMemory    uint64
	turnMemory    v1alpha1.Memory
	noTurns       bool
	idle          Idle
	overcommit    members
	backends      backends
	lendings      []Lending
	metrics       Metrics
	history       History
	web           Web
	nics          NICs
	workers       Workers
	users, groups map[int]entry
	others        *entry
	accounts      Accounts
	// places are the lines of the fields that [Config.Check] compares with the machine.
	places map[string]int
}

// Source is the file that was read, and a digest of its content; both are empty for nil.
func (c *Config) Source() (file, sum string) {
	if c == nil {
		return "", ""
	}
	return c.file, c.sum
}

// members are users and groups by id.
type members struct{ users, groups []int }

// entry is what the file says of one user or group. Field is its path in the file.
type entry struct {
	field  string
	limits Limits
}

// Outside is what is done about use of a GPU outside shares.
func (c *Config) Outside() Outside {
	if c == nil || c.outside == "" {
		return OutsideReport
	}
	return c.outside
}

// Idle is what is done about idle shares.
func (c *Config) Idle() Idle {
	if c == nil {
		return Idle{}
	}
	return c.idle
}

// SwapMemory is how much host memory swapped and suspended shares may have together, 0 where there are none.
func (c *Config) SwapMemory() uint64 {
	if c == nil {
		return 0
	}
	return c.swapMemory
}

// DefaultMemory is what who names no amount gets of each GPU; a zero amount means all
// of it.
func (c *Config) DefaultMemory() v1alpha1.Memory {
	if c == nil {
		return v1alpha1.Memory{}
	}
	return c.defaultMemory
}

// Limits are those of a user. Root has none. An entry of the user's own counts alone;
// without one the most generous value of the user's groups counts, field by field;
// without these what the file says of others. While the user's groups cannot be asked
// for, the strictest value of all groups and others counts.
func (c *Config) Limits(uid int) Limits {
	if c == nil || uid == 0 {
		return Limits{}
	}
	if own, ok := c.users[uid]; ok {
		return own.limits
	}
	of, err := c.groupsOf(uid)
	if err != nil {
		return c.strictest()
	}
	if len(of) > 0 {
		widest := of[0].limits
		for _, g := range of[1:] {
			widest = widest.or(g.limits)
		}
		return widest
	}
	if c.others != nil {
		return c.others.limits
	}
	return Limits{}
}

// groupsOf are the entries of the groups of a user.
func (c *Config) groupsOf(uid int) ([]entry, error) {
	if len(c.groups) == 0 {
		return nil, nil
	}
	gids, err := c.accounts.Groups(uid)
	if err != nil {
		return nil, err
	}
	var found []entry
	for _, gid := range gids {
		if g, ok := c.groups[gid]; ok {
			found = append(found, g)
		}
	}
	return found, nil
}

// strictest is the least of what any user without an entry of their own may have.
func (c *Config) strictest() (l Limits) {
	for _, g := range c.groups {
		l = l.and(g.limits)
	}
	if c.others != nil {
		l = l.and(c.others.limits)
	}
	return l
}

// or is the more generous of two limits, field by field.
func (l Limits) or(o Limits) Limits {
	return Limits{
		Memory: wider(l.Memory, o.Memory), GPUs: wider(l.GPUs, o.GPUs), Cores: wider(l.Cores, o.Cores),
		Time: wider(l.Time, o.Time), Weight: wider(l.Weight, o.Weight), SwapMemory: wider(l.SwapMemory, o.SwapMemory),
	}
}

func wider[N int | uint64 | time.Duration](a, b N) N {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// and is the stricter of two limits, field by field.
func (l Limits) and(o Limits) Limits {
	return Limits{
		Memory: narrower(l.Memory, o.Memory), GPUs: narrower(l.GPUs, o.GPUs), Cores: narrower(l.Cores, o.Cores),
		Time: narrower(l.Time, o.Time), Weight: narrower(l.Weight, o.Weight), SwapMemory: narrower(l.SwapMemory, o.SwapMemory),
	}
}

func narrower[N int | uint64 | time.Duration](a, b N) N {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// MayOvercommit reports whether a user may let the shares of a GPU add up to more
// than it has.
func (c *Config) MayOvercommit(uid int) bool {
	switch {
	case uid == 0:
		return true
	case c == nil:
		return false
	case slices.Contains(c.overcommit.users, uid):
		return true
	case len(c.overcommit.groups) == 0:
		return false
	}
	gids, err := c.accounts.Groups(uid)
	return err == nil && slices.ContainsFunc(gids, func(gid int) bool { return slices.Contains(c.overcommit.groups, gid) })
}

// Named reports whether a user has an entry of their own.
func (c *Config) Named(uid int) bool {
	if c == nil {
		return false
	}
	_, ok := c.users[uid]
	return ok
}

// Listed reports whether the file has an entry for a user or for one of the user's
// groups. Root is never listed, nor is a user whose groups cannot be asked for.
func (c *Config) Listed(uid int) bool {
	if c == nil || uid == 0 {
		return false
	}
	of, err := c.groupsOf(uid)
	return c.Named(uid) || err == nil && len(of) > 0
}
