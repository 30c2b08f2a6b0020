package tenantdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/divvy-gpu/divvy/internal/page"
)

// Running lists the users of the tenants below a directory whose processes use a GPU,
// one entry for each tenant. It asks no agent. Other users' tenants count while their
// directory is there: nobody but root and their user can see more. Tenants of containers
// are not in it, because only root can see them at all.
func Running(tenants string) (users []int, err error) {
	entries, err := os.ReadDir(tenants)
	if err != nil {
		return nil, fmt.Errorf("look for shares: %w", err)
	}
	for _, entry := range entries {
		d := Of(tenants, entry.Name())
		if string(d) == Containers(tenants) {
			continue
		}
		info, err := os.Lstat(d.State())
		if err != nil {
			continue // it has just ended, or is being made
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		live, err := page.AnyLive(d.State())
		if ok && (live && err == nil || errors.Is(err, fs.ErrPermission)) {
			users = append(users, int(stat.Uid))
		}
	}
	return users, nil
}
