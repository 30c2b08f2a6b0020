package users

import (
	"fmt"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/test/multiuser"
)

// Six users at once each get a share of their own from the system's agent, whose
// limit holds, and every user sees everybody's.
func TestSixUsersShareOneServer(t *testing.T) {
	s := newServer(t)
	s.agent()
	var held []*program
	for n := range multiuser.Users {
		user := fmt.Sprintf("u%d", n+1)
		held = append(held, s.hold(user, "1Gi", "--memory", "8Gi", "--name", "job-"+user))
	}
	list := s.list()
	for n := range multiuser.Users {
		user := fmt.Sprintf("u%d", n+1)
		tenant, ok := find(list, user, "job-"+user)
		if !ok || tenant.UID != multiuser.UID(user) || tenant.Shares[0].Limit != 8*gib || tenant.Shares[0].Used < gib {
			t.Errorf("%s: %+v", user, tenant)
		}
		if o := s.run(user, "divvy", "ls"); o.status != 0 || strings.Count(o.out, "job-u") != 6 {
			t.Errorf("%s sees\n%s%s", user, o.out, o.err)
		}
	}
	if o := s.run("u1", "divvy", "run", "--memory", "2Gi", "--", "gpubench", "alloc", "--bytes", "512Mi", "--count", "9"); !strings.Contains(o.out, "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("nine times 512 MiB in a share of 2 GiB: %+v", o)
	}
	for _, p := range held {
		p.end()
	}
	s.eventually("all shares have ended", func() bool { return len(s.list().Tenants) == 0 })
}
