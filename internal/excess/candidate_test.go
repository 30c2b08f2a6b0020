package excess

import "testing"

func TestMayBeSignalled(t *testing.T) {
	share := Candidate{PID: 40, UID: 1000, Tenant: "a", Own: true}
	alone := Candidate{PID: 40, UID: 1000, Listed: true}
	for name, c := range map[string]struct {
		change func(*Candidate)
		of     Candidate
		tenant string
		want   bool
	}{
		"a share's process":                      {of: share, tenant: "a", want: true},
		"another share's":                        {of: share, tenant: "b"},
		"a share's, for those without one":       {of: share, tenant: ""},
		"a share of root's":                      {func(c *Candidate) { c.UID = 0 }, share, "a", true},
		"root in a container":                    {func(c *Candidate) { c.UID, c.Own, c.Contained = 0, false, true }, share, "a", true},
		"root's, reached from a user's share":    {func(c *Candidate) { c.UID, c.Own = 0, false }, share, "a", false},
		"another user's, from a share":           {func(c *Candidate) { c.Own = false }, share, "a", false},
		"a set-user-ID program of the share's":   {func(c *Candidate) { c.UID = 0 }, share, "a", true},
		"the agent, started in a share":          {func(c *Candidate) { c.Agent = true }, share, "a", false},
		"one that ended":                         {func(c *Candidate) { c.UID = -1 }, share, "a", false},
		"init":                                   {func(c *Candidate) { c.PID, c.UID = 1, 0 }, share, "a", false},
		"a listed user's without a share":        {of: alone, tenant: "", want: true},
		"a listed user's, for a share":           {of: alone, tenant: "a"},
		"an unlisted user's":                     {func(c *Candidate) { c.Listed = false }, alone, "", false},
		"root's although listed":                 {func(c *Candidate) { c.UID = 0 }, alone, "", false},
		"a service's although listed":            {func(c *Candidate) { c.UID = 999 }, alone, "", false},
		"a dynamic user's although listed":       {func(c *Candidate) { c.UID = 61184 }, alone, "", false},
		"nobody's although listed":               {func(c *Candidate) { c.UID = 65534 }, alone, "", false},
		"a directory service's user":             {func(c *Candidate) { c.UID = 1_200_000 }, alone, "", true},
		"a listed user's from which it descends": {func(c *Candidate) { c.Agent = true }, alone, "", false},
	} {
		got := c.of
		if c.change != nil {
			c.change(&got)
		}
		if got.MayBeSignalled(c.tenant) != c.want {
			t.Errorf("%s: %+v for %q, want %t", name, got, c.tenant, c.want)
		}
	}
}

// Whatever else is true, these are never signalled.
func TestNeverSignalled(t *testing.T) {
	signalled := 0
	for _, pid := range []int{-1, 0, 1, 2} {
		for _, uid := range []int{-1, 0, 999, 1000, 61184, 65534, 65536} {
			for _, of := range []string{"", "a", "b"} {
				for bits := range 1 << 4 {
					c := Candidate{
						PID: pid, UID: uid, Tenant: of, Agent: bits&1 != 0, Contained: bits&2 != 0, Listed: bits&4 != 0, Own: bits&8 != 0,
					}
					for _, tenant := range []string{"", "a"} {
						if !c.MayBeSignalled(tenant) {
							continue
						}
						signalled++
						outside := tenant == "" && (!c.Listed || IsSystemUser(uid))
						foreign := tenant != "" && !c.Contained && !c.Own
						if c.Agent || pid <= 1 || uid < 0 || of != tenant || outside || foreign {
							t.Errorf("%+v is signalled for %q", c, tenant)
						}
					}
				}
			}
		}
	}
	if signalled == 0 {
		t.Error("nobody is ever signalled")
	}
}
