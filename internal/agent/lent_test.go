package agent

import (
	"os"
	"testing"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// lending is a backend whose tenants' pages anybody may have been lent: it counts who has them, and nobody is a tenant's
// by that.
type lending struct{ *instances }

func (lending) Owner([]backend.Tenant, int) (tenant string, unread bool) { return "", false }

// A process of another user that was lent a share's pages is outside: its memory is not the share's.
func TestLentPagesCountForNobody(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root starts processes of other users")
	}
	for _, uid := range []int{0, 4712} {
		n := newNode(t)
		b := newInstances(t)
		r := n.startWith(lending{b})
		owner, user := n.asker(0), n.asker(uid)
		pid := user.cmd.Process.Pid
		b.use(n.grant(r, owner, onFirst(30)).Tenant.ID, pid, gib)
		n.driver.list(nvml.Process{PID: pid, Used: gib})
		l := n.list(r)
		if listed := len(l.Outside) == 1 && l.Outside[0].PID == pid; listed != (uid != 0) {
			t.Errorf("a process of user %d with pages of root's share: outside %+v", uid, l.Outside)
		}
	}
}
