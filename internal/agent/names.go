package agent

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/process"
)

var unfit = regexp.MustCompile(`[^a-z0-9._-]+`)

// name is the name that a user asks for, or one made of the command's, with a number
// where several run. Names are a user's own: another user may have the same ones.
// Agent.mu is held.
func (a *Agent) name(uid int, p control.CreateParams) (string, error) {
	if p.Request.Name != "" {
		if p.Layer == backend.LayerContainer && a.hasDevice(p.Request.Name) {
			return "", control.Errorf(control.CodeInvalid, "there is a share for containers named %q: choose another name or end it (`divvy share rm %s`)", p.Request.Name, p.Request.Name)
		}
		if a.takenNames(uid)[p.Request.Name] {
			return "", control.Errorf(control.CodeInvalid, "you have a share named %q: choose another name or end it (`divvy stop %s`)", p.Request.Name, p.Request.Name)
		}
		return p.Request.Name, nil
	}
	base := "share"
	if len(p.Command) > 0 {
		base = unfit.ReplaceAllString(strings.ToLower(filepath.Base(p.Command[0])), "-")
		base = strings.Trim(base[:min(len(base), 40)], "-._")
	}
	if base == "" {
		base = "share"
	}
	taken := a.takenNames(uid)
	for n := 1; ; n++ {
		name := base
		if n > 1 {
			name += "-" + strconv.Itoa(n)
		}
		if !taken[name] {
			return name, nil
		}
	}
}

// takenNames are those of a user's shares, and the ids of everybody's. Agent.mu is held.
func (a *Agent) takenNames(uid int) map[string]bool {
	taken := make(map[string]bool, 2*len(a.tenants))
	for _, t := range a.tenants {
		taken[t.ID] = true
		if t.UID == uid {
			taken[t.Name] = true
		}
	}
	return taken
}

// find returns the tenant that the peer means and may act on: by its id, by the name
// of one of the peer's own, or by USER/NAME. Root may leave the user out where one
// share alone has the name.
func (a *Agent) find(peer *control.Peer, name string) (*tenant, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.tenants[name]; t != nil {
		return allowed(peer, t)
	}
	var named []*tenant
	for _, t := range a.sorted() {
		switch {
		case t.UID == peer.UID && !t.isTenancy() && (t.Name == name || peer.UID != 0 && t.fullName() == name):
			return t, nil
		case t.Name == name || t.fullName() == name:
			named = append(named, t)
		}
	}
	switch {
	case len(named) == 0:
		return nil, control.Errorf(control.CodeNotFound, "there is no share %q: `divvy ls` lists them", name)
	case len(named) > 1 && peer.UID == 0:
		var names []string
		for _, t := range named {
			names = append(names, t.fullName())
		}
		if same := len(slices.Compact(slices.Sorted(slices.Values(names)))) < len(names); same { // one account's name was another's before
			names = idsOf(named)
		}
		return nil, control.Errorf(control.CodeInvalid, "%d users have a share %s: say which: %s", len(named), name, joined(names, "or"))
	}
	return allowed(peer, named[0])
}

// allowed returns the tenant if the peer may act on it.
func allowed(peer *control.Peer, t *tenant) (*tenant, error) {
	if peer.UID != 0 && peer.UID != t.UID {
		return nil, control.Errorf(control.CodeDenied, "%s belongs to %s: only they and root can change or stop it", t.fullName(), t.User)
	}
	return t, nil
}

func idsOf(tenants []*tenant) (ids []string) {
	for _, t := range tenants {
		ids = append(ids, t.ID)
	}
	return ids
}

// nameUser gives the record the name that its user has now; the one that the last agent
// knew stays where there is none.
func (r *record) nameUser() {
	if now := process.UserName(r.UID); r.Tenancy == nil && now != strconv.Itoa(r.UID) {
		r.User = now
	}
}
